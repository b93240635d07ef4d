"""ONNX models of several inputs or outputs, taken apart into pieces that read one value and make one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loom import nn
from loom.errors import SerializationError
from loom.models.movements import Made
from loom.models.onnx.importing.folding import Folded
from loom.models.onnx.importing.steps import layers_of
from loom.network import Network

__all__ = ["Piece", "network_of_pieces"]

_JOINS = {"Add": "add", "Sum": "add", "Sub": "add", "Mul": "multiply", "Concat": "concat"}
"""What may bring values together that come from different places, and the links that say so."""
_MOST_CELLS = 4096

Piece = Callable[[Any, str, str], list[Made]]
"""Reads a model of one input and one output, by their names, as a row of layers."""


@dataclass(eq=False)
class _Cell:
    """A cell that is to be.

    Args:
        input: The input that enters it; "" where none does.
        links: The cells that others' outputs come from, how they combine, and along which axis.
        row: Its layers.
    """

    input: str = ""
    links: list[tuple[_Cell, str, int | None]] = field(default_factory=list)
    row: list[Made] = field(default_factory=list)


def network_of_pieces(
    model: Any,  # noqa: ANN401 - a ModelProto
    folded: Folded,
    rows: int,
    samples: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, str],
    *,
    fixed: Mapping[str, Any],
    folder: Path | None,
    read: Piece,
) -> Network:
    """Returns a network with named inputs and outputs.

    Every value at which ways part to different ends, and every node that brings together what comes from
    different values, becomes the end of a piece; pieces become cells, and links lead between them.

    Args:
        model: The model.
        folded: The same, with constants and shapes for `rows` rows.
        rows: The number of rows.
        samples: One sample's extents of every input.
        outputs: The value of every output, by the name that the network gives it.
        fixed: Inputs that are given once and for all.
        folder: Where external data is.
        read: What reads a piece.

    Raises:
        SerializationError: Values are brought together in a way that links do not know.
    """
    skeleton = _Skeleton(folded, samples, {folded.alias.get(end, end) for end in outputs.values()})
    parts = _Parts(model, folded, rows, fixed, folder, read, skeleton)
    cells = {name: parts.cell(folded.alias.get(end, end)) for name, end in outputs.items()}
    unread = [name for name in samples if name not in parts.entered]
    if unread:
        raise SerializationError(
            f'no output of the ONNX model depends on its input "{unread[0]}"; give it a value in given'
        )
    order = _joined(parts.cells, set(cells.values()))
    renamed = {cell: place for place, cell in enumerate(order)}
    return _network(order, samples, {name: renamed[cell] for name, cell in cells.items()})


class _Skeleton:
    """Which values pieces of a graph end at: inputs, joins, and where ways part.

    Args:
        folded: The graph.
        inputs: Its inputs.
        ends: The values that leave it.
    """

    def __init__(self, folded: Folded, inputs: Iterable[str], ends: set[str]) -> None:
        self._folded = folded
        self.inputs = set(inputs)
        self.producer = {name: node for node in folded.nodes for name in node.output if name}
        self.joins: dict[str, Any] = {}
        """The nodes that bring together what comes from different values, by what they make."""
        self.source: dict[str, str] = {}
        """The value of which every value is made alone, by a piece."""
        nodes = self._needed(ends)
        cuts: set[str] = set()
        while True:
            before = (len(self.joins), len(cuts))
            self._find_joins(nodes, cuts)
            cuts |= self._find_cuts(nodes, ends, cuts)
            if before == (len(self.joins), len(cuts)):
                break

    def data(self, node: Any) -> list[str]:  # noqa: ANN401 - a NodeProto
        """Returns what a node reads that is not constant."""
        return [name for name in node.input if name and name not in self._folded.constants]

    def _needed(self, ends: set[str]) -> list[Any]:
        needed: set[int] = set()
        waiting = list(ends)
        while waiting:
            node = self.producer.get(waiting.pop())
            if node is not None and id(node) not in needed:
                needed.add(id(node))
                waiting.extend(self.data(node))
        return [node for node in self._folded.nodes if id(node) in needed]

    def _find_joins(self, nodes: Sequence[Any], cuts: set[str]) -> None:
        self.source = {name: name for name in self.inputs}
        for node in nodes:
            sources = {self.source[name] for name in self.data(node) if name in self.source}
            joins = len(sources) > 1 or any(name in self.joins for name in node.output)
            for name in filter(None, node.output):
                if joins:
                    self.joins[name] = node
                begins = joins or name in cuts
                if begins or sources:
                    self.source[name] = name if begins else next(iter(sources))

    def _find_cuts(self, nodes: Sequence[Any], ends: set[str], cuts: set[str]) -> set[str]:
        reached: dict[str, set[object]] = {end: {end} for end in ends}
        for node in reversed(nodes):
            found: set[object] = set()
            for name in filter(None, node.output):
                # What is a beginning itself, or where ways part, is the one end of the ways to it.
                ways = reached.get(name, set())
                found |= {name} if self.source.get(name) == name or len(ways) > 1 else ways
            for name in dict.fromkeys(self.data(node)):
                joins = any(made in self.joins for made in node.output)
                reached.setdefault(name, set()).update({(node.output[0], name)} if joins else found)
        beginnings = self.inputs | set(self.joins) | cuts
        return {name for name, ways in reached.items() if len(ways) > 1 and name not in beginnings}


class _Parts:
    """Makes cells of a skeleton, as they are asked for."""

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a ModelProto
        folded: Folded,
        rows: int,
        fixed: Mapping[str, Any],
        folder: Path | None,
        read: Piece,
        skeleton: _Skeleton,
    ) -> None:
        self._model, self._folded, self._rows, self._fixed, self._read = model, folded, rows, fixed, read
        self._folder, self._skeleton = folder, skeleton
        self._made: dict[str, _Cell] = {}
        self._producer = {name: node for node in model.graph.node for name in node.output if name}
        self.cells: list[_Cell] = []
        self.entered: set[str] = set()

    def cell(self, value: str) -> _Cell:
        """Returns the cell that makes a value."""
        # What is asked for stands behind what it is made of; without recursion, however deep the graph is.
        waiting = [value]
        while waiting:
            name = waiting[-1]
            if name in self._made:
                waiting.pop()
                continue
            missing = [each for each in self._reads(name) if each not in self._made]
            # The first operand's cell comes last, so that it stands before the join.
            waiting.extend(missing)
            if missing:
                continue
            waiting.pop()
            if len(self.cells) >= _MOST_CELLS:
                raise SerializationError(f"the ONNX model's inputs meet more than {_MOST_CELLS} times")
            self._made[name] = made = self._cell(name)
            self.cells.append(made)
        return self._made[value]

    def _reads(self, value: str) -> list[str]:
        skeleton = self._skeleton
        if value in skeleton.inputs:
            return []
        if value in skeleton.joins:
            return list(dict.fromkeys(reversed(skeleton.data(skeleton.joins[value]))))
        source = skeleton.source.get(value)
        if source == value:
            # Ways part there: it is the end of a piece of its own.
            source = self._source_of(value)
        if source is None:
            raise SerializationError(f'value "{value}" of the ONNX model depends on no input')
        return [source]

    def _source_of(self, value: str) -> str | None:
        node = self._skeleton.producer[value]
        sources = [self._skeleton.source.get(name) for name in self._skeleton.data(node)]
        return next((source for source in sources if source is not None), None)

    def _cell(self, value: str) -> _Cell:
        skeleton = self._skeleton
        if value in skeleton.inputs:
            self.entered.add(value)
            return _Cell(input=value)
        if value in skeleton.joins:
            return self._join(skeleton.joins[value], value)
        (source,) = self._reads(value)
        row = self._read(self._piece(source, value), source, value)
        return _Cell(links=[(self._made[source], "replace", None)], row=row)

    def _join(self, node: Any, value: str) -> _Cell:  # noqa: ANN401 - a NodeProto
        what = f'{node.op_type} "{node.name or value}"'
        operands = [name for name in node.input if name]
        shapes = [self._folded.shapes.get(name) or () for name in operands]
        if node.op_type not in _JOINS or any(name in self._folded.constants for name in operands):
            raise SerializationError(
                "loom has no layers for some of this ONNX model:\n"
                f"  {what}: it brings values of different inputs or branches together, which links do by "
                "Add, Sub, Mul and Concat alone"
            )
        if any(not shape or shape[0] != self._rows for shape in shapes):
            raise SerializationError(
                f"loom has no layers for some of this ONNX model:\n  {what}: it joins rows"
            )
        axis: int | None = None
        if node.op_type == "Concat":
            axis = next(each.i for each in node.attribute if each.name == "axis") % len(shapes[0]) - 1
            if axis < 0:
                raise SerializationError(
                    f"loom has no layers for some of this ONNX model:\n  {what}: it joins rows"
                )
        elif any(shape != shapes[0] for shape in shapes):
            raise SerializationError(
                f"loom has no layers for some of this ONNX model:\n  {what}: what it joins is of different "
                f"shapes, {', '.join(str(shape[1:]) for shape in shapes)}"
            )
        cell = _Cell(links=[(self._made[operands[0]], "replace", None)])
        for name in operands[1:]:
            other = self._made[name]
            if node.op_type == "Sub":
                other = _Cell(links=[(other, "replace", None)], row=[Made(nn.Scale(-1.0))])
                self.cells.append(other)
            cell.links.append((other, _JOINS[node.op_type], axis))
        return cell

    def _piece(self, source: str, value: str) -> Any:  # noqa: ANN401 - a ModelProto
        """Cuts the model between two values."""
        graph = self._model.graph
        found: set[int] = set()
        names = {source}
        waiting = [value]
        while waiting:
            name = waiting.pop()
            if name == source or name in self._fixed:
                names.add(name)
                continue
            names.add(name)
            node = self._producer.get(name)
            if node is not None and id(node) not in found:
                found.add(id(node))
                waiting.extend(each for each in node.input if each)
        piece = type(self._model)()
        piece.ir_version = self._model.ir_version
        piece.opset_import.extend(self._model.opset_import)
        piece.graph.name = "piece"
        piece.graph.node.extend(node for node in graph.node if id(node) in found)
        piece.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in names)
        known = {entry.name: entry for entry in graph.input}
        tensors = {tensor.name for tensor in graph.initializer}
        for name in sorted(names & set(known) - tensors - {source}):
            if name not in self._fixed:
                raise SerializationError(
                    f'value "{value}" of the ONNX model depends on "{source}", and on "{name}" by the '
                    "extents of that: say them in the model"
                )
            piece.graph.input.append(known[name])
        entry = piece.graph.input.add()
        if source in known:
            entry.CopyFrom(known[source])
        else:
            entry.name = source
            entry.type.tensor_type.elem_type = self._folded.types.get(source) or 1
        shape = self._folded.shapes.get(source)
        if not shape or shape[0] != self._rows:
            raise SerializationError(
                f'value "{source}" of the ONNX model: its rows are not on the first axis'
            )
        # However many rows there are, unless the model is for a certain number of them.
        first = next(each for each in graph.input if each.name in self._skeleton.inputs)
        count = first.type.tensor_type.shape.dim[0].dim_value
        del entry.type.tensor_type.shape.dim[:]
        for place, extent in enumerate(shape):
            axis = entry.type.tensor_type.shape.dim.add()
            if place or count:
                axis.dim_value = extent if place else count
            else:
                axis.dim_param = "rows"
        end = piece.graph.output.add()
        end.name = value
        end.type.tensor_type.elem_type = self._folded.types.get(value) or 1
        return piece


def _joined(cells: Sequence[_Cell], ends: set[_Cell]) -> list[_Cell]:
    """Puts the layers of cells that read a single one into that, where nobody else reads it."""
    uses: dict[_Cell, int] = {}
    for cell in cells:
        for source, _, _ in cell.links:
            uses[source] = uses.get(source, 0) + 1
    order: list[_Cell] = []
    for cell in cells:
        only = cell.links[0][0] if len(cell.links) == 1 and cell.links[0][1] == "replace" else None
        if only is not None and uses[only] == 1 and only not in ends:
            # The cell takes over what the other one was.
            cell.input, cell.links, cell.row = only.input, only.links, [*only.row, *cell.row]
            order.remove(only)
        order.append(cell)
    return order


def _network(
    order: Sequence[_Cell], samples: Mapping[str, tuple[int, ...]], outputs: Mapping[str, int]
) -> Network:
    """Builds a network of cells, and loads what they hold."""
    places = {cell: place for place, cell in enumerate(order)}
    inputs = [name for name in samples if any(cell.input == name for cell in order)]
    # The first input enters the first cell.
    inputs.sort(key=lambda name: next(place for place, cell in enumerate(order) if cell.input == name))
    net: Network
    if len(samples) == 1:
        net = Network(input_shape=samples[inputs[0]], grid=(1, len(order)))
    else:
        net = Network(inputs={name: samples[name] for name in inputs}, grid=(1, len(order)))
    state = {}
    for place, cell in enumerate(order):
        if cell.input and len(samples) > 1:
            net.enter(cell.input, (0, place))
        for source, combine, axis in cell.links:
            if combine != "replace" or places[source] != place - 1:
                net.link((0, places[source]), (0, place), combine=combine, axis=axis)  # type: ignore[arg-type]
        net[0, place].add(*layers_of(cell.row))
        state.update(
            {
                f"0.0.{place}.{number}.{name}": np.array(values, np.float32)
                for number, each in enumerate(cell.row)
                for name, values in each.tensors.items()
            }
        )
    if len(outputs) > 1:
        for name, place in outputs.items():
            net.output(name, (0, place))
    net.build()
    net.load_state_dict(state)
    return net
