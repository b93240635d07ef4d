"""Arrays in files, tables in files and functions that yield batches, as data for training."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loom._settings.checks import choice, file_path, whole
from loom._settings.suggestions import listed, shown
from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data.augmenting import Augment
from loom.data.columns import named
from loom.data.encoder import ColumnEncoder, learned
from loom.data.frames import read_frame
from loom.data.streaming import Arrays, Form, Piece, StreamLoader, checked_batch, flattened
from loom.errors import ConfigError, DataError, FileError, SerializationError
from loom.extras import require

__all__ = ["column_files", "generate", "stream"]

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
        chosen = max(_WINDOW_BYTES // max(size, 1), 1) if window is None else window
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
    found.classes = None if classes is None else tuple(map(str, classes))
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
    return as_numpy(part, what=f"stream: {name}")


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


class ColumnStream(StreamLoader):
    """Tables in files; `column_files` makes it."""

    def __init__(self, files: Sequence[Path], encoder: ColumnEncoder | None, **settings: Foreign) -> None:
        self.files = list(files)
        self._groups = [(file, group, rows) for file in files for group, rows in enumerate(_groups(file))]
        learning: dict[str, Any] = settings.pop("learning")
        window = settings.pop("window")
        super().__init__("column_files", sum(rows for *_, rows in self._groups), window, **settings)
        if not self.rows:
            raise DataError("column_files: there are no rows")
        if encoder is None:
            labels: set[str] = set()
            encoder = learned(self._looked_at(learning["target"], labels), **learning)
            self.classes = tuple(sorted(labels)) or None
        self.encoder = encoder
        """What is done to the columns; training has the network keep it."""

    def _looked_at(self, target: Sequence[str], labels: set[str]) -> Iterator[Foreign]:
        """Yields the tables, and takes up what labels there are, where the target is texts."""
        for file, group, _ in self._groups:
            for table in _tables(file, group):
                if len(target) == 1 and target[0] in table.schema.names:
                    told = read_frame(table).column(target[0], "column_files")
                    labels.update(told.as_labels().tolist() if told.kind == "text" else ())
                yield table

    def _looks(self) -> list[str]:
        return [f"columns {listed(self.encoder.columns)}"]

    @property
    def width(self) -> int:
        """How many columns the matrix has: the network's `input_shape`."""
        return self.encoder.width

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data: the files' names and sizes, and the encoder."""
        files = [[file.name, file.stat().st_size] for file in self.files]
        return {**super().identity(), "files": files, "encoder": self.encoder.to_config()}

    def _dealt(self, epoch: int, shards: int) -> Iterator[tuple[int, Piece]]:
        # A group is read as one, since reading a part of it is reading all.
        held = [0] * shards
        for group in self._shuffled_order(epoch, len(self._groups)):
            shard = held.index(min(held))
            held[shard] += self._groups[group][2]
            yield from ((shard, piece) for piece in self._pieces_of(group))

    def _pieces(self, epoch: int, shards: int = 1) -> Iterable[Piece]:
        del shards
        for number in self._shuffled_order(epoch, len(self._groups)):
            yield from self._pieces_of(number)

    def _pieces_of(self, number: int) -> Iterator[Piece]:
        firsts = np.cumsum([0, *(rows for *_, rows in self._groups)]).tolist()
        file, group, rows = self._groups[number]
        tables = _Tables(file, group)
        # A group is read in pieces of its own, since it may be larger than a window.
        for at in range(0, rows, _ROWS):
            count = min(_ROWS, rows - at)
            yield Piece(count, firsts[number] + at, self._reader(tables, at))

    def _reader(self, tables: _Tables, at: int) -> Callable[[], Arrays]:
        def read() -> Arrays:
            table = tables.at(at)
            made, targets = self.encoder(table), self.encoder.targets(table)
            # A dictionary's arrays go through windows one beside the other.
            return (*made.values(), targets) if isinstance(made, Mapping) else (made, targets)

        return read

    def _batch(self, parts: Arrays) -> tuple[Any, Any, Any]:
        if self.encoder.inputs != "dict":
            return super()._batch(parts)
        return dict(zip(self.encoder.names, parts[:-1], strict=True)), parts[-1], None


_ROWS = 4096
"""How many rows of a table are read at a time."""


class _Tables:
    """The pieces of a group, one after the other; those that nobody asks for are gone over."""

    def __init__(self, file: Path, group: int) -> None:
        self._file, self._group = file, group
        self._tables: Iterator[Any] | None = None
        self._place = 0

    def at(self, first: int) -> Foreign:
        """Returns the piece that begins with a row; pieces are asked for in order."""
        if self._tables is None:
            self._tables = _tables(self._file, self._group)
        while True:
            table = next(self._tables)
            place, self._place = self._place, self._place + table.num_rows
            if place == first:
                return table


def column_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Sequence[str],
    *,
    categories: Sequence[str] = (),
    scale: bool | Sequence[str] = True,
    drop: Sequence[str] = (),
    inputs: Literal["matrix", "codes"] = "matrix",
    encoder: ColumnEncoder | None = None,
    batch_size: int = 32,
    shuffle: bool = True,
    window: int = 65536,
    seed: int = 0,
    workers: int = 0,
) -> ColumnStream:
    """Gives tables in Parquet or Arrow files in batches, of which memory holds but a window.

    The files are gone through once to learn what `columns` learns of a frame. Then an epoch takes the files'
    row groups, or Arrow's record batches, in an order of its own, and shuffles the rows of each window. Needs
    the extra "arrow".

    Args:
        path: A .parquet, .arrow or .feather file, a folder of them, or several.
        target: The column that is told, or several of numbers.
        categories: As in `columns`.
        scale: As in `columns`.
        drop: As in `columns`.
        inputs: "matrix", "codes" or "dict", as in `columns`.
        encoder: What is done to the columns, as learned elsewhere: that of the training data for what is
            held out. The files are then not gone through first.
        batch_size: How many rows a batch has.
        shuffle: Whether the order is another one in each epoch.
        window: How many rows are shuffled together, and held in memory.
        seed: What the order is drawn from.
        workers: How many threads make batches ahead; none where 0.

    Returns:
        Batches, for `loom.train` and the like; with `.encoder` and `.width`.

    Raises:
        FileError: A file is not there.
        SerializationError: It is of another format.
        DataError: There are no rows, or a column is not there.
        DTypeError: A column holds dates, or several types.
        MissingExtraError: PyArrow is not installed.
    """
    files = _files(path)
    told = named("target", target)
    if not told:
        raise ConfigError("column_files: target names no column")
    learning = {
        "target": told,
        "categories": named("categories", categories),
        "scale": scale if isinstance(scale, bool) else named("scale", scale),
        "drop": named("drop", drop),
        "inputs": choice("column_files", "inputs", inputs, ("matrix", "codes", "dict")),
    }
    settings = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "workers": workers}
    return ColumnStream(files, encoder, learning=learning, window=window, **settings)


def _files(path: Foreign) -> list[Path]:
    several = isinstance(path, Iterable) and not isinstance(path, (str, bytes))
    listed = [file_path("column_files", each) for each in (path if several else [path])]
    found: list[Path] = []
    for each in listed:
        if each.is_dir():
            found += sorted(
                file for file in each.iterdir() if file.suffix in (".parquet", ".arrow", ".feather")
            )
        elif each.is_file():
            found.append(each)
        else:
            raise FileError(2, "no such file", str(each))
    if not found:
        raise DataError(f"column_files: {shown(path)} has no .parquet, .arrow or .feather files")
    return found


def _opened(file: Path) -> tuple[Any, bool]:
    """Returns a file's reader, and whether it is of Parquet."""
    arrow = require("pyarrow", extra="arrow", purpose="loom.data.column_files")
    try:
        if file.suffix == ".parquet":
            parquet = require("pyarrow.parquet", extra="arrow", purpose="loom.data.column_files")
            return parquet.ParquetFile(file), True
        return arrow.ipc.open_file(arrow.memory_map(str(file))), False
    except (OSError, arrow.ArrowInvalid) as error:
        raise SerializationError(f"column_files: {file} is no Parquet or Arrow file: {error}") from error


def _groups(file: Path) -> list[int]:
    """Returns how many rows each group of a file has."""
    reader, parquet = _opened(file)
    if parquet:
        about = reader.metadata
        return [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    return [reader.get_batch(group).num_rows for group in range(reader.num_record_batches)]


def _tables(file: Path, group: int) -> Iterator[Any]:
    """Yields a group in pieces of `_ROWS` rows, the last of which may have fewer."""
    reader, parquet = _opened(file)
    if parquet:
        held, count = [], 0
        arrow = require("pyarrow", extra="arrow", purpose="loom.data.column_files")
        for batch in reader.iter_batches(_ROWS, row_groups=[group], use_threads=False):
            # The reader may end a batch early.
            rest = batch
            while rest.num_rows:
                part = rest.slice(0, _ROWS - count)
                held.append(part)
                count += part.num_rows
                rest = rest.slice(part.num_rows)
                if count == _ROWS:
                    yield arrow.Table.from_batches(held)
                    held, count = [], 0
        if held:
            yield arrow.Table.from_batches(held)
        return
    batch = reader.get_batch(group)
    for at in range(0, batch.num_rows, _ROWS):
        yield batch.slice(at, _ROWS)


_BY_SHARD = 3


class Generated(StreamLoader):
    """What a function yields; `generate` makes it."""

    def __init__(
        self, function: Callable[..., Iterable[Any]], rows: int | None, window: int, **settings: Foreign
    ) -> None:
        super().__init__("generate", rows, window, **settings)
        self._function = function
        self._parameters = len(_parameters(function))

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data: the function's name."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return {**super().identity(), "function": name}

    def of_shard(self, shard: int, shards: int) -> Generated:
        """Returns the part that one of several shards has; see `loom.data.by_shard`."""
        if self._parameters != _BY_SHARD:
            raise ConfigError(
                "generate: what is read by shard comes of a function of three arguments, which are the "
                f"epoch, a shard's number and how many shards there are; this one takes {self._parameters}"
            )
        return super().of_shard(shard, shards)

    def steps_by_shard(self, epoch: int, shards: int) -> None:
        """Nobody knows how many steps an epoch has: that is for the function to say."""
        del epoch, shards

    def _own_pieces(self, epoch: int) -> Iterable[Piece]:
        return self._pieces(epoch)

    def _pieces(self, epoch: int, shards: int = 1) -> Iterable[Piece]:
        del shards
        told = (epoch, *self._shard) if self._parameters == _BY_SHARD else (epoch,) * min(self._parameters, 1)
        batches = self._function(*told)
        for number, batch in enumerate(batches):
            arrays, form = checked_batch(batch, f"generate: batch {number}")
            if number == 0:
                self._form = form
            elif form != self._form:
                raise DataError(f"generate: batch {number} has other parts or names than the first one")
            yield Piece(len(arrays[0]), None, lambda arrays=arrays: arrays)  # type: ignore[misc]


def _parameters(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind in kinds and each.default is each.empty
    ]


def generate(
    function: Callable[..., Iterable[Any]],
    *,
    batch_size: int = 32,
    rows: int | None = None,
    shuffle: bool = False,
    window: int = 8192,
    seed: int = 0,
    augment: Augment | None = None,
    classes: Sequence[str] | None = None,
    workers: int = 0,
) -> Generated:
    """Gives what a function yields in batches of one size, shuffled by windows.

    The function is called for each epoch, and so may be a generator's. What it yields may be of any length.

    Args:
        function: Yields (x, y), (x, y, weight) or `TrainingBatch`es, with rows as the first axis, of arrays
            or, where inputs or outputs have names, of dictionaries of arrays. It is called with the epoch's
            number where it takes an argument, otherwise without any; where it takes three, with a shard's
            number and how many shards there are, too, for `by_shard`.
        batch_size: How many samples a batch has.
        rows: How many samples an epoch has, where that is known: schedules over the whole run need it.
        shuffle: Whether rows are shuffled within windows.
        window: How many rows are shuffled together, and held in memory.
        seed: What is drawn from.
        augment: What is done to images (rows, channels, height, width).
        classes: The names of the classes, which the network then remembers.
        workers: How many threads make batches ahead, augmented, say; the function runs in the caller's.

    Returns:
        Batches, for `loom.train` and the like. A run that goes on calls the function and passes over what was
        learned from.

    Raises:
        ConfigError: A setting is out of range.
        DataError: While it is iterated: something else is yielded, or nothing.

    Examples:
        >>> def rows(epoch):
        ...     for start in range(0, 6, 3):
        ...         yield np.ones((3, 2)), np.arange(start, start + 3) + 10 * epoch
        >>> [batch.target.tolist() for batch in loom.data.generate(rows, batch_size=4)]
        [[0, 1, 2, 3], [4, 5]]
    """
    if not callable(function):
        raise ConfigError(
            f"generate takes a function that yields batches, got {type(function).__name__}; for what can be "
            "iterated again: generate(lambda: data)"
        )
    count = None if rows is None else whole("generate", "rows", rows, least=1)
    found = Generated(
        function,
        count,
        window,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        workers=workers,
        augment=augment,
    )
    found.classes = None if classes is None else tuple(map(str, classes))
    return found
