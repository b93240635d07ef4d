"""Tables in Parquet and Arrow files as data for training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loom._settings.checks import choice, file_path
from loom._settings.suggestions import listed, shown
from loom._typing import Foreign
from loom.data.columns import named
from loom.data.encoder import ColumnEncoder, learned
from loom.data.frames import read_frame
from loom.data.streaming import Arrays, Piece, StreamLoader
from loom.errors import ConfigError, DataError, FileError, SerializationError
from loom.extras import require

__all__ = ["ColumnStream", "column_files"]


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
