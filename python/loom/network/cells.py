"""Cells in their places: what `net[z, y, x]` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

from loom._tables import table
from loom.engine import Engine, HasEngine, engine_of
from loom.grid import Coordinate, place_in_cell
from loom.network.layers import LayerHandle
from loom.network.surgery import Insertable, append, popped, put
from loom.network.text import brief

__all__ = ["Cell"]


class Cell:
    """One cell of a network: a sequence of layers, which is changed as a list is.

    `add` makes it longer, `insert` puts a layer in, `pop` and `del` take one out, and an assignment,
    `cell[2] = nn.Dense(5)`, exchanges one. What is put in is a configuration, whose weights are drawn,
    or a layer in its place, `other.layers[3]`, of this or of another network: a copy of it then, with
    its weights, what it keeps and carries, its numeric type, what is frozen, its rate factor. Training
    one never moves the other.

    The other layers keep all of these. Where a change gives a layer inputs of another shape, weights
    that do not fit them any more are drawn anew, once the network is next built; until then it may be
    changed further, and need not fit together. Gradients and the optimizer's moments are forgotten:
    the optimizer starts anew. A layer that uses another one's parameters (`tied_to`) follows it to its
    new place. Handles are places: `net[0, 0, 0, 2]` is whatever stands there. After an error nothing
    has changed.

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

    def add(self, *layers: Insertable) -> Cell:
        """Adds layers at the end of the cell; all of them or, after an error, none.

        Args:
            *layers: Layers such as `nn.Dense(10)`, their JSON form, or layers in their places, which are
                copied.

        Returns:
            The cell.

        Raises:
            ConfigError: Something is no layer.
            InvalidValueError: A layer that is copied is of another precision.
            ShapeError: Weights that are copied are for inputs of another shape.
            StateError: The network is training.

        Examples:
            >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2), nn.Dense(3)], input_shape=3)
            >>> other = loom.Network(input_shape=8)
            >>> _ = other[0, 0, 0].add(*net.layers[1:])
            >>> bool((other.layers[0].weight == net.layers[1].weight).all())
            True
        """
        append(self._network, self.at, layers)
        return self

    def insert(self, index: int, layer: Insertable) -> Cell:
        """Puts a layer before another one, or at the end.

        Args:
            index: The place that the layer gets; negative numbers count from the end, as for lists.
            layer: A layer such as `nn.Dense(10)`, its JSON form, or a layer in its place, which is copied.

        Returns:
            The cell.

        Raises:
            CellIndexError: There is no such place.
            ConfigError: Something is no layer.
            InvalidValueError: The layer that is copied is of another precision.
            ShapeError: Weights that are copied are for inputs of another shape.
            StateError: The network is training; or what is carried from batch to batch is of other rows.

        Examples:
            >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=3)
            >>> _ = net[0, 0, 0].insert(1, nn.LayerNorm())
            >>> [layer.kind for layer in net.layers]
            ['dense', 'layer_norm', 'dense']
        """
        count = len(self)
        place = count if index == count else place_in_cell(self.at, index, count)
        put(self._network, (*self.at, place), layer, replaces=False)
        return self

    def pop(self, index: int = -1) -> LayerHandle:
        """Takes a layer out, and returns it: the only layer of a network of its own, with all it had.

        It can be looked at there, and put in again, here or elsewhere.

        Args:
            index: Which one; the last by default.

        Returns:
            The layer.

        Raises:
            CellIndexError: There is no such layer.
            InvalidValueError: Another layer uses its parameters.
            StateError: The network is training.

        Examples:
            >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=3)
            >>> head = net[0, 0, 0].pop()
            >>> net.output_shape, head.weight.shape
            ((8,), (2, 8))
            >>> _ = net[0, 0, 0].insert(1, head)
        """
        return popped(self[index], self._network)

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

    def __setitem__(self, index: int, layer: Insertable) -> None:
        """Puts a layer in the place of another one; see `insert`."""
        place = place_in_cell(self.at, index, len(self))
        put(self._network, (*self.at, place), layer, replaces=True)

    def __delitem__(self, index: int) -> None:
        """Takes a layer out; see `pop`."""
        self.pop(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self._network is other._network and self.at == other.at

    def __hash__(self) -> int:
        return hash((id(self._network), self.at))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place, as a layer's handle does."""
        return Cell, (self._network, self.at)

    def _repr_html_(self) -> str:
        """Returns the layers as a table, for notebooks."""
        rows = [(layer.index, brief(layer.config)) for layer in self]
        return table(f"cell {self.at}", ("layer", "settings"), rows)

    def __repr__(self) -> str:
        lines = [f"Cell {self.at}", *(f"  {layer.index}: {brief(layer.config)}" for layer in self)]
        return "\n".join(lines)
