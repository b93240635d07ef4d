"""Cells in their places: what `net[z, y, x]` gives."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, overload

from loom import nn
from loom.engine import Engine, HasEngine, engine_of
from loom.errors import CellIndexError
from loom.grid import Coordinate
from loom.network.layers import LayerHandle
from loom.network.text import brief

__all__ = ["Cell", "place_in_cell"]


class Cell:
    """One cell of a network: a sequence of layers, which `add` makes longer.

    Args:
        network: The network it belongs to.
        at: Where it is: depth, row, column.
    """

    __slots__ = ("_network", "at")

    def __init__(self, network: HasEngine, at: Coordinate) -> None:
        self._network = network
        self.at = at

    @property
    def _engine(self) -> Engine:
        return engine_of(self._network)

    def add(self, *layers: nn.Layer | Mapping[str, Any]) -> Cell:
        """Adds layers at the end of the cell; all of them or, after an error, none.

        Args:
            *layers: Layers such as `nn.Dense(10)`, or their JSON form.

        Returns:
            The cell.

        Raises:
            ConfigError: Something is no layer.
            StateError: The network is training.
        """
        self._engine.add(self.at, layers)
        return self

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they leave the cell; builds the network.

        Those of its last layer's output, or, without layers, of what arrives there, links included.
        """
        return tuple(self._engine.native.cell_output_shape(self.at))

    def __len__(self) -> int:
        return self._engine.native.cell_len(self.at)

    def __iter__(self) -> Iterator[LayerHandle]:
        for place in range(len(self)):
            yield LayerHandle(self._network, self.at, place)

    @overload
    def __getitem__(self, index: int) -> LayerHandle: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerHandle]: ...
    def __getitem__(self, index: int | slice) -> LayerHandle | list[LayerHandle]:
        """Returns one layer, or a list of them; negative numbers count from the end."""
        if isinstance(index, slice):
            return list(self)[index]
        return LayerHandle(self._network, self.at, place_in_cell(self.at, index, len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self._network is other._network and self.at == other.at

    def __hash__(self) -> int:
        return hash((id(self._network), self.at))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place, as a layer's handle does."""
        return Cell, (self._network, self.at)

    def __repr__(self) -> str:
        lines = [f"Cell {self.at}", *(f"  {layer.index}: {brief(layer.config)}" for layer in self)]
        return "\n".join(lines)


def place_in_cell(at: Coordinate, index: int, count: int) -> int:
    """Returns a layer's place, counted from the start; a CellIndexError where there is no such layer."""
    try:
        index = operator.index(index)
    except TypeError:
        raise CellIndexError(f"a layer in a cell is addressed by a whole number, got {index!r}") from None
    if not -count <= index < count:
        held = "no layers" if count == 0 else f"{count} layer{'s' * (count > 1)}"
        raise CellIndexError(f"cell {at} has {held}, so there is no layer {index}")
    return index % count
