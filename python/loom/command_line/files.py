"""Arrays in files: .npz, .npy, .csv and IDX."""

from __future__ import annotations

import csv
import errno
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from loom.data import ColumnEncoder, Data
from loom.data.encoder import Numbers
from loom.datasets import read_idx
from loom.errors import DataError, FileError, LoomError

__all__ = [
    "COLUMNS",
    "Table",
    "read_array",
    "read_by_name",
    "read_npz",
    "read_samples",
    "read_table",
    "shaped",
    "write_csv",
]


COLUMNS = "columns"
"""Under which name a network's card has, among its metadata, the columns that it has learned from."""


@contextmanager
def _told(path: Path, refused: str = "cannot be read") -> Iterator[None]:
    """Says which file it is that the system refuses, or that holds something else."""
    try:
        yield
    except LoomError:
        raise
    except OSError as error:
        reason = f"{refused}: {error.strerror or error}"
        raise FileError(error.errno or errno.EIO, reason, str(path)) from error
    except Exception as error:  # Of damaged files NumPy lets through whatever Python and zlib raise.
        raise DataError(f"{path}: {error}") from error


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with _told(path):
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise DataError(f"{path} is one array, as of .npy, and no .npz file")
        with found:
            return {name: found[name] for name in found.files}


def read_npz(file: str | Path) -> tuple[Data, Data | None]:
    """Reads data from an .npz file: x, y and weight, and the same with `_validation` behind.

    Args:
        file: The file.

    Returns:
        The data, and that for validation or None.

    Raises:
        FileError: It cannot be read.
        DataError: It is no such file, or has no x or y.
    """
    path = Path(file)
    held = _arrays(path)

    def part(ending: str) -> Any:  # noqa: ANN401 - two or three arrays
        names = [f"{name}{ending}" for name in ("x", "y", "weight")]
        return tuple(held[name] for name in names if name in held)

    if not {"x", "y"} <= set(held):
        raise DataError(f"{path} holds {', '.join(held)}; data is x and y")
    return part(""), part("_validation") or None


def read_array(file: str | Path) -> NDArray[Any]:
    """Reads one array: .npy, or IDX (compressed or not) by any other name.

    Images of bytes in IDX go from 0 to 1, as those of `loom.datasets.mnist`.

    Args:
        file: The file.

    Raises:
        FileError: It cannot be read.
        DataError: It is damaged, or holds Python objects.
        SerializationError: It is no IDX file.
    """
    path = Path(file)
    if path.suffix.lower() != ".npy":
        read = read_idx(path)
        return read / np.float32(255) if read.dtype == np.uint8 and read.ndim > 1 else read
    with _told(path):
        # Mapped: a header that announces more than there is has nothing allocated.
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def read_samples(
    file: str | Path,
    input_shape: Sequence[int],
    columns: Sequence[str] | None = None,
    *,
    header: bool | None = None,
) -> NDArray[Any]:
    """Reads samples for a network: .npy, .npz (its x, or its only array), .csv, or IDX.

    Args:
        file: The file.
        input_shape: One sample's extents; samples of as many numbers get them.
        columns: What the network has learned from; of a .csv file with a line of names these are read,
            whatever their order and whatever stands beside them. None where nobody knows.
        header: As of `read_table`.

    Raises:
        FileError: It cannot be read.
        DataError: It is damaged, of several arrays none is x, or a column is not there.
        SerializationError: By its name it is no such file, nor an IDX file by its content.
    """
    path = Path(file)
    ending = path.suffix.lower()
    if ending == ".npz":
        held = _arrays(path)
        if "x" not in held and len(held) != 1:
            raise DataError(f"{path} holds {', '.join(held) or 'no array'}; samples are x, or the only array")
        return shaped(held["x"] if "x" in held else next(iter(held.values())), input_shape)
    if ending == ".csv":
        table = read_table(path, header=header, expected=columns or ())
        wanted = math.prod(input_shape)
        if columns is not None and table.is_named and len(columns) == wanted:
            missing = [name for name in columns if name not in table.names]
            if missing:
                raise DataError(
                    f"{path} has no column {missing[0]!r}, which the network has learned from; it has "
                    f"{', '.join(table.names[:10])}. Without a line of names columns are read from left to "
                    f"right: {', '.join(columns[:10])}"
                )
            return shaped(table.numbers(columns), input_shape)
        if len(table.names) == wanted + 1:
            raise DataError(
                f"{path} has {wanted + 1} columns ({', '.join(table.names[:10])}), the network reads "
                f"{wanted}; leave out the one that it is to tell"
            )
        return shaped(table.numbers(table.names), input_shape)
    return shaped(read_array(path), input_shape)


def read_by_name(file: str | Path, names: Sequence[str], *, header: bool | None = None) -> dict[str, Any]:
    """Reads arrays by name: of an .npz file, or the columns of a .csv file with a line of names.

    Args:
        file: The file.
        names: What is read of it.
        header: As of `read_table`.

    Returns:
        An array for each name; of a .csv file a list, of numbers where every cell that is not empty is one,
        with None where cells are empty.

    Raises:
        FileError: It cannot be read.
        DataError: It is damaged, of another kind, or has none of a name.
    """
    path = Path(file)
    ending = path.suffix.lower()
    if ending not in (".npz", ".csv"):
        raise DataError(f"{path}: what has names ({', '.join(names)}) is in .npz or .csv files")
    table = None if ending == ".npz" else read_table(path, header=header, expected=names)
    held = _arrays(path) if table is None else dict.fromkeys(table.names)
    missing = [name for name in names if name not in held]
    if missing:
        hint = "" if table is None else table.hint("--header says so")
        raise DataError(f"{path} has no {missing[0]!r}; it has {', '.join(held)}{hint}")
    if table is None:
        return {name: held[name] for name in names}
    return {name: _cells(table.column(name)) for name in names}


def _cells(column: list[str]) -> list[Any]:
    """Returns the cells of a column as numbers where all are, whole ones where all are such."""
    present = [cell for cell in column if cell]
    if not present or not all(map(_is_number, present)):
        return [cell or None for cell in column]
    try:
        return [int(cell) if cell else None for cell in column]
    except ValueError:
        return [float(cell) if cell else None for cell in column]


def shaped(x: NDArray[Any], input_shape: Sequence[int]) -> NDArray[Any]:
    """Returns samples in the shape that a network takes, where they have as many numbers.

    One of both is a row of numbers, or they differ by axes of extent one. Others, such as images with their
    channels last, stay as they are: their numbers would come to stand in other places.
    """
    before, after = x.shape[1:], tuple(input_shape)
    alike = 1 in (len(before), len(after)) or [n for n in before if n != 1] == [n for n in after if n != 1]
    if x.ndim and before != after and alike and prod(before) == prod(after):
        return x.reshape(len(x), *after)
    return x


@dataclass(frozen=True)
class Table:
    """What a .csv file holds.

    Args:
        path: The file.
        names: The columns: as its first line names them, or "0", "1", ... where that is a row.
        rows: The cells, as they stand there.
        lines: The number of each row's line.
        is_named: Whether the first line names the columns.
    """

    path: Path
    names: list[str]
    rows: list[list[str]]
    lines: list[int]
    is_named: bool

    def hint(self, setting: str) -> str:
        """Returns what to say where something is amiss since the first line is read as a row, or nothing.

        Args:
            setting: How one says that it names the columns.
        """
        if self.is_named:
            return ""
        return f"; its first line has numbers and is read as a row: where it names the columns, {setting}"

    def column(self, name: str) -> list[str]:
        """Returns the cells of a column."""
        place = self.names.index(name)
        return [row[place] for row in self.rows]

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Returns columns as numbers.

        Args:
            names: The columns.

        Returns:
            (rows, columns).

        Raises:
            DataError: A cell is no number; the message says where.
        """
        places = [self.names.index(name) for name in names]
        for line, row in zip(self.lines, self.rows, strict=True):
            wrong = next((place for place in places if not _is_number(row[place])), None)
            if wrong is not None:
                if line == self.lines[0] and not self.is_named:
                    raise DataError(
                        f"{self.path}, line {line}: {row[wrong]!r} is no number, and others beside it are: "
                        "where the line names the columns, say so: header = true in the data's settings, "
                        "`loom predict --header`; where it is a row, what is no number is to be encoded first"
                    )
                raise DataError(
                    f'{self.path}, line {line}, column "{self.names[wrong]}": {row[wrong]!r} is no number; '
                    "what is no number has to be encoded first, as loom.data.columns(frame, target=...) does "
                    "in Python, and `loom predict` then reads such a table"
                )
        return np.array([[float(row[place]) for place in places] for row in self.rows], np.float64)


def read_frame(file: str | Path, encoder: ColumnEncoder, *, header: bool | None = None) -> NDArray[Any]:
    """Reads a .csv file as the table that a network has learned from.

    Args:
        file: The file, with a line of names; what it has beside the encoder's columns is not looked at.
        encoder: What makes numbers of the columns.
        header: As of `read_table`.

    Raises:
        FileError: It cannot be read.
        DataError: A column is not there, or holds texts where numbers were learned.
    """
    table = read_table(file, header=header, expected=[part.name for part in encoder.parts])
    frame: dict[str, list[Any]] = {}
    for part in encoder.parts:
        if part.name not in table.names:
            continue
        cells = table.column(part.name)
        told = [] if isinstance(part, Numbers) else list(part.values)
        if told and all(isinstance(value, str) for value in told):
            frame[part.name] = [cell or None for cell in cells]
            continue
        wrong = next((place for place, cell in enumerate(cells) if not _is_cell(cell)), None)
        if wrong is not None:
            raise DataError(
                f'{table.path}, line {table.lines[wrong]}, column "{part.name}": {cells[wrong]!r} is no '
                "number, and the network has learned from numbers there"
            )
        numbers = [_WORDS.get(cell.lower(), cell) for cell in cells]
        # Categories that are whole numbers are looked up as such, and others are none that were learned.
        as_number = float if isinstance(part, Numbers) else _category
        frame[part.name] = [None if number == "" else as_number(number) for number in numbers]
    return np.asarray(encoder(frame))


_WORDS: dict[str, Any] = {"true": True, "false": False, "nan": "", "na": "", "null": ""}


def _is_cell(cell: str) -> bool:
    return cell == "" or cell.lower() in _WORDS or _is_number(cell)


def _category(number: Any) -> Any:  # noqa: ANN401 - a number as text, or a boolean
    if isinstance(number, bool):
        return number
    value = float(number)
    return int(value) if value.is_integer() else value


def read_table(file: str | Path, *, header: bool | None = None, expected: Sequence[str] = ()) -> Table:
    """Reads a .csv file: with or without a line of names, separated by commas, semicolons or tabs.

    Args:
        file: The file.
        header: Whether its first line names the columns. Where None it does if there is no number among its
            cells, or if all columns that are expected stand there.
        expected: Columns that are looked for.

    Raises:
        FileError: It cannot be read.
        DataError: It has no rows, or rows of different lengths.
    """
    path = Path(file)
    with _told(path), path.open(newline="", encoding="utf-8-sig") as opened:
        # All of it at once: what comes through a pipe cannot be gone back in.
        text = opened.read()
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(StringIO(text, newline=""), delimiter=separator)
        lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    if not lines:
        raise DataError(f"{path} is empty")
    width = len(lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise DataError(f"{path}, line {number}: {len(row)} cells, and {width} in the first line")
    cells = [[cell.strip() for cell in row] for _, row in lines]
    names = [str(column) for column in range(width)]
    named = header
    if named is None:
        # Without names columns are called by their places.
        told = set(expected) <= set(cells[0]) and not set(expected) <= set(names)
        named = told or not any(map(_is_number, cells[0]))
        if not named and _counts_up(cells[0]):
            click.echo(
                f"loom: {path}: the first line ({', '.join(cells[0][:4])}, ...) is read as a row; where it "
                "names the columns, say so: header = true in the data's settings, `loom predict --header`",
                err=True,
            )
    if named:
        names = cells.pop(0)
        if len(set(names)) < width:
            raise DataError(f"{path}: two columns have the same name")
    if not cells:
        raise DataError(f"{path} has names of columns, but no rows")
    return Table(path, names, cells, [number for number, _ in lines[named:]], named)


def _counts_up(cells: Sequence[str]) -> bool:
    """Whether cells are whole numbers one after the other, as years are, and names from programs."""
    if len(cells) < 3 or not all(cell.isdecimal() for cell in cells):
        return False
    return [int(cell) for cell in cells] == [int(cells[0]) + place for place in range(len(cells))]


def write_csv(file: str | Path | None, names: Sequence[str], columns: Sequence[Sequence[object]]) -> None:
    """Writes columns as a .csv file.

    Args:
        file: The file; standard output where None.
        names: What the columns are called.
        columns: Their cells.

    Raises:
        FileError: It cannot be written.
    """
    import sys

    def put(opened: Any) -> None:  # noqa: ANN401 - whatever can be written to
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))

    if file is None:
        put(sys.stdout)
        return
    path = Path(file)
    with _told(path, "cannot be written"), path.open("w", newline="", encoding="utf-8") as opened:
        put(opened)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    # Python's own way of grouping digits is no table's.
    return "_" not in cell
