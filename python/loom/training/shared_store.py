"""The folder of a run that several processes share: rank 0 has it, and the others are told what is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

from loom.engine import engine_of
from loom.runs.events import decoded, encoded
from loom.training.run_folder import RunFolder
from loom.training.run_store import RunStore
from loom.training.sharing import Sharing

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from loom.training.trainable import TrainableNetwork

__all__ = ["SharedStore"]

_T = TypeVar("_T")


class SharedStore(RunStore):
    """A run's folder, as each of several processes sees it: rank 0 reads and writes, the others hear of it.

    All processes call the same methods in the same order. Only rank 0 has to reach the folder.

    Args:
        settings: Where, and how often it is written to.
        shared: This process's part.
    """

    def __init__(self, settings: RunFolder | str | PathLike[str], shared: Sharing) -> None:
        super().__init__(settings)
        self._shared = shared
        self.leads = shared.leads

    def __enter__(self) -> Self:
        if self.leads:
            super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.leads:
            super().__exit__(kind, error, trace)

    def open(self, network: TrainableNetwork, identity: Mapping[str, Any]) -> bool:
        """Compares the run with the one that the folder holds; see `RunStore`."""
        engine_of(network).build()
        self._network = network
        changed = super().open(network, identity) if self.leads else False
        return self._shared.from_lead(b"1" if changed else b"") == b"1"

    def result(self, make: Callable[..., _T]) -> _T | None:
        """Returns what the run gave back; see `RunStore`."""
        kept: dict[str, Any] | None = super().result(dict) if self.leads else None
        told = self._shared.from_lead(b"" if kept is None else encoded(kept).encode())
        return make(**decoded(json.loads(told))) if told else None

    def final(self, read: Callable[[bytes], _T]) -> _T | None:
        """Returns what the run has left, as `read` makes it; see `RunStore`."""
        found: bytes | None = super().final(_checked(read)) if self.leads else None
        return self._read(found, read)

    def newest(self, read: Callable[[bytes], _T]) -> _T | None:
        """Returns the newest state that can be read, as `read` makes it; see `RunStore`."""
        found: bytes | None = super().newest(_checked(read)) if self.leads else None
        return self._read(found, read)

    def _read(self, found: bytes | None, read: Callable[[bytes], _T]) -> _T | None:
        told = self._shared.from_lead(found or b"")
        return read(told) if told else None

    def is_due(self, steps: int, *, between: bool = False) -> bool:
        """Counts steps; whether a state is to be written, in all processes: see `RunStore`.

        Rank 0 decides, by its own clock. Within an epoch the others hear of it with the next step.
        """
        due = self.leads and super().is_due(steps, between=between)
        return self._shared.any(one=due) if between else self._shared.wish_to_save(wishes=due)

    def save(self, name: str, state: Callable[[], bytes], best: bytes | None = None) -> None:
        """Writes a state, in rank 0; see `RunStore`."""
        self._shared.wish_to_save(wishes=False)
        native = engine_of(self._network).native
        self._shared.gather(native, everywhere=False)
        if self.leads:
            super().save(name, state, best)
            self._shared.split(native)

    def finish(self, final: bytes, result: Mapping[str, Any]) -> None:
        """Writes what the run has left, in rank 0; see `RunStore`."""
        if self.leads:
            super().finish(final, result)


def _checked(read: Callable[[bytes], object]) -> Callable[[bytes], bytes]:
    """Returns what gives a file's bytes as they are, if they can be read."""

    def bytes_of(data: bytes) -> bytes:
        read(data)
        return data

    return bytes_of
