"""Keeping a run in its folder, and going on from it."""

from __future__ import annotations

import contextlib
import json
import platform
import random
import re
import sys
import time
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom.callbacks import Callback, Logs, RunRecorder
from loom.callbacks._monitoring import improves, monitored
from loom.engine import engine_of
from loom.errors import ConfigError, FileError, LoomError, SerializationError
from loom.runs.events import decoded, encoded
from loom.runs.storage import BackgroundWriter, FolderLock, write_whole
from loom.training.course import Course
from loom.training.identity import differences
from loom.training.notes import read_notes
from loom.training.record import record_of
from loom.training.result import TrainingResult
from loom.training.run_folder import RunFolder, run_folder

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from loom.training.trainable import TrainableNetwork

__all__ = ["RunKeeper"]

_FORMAT = 1
_KEY = "RunFolder"
_STATE = re.compile(r"epoch-(\d+)-batch-(\d+)\.loom")
_Streams: TypeAlias = "tuple[Any, Any]"
_COST_SHARE = 20
"""States at the ends of epochs cost at most one part in this many of the time."""


class RunKeeper(Callback):
    """Keeps one run in its folder, while it is entered; it is one of the run's callbacks, too.

    Args:
        settings: Where, and how often.
    """

    def __init__(self, settings: RunFolder | str | PathLike[str]) -> None:
        self.settings = run_folder(settings)
        self.folder = self.settings.path
        self.course = Course()
        """What the run has come to; it is kept with each state."""
        self.ended: Mapping[str, Any] | None = None
        """How the run has ended, where it did: its stop reason and message."""
        self.result: TrainingResult | None = None
        """What the run gave back, where the folder has that."""
        self.position: Any = None
        """Where data is that says so itself."""
        self._states = self.folder / "states"
        self._lock = FolderLock(self.folder)
        self._writer = BackgroundWriter()
        self._best = float("nan")
        self._best_weights: bytes | None = None
        # What the folder's state says of the moment that it was taken in.
        self._moment: Mapping[str, Any] | None = None
        # Where shared generators stood: when the epoch's data was begun, now, and after the first look at data.
        self._epoch_streams = self._streams = _streams()
        self._peeked: _Streams | None = None
        self._whole = False
        self._began = self._written = time.perf_counter()
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

    # What is in the folder

    def open(self, network: TrainableNetwork, identity: Mapping[str, Any]) -> bool:
        """Prepares the folder for this run, and the network to go on from it.

        Args:
            network: What is trained; it becomes what the newest state holds, where there is one.
            identity: What makes this run the one that it is, the network aside.

        Returns:
            Whether there is a state to go on from.
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
            _warn(
                f"the network came with other weights than the run in {self.folder} began with; it goes on "
                "with those that the folder holds"
            )
        if not changed:
            self.result = self._read_result()
        resumes = self._resume(network)
        if self._moment is not None:
            self.course.restore(self._moment["counts"], self._moment["times"])
            self.ended = None if changed else self._moment["ended"]
            self.position = self._moment["position"]
        record.run = name
        return resumes

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
        (self.folder / "result.json").unlink(missing_ok=True)
        for path in [*self._files(), self._best_path, self._final_path, self.folder / "run.json"]:
            path.unlink(missing_ok=True)

    def _begin(self, network: TrainableNetwork, identity: object, known: Mapping[str, Any] | None) -> None:
        """Writes down what the run is."""
        try:
            (self.folder / "result.json").unlink(missing_ok=True)
            self._states.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(
                error.errno, f"the run cannot be kept: {error.strerror}", str(self.folder)
            ) from error
        about = {
            "format": _FORMAT,
            "identity": identity,
            "initial_weights": network.fingerprint() if known is None else known["initial_weights"],
            "versions": _versions(),
            "began": time.time() if known is None else known["began"],
        }
        write_whole(self.folder / "run.json", json.dumps(about, indent=1).encode())

    def _files(self) -> list[Path]:
        """Returns the files of states, the newest first."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in self._states.iterdir():
                matched = _STATE.fullmatch(path.name)
                if matched:
                    found.append((int(matched[1]), int(matched[2]), path))
        return [path for *_, path in sorted(found, reverse=True)]

    @property
    def _best_path(self) -> Path:
        return self.folder / "best.loom"

    @property
    def _final_path(self) -> Path:
        return self.folder / "final.loom"

    def _read_result(self) -> TrainingResult | None:
        path = self.folder / "result.json"
        try:
            return TrainingResult(**decoded(json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            _warn(f"{path} cannot be read, and is made again: {error!r}")
            return None

    def _resume(self, network: TrainableNetwork) -> bool:
        """Makes the network what the newest file that can be read holds."""
        if self.result is not None:
            try:
                engine_of(network).replace(_read(self._final_path)[0])
            except SerializationError as error:
                self.result = None
                _warn(f"{self._final_path} cannot be read, and is made again: {error}")
            else:
                return True
        damage: SerializationError | None = None
        for path in self._files():
            try:
                native, notes = _read(path)
                own: Mapping[str, Any] = next(state for key, state in notes if key == _KEY)
                self._moment = {"counts": own["counts"], **own["here"]}
            except (SerializationError, KeyError, StopIteration) as error:
                damage = SerializationError(f"{path} cannot be read: {error}")
                _warn(f"{damage}; it is set aside, and the run goes on from the state before")
                path.replace(path.with_suffix(".damaged"))
                continue
            engine_of(network).replace(native)
            return True
        if damage is not None:
            raise SerializationError(
                f"no state of the run in {self.folder} can be read; give the run a folder of its own"
            ) from damage
        return False

    # Its part in the training loop

    def callbacks(self, given: Iterable[Callback | None]) -> list[Callback]:
        """Returns what keeps the run beside the user's callbacks: this, and the recorder of its events."""
        recorded = any(
            isinstance(callback, RunRecorder) and callback.directory.resolve() == self.folder.resolve()
            for callback in given
        )
        return [self] if recorded else [RunRecorder(self.folder), self]

    @property
    def state_key(self) -> str:
        """What its state is found by."""
        return _KEY

    def state_dict(self) -> dict[str, Any]:
        """Returns the run's course, and in its own files what is of this moment alone."""
        state: dict[str, Any] = {"counts": self.course.counts(), "best": self._best}
        if self._whole:
            state["here"] = {
                "times": self.course.times(time.perf_counter() - self._began),
                "streams": _as_plain(self._streams),
                "epoch_streams": _as_plain(self._epoch_streams),
                "position": self.position,
                "ended": self.ended,
                "device": self.params["device"],
                "versions": _versions(),
                "time": time.time(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the best so far back; the rest was needed earlier."""
        self._best = float(state["best"])

    def check_device(self, device: str) -> None:
        """Refuses to go on on another kind of device, which has other bits."""
        before = device if self._moment is None else str(self._moment["device"])
        if before.partition(":")[0] != device.partition(":")[0] and self.settings.on_change == "raise":
            raise ConfigError(
                f"the run in {self.folder} was on {before}, and would be on {device} now, whose bits are "
                "others; "
                f"name the device in the config, or loom.RunFolder({str(self.folder)!r}, "
                'on_change="continue") goes on here'
            )

    def before_data(self) -> None:
        """Draws what the data draws from NumPy's and Python's own generators as it was drawn before."""
        if self._moment is not None:
            self._epoch_streams = _from_plain(self._moment["epoch_streams"])
            _set_streams(self._epoch_streams)

    def after_data(self) -> None:
        """Notes what the first look at the data has drawn."""
        self._peeked = _streams()

    def before_epochs(self) -> None:
        """Takes back what callbacks have drawn that begin once more."""
        if self._moment is not None and self._peeked is not None:
            _set_streams(self._peeked)

    def before_epoch(self) -> None:
        """Notes where the generators stand before an epoch's data is begun."""
        if self._peeked is None:
            self._epoch_streams = _streams()
        # The first epoch's data has begun already.
        self._peeked = None

    def within_data(self, done: int) -> None:
        """Has the generators stand where they did after so many steps of the epoch."""
        moment, self._moment = self._moment, None
        if moment is not None and done:
            _set_streams(_from_plain(moment["streams"]))

    def note_place(self, position: object) -> None:
        """Notes where data and generators stand, before another batch moves them on."""
        self.position, self._streams = position, _streams()

    def is_due(self, steps: int) -> bool:
        """Counts steps; whether a state is to be written within the epoch."""
        self._writer.check()
        self._steps += steps
        return self._is_due()

    def _is_due(self) -> bool:
        settings = self.settings
        if settings.every_steps is not None and self._steps >= settings.every_steps:
            return True
        passed = time.perf_counter() - self._written
        return (
            settings.every_seconds is not None and passed >= settings.every_seconds and not self._writer.busy
        )

    def end_epoch(self, epoch: int, logs: Logs) -> None:
        """Judges an epoch that is done, once all callbacks have seen it."""
        settings = self.settings
        monitor = settings.monitor or ("val_loss" if "val_loss" in logs else "loss")
        value = monitored("RunFolder", monitor, logs)
        if improves(value, self._best, monitor, settings.mode, 0.0):
            self._best = value
            # It goes into its file with the state that knows of it, so that both are of one moment.
            self._best_weights = self.network.to_bytes()

    def may_save(self) -> None:
        """Writes a state between two epochs, if that costs little or it is time to."""
        self._writer.check()
        passed = time.perf_counter() - self._written
        if self._is_due() or (passed >= _COST_SHARE * self._cost and not self._writer.busy):
            self.save()

    def save(self) -> None:
        """Writes a state, and with it the best weights, where they are new."""
        began = time.perf_counter()
        # Memory holds one state at a time.
        self._writer.wait()
        place = engine_of(self.network).native.training_state()
        if place["batch"] == 0:
            self._epoch_streams = self._streams
        path = self._states / f"epoch-{place['epoch']:05d}-batch-{place['batch']:07d}.loom"
        best, self._best_weights = self._best_weights, None
        files = [] if best is None else [(self._best_path, best)]
        self._whole = True
        try:
            if self.settings.background:
                self._writer.submit([*files, (path, self.network.to_bytes(optimizer=True))], self._prune)
            else:
                for file in files:
                    write_whole(*file)
                self.network.save(path, optimizer=True)
                self._prune()
        finally:
            self._whole = False
        self._written, self._steps = time.perf_counter(), 0
        self._cost = self._written - began

    def _prune(self) -> None:
        for path in self._files()[self.settings.keep :]:
            with contextlib.suppress(OSError):
                path.unlink()

    def finish(self, result: TrainingResult) -> None:
        """Writes what the run gives back, once nothing can change it any more."""
        self._writer.wait()
        write_whole(self._final_path, self.network.to_bytes(optimizer=True))
        write_whole(self.folder / "result.json", encoded(asdict(result)).encode())


def _read(path: Path) -> tuple[_native.Network, list[tuple[str, dict[str, Any]]]]:
    try:
        native = _native.Network.from_bytes(path.read_bytes())
    except FileNotFoundError as error:
        raise SerializationError(f"{path} is not there") from error
    except OSError as error:
        raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
    return native, read_notes(native)


def _versions() -> dict[str, str]:
    return {
        "loom": _native.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _streams() -> _Streams:
    """Returns where the generators stand that Python and NumPy share with everybody."""
    numpy = "numpy.random" in sys.modules
    return random.getstate(), np.random.get_state(legacy=False) if numpy else None  # noqa: NPY002


def _set_streams(streams: _Streams) -> None:
    python, numpy = streams
    random.setstate(python)
    if numpy is not None:
        np.random.set_state(numpy)  # noqa: NPY002


def _as_plain(streams: _Streams) -> dict[str, Any]:
    (version, inner, gauss), numpy = streams
    found: dict[str, Any] = {"python": [version, _words(inner), gauss], "numpy": None}
    # Whoever puts another generator there keeps it, too.
    if numpy is not None and numpy["bit_generator"] == "MT19937":
        state = numpy["state"]
        found["numpy"] = {**numpy, "state": {"key": _words(state["key"]), "pos": state["pos"]}}
    return found


def _from_plain(found: Mapping[str, Any]) -> _Streams:
    version, inner, gauss = found["python"]
    numpy = found["numpy"]
    if numpy is not None:
        state = numpy["state"]
        numpy = {**numpy, "state": {"key": _from_words(state["key"]), "pos": state["pos"]}}
    return (version, tuple(_from_words(inner).tolist()), gauss), numpy


def _words(values: object) -> str:
    return b64encode(np.asarray(values, dtype="<u4").tobytes()).decode()


def _from_words(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(b64decode(text), dtype="<u4").astype(np.uint32)


def _warn(message: str) -> None:
    # Of whoever called `train` or `fit`; how deep that is depends on which of them it was.
    warnings.warn(message, stacklevel=6)
