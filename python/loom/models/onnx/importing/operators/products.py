"""Products with matrices, and tables that are looked up in."""

from __future__ import annotations

import numpy as np

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import fixed, reads
from loom.models.onnx.importing.steps import dense, on_axis, reshaped

__all__ = ["embedding", "gemm", "product"]


@reads("Gemm")
def gemm(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """`alpha x W + beta b`."""
    settings = node.attributes
    if settings.get("transA") or graph.data(node)[0] != node.inputs[0] or len(graph.data(node)) != 1:
        raise Unsupported(node, "only x W + b with a constant W is read")
    weight = fixed(graph, node, 1, "weight") * np.float32(settings.get("alpha", 1.0))
    weight = weight if settings.get("transB") else weight.T
    if len(node.inputs) < 3 or not node.inputs[2]:
        return [dense(weight)]
    bias = fixed(graph, node, 2, "bias") * np.float32(settings.get("beta", 1.0))
    if bias.ndim > 1 and bias.shape[0] > 1:
        raise Unsupported(node, "its bias differs from row to row")
    return [dense(weight, np.broadcast_to(bias.reshape(-1), weight.shape[:1]))]


@reads("MatMul")
def product(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """A product with a constant, from either side."""
    left = node.inputs[0] in graph.constants
    weight = fixed(graph, node, 0 if left else 1, "weight")
    while weight.ndim > 2 and weight.shape[0] == 1:
        weight = weight[0]
    if weight.ndim == 1 and not left:
        return [dense(weight[None]), *reshaped((*shape[:-1], 1), shape[:-1])]
    if weight.ndim != 2:
        raise Unsupported(node, f"its constant is of shape {weight.shape}; only matrices are read")
    if left:
        return on_axis(len(shape), len(shape) - 2, [dense(weight)])
    return [dense(weight.T)]


@reads("Gather")
def embedding(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """A row of a table for each number."""
    table = fixed(graph, node, 0, "table")
    if node.attributes.get("axis", 0) or table.ndim != 2:
        raise Unsupported(node, "only rows of a matrix are looked up")
    return [Made(nn.Embedding(*table.shape), {"weight": table})]
