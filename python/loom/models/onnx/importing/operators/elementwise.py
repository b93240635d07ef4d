"""What goes on in each element: sums and products with constants, activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import AFFINE, fixed, reads
from loom.models.onnx.importing.patterns import ELEMENTWISE, activation_of
from loom.models.onnx.importing.steps import affine, permuted

__all__ = ["function", "shifted", "slopes"]


@reads(*AFFINE)
def shifted(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Elements times, or plus, constants."""
    data = graph.data(node)
    if len(data) > 1:
        return _with_itself(graph, node, shape)
    one, zero = np.float32(1), np.float32(0)
    if node.op == "Neg":
        return affine(shape, -one, zero)
    after = graph.sample(node.outputs[0])
    values = [_of_sample(graph, node, name, shape) for name in node.inputs if name in graph.constants]
    if after != shape:
        raise Unsupported(node, f"it makes {after} of {shape}")
    if node.op in ("Add", "Sum"):
        return affine(shape, one, sum(values, zero))
    if node.op == "Mul":
        return affine(shape, values[0], zero)
    first = node.inputs[0] == data[0]
    if node.op == "Sub":
        return affine(shape, one if first else -one, -values[0] if first else values[0])
    if not first:
        return [Made(nn.Expr("1 / x")), *affine(shape, values[0], zero)]
    return affine(shape, 1 / values[0], zero)


def _with_itself(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    if node.op == "Add":
        return affine(shape, np.float32(2), np.float32(0))
    if node.op == "Mul":
        return [Made(nn.Expr("x * x"))]
    raise Unsupported(node, "loom has no layer for it")


def _of_sample(graph: Graph, node: Node, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns a constant as it broadcasts to one sample."""
    source = graph.data(node)[0]
    value = np.asarray(graph.constants[name], np.float32)
    rank, rows = len(graph.shapes.get(source) or ()), graph.rows_axis(source) or 0
    axis = rows - (rank - value.ndim)
    if axis < 0 or not value.ndim:
        return value
    if len(shape) == rank and value.shape[axis] != 1:
        # Rows and the first axis are one here.
        value = value.reshape(-1, shape[0], *value.shape[1:])
    first = np.take(value, [0], axis=axis)
    if value.shape[axis] != 1 and not bool((value == first).all()):
        raise Unsupported(node, "its constant differs from row to row")
    value = np.take(value, 0, axis=axis)
    merged = len(shape) == rank and rows == 0 and 0 < value.ndim < rank
    return np.asarray(value[None] if merged else value)


FUNCTIONS = {
    "Abs": "abs(x)",
    "Cos": "cos(x)",
    "Erf": "erf(x)",
    "Exp": "exp(x)",
    "Log": "log(x)",
    "Reciprocal": "1 / x",
    "Sign": "sign(x)",
    "Sin": "sin(x)",
    "Softsign": "x / (1 + abs(x))",
    "Sqrt": "sqrt(x)",
}
"""Operators of single elements that are no activations of loom's, as expressions."""


@reads(*sorted(ELEMENTWISE - AFFINE - {"Where", "Not", "And", "Cast", "Greater", "Less"}))
def function(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """An activation, by what it makes of numbers."""
    (source,) = set(graph.data(node))
    if any(graph.constants[name].size != 1 for name in node.inputs if name in graph.constants):
        raise Unsupported(node, "its constant is no single number")
    made = activation_of(graph, source, node.outputs[0], shape)
    if made is None and node.op in FUNCTIONS and node.inputs == [source]:
        return [Made(nn.Expr(FUNCTIONS[node.op]))]
    if made is None:
        raise Unsupported(node, "no activation of loom computes it")
    return made


@reads("PRelu")
def slopes(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Learned slopes."""
    slope = fixed(graph, node, 1, "slope")
    if slope.size == 1:
        return [Made(nn.PReLU(), {"weight": slope.reshape(1)})]
    slope = slope[0] if slope.ndim == len(shape) + 1 else slope
    varying = [axis for axis, extent in enumerate(slope.shape, len(shape) - slope.ndim) if extent > 1]
    if len(varying) > 1:
        raise Unsupported(node, "its slopes differ along several axes")
    order = [varying[0], *(axis for axis in range(len(shape)) if axis != varying[0])]
    back = [order.index(axis) for axis in range(len(shape))]
    return [
        *permuted(order),
        Made(nn.PReLU(per_channel=True), {"weight": slope.reshape(-1)}),
        *permuted(back),
    ]
