"""The grid: its extents, and how cells and layers are addressed."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import SupportsIndex, TypeAlias, cast

from loom._settings.checks import items, whole
from loom._settings.suggestions import shown
from loom.errors import CellIndexError, ConfigError

__all__ = [
    "CellIndex",
    "Coordinate",
    "Extents",
    "as_grid",
    "as_open_shape",
    "as_shape",
    "coordinates",
    "locate",
    "locate_given",
    "place_in_cell",
]

MOST_CELLS = 1 << 20
"""The most cells that a grid may have, as in the engine."""
Coordinate: TypeAlias = "tuple[int, int, int]"
"""Depth, row, column."""
Extents: TypeAlias = "tuple[int, int, int]"
CellIndex: TypeAlias = "tuple[SupportsIndex, ...]"


def as_grid(grid: Sequence[int]) -> Extents:
    """Expands a grid's extents to (depth, rows, columns).

    Args:
        grid: (depth, rows, columns), or (rows, columns) where depth is 1.

    Returns:
        The three extents.

    Raises:
        ConfigError: There are not two or three, one is not positive, or there are too many cells.
    """
    numbers = items(grid)
    if numbers is None or len(numbers) not in {2, 3}:
        raise ConfigError(f"grid must be (depth, rows, columns) or (rows, columns), got {shown(grid)}")
    extents = [whole("grid", "an extent", number, least=1) for number in numbers]
    depth, rows, columns = [1, *extents][-3:]
    if depth * rows * columns > MOST_CELLS:
        raise ConfigError(f"grid {(depth, rows, columns)} must have at most {MOST_CELLS:,} cells")
    return depth, rows, columns


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Checks one sample's shape, without the batch.

    Args:
        shape: The extents; one number stands for a single axis.

    Returns:
        The extents.

    Raises:
        ConfigError: There are none, or one is not positive.
    """
    numbers = items(shape)
    if numbers == () or (numbers and numbers[0] is None):
        raise ConfigError(f"input_shape must be one sample's extents, without the batch, got {shown(shape)}")
    return tuple(whole("input_shape", "an extent", number, least=1) for number in (numbers or (shape,)))


def as_open_shape(shape: int | Sequence[int | None]) -> tuple[int | None, ...]:
    """Checks one sample's shape, without the batch, of which extents may be left open.

    Args:
        shape: The extents, None where they differ from call to call; one number stands for a single axis.

    Returns:
        The extents.

    Raises:
        ConfigError: There are none, one is not positive, or time is open beside another axis.
    """
    if isinstance(shape, Mapping):
        raise ConfigError(
            f"input_shape is of one input, got {shown(shape)}; inputs with names are "
            "loom.Network(inputs={...}), with net.enter(name, cell) for each behind the first"
        )
    numbers = items(shape)
    if numbers == () or shape is None:
        raise ConfigError(f"input_shape must be one sample's extents, without the batch, got {shown(shape)}")
    found = tuple(
        None if number is None else whole("input_shape", "an extent", number, least=1)
        for number in (numbers or (shape,))
    )
    if found.count(None) > 1 and found[0] is None:
        raise ConfigError(f"input_shape {shown(shape)}: where the first axis, time, is open, no other one is")
    if None in found and len(found) > 4:
        raise ConfigError(f"input_shape {shown(shape)}: extents are left open in at most 4 axes")
    return found


def coordinates(grid: Extents) -> Iterator[Coordinate]:
    """Yields every cell in the order data flows: depth, then row, then column."""
    depth, rows, columns = grid
    for z in range(depth):
        for y in range(rows):
            for x in range(columns):
                yield z, y, x


def locate(grid: Extents, index: object) -> tuple[Coordinate, int | None]:
    """Finds the cell, and the layer where there is one, that an index means.

    Args:
        grid: The extents.
        index: (z, y, x) for a cell, (z, y, x, layer) for a layer; (y, x) for a
            cell where depth is 1. Negative numbers count from the end.

    Returns:
        The cell's coordinate, and the layer's index as it came, or None.

    Raises:
        CellIndexError: The index has another form or lies outside the grid.
    """
    numbers = _numbers(index)
    if numbers is None or len(numbers) not in {2, 3, 4} or (len(numbers) == 2 and grid[0] != 1):
        flat = ", [row, column]" if grid[0] == 1 else ""
        raise CellIndexError(
            "a cell is addressed as [depth, row, column]"
            f"{flat}, a layer as [depth, row, column, layer]; got {shown(index)}{_listed(index)}"
        )
    if len(numbers) == 2:
        numbers = [0, *numbers]
    place = [
        _inside(name, number, extent)
        for name, number, extent in zip(("depth", "row", "column"), numbers[:3], grid, strict=True)
    ]
    return (place[0], place[1], place[2]), (numbers[3] if len(numbers) == 4 else None)


def _listed(index: object) -> str:
    """Says how layers are counted through, to whoever takes a network for a list of them."""
    if isinstance(index, str):
        return "; layers have no names, and net.summary() lists their places"
    return f"; net.layers[{shown(index)}] is a layer by its number" if isinstance(index, int) else ""


def locate_given(grid: Extents, cell: object) -> tuple[Coordinate, int | None]:
    """Finds what `locate` does, for a cell that stands in an argument: as any sequence of whole numbers."""
    try:
        index: object = tuple(cast("Iterable[object]", cell))
    except TypeError:
        index = cell
    return locate(grid, index)


def _inside(name: str, number: int, extent: int) -> int:
    if not -extent <= number < extent:
        raise CellIndexError(
            f"{name} {shown(number)} is outside the grid, whose {name} runs from 0 to {extent - 1}"
        )
    return number % extent


def _numbers(index: object) -> list[int] | None:
    if not isinstance(index, tuple):
        return None
    try:
        return [operator.index(cast(SupportsIndex, entry)) for entry in index]
    except TypeError:
        return None


def place_in_cell(at: Coordinate, index: int, count: int) -> int:
    """Returns a layer's place, counted from the start; a CellIndexError where there is no such layer."""
    try:
        index = operator.index(index)
    except TypeError:
        raise CellIndexError(
            f"a layer in a cell is addressed by a whole number, got {shown(index)}"
        ) from None
    if not -count <= index < count:
        held = "no layers" if count == 0 else f"{count} layer{'s' * (count > 1)}"
        raise CellIndexError(f"cell {at} has {held}, so there is no layer {shown(index)}")
    return index % count
