"""A run's folder: what it says that the run is, its states, and its end."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import time
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from loom import _native
from loom.engine import engine_of
from loom.errors import ConfigError, FileError, LoomError, SerializationError
from loom.runs.events import decoded, encoded
from loom.runs.storage import BackgroundWriter, FolderLock, write_whole
from loom.training.identity import differences
from loom.training.record import record_of
from loom.training.run_folder import RunFolder, run_folder

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from loom.training.trainable import TrainableNetwork

__all__ = ["RunStore", "versions"]

_FORMAT = 1
_STATE = re.compile(r"(?:epoch-\d+-batch|sample)-\d+\.loom")
_COST_SHARE = 20
"""States that nobody asked for cost at most one part in this many of the time."""
_T = TypeVar("_T")


class RunStore:
    """The folder of one run, held by this process while it is entered.

    Args:
        settings: Where, and how often it is written to.
    """

    leads = True
    """Whether this process reads and writes the folder, and does not only hear of it."""

    def __init__(self, settings: RunFolder | str | PathLike[str]) -> None:
        self.settings = run_folder(settings)
        self.folder = self.settings.path
        self.began = time.perf_counter()
        self._states = self.folder / "states"
        self._final = self.folder / "final.loom"
        self._result = self.folder / "result.json"
        self._lock = FolderLock(self.folder)
        self._writer = BackgroundWriter()
        self._written = self.began
        self._cost = 0.0
        self._steps = 0

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Of two errors the first one is told.
            with contextlib.suppress(*([LoomError] if error is not None else [])):
                self._writer.wait()
        finally:
            self._lock.__exit__(kind, error, trace)

    # What the run is

    def open(self, network: TrainableNetwork, identity: Mapping[str, Any]) -> bool:
        """Compares the run with the one that the folder holds, and begins it where there is none.

        Args:
            network: What is trained.
            identity: What makes this run the one that it is, the network aside.

        Returns:
            Whether the run goes on with other settings or data than before.
        """
        engine, record = engine_of(network), record_of(network)
        engine.build()
        here = json.loads(encoded({"network": json.loads(engine.native.config()), **identity}))
        name = str(self.folder.resolve())
        ours = record.run == name
        known = self._known()
        changed = known is not None and self._differs(known["identity"], here, ours=ours)
        if changed and self.settings.on_change == "restart":
            self._delete()
            known, changed = None, False
        if known is None or changed:
            self._begin(network, here, known)
        elif not ours and self._files() and network.fingerprint() != known["initial_weights"]:
            self._warn(
                f"the network came with other weights than the run in {self.folder} began with; it goes on "
                "with those that the folder holds"
            )
        record.run = name
        return changed

    def _known(self) -> dict[str, Any] | None:
        """Returns what the folder says that it holds; None where no run began."""
        path = self.folder / "run.json"
        elsewhere = "give this run a folder of its own"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            version, _, _ = found["format"], found["identity"]["network"], found["initial_weights"]
        except FileNotFoundError:
            if self._files():
                raise SerializationError(
                    f"{self._states} holds states, but {path} is not there; {elsewhere}"
                ) from None
            return None
        except OSError as error:
            raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SerializationError(f"{path} is damaged ({error!r}); {elsewhere}") from error
        if version != _FORMAT:
            raise SerializationError(
                f"{path} has format {version!r}, and this version of loom reads {_FORMAT}; {elsewhere}"
            )
        return dict(found)

    def _differs(self, there: Mapping[str, Any], here: Mapping[str, Any], *, ours: bool) -> bool:
        """Returns whether the run began as another one, if it may go on nevertheless."""
        # Training may have left the network that it has in hand in any state.
        networks = [] if ours else differences(there["network"], here["network"], "network")
        others = [line for line in differences(there, here) if not line.startswith("network")]
        found, wish = [*networks, *others], self.settings.on_change
        if not found or wish == "restart" or (wish == "continue" and not networks):
            return bool(found)
        folder = f"loom.RunFolder({str(self.folder)!r}, on_change="
        goes_on = "" if networks else f'{folder}"continue") goes on with what is given now; '
        raise ConfigError(
            f"the run in {self.folder} began with others than are given now:\n  "
            + "\n  ".join(found)
            + "\nThe same settings and data go on with it, and a folder of its own is for another run. "
            + f'{goes_on}{folder}"restart") deletes what the folder holds of the run'
        )

    def _delete(self) -> None:
        others = [self._final, self.folder / "best.loom", self.folder / "run.json"]
        for path in [self._result, *self._files(), *others]:
            path.unlink(missing_ok=True)

    def _begin(self, network: TrainableNetwork, identity: object, known: Mapping[str, Any] | None) -> None:
        """Writes down what the run is."""
        try:
            self._result.unlink(missing_ok=True)
            self._states.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(
                error.errno, f"the run cannot be kept: {error.strerror}", str(self.folder)
            ) from error
        about = {
            "format": _FORMAT,
            "identity": identity,
            "initial_weights": network.fingerprint() if known is None else known["initial_weights"],
            "versions": versions(),
            "began": time.time() if known is None else known["began"],
        }
        write_whole(self.folder / "run.json", json.dumps(about, indent=1).encode())

    def _files(self) -> list[Path]:
        """Returns the files of states, the newest first."""
        with contextlib.suppress(FileNotFoundError):
            found = [path for path in self._states.iterdir() if _STATE.fullmatch(path.name)]
            return sorted(found, key=lambda path: path.name, reverse=True)
        return []

    # Its states and its end

    def result(self, make: Callable[..., _T]) -> _T | None:
        """Returns what the run gave back, as `make` makes it; None where it has not come to its end."""
        try:
            return make(**decoded(json.loads(self._result.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._warn(f"{self._result} cannot be read, and is made again: {error!r}")
            return None

    def final(self, read: Callable[[bytes], _T]) -> _T | None:
        """Returns what the run has left, as `read` makes it; None where that cannot be read."""
        found, damage = _read(self._final, read)
        if damage is not None:
            self._warn(f"{self._final} cannot be read, and is made again: {damage}")
        return found

    def newest(self, read: Callable[[bytes], _T]) -> _T | None:
        """Returns the newest state that can be read, as `read` makes it; None where there is none."""
        damage: SerializationError | None = None
        for path in self._files():
            found, damage = _read(path, read)
            if damage is None:
                return found
            self._warn(f"{path} cannot be read: {damage}; it is set aside for the state before")
            path.replace(path.with_suffix(".damaged"))
        if damage is not None:
            raise SerializationError(
                f"no state of the run in {self.folder} can be read; give the run a folder of its own"
            ) from damage
        return None

    def is_due(self, steps: int, *, between: bool = False) -> bool:
        """Counts steps; whether a state is to be written.

        Args:
            steps: How many there were since the last call.
            between: Whether this is a good moment, so that it may be written though nobody asked for it.
        """
        self._writer.check()
        self._steps += steps
        settings, passed = self.settings, time.perf_counter() - self._written
        if settings.every_steps is not None and self._steps >= settings.every_steps:
            return True
        asked = settings.every_seconds is not None and passed >= settings.every_seconds
        return (asked or (between and passed >= _COST_SHARE * self._cost)) and not self._writer.busy

    def save(self, name: str, state: Callable[[], bytes], best: bytes | None = None) -> None:
        """Writes a state.

        Args:
            name: The name of its file.
            state: Makes its bytes.
            best: The best weights, where they are other ones than in best.loom.
        """
        began = time.perf_counter()
        # Memory holds one state at a time.
        self._writer.wait()
        # A state that knows of better weights comes after them.
        files = [] if best is None else [(self.folder / "best.loom", best)]
        self._writer.submit([*files, (self._states / name, state())], self._prune)
        if not self.settings.background:
            self._writer.wait()
        self._written, self._steps = time.perf_counter(), 0
        self._cost = self._written - began

    def _prune(self) -> None:
        for path in self._files()[self.settings.keep :]:
            with contextlib.suppress(OSError):
                path.unlink()

    def finish(self, final: bytes, result: Mapping[str, Any]) -> None:
        """Writes what the run has left, and what it gives back."""
        self._writer.wait()
        write_whole(self._final, final)
        write_whole(self._result, encoded(result).encode())

    def _warn(self, message: str) -> None:
        # Of whoever called `train` or `fit`; how deep that is depends on which of them it was.
        warnings.warn(message, stacklevel=6)


def versions() -> dict[str, str]:
    """Returns what the bits of a run may depend on beside its settings."""
    return {
        "loom": _native.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _read(path: Path, read: Callable[[bytes], _T]) -> tuple[_T | None, SerializationError | None]:
    """Returns what a file holds, or what is wrong with it."""
    try:
        return read(path.read_bytes()), None
    except FileNotFoundError:
        return None, SerializationError(f"{path} is not there")
    except SerializationError as error:
        return None, error
    except OSError as error:
        raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
