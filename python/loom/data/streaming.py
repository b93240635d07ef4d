"""Sources larger than memory: arrays in files, tables in files, and what a function yields.

All are read in pieces. An epoch goes through the pieces in an order of its own, collects as many as make a
window, and shuffles the rows of that: memory holds a window, the pieces that it begins and ends in, and the
batches that workers make ahead.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import Foreign
from loom.data.batches import TrainingBatch
from loom.data.loading import Job, Loader, share
from loom.errors import DataError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Piece", "StreamLoader"]

Arrays = tuple[NDArray[Any], ...]
Form = tuple[tuple[str, ...] | None, ...]
"""Of samples, targets and weights the names of those that are dictionaries of arrays; None of arrays."""


@dataclass(frozen=True)
class Piece:
    """Rows that are read together.

    Args:
        rows: How many they are; None where only reading tells.
        first: The number of the first among all rows; None where that is not known.
        read: Reads them: arrays of so many rows.
    """

    rows: int | None
    first: int | None
    read: Callable[[], Arrays]


class StreamLoader(Loader):
    """Base of sources that are read in pieces.

    Args:
        where: What it is, for error messages.
        rows: How many rows there are; None where nobody knows.
        window: How many rows are shuffled together.
        **settings: As for `Loader`.
    """

    def __init__(self, where: str, rows: int | None, window: int, **settings: Foreign) -> None:
        super().__init__(where, **settings)
        size = self.batch_size
        # Batches do not go over the ends of windows.
        self.window = max(whole(where, "window", window, least=1) // size, 1) * size
        self.rows = rows
        self._form: Form | None = None

    def __len__(self) -> int:
        if self.rows is None:
            raise TypeError(f"{self._where}: nobody knows how many batches there are")
        return math.ceil(self.rows / self.batch_size)

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data, as JSON."""
        return {**super().identity(), "rows": self.rows, "window": self.window}

    def order(self) -> dict[str, object]:
        """Returns what says which samples come in which batch of an epoch, by the names of settings."""
        window = {"window": self.window} if self.shuffle else {}
        # What nobody has counted says nothing, before as after somebody has.
        counted = {} if self.rows is None else {"rows": self.rows}
        return {**super().order(), **window, **counted}

    def of_shard(self, shard: int, shards: int) -> Self:
        """Returns the part that one of several shards has; see `loom.data.by_shard`."""
        found = copy.copy(super().of_shard(shard, shards))
        # The window is that of all shards together.
        cut = share(self.batch_size, shards, shard)
        found.batch_size = cut.stop - cut.start
        found.window = max(self.window // shards // found.batch_size, 1) * found.batch_size
        return found

    def steps_by_shard(self, epoch: int, shards: int) -> int | None:
        """Returns how many steps an epoch has that is cut into shards; None where nobody knows.

        Args:
            epoch: Its number.
            shards: How many shards there are.
        """
        held = [0] * shards
        for shard, piece in self._dealt(epoch, shards):
            if piece.rows is None:
                return None
            held[shard] += piece.rows
        cuts = [share(self.batch_size, shards, shard) for shard in range(shards)]
        counts = [-(-rows // (cut.stop - cut.start)) for rows, cut in zip(held, cuts, strict=True)]
        return int(max(counts))

    def _dealt(self, epoch: int, shards: int) -> Iterator[tuple[int, Piece]]:
        """Yields the pieces of an epoch with the shard that has each: who has had the fewest rows so far."""
        held = [0] * shards
        for piece in self._pieces(epoch, shards):
            shard = held.index(min(held))
            held[shard] += 1 if piece.rows is None else piece.rows
            yield shard, piece

    def _pieces(self, epoch: int, shards: int = 1) -> Iterable[Piece]:
        """Returns the pieces in the order of an epoch.

        Args:
            epoch: Its number.
            shards: Among how many shards they will be dealt.
        """
        raise NotImplementedError

    def _own_pieces(self, epoch: int) -> Iterable[Piece]:
        """Returns those of this shard."""
        shard, shards = self._shard
        if shards == 1:
            return self._pieces(epoch)
        return (piece for owner, piece in self._dealt(epoch, shards) if owner == shard)

    def _batch(self, parts: Arrays) -> tuple[Any, Any, Any]:
        """Makes samples, targets and weights of rows; called by workers."""
        rest = iter(parts)
        form = (None,) * len(parts) if self._form is None else self._form
        made = [next(rest) if names is None else dict(zip(names, rest, strict=False)) for names in form]
        return made[0], made[1], made[2] if len(made) > 2 else None

    def _shuffled_order(self, epoch: int, count: int) -> list[int]:
        """Returns the pieces' numbers in the order of an epoch."""
        if not self.shuffle:
            return list(range(count))
        found: list[int] = np.random.default_rng((self.seed, epoch, 0)).permutation(count).tolist()
        return found

    def _jobs(self, epoch: int, start: int) -> Iterator[Job]:
        by_window = self.window // self.batch_size
        first = start // by_window
        for place, (numbers, parts) in enumerate(self._windows(epoch, first), first):
            rows = len(numbers)
            order = np.arange(rows)
            if self.shuffle:
                key = (self.seed, epoch, place + 1, *(self._shard if self._shard[1] > 1 else ()))
                order = np.random.default_rng(key).permutation(rows)
            begin = (start - place * by_window) * self.batch_size if place == first else 0
            for at in range(begin, rows, self.batch_size):
                yield self._job(epoch, numbers, parts, order[at : at + self.batch_size])
            # Nothing of it is held while the next one is read, but by workers.
            del parts

    def _job(self, epoch: int, numbers: NDArray[np.int64], parts: Arrays, chosen: NDArray[np.intp]) -> Job:
        if self.workers == 0:
            return lambda: self._finished(
                epoch, numbers[chosen], *self._batch(tuple(part[chosen] for part in parts))
            )
        # Workers hold rows of their own, and no window.
        rows = tuple(part[chosen] for part in parts)
        return lambda: self._finished(epoch, numbers[chosen], *self._batch(rows))

    def _windows(self, epoch: int, skip: int) -> Iterator[tuple[NDArray[np.int64], Arrays]]:
        """Yields windows of rows with their numbers, without those that are skipped."""
        begin = skip * self.window
        seen = 0
        held: list[tuple[NDArray[np.int64], Arrays]] = []
        count = 0
        for piece in self._own_pieces(epoch):
            if piece.rows is not None and seen + piece.rows <= begin:
                seen += piece.rows
                continue
            parts = piece.read()
            rows = len(parts[0])
            numbers = np.arange(rows) + (seen if piece.first is None else piece.first)
            cut = min(max(begin - seen, 0), rows)
            seen += rows
            while rows > cut:
                taken = min(self.window - count, rows - cut)
                held.append((numbers[cut : cut + taken], tuple(part[cut : cut + taken] for part in parts)))
                cut, count = cut + taken, count + taken
                if count == self.window:
                    whole_window, held, count = held, [], 0
                    if cut == rows:
                        del parts
                        parts = ()
                    yield _together(whole_window)
        if held:
            yield _together(held)
        elif seen == 0 and self._shard[1] == 1:
            raise DataError(f"{self._where}: there are no rows")


def _together(held: list[tuple[NDArray[np.int64], Arrays]]) -> tuple[NDArray[np.int64], Arrays]:
    """Puts pieces together, and lets go of each part of them once it is there."""
    numbers = np.concatenate([numbers for numbers, _ in held])
    columns: Sequence[Any] = list(zip(*(parts for _, parts in held), strict=True))
    held.clear()
    found = []
    while columns:
        found.append(np.concatenate(columns[0]) if len(columns[0]) > 1 else columns[0][0])
        columns = columns[1:]
    return numbers, tuple(found)


def flattened(parts: Iterable[Foreign]) -> tuple[list[Foreign], Form]:
    """Returns arrays one behind the other, of dictionaries each of theirs, and the names of these.

    Args:
        parts: Samples, targets and weights; an array or a dictionary of such each.
    """
    found: list[Foreign] = []
    form: list[tuple[str, ...] | None] = []
    for part in parts:
        named = isinstance(part, Mapping)
        form.append(tuple(part) if named else None)
        found += part.values() if named else [part]
    return found, tuple(form)


def checked_batch(batch: object, where: str) -> tuple[Arrays, Form]:
    """Returns the arrays of one batch that somebody yields, and what those of dictionaries are called.

    Args:
        batch: (x, y), (x, y, weight) or a `TrainingBatch`, of arrays or dictionaries of arrays.
        where: Who asks, for error messages.

    Raises:
        DataError: It is something else, or the arrays have different lengths.
    """
    parts: Any = (batch.input, batch.target, batch.weight) if isinstance(batch, TrainingBatch) else batch
    if not isinstance(parts, (tuple, list)) or len(parts) not in (2, 3):
        raise DataError(f"{where}: expected batches (x, y) or (x, y, weight), got {type(batch).__name__}")
    flat, form = flattened(part for part in parts if part is not None)
    arrays = tuple(np.asarray(part) for part in flat)
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(f"{where}: arrays of a batch have shapes {[array.shape for array in arrays]}")
    return arrays, form
