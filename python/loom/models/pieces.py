"""Graphs of values with several inputs or outputs as networks: one row of layers, or cells with links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from loom.architecture import InputConfig, row_shape
from loom.errors import ConfigError
from loom.models.branches import Branches, Join, Row
from loom.models.plain import shape_after

__all__ = ["Context", "Graph", "Placed", "placed"]

_MOST_CELLS = 4096
_LINKS = ("add", "multiply", "concat")


class Context(NamedTuple):
    """How a value is made of another one and a second, as attention to another sequence is.

    Args:
        row: The layers behind the first, which take the second as their context.
    """

    row: Row


Step: TypeAlias = "Row | Join | Context"


class Placed(NamedTuple):
    """A network that is to be, as `loom.import_model` reads it.

    Args:
        data: Everything but the cells.
        rows: The layers of each cell, by its column.
    """

    data: dict[str, Any]
    rows: list[Row]

    def network(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Returns the network with these rows in its cells."""
        cells = [{"at": [0, 0, place], "layers": row} for place, row in enumerate(rows)]
        return {**self.data, "cells": cells}


@dataclass
class Graph:
    """Values that are computed from each other.

    Args:
        inputs: One sample's extents of what comes in, by key.
        names: What the inputs are called, by key.
        steps: How each further value is made, after those that it is made of: their keys, and layers
            behind one of them, how they are joined, or layers behind the first with the second as context.
        shapes: One sample's extents of values, where they are known.
    """

    inputs: dict[str, list[int | None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    steps: dict[str, tuple[list[str], Step]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...] | None] = field(default_factory=dict)

    def needed(self, ends: Sequence[str]) -> list[str]:
        """Returns the values that others are computed from, inputs aside, in order."""
        found: set[str] = set()
        waiting = list(ends)
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting.extend(self.steps[key][0] if key in self.steps else ())
        return [key for key in self.steps if key in found]

    def unread(self, ends: Sequence[str]) -> list[str]:
        """Returns the names of inputs that no output is computed from."""
        read = {source for key in self.needed(ends) for source in self.steps[key][0]} | set(ends)
        return [self.names[key] for key in self.inputs if key not in read]


def placed(graph: Graph, outputs: Mapping[str, str]) -> Placed:
    """Returns a graph as a network.

    Of one input and one output it is a row in one cell, if branches are nested in each other, so that
    Residual and Parallel can say them. Otherwise inputs, outputs, what joins different values and what goes
    different ways are cells.

    Args:
        graph: The graph.
        outputs: The value of each output, by its name.

    Raises:
        ConfigError: The graph has too many joins, or joins values of open extents that links do not.
    """
    ends = list(outputs.values())
    if len(graph.inputs) == 1 and len(outputs) == 1:
        (start,) = graph.inputs
        try:
            row = _row(graph, start, ends[0], graph.needed(ends))
        except ConfigError:
            pass
        else:
            return Placed({"input_shape": graph.inputs[start], "grid": [1, 1, 1]}, [row or _NOTHING])
    order = _Cells(_with_tables_together(graph, ends), ends).order()
    if not any(cell.row for cell in order):
        order[0].row = _NOTHING
    return _network(graph, outputs, order)


_NOTHING: Row = [{"type": "activation", "function": "linear"}]


def _row(graph: Graph, start: str, end: str, keys: Sequence[str]) -> Row:
    branches = Branches(start)
    for key in keys:
        reads, step = graph.steps[key]
        if isinstance(step, Context):
            raise ConfigError(f"{key} has a second input, which a cell alone has")
        branches.add(key, reads, step)
    return branches.row(end)


def _with_tables_together(graph: Graph, ends: Sequence[str]) -> Graph:
    """A graph in which one layer looks up all that is looked up for an input, and the others take their part.

    Whole numbers enter one cell, and reach no other one by links.
    """
    steps = {key: graph.steps[key] for key in graph.needed(ends)}
    made = Graph(graph.inputs, graph.names, {}, dict(graph.shapes))
    together: dict[str, list[str]] = {}
    for key, (reads, step) in steps.items():
        if reads[0] in graph.inputs and _looks_up(step):
            together.setdefault(reads[0], []).append(key)
    together = {start: keys for start, keys in together.items() if len(keys) > 1 or _uses(steps, start) > 1}
    for key, (reads, step) in steps.items():
        keys = together.get(reads[0], [])
        if key not in keys:
            made.steps[key] = (reads, step)
            continue
        rows: list[Row] = [each for each in (steps[other][1] for other in keys) if isinstance(each, list)]
        flat = any(len(row) > 1 or row[0]["type"] != "embedding" for row in rows)
        shapes = [graph.shapes.get(other) for other in keys]
        if flat and None in shapes:
            raise ConfigError(
                f"the numbers of {graph.names[reads[0]]} are looked up more than once, and sequences of any "
                "length are not taken apart: give the Input a length"
            )
        widths = [
            math.prod(shape or ()) if flat else row[0]["embeddings"].shape[-1]
            for shape, row in zip(shapes, rows, strict=True)
        ]
        joined = f"{reads[0]} tables"
        if key == keys[0]:
            ends_of_rows = [[*row, {"type": "flatten"}] for row in rows] if flat else rows
            made.steps[joined] = ([reads[0]] * len(rows), Join("concat", 0 if flat else None, ends_of_rows))
        start = sum(widths[: keys.index(key)])
        part: Row = [{"type": "slice", "start": start, "stop": start + widths[keys.index(key)]}]
        shape = shapes[keys.index(key)]
        if flat and shape is not None and len(shape) > 1:
            part.append({"type": "reshape", "shape": list(shape)})
        made.steps[key] = ([joined], part)
    return made


def _looks_up(step: Step) -> bool:
    """Whether a step begins with a table of rows by number."""
    if not isinstance(step, list) or not step:
        return False
    first = step[0]
    return first["type"] == "embedding" or (first["type"] == "masked" and _looks_up(first["layers"]))


def _uses(steps: Mapping[str, tuple[list[str], Step]], key: str) -> int:
    return sum(key in reads for reads, _ in steps.values())


@dataclass(eq=False)
class _Cell:
    """A cell that is to be.

    Args:
        key: The value that it makes.
        input: The input that enters it; "" where none does.
        links: The cells that others' outputs come from, how they combine, and along which axis.
        row: Its layers.
    """

    key: str
    input: str = ""
    links: list[tuple[_Cell, str, int | None]] = field(default_factory=list)
    row: Row = field(default_factory=list)


class _Cells:
    """The cells of a graph."""

    def __init__(self, graph: Graph, ends: Sequence[str]) -> None:
        self._graph = graph
        self._ends = set(ends)
        self._keys = graph.needed(ends)
        self._anchors = set(graph.inputs) | self._ends
        self._source: dict[str, str] = {}
        self._joins: set[str] = set()

    def order(self) -> list[_Cell]:
        """Returns the cells, each behind those that it reads."""
        while True:
            self._find_anchors()
            rows = self._rows()
            if rows is not None:
                break
        made: dict[str, _Cell] = {}
        cells: list[_Cell] = []
        for key in [*self._graph.inputs, *self._keys]:
            if key not in self._anchors:
                continue
            if key in self._graph.inputs:
                cell = _Cell(key, input=key)
            elif key in self._joins:
                cell = self._joined(key, made, cells)
            else:
                cell = _Cell(key, links=[(made[self._source_of(key)], "replace", None)], row=rows[key])
            made[key] = cell
            cells.append(cell)
            if len(cells) > _MOST_CELLS:
                raise ConfigError(f"the model's values meet more than {_MOST_CELLS} times")
        return _in_one(cells, {made[end] for end in self._ends})

    def _source_of(self, key: str) -> str:
        return self._source[self._graph.steps[key][0][0]]

    def _find_anchors(self) -> None:
        """Finds which values are cells' own: until no more are found, since each makes others one."""
        steps = self._graph.steps
        while True:
            before = len(self._anchors)
            self._source = {key: key for key in self._graph.inputs}
            self._joins = set()
            for key in self._keys:
                reads, step = steps[key]
                sources = {self._source[other] for other in reads}
                if len(sources) > 1 or isinstance(step, Context):
                    self._joins.add(key)
                    self._anchors |= {key, *reads}
                self._source[key] = key if key in self._anchors else next(iter(sources))
            ways: dict[str, set[str]] = {}
            for key in reversed(self._keys):
                if len(ways.get(key, ())) > 1:
                    self._anchors.add(key)
                ends = {key} if key in self._anchors else ways.get(key, set())
                for other in steps[key][0]:
                    ways.setdefault(other, set()).update(ends)
            if len(self._anchors) == before:
                return

    def _rows(self) -> dict[str, Row] | None:
        """The layers before each cell's value; None where more values have to be cells' own."""
        pieces: dict[str, list[str]] = {}
        for key in self._keys:
            if key not in self._anchors:
                pieces.setdefault(self._source[key], []).append(key)
        rows: dict[str, Row] = {}
        for key in self._keys:
            if key in self._anchors and key not in self._joins:
                source = self._source_of(key)
                try:
                    rows[key] = _row(self._graph, source, key, [*pieces.get(source, ()), key])
                except ConfigError:
                    uses: dict[str, int] = {}
                    for each in pieces[source]:
                        for other in self._graph.steps[each][0]:
                            uses[other] = uses.get(other, 0) + 1
                    self._anchors |= {
                        each
                        for each in pieces[source]
                        if uses.get(each, 0) > 1 or isinstance(self._graph.steps[each][1], Join)
                    }
                    if isinstance(self._graph.steps[key][1], Join):
                        self._anchors |= set(self._graph.steps[key][0])
                    return None
        return rows

    def _joined(self, key: str, made: Mapping[str, _Cell], cells: list[_Cell]) -> _Cell:
        """A cell that brings values together; what they go through before are cells of their own."""
        reads, step = self._graph.steps[key]
        if isinstance(step, Context):
            first, second = (made[other] for other in reads)
            return _Cell(key, links=[(first, "replace", None), (second, "context", None)], row=step.row)
        assert isinstance(step, Join)
        operands: list[_Cell] = []
        shapes: list[tuple[int, ...] | None] = []
        for place, other in enumerate(reads):
            row = step.ends[place] if step.ends else []
            operands.append(_behind(made[other], row, cells))
            shapes.append(shape_after(row, self._graph.shapes.get(other)))
        count = len(operands)
        if step.combine == "concat" or all(shape == shapes[0] for shape in shapes):
            combine = "add" if step.combine == "average" else step.combine
            assert combine in _LINKS
            after: Row = [{"type": "scale", "factor": 1 / count}] if step.combine == "average" else []
            return _Cell(key, links=_linked(operands, combine, step.axis), row=after)
        # Links want equal extents: the values come side by side, flat, and are taken apart in the cell.
        branches: list[Row] = []
        start = 0
        for place, shape in enumerate(shapes):
            if shape is None:
                raise ConfigError(f"{key} brings values together whose extents are open and not the same")
            end = start + math.prod(shape)
            operands[place] = _behind(operands[place], [{"type": "flatten"}], cells)
            part: Row = [{"type": "slice", "axis": 0, "start": start, "stop": end}]
            branches.append([*part, {"type": "reshape", "shape": list(shape)}])
            start = end
        taken = {"type": "parallel", "branches": branches, "combine": step.combine}
        return _Cell(key, links=_linked(operands, "concat", 0), row=[taken])


def _linked(cells: Sequence[_Cell], combine: str, axis: int | None) -> list[tuple[_Cell, str, int | None]]:
    """Links from several cells: the first takes the place of what flows there, the others come to it."""
    others = [(cell, combine, axis if combine == "concat" else None) for cell in cells[1:]]
    return [(cells[0], "replace", None), *others]


def _behind(cell: _Cell, row: Row, cells: list[_Cell]) -> _Cell:
    """A cell of layers behind another one; the other one where there are none."""
    if not row:
        return cell
    made = _Cell(f"{cell.key} ", links=[(cell, "replace", None)], row=row)
    cells.append(made)
    return made


def _in_one(cells: Sequence[_Cell], ends: set[_Cell]) -> list[_Cell]:
    """Puts the layers of cells that read a single one into that, where nobody else reads it."""
    uses: dict[_Cell, int] = {}
    for cell in cells:
        for source, _, _ in cell.links:
            uses[source] = uses.get(source, 0) + 1
    order: dict[_Cell, None] = {}
    for cell in cells:
        only = cell.links[0][0] if len(cell.links) == 1 else None
        if only is not None and uses[only] == 1 and only not in ends:
            # The cell takes over what the other one was.
            cell.input, cell.links, cell.row = only.input, only.links, [*only.row, *cell.row]
            del order[only]
        order[cell] = None
    return list(order)


def _network(graph: Graph, outputs: Mapping[str, str], order: Sequence[_Cell]) -> Placed:
    places = {cell: place for place, cell in enumerate(order)}
    columns = {cell.key: place for cell, place in places.items()}
    data: dict[str, Any] = {"grid": [1, 1, len(order)], "links": list(_links(places))}
    entered = {cell.input: place for cell, place in places.items() if cell.input}
    if len(graph.inputs) == 1:
        (shape,) = graph.inputs.values()
        data["input_shape"] = shape
    else:
        # The first input enters the first cell.
        keys = sorted(graph.inputs, key=lambda key: entered[key])
        inputs = [InputConfig(graph.names[key], graph.inputs[key], (0, 0, entered[key])) for key in keys]
        data |= {"inputs": [entry.to_config() for entry in inputs], "input_shape": list(row_shape(inputs))}
    if len(outputs) > 1:
        data["outputs"] = [{"name": name, "cell": [0, 0, columns[key]]} for name, key in outputs.items()]
    return Placed(data, [cell.row for cell in order])


def _links(places: Mapping[_Cell, int]) -> Iterator[dict[str, Any]]:
    for cell, place in places.items():
        for source, combine, axis in cell.links:
            if combine != "replace" or places[source] != place - 1:
                ends = {"source": [0, 0, places[source]], "target": [0, 0, place]}
                yield {**ends, "combine": combine, "axis": axis}
