"""Which function reads which operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from numpy.typing import NDArray

from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.patterns import ELEMENTWISE

__all__ = ["AFFINE", "CONVERTERS", "convert", "fixed", "reads"]

Converter: TypeAlias = "Callable[[Graph, Node, tuple[int, ...]], list[Made]]"
CONVERTERS: dict[str, Converter] = {}
AFFINE = {"Add", "Sub", "Mul", "Div", "Sum", "Neg"}
ANYWHERE = (
    AFFINE
    | ELEMENTWISE
    | {"MatMul", "Softmax", "LayerNormalization", "Gather", "ReduceMean", "ReduceMax", "ReduceSum"}
)
"""Operators for which the axis of the rows need not be the first."""


def reads(*ops: str) -> Callable[[Converter], Converter]:
    """Enters a function as what reads these operators; it takes graph, node and one sample's shape."""

    def enter(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(ops, function))
        return function

    return enter


def convert(graph: Graph, node: Node) -> list[Made]:
    """Returns the layers that a node of one value is."""
    if not node.op:
        return node.made
    shape = graph.sample(graph.data(node)[0])
    after = graph.sample(node.outputs[0])
    axis = graph.rows_axis(graph.data(node)[0])
    if shape is None or after is None or (axis and node.op not in ANYWHERE):
        raise Unsupported(node, f"rows are not on the first axis of {graph.shapes.get(graph.data(node)[0])}")
    if node.op in CONVERTERS:
        return CONVERTERS[node.op](graph, node, shape)
    raise Unsupported(node, "loom has no layer for it")


def fixed(graph: Graph, node: Node, place: int, what: str) -> NDArray[Any]:
    """Returns a constant input."""
    value = graph.constant(node.inputs[place]) if len(node.inputs) > place and node.inputs[place] else None
    if value is None:
        raise Unsupported(node, f"its {what} is not constant")
    return value
