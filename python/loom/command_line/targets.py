"""The column of a table that is to be told: as numbers, or as classes by their place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.command_line.files import Table
from loom.errors import DataError

__all__ = ["TargetColumn", "learned"]


@dataclass(frozen=True)
class TargetColumn:
    """What the cells of a target's column mean, as the table that is learned from has them.

    Other tables are read by the same meaning, whichever of the classes they have.

    Args:
        classes: The classes, in their order; None where cells are numbers.
        numeric: Whether classes are numbers, which may be written in several ways.
        whole: Whether numbers are whole ones, and stay such.
    """

    classes: tuple[str, ...] | None = None
    numeric: bool = False
    whole: bool = False

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What classes are called where that is not their place; None otherwise."""
        if self.classes is None or not self.numeric:
            return self.classes
        values = [*map(float, self.classes)]
        return None if values == [*range(len(values))] else self.classes

    def read(self, table: Table, target: str) -> NDArray[Any]:
        """Returns a column as (rows,) numbers, or places of classes.

        Args:
            table: The table.
            target: The column.

        Raises:
            DataError: A cell is empty, no number where numbers are told, or a class that was not learned; the
                message says where.
        """
        cells = table.column(target)
        _check_present(table, target, cells)
        if self.classes is not None:
            places: dict[Any, int] = {self._key(name): place for place, name in enumerate(self.classes)}
            found = [places.get(self._key(cell), -1) for cell in cells]
            if -1 in found:
                wrong = found.index(-1)
                raise DataError(
                    f'{table.path}, line {table.lines[wrong]}: the class "{cells[wrong]}" is not among those '
                    f"that are learned: {', '.join(self.classes)}"
                )
            return np.array(found, np.int64)
        numbers = table.numbers([target])[:, 0]
        return numbers.astype(np.int64 if self.whole and (numbers % 1 == 0).all() else np.float32)

    def _key(self, cell: str) -> str | float:
        """Returns what two cells of one class have in common."""
        number = _number(cell) if self.numeric else None
        return cell if number is None else number


def learned(table: Table, target: str, *, classes: bool | None) -> TargetColumn:
    """Returns what the cells of a column mean.

    Args:
        table: The table that is learned from.
        target: The column.
        classes: Whether the loss is of classes; None where no loss is named, and targets decide.

    Raises:
        DataError: A cell is empty, or some are numbers and some are not where the loss compares numbers.
    """
    cells = table.column(target)
    _check_present(table, target, cells)
    numbers = [_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) < len(cells):
        if not classes and known:
            wrong = numbers.index(None)
            raise DataError(
                f'{table.path}, line {table.lines[wrong]}, column "{target}": {cells[wrong]!r} is no number, '
                "and other targets are; write all of them as numbers, or name a loss of classes, such as "
                '"cross_entropy", where they are names'
            )
        return TargetColumn(tuple(sorted(set(cells))))
    if not classes:
        return TargetColumn(whole=classes is None and all(map(_is_whole, cells)))
    # Of a number that is written in several ways, one.
    texts = dict(zip(known, cells, strict=True))
    return TargetColumn(tuple(texts[number] for number in sorted(texts)), numeric=True)


def _check_present(table: Table, target: str, cells: list[str]) -> None:
    missing = next((line for line, cell in zip(table.lines, cells, strict=True) if _is_missing(cell)), None)
    if missing is not None:
        raise DataError(
            f'{table.path}, line {missing}, column "{target}": there is no target; leave the row out, or '
            "fill it in"
        )


def _is_missing(cell: str) -> bool:
    number = _number(cell)
    return not cell or (number is not None and math.isnan(number))


def _is_whole(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
