"""Arrays in files, or of whatever else gives slices, as data for training."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loom._settings.checks import whole
from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data.augmenting import Augment
from loom.data.labels import class_names
from loom.data.streaming import Arrays, Form, Piece, StreamLoader, flattened
from loom.errors import DataError, FileError, SerializationError

__all__ = ["ArrayStream", "stream"]

_WINDOW_BYTES = 64 << 20
_PIECES = 16
"""How many pieces a window is put together of: what is near in the file need not be near in an epoch."""


class ArrayStream(StreamLoader):
    """Arrays that are read as they are needed; `stream` makes it."""

    def __init__(
        self, arrays: Sequence[Any], window: int | None, form: Form | None = None, **settings: Foreign
    ) -> None:
        rows = len(arrays[0])
        size = sum(_row_bytes(array) for array in arrays)
        usual = max(_WINDOW_BYTES // max(size, 1), 1)
        chosen = usual if window is None else whole("stream", "window", window, least=1)
        super().__init__("stream", rows, min(chosen, max(rows, 1)), **settings)
        self._arrays, self._form = tuple(arrays), form
        self._piece = max(self.window // _PIECES, 1)

    def _looks(self) -> list[str]:
        return [f"arrays {' and '.join(str(tuple(array.shape)) for array in self._arrays)}"]

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data: shapes, types, and the first and last rows."""
        found = hashlib.sha256()
        for array in self._arrays:
            for cut in (slice(0, 4), slice(max(self.rows or 0, 4) - 4, self.rows)):
                found.update(np.ascontiguousarray(array[cut]).tobytes())
        kinds = [[list(array.shape), str(array.dtype)] for array in self._arrays]
        names = {"names": self._form} if any(self._form or ()) else {}
        return {**super().identity(), "arrays": kinds, "ends": found.hexdigest(), **names}

    def _pieces(self, epoch: int, shards: int = 1) -> Iterable[Piece]:
        rows = self.rows or 0
        # As many for each shard as there would be for one.
        size = self._piece if shards == 1 else max(min(self._piece, rows // (_PIECES * shards)), 1)
        for number in self._shuffled_order(epoch, -(-rows // size)):
            first = number * size
            last = min(first + size, rows)
            yield Piece(last - first, first, self._reader(first, last))

    def _reader(self, first: int, last: int) -> Callable[[], Arrays]:
        def read() -> Arrays:
            found = tuple(np.array(array[first:last]) for array in self._arrays)
            for array in self._arrays:
                _let_go(array)
            return found

        return read


def stream(
    x: Foreign,
    y: Foreign,
    weight: Foreign = None,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    window: int | None = None,
    seed: int = 0,
    augment: Augment | None = None,
    classes: Sequence[str] | None = None,
    workers: int = 0,
) -> ArrayStream:
    """Gives arrays in batches, of which memory holds but a window: for what is larger than memory.

    An epoch reads pieces of neighbouring rows in an order of its own, sixteen or so to a window, and shuffles
    the rows of each window. Two epochs have different orders; the same seed has the same ones.

    Args:
        x: (rows, ...) the samples: the path of a .npy file, a memory-mapped array, windows of one, or
            anything else with `shape`, `dtype` and slices, such as a data set of h5py or zarr; of inputs
            with names a dictionary of such.
        y: (rows, ...) the targets, likewise; of outputs with names a dictionary.
        weight: (rows,) how much each sample counts, likewise; equally where None.
        batch_size: How many samples a batch has.
        shuffle: Whether the order is another one in each epoch.
        window: How many rows are shuffled together, and held in memory; as many as 64 MiB hold where None.
        seed: What the order and the augmentation are drawn from.
        augment: What is done to images (rows, channels, height, width).
        classes: The names of the classes, which the network then remembers.
        workers: How many threads make batches ahead; none where 0.

    Returns:
        Batches, for `loom.train` and the like.

    Raises:
        DataError: Arrays have different lengths, or no rows.
        FileError: A file is not there.
        SerializationError: It is no .npy file.
        ConfigError: A setting is out of range.

    Examples:
        >>> x, y = np.arange(6.0)[:, None], np.arange(6.0)
        >>> data = loom.data.stream(x, y, batch_size=4, window=4, shuffle=False)
        >>> [batch.target.tolist() for batch in data]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """
    flat, form = flattened(part for part in (x, y, weight) if part is not None)
    labels = [
        f'{what} "{name}"' if name else what
        for what, names in zip(("x", "y", "weight"), form, strict=False)
        for name in ([""] if names is None else names)
    ]
    arrays = [_array(name, part) for name, part in zip(labels, flat, strict=True)]
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or lengths == {0}:
        counts = ", ".join(f"{name}: {len(array)}" for name, array in zip(labels, arrays, strict=True))
        raise DataError(f"stream: arrays need the same number of rows, and at least one; got {counts}")
    found = ArrayStream(
        arrays,
        window,
        form,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        workers=workers,
        augment=augment,
    )
    found.classes = None if classes is None else class_names("stream", classes)
    return found


def _array(name: str, part: Foreign) -> Foreign:
    if isinstance(part, (str, os.PathLike)):
        file = Path(part)
        try:
            return np.load(file, mmap_mode="r")
        except OSError as error:
            raise FileError(error.errno, f"cannot be read: {error.strerror}", str(file)) from error
        except ValueError as error:
            raise SerializationError(f"stream: {file} is no .npy file of numbers: {error}") from error
    if hasattr(part, "shape") and hasattr(part, "dtype") and hasattr(part, "__getitem__"):
        if len(part.shape) == 0:
            raise DataError(f"stream: {name} is a single number")
        return part
    array = as_numpy(part, what=f"stream: {name}")
    if array.ndim == 0:
        raise DataError(f"stream takes arrays, or paths of .npy files, got {type(part).__name__} as {name}")
    return array


def _row_bytes(array: Foreign) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64)) * int(array.dtype.itemsize)


def _let_go(array: Foreign) -> None:
    """Gives back memory in which pages of a mapped file lie; what was changed in them is in the file."""
    owner = array
    while owner is not None and not isinstance(owner, np.memmap):
        owner = getattr(owner, "base", None)
    while owner is not None and isinstance(owner.base, np.memmap):
        owner = owner.base
    mapped = getattr(owner, "_mmap", None)
    if mapped is not None and owner.mode != "c" and hasattr(mapped, "madvise"):
        import mmap

        mapped.madvise(mmap.MADV_DONTNEED)
