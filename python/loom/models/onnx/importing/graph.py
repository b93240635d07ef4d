"""The graph that is read: who makes and who reads a value, what all paths to it pass, what it comes to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.extras import require
from loom.models.movements import Made
from loom.models.onnx.importing.folding import Folded, evaluate_nodes

__all__ = ["MOVEMENTS", "Graph", "Made", "Node", "Unsupported", "is_movement"]

MOVEMENTS = {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Expand"}
"""Operators that hand elements on, each as it is."""


LARGEST = 2**26
"""Elements of all values together of a piece that is computed."""


class Unsupported(Exception):  # noqa: N818 - it is caught, and told with all others
    """Why a node cannot become a layer."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(f'{node.op} "{node.name}": {why}')


@dataclass(eq=False)
class Node:
    """A node: what it computes of what.

    Args:
        op: The operator; "" for what a pattern has made of several nodes.
        name: The node's name, or that of its first output.
        inputs: Values, "" where one is left out.
        outputs: Values.
        attributes: Settings by name.
        proto: The NodeProto, to compute it with.
        made: The layers that it is, for a pattern.
    """

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    proto: Any = None
    made: list[Made] = field(default_factory=list)


class Graph:
    """Nodes between one input and one output.

    Args:
        many: The graph, folded for a number of rows that is told from all other extents.
        one: The graph, folded for one row, to find out with what pieces compute.
        pair: The graph, folded for two rows, to compare pieces with layers, rows of which know nothing of
            each other.
        rows: That number of rows.
        ends: The input's and the output's name.
        opsets: The model's operator sets.
        shared: Whether other extents may be that number, too, as in a model that was written for it.
    """

    def __init__(
        self,
        many: Folded,
        one: Folded,
        pair: Folded,
        rows: int,
        ends: tuple[str, str],
        opsets: list[Any],
        *,
        shared: bool = False,
    ) -> None:
        helper = require("onnx", extra="onnx", purpose="reading ONNX").helper
        self.constants, self.shapes, self.rows, self.opsets = many.constants, many.shapes, rows, opsets
        self.single, self.pair = one, pair
        self.crossed: list[Node] = []
        """What takes rows apart, so that they are no rows any longer."""
        self.shared = shared
        self.input, self.output = ends[0], many.alias.get(ends[1], ends[1])
        self.opset = next((entry.version for entry in opsets if entry.domain in ("", "ai.onnx")), 1)
        self.nodes = [
            Node(
                proto.op_type,
                proto.name or (proto.output[0] if proto.output else proto.op_type),
                list(proto.input),
                list(proto.output),
                {each.name: helper.get_attribute_value(each) for each in proto.attribute},
                proto,
            )
            for proto in many.nodes
        ]
        self.outer = self._found()
        """How many blocks a value has, each of which holds a part of all rows: 1 where rows come first."""
        self.refresh()

    def _found(self) -> dict[str, int]:
        """Follows the rows through the graph, which may share an axis with others, before or behind them."""
        outer: dict[str, int] = {self.input: 1}
        inside: dict[str, int] = {self.input: 1}
        for node in () if self.shared else self.nodes:
            read = next((name for name in node.inputs if name in outer), "")
            for name in node.outputs:
                shape = self.shapes.get(name) or ()
                axes = [axis for axis, extent in enumerate(shape) if extent and extent % self.rows == 0]
                if len(axes) != 1 or not read:
                    continue
                before, several = math.prod(shape[: axes[0]]), shape[axes[0]] // self.rows
                if node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
                    part, rest = divmod(outer[read], before)
                    if rest or several % part:
                        self.crossed.append(node)
                        part = 1
                else:
                    part = inside[read] if several % inside[read] == 0 else 1
                inside[name], outer[name] = part, before * part
        return outer

    def refresh(self) -> None:
        """Notes anew who makes and reads what; drops what the output does not need."""
        self.producer = {name: node for node in self.nodes for name in node.outputs if name}
        needed: set[int] = set()
        waiting = [self.output]
        while waiting:
            node = self.producer.get(waiting.pop())
            if node is not None and id(node) not in needed:
                needed.add(id(node))
                waiting.extend(self.data(node))
        self.nodes = [node for node in self.nodes if id(node) in needed]
        self.producer = {name: node for node in self.nodes for name in node.outputs if name}
        self.consumers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(self.data(node)):
                self.consumers.setdefault(name, []).append(node)
        self.before: dict[str, str | None] = {self.input: None}
        depth = {self.input: 0}
        for node in self.nodes:
            meeting: str | None = None
            for name in dict.fromkeys(self.data(node)):
                other: str | None = name if name in depth else None
                if other is None:
                    continue
                if meeting is None:
                    meeting = other
                while meeting is not None and other is not None and meeting != other:
                    if depth[meeting] >= depth[other]:
                        meeting = self.before[meeting]
                    else:
                        other = self.before[other]
            for name in node.outputs:
                if meeting is not None:
                    self.before[name], depth[name] = meeting, depth[meeting] + 1

    def data(self, node: Node) -> list[str]:
        """Returns what a node reads that is not constant."""
        return [name for name in node.inputs if name and name not in self.constants]

    def constant(self, name: str) -> NDArray[Any] | None:
        """Returns a constant's values, of one row where they are the same for all; None for other values."""
        value = self.constants.get(name)
        if value is not None and value.ndim > 1 and value.shape[0] == self.rows and not self.shared:
            first = value[:1]
            return first if bool((value == first).all()) else value
        return value

    def sample(self, name: str) -> tuple[int, ...] | None:
        """Returns one row's extents; None where the rows have no axis, or share one that is not the first."""
        shape = self.shapes.get(name)
        axis = self.rows_axis(name)
        if shape is None or axis is None or not all(shape):
            return None
        several = shape[axis] // self.rows
        return (*shape[:axis], *([several] if several > 1 else []), *shape[axis + 1 :])

    def rows_axis(self, name: str) -> int | None:
        """Returns the axis of the rows, which only as the first may have other things on it."""
        shape = self.shapes.get(name) or ()
        if self.shared:
            return 0 if shape and shape[0] % self.rows == 0 else None
        axes = [axis for axis, extent in enumerate(shape) if extent and extent % self.rows == 0]
        return axes[0] if len(axes) == 1 and (axes[0] == 0 or shape[axes[0]] == self.rows) else None

    def of_sample(self, name: str, axis: int) -> int | None:
        """Returns which axis of a sample an axis of a value is; None where it is that of the rows."""
        rows, rank = self.rows_axis(name), len(self.shapes.get(name) or ())
        axis %= rank
        if rows is None or axis == rows:
            return None
        return axis - (axis > rows) + len(self.sample(name) or ()) - (rank - 1)

    def between(self, source: str, value: str) -> list[Node] | None:
        """Returns the nodes that make a value of another, in order; None where they read more than that."""
        found: set[int] = set()
        waiting = [value]
        while waiting:
            name = waiting.pop()
            if name == source:
                continue
            node = self.producer.get(name)
            if node is None:
                return None
            if id(node) not in found:
                found.add(id(node))
                waiting.extend(self.data(node))
        return [node for node in self.nodes if id(node) in found]

    def compute(
        self, given: Mapping[str, NDArray[Any]], value: str, folded: Folded | None = None
    ) -> NDArray[Any]:
        """Computes a value of others in float64, for one row or for those of another folded graph."""
        held = folded or self.single
        protos = {name: node for node in held.nodes for name in node.output if name}
        found: set[int] = set()
        waiting, seen = [value], set(given)
        while waiting:
            name = waiting.pop()
            if name in seen or name in held.constants or not name:
                continue
            seen.add(name)
            proto = protos[name]
            found.add(id(proto))
            waiting.extend(held.alias.get(read, read) for read in proto.input)
        ordered = [proto for proto in held.nodes if id(proto) in found]
        if not ordered:
            return np.asarray(given[value])
        sizes = [held.shapes.get(name) for proto in ordered for name in proto.output if name]
        if sum(LARGEST if shape is None else math.prod(shape) for shape in sizes) >= LARGEST:
            raise ValueError(f'what makes "{value}" has too many elements to look at')
        reads = {name for proto in ordered for name in proto.input}
        known = {name: array for name, array in held.constants.items() if name in reads}
        wide = {
            name: array.astype(np.float64) if array.dtype.kind == "f" else array
            for name, array in {**known, **given}.items()
        }
        return evaluate_nodes([_widened(proto) for proto in ordered], wide, [value], self.opsets)[0]

    def moved(self, source: str, value: str) -> NDArray[np.int64]:
        """Returns where each element of a value stands in another, for one row."""
        shape = self.single.shapes[source] or ()
        places = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
        moved: NDArray[np.int64] = np.rint(self.compute({source: places}, value)).astype(np.int64)
        if not self.shared:
            return moved
        # All rows move alike, so that the first tells.
        apart = moved.reshape(self.rows, -1) - (np.arange(self.rows) * (places.size // self.rows))[:, None]
        if (apart != apart[0]).any():
            raise ValueError(f'rows cross on the way to "{value}"')
        return np.asarray(apart[0])

    def replace(self, value: str, source: str, made: Iterable[Made]) -> None:
        """Puts layers that read one value in the place of what made another."""
        node = self.producer[value]
        fused = Node("", node.name, [source], [value], made=list(made))
        place = self.nodes.index(node)
        if len(node.outputs) == 1:
            self.nodes[place] = fused
        else:
            node.outputs = [name if name != value else "" for name in node.outputs]
            self.nodes.insert(place + 1, fused)
        self.refresh()


def _widened(proto: Any) -> Any:  # noqa: ANN401 - a NodeProto
    """Returns a node that does not go back to fewer digits than float64 has."""
    if proto.op_type != "Cast" or not any(
        each.name == "to" and each.i in (1, 10, 16) for each in proto.attribute
    ):
        return proto
    wide = type(proto)()
    wide.CopyFrom(proto)
    for each in wide.attribute:
        if each.name == "to":
            each.i = 11
    return wide


def is_movement(graph: Graph, node: Node) -> bool:
    """Whether a node hands elements on, each as it is."""
    if node.op not in MOVEMENTS or len(graph.data(node)) != 1:
        return False
    return node.op != "Gather" or node.inputs[0] not in graph.constants
