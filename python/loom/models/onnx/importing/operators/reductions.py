"""Means, largest elements and sums over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import reads
from loom.models.onnx.importing.patterns import axes_of
from loom.models.onnx.importing.steps import affine, permuted, reshaped

__all__ = ["global_pooling", "reduced"]

GLOBAL_LARGEST: dict[int, Any] = {1: nn.GlobalMaxPool1D, 2: nn.GlobalMaxPool2D, 3: nn.GlobalMaxPool3D}
GLOBAL_MEAN: dict[int, Any] = {1: nn.GlobalAvgPool1D, 2: nn.GlobalAvgPool2D, 3: nn.GlobalAvgPool3D}


@reads("GlobalAveragePool", "GlobalMaxPool")
def global_pooling(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """The mean, or the largest, of each channel."""
    return _reduced(
        shape, tuple(range(1, len(shape))), node.op == "GlobalMaxPool", graph.sample(node.outputs[0])
    )


@reads("ReduceMean", "ReduceMax", "ReduceSum")
def reduced(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """The mean, the largest or the sum over axes."""
    source = graph.data(node)[0]
    inner = [graph.of_sample(source, axis) for axis in axes_of(graph, node, len(graph.shapes[source] or ()))]
    axes = tuple(axis for axis in inner if axis is not None)
    if len(axes) != len(inner):
        raise Unsupported(node, "it goes over rows")
    after = graph.sample(node.outputs[0]) or ()
    made = _reduced(shape, axes, node.op == "ReduceMax", after)
    count = math.prod(shape[axis] for axis in axes)
    return [*made, *(affine(after, np.float32(count), np.float32(0)) if node.op == "ReduceSum" else [])]


def _reduced(
    shape: tuple[int, ...], axes: tuple[int, ...], largest: bool, after: tuple[int, ...] | None
) -> list[Made]:
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    layers = GLOBAL_LARGEST if largest else GLOBAL_MEAN
    if kept == [0] and len(axes) in layers:
        return [Made(layers[len(axes)]()), *reshaped(shape[:1], after or shape[:1])]
    order = [*kept, *axes]
    turned = [shape[axis] for axis in order]
    flat = (math.prod(turned[: len(kept)]), math.prod(turned[len(kept) :]))
    return [
        *permuted(order),
        *reshaped(turned, flat),
        Made(layers[1]()),
        *reshaped(flat[:1], after or flat[:1]),
    ]
