"""A graph as layers: what all paths pass stands in a row, what lies between is nested."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.checking import agree
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported, is_movement
from loom.models.onnx.importing.operators import convert, not_negative
from loom.models.onnx.importing.projections import projection
from loom.models.onnx.importing.steps import affine, dense, joined, layers_of, moved, nested, permuted, tidy

__all__ = ["JOINS", "Structure"]

JOINS = {"Add", "Sum", "Sub", "Mean", "Mul", "Concat"}
DEEPEST = 64
CHECKED = 2**28
"""Products of two numbers up to which pieces that are no patterns are compared, too."""
EVALUATED_WRONG = {"AveragePool", "ConvTranspose", "GlobalMaxPool", "Normalizer"}
"""What ONNX's evaluator computes otherwise than its operators say; and what is left out after a softmax."""


def _evaluated_wrong(node: Node) -> bool:
    if node.op == "MaxPool":
        # Windows a step apart, rounded up or with padding that is not the same all around, are put elsewhere.
        if set(node.attributes.get("strides") or (1,)) != {1}:
            return False
        return bool(node.attributes.get("ceil_mode", 0)) or len(set(node.attributes.get("pads") or ())) > 1
    return node.op in EVALUATED_WRONG


class Structure:
    """Takes a graph apart.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.problems: list[str] = []
        self._uses: dict[int, int] = {}
        _share_beginnings(graph)

    def row(self, source: str, value: str, depth: int = 0) -> list[Made]:
        """Returns the layers that make a value of another, which all paths to it pass."""
        graph, pieces = self.graph, []
        while value != source:
            node = graph.producer.get(value)
            if node is None or depth > DEEPEST:
                why = "branches are nested too deeply" if node else "it does not depend on the input alone"
                self.problems.append(f'value "{value}": {why}')
                break
            before = graph.before.get(value) or source
            try:
                begin = self._movement(source, value)
                if begin is not None:
                    pieces.append(self._moved(begin, value))
                    if not depth and not self.problems:
                        self._check(graph.producer[value], begin, value, pieces[-1])
                    value = begin
                    continue
                self._count(node)
                product = self._product(node)
                if product is not None:
                    pieces.append([product[0]])
                    value = product[1]
                    continue
                single = len(set(graph.data(node))) == 1 and node.op != "Concat"
                made = convert(graph, node) if single else self._join(node, value, before, depth)
                if single:
                    before = graph.data(node)[0]
                pieces.append(made)
                # What lies inside others is looked at with them.
                if node.op and not depth and not self.problems:
                    self._check(node, before, value, made)
            except Unsupported as problem:
                if str(problem) not in self.problems:
                    self.problems.append(str(problem))
            value = before
        return tidy([made for piece in reversed(pieces) for made in piece])

    def _check(self, node: Node, source: str, value: str, made: list[Made]) -> None:
        """Refuses a piece of which the layers compute something else than the graph."""
        positive = not_negative(self.graph, source)
        if not agree(self.graph, source, value, made, (1.0,), unknown=True, most=CHECKED, positive=positive):
            between = self.graph.between(source, value) or []
            if not any(map(_evaluated_wrong, between)):
                raise Unsupported(node, "loom's layers compute something else")

    def _count(self, node: Node) -> None:
        uses = self._uses[id(node)] = self._uses.get(id(node), 0) + 1
        if uses > 1 and ((node.made and any(made.tensors for made in node.made)) or uses > 16):
            raise Unsupported(node, "branches cross there, and layers in one another cannot say that")
        if uses > 1 and node.op in ("Gemm", "MatMul", "Conv", "ConvTranspose"):
            raise Unsupported(node, "branches cross there, and layers in one another cannot say that")

    def _product(self, node: Node) -> tuple[Made, str] | None:
        """Returns the Dense layer that a bias ends, and what it reads; None where there is none."""
        graph = self.graph
        inner = (
            graph.producer.get(graph.data(node)[0])
            if node.op == "Add" and len(graph.data(node)) == 1
            else None
        )
        if inner is None or inner.op != "MatMul" or len(graph.consumers[inner.outputs[0]]) > 1:
            return None
        made = projection(graph, node.outputs[0])
        if made is None or made.bias is None or graph.sample(inner.inputs[0]) is None:
            return None
        self._count(inner)
        return dense(made.weight, made.bias), inner.inputs[0]

    def _movement(self, source: str, value: str) -> str | None:
        """Returns where the movements that end at a value begin; None where none does."""
        graph, begin = self.graph, None
        for _ in range(64):
            node = graph.producer.get(value)
            if value == source or node is None or not is_movement(graph, node):
                break
            value = graph.data(node)[0]
            if graph.sample(value) is not None:
                begin = value
        return begin

    def _moved(self, begin: str, value: str) -> list[Made]:
        graph = self.graph
        before, after = graph.sample(begin), graph.sample(value)
        if before is not None and after is not None:
            made = moved(before, after, graph.moved(begin, value))
            if made is not None:
                return made
            middle = graph.producer[value]
            inner = graph.data(middle)[0]
            if inner != begin and graph.sample(inner) is not None:
                return [*self._moved(begin, inner), *self._moved(inner, value)]
        raise Unsupported(
            graph.producer[value], f"elements move from {before} to {after} in no way that layers have"
        )

    def _join(self, node: Node, value: str, before: str, depth: int) -> list[Made]:
        graph = self.graph
        shape = graph.sample(value)
        if shape is None or graph.sample(before) is None:
            raise Unsupported(node, "rows are not on the first axis")
        if node.op == "Concat":
            return self._concat(node, before, shape, depth)
        if node.op not in JOINS or any(name in graph.constants for name in node.inputs):
            raise Unsupported(node, "loom has no layer that does this with values that are not constant")
        if any(not self._fits(name, node, shape) for name in graph.data(node)):
            raise Unsupported(node, "what it joins is of different shapes")
        routed = self._filter(node, before, depth) if node.op in ("Add", "Sum") else None
        if routed is not None:
            return [routed]
        branches = [self.row(before, name, depth + 1) for name in node.inputs]
        if node.op == "Mul":
            return [joined(branches, "multiply")]
        if node.op == "Sub":
            branches[1] = [*branches[1], *affine(shape, np.float32(-1), np.float32(0))]
        return [joined(branches, "average" if node.op == "Mean" else "add")]

    def _fits(self, name: str, node: Node, shape: tuple[int, ...]) -> bool:
        """Whether a value has the shape of what is joined; factors may have extents of 1."""
        sample = self.graph.sample(name)
        if sample is None or node.op != "Mul" or len(sample) != len(shape):
            return sample == shape
        return all(own in (1, whole) for own, whole in zip(sample, shape, strict=True))

    def _filter(self, node: Node, before: str, depth: int) -> Made | None:
        """Returns branches that are weighed by a softmax of the same input; None where that is not it."""
        graph, found, gates = self.graph, [], set()
        for place, name in enumerate(node.inputs):
            product = graph.producer.get(name)
            if product is None or product.op != "Mul" or len(set(graph.data(product))) != 2:
                return None
            for share, value in (product.inputs, product.inputs[::-1]):
                begin = self._movement(before, share)
                softmax = graph.producer.get(begin or "")
                if begin is None or softmax is None or graph.sample(begin) != (len(node.inputs),):
                    continue
                if softmax.op == "Softmax" and graph.moved(begin, share).reshape(-1).tolist() == [place]:
                    gates.add(softmax.inputs[0])
                    found.append(value)
                    break
        if len(found) != len(node.inputs) or len(gates) != 1:
            return None
        branches = [self.row(before, value, depth + 1) for value in found]
        gate = self.row(before, gates.pop(), depth + 1) or [Made(nn.Activation("linear"))]
        rows = {f"branches.{place}.": branch for place, branch in enumerate(branches)}
        layer = nn.Parallel([layers_of(row) for row in branches], combine="filter", gate=layers_of(gate))
        return Made(layer, nested({**rows, "gate.": gate}))

    def _concat(self, node: Node, before: str, shape: tuple[int, ...], depth: int) -> list[Made]:
        graph = self.graph
        axis = graph.of_sample(node.outputs[0], node.attributes.get("axis", 0))
        if axis is None:
            raise Unsupported(node, "it joins rows")
        fixed = {
            place: graph.constant(name) for place, name in enumerate(node.inputs) if name in graph.constants
        }
        if not fixed:
            branches = [self.row(before, name, depth + 1) for name in node.inputs]
            return [joined(branches, "concat", axis)]
        data = [place for place in range(len(node.inputs)) if place not in fixed]
        if len(data) != 1 or len(shape) != 2 or any(v is None or v.shape[0] != 1 for v in fixed.values()):
            raise Unsupported(node, "constants are joined to one sequence alone")
        # Zeros make room, and what is added to every place brings the constants.
        sizes = [
            (graph.constants[name].shape if name in graph.constants else graph.shapes[name] or ())[axis + 1]
            for name in node.inputs
        ]
        first, last = sum(sizes[: data[0]]), sum(sizes[data[0] + 1 :])
        whole: list[NDArray[Any]] = [
            np.zeros((1, *shape[:axis], sizes[place], *shape[axis + 1 :]), np.float32)
            if value is None
            else value
            for place, value in ((place, fixed.get(place)) for place in range(len(node.inputs)))
        ]
        turn = permuted((1, 0)) if axis == 0 else []
        return [
            *self.row(before, node.inputs[data[0]], depth + 1),
            *turn,
            Made(nn.ZeroPadding1D(first, after=last)),
            *turn,
            *affine(shape, np.float32(1), np.concatenate(whole, axis=axis + 1)[0]),
        ]


def _share_beginnings(graph: Graph) -> None:
    """Lets what joins [a, b, c] read what has joined [a, b] already, as DenseNet's layers mean it."""
    joins = [(node, list(node.inputs)) for node in graph.nodes if node.op == "Concat"]
    for node, inputs in joins:
        for other, begin in sorted(joins, key=lambda join: -len(join[1])):
            alike = other.attributes.get("axis") == node.attributes.get("axis")
            if alike and 1 < len(begin) < len(inputs) and inputs[: len(begin)] == begin:
                node.inputs = [other.outputs[0], *inputs[len(begin) :]]
                break
    graph.refresh()
