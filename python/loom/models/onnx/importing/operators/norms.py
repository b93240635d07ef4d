"""Norms and softmaxes."""

from __future__ import annotations

import math

import numpy as np

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import fixed, reads
from loom.models.onnx.importing.steps import on_axis

__all__ = ["batch_norm", "group_norm", "layer_norm", "softmax", "unsaid"]


@reads("BatchNormalization")
def batch_norm(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """By running statistics."""
    if node.attributes.get("training_mode"):
        raise Unsupported(node, "it was exported for training")
    names = ("weight", "bias", "running_mean", "running_var")
    tensors = {name: fixed(graph, node, place, name) for place, name in enumerate(names, 1)}
    return [Made(nn.BatchNorm(epsilon=node.attributes.get("epsilon", 1e-5)), tensors)]


@reads("InstanceNormalization", "GroupNormalization")
def group_norm(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Channels, or groups of them, one by one."""
    groups = node.attributes.get("num_groups", shape[0])
    gain, bias = (fixed(graph, node, place, "gain").reshape(-1) for place in (1, 2))
    if gain.size != shape[0]:
        gain, bias = (np.repeat(each, shape[0] // groups) for each in (gain, bias))
    layer = nn.GroupNorm(groups, epsilon=node.attributes.get("epsilon", 1e-5))
    return [Made(layer, {"weight": gain, "bias": bias})]


@reads("LayerNormalization", "RMSNormalization")
def layer_norm(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Over the last axes."""
    rank = len(graph.shapes[node.inputs[0]] or ())
    axes = rank - node.attributes.get("axis", -1) % rank
    if axes >= rank or axes > len(shape):
        raise Unsupported(node, "it goes over rows")
    extents = shape[len(shape) - axes :]
    epsilon = float(f"{node.attributes.get('epsilon', 1e-5):.7g}")
    tensors = {"weight": np.broadcast_to(fixed(graph, node, 1, "gain"), extents)}
    if node.op == "RMSNormalization":
        if axes != 1:
            raise Unsupported(node, "loom's RMSNorm goes over one axis")
        return [Made(nn.RMSNorm(epsilon=epsilon), tensors)]
    bias = len(node.inputs) > 2 and bool(node.inputs[2])
    if bias:
        tensors["bias"] = np.broadcast_to(fixed(graph, node, 2, "bias"), extents)
    return [Made(nn.LayerNorm(axes=axes, epsilon=epsilon, bias=bias), tensors)]


@reads("LpNormalization", "LRN")
def unsaid(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Norms that loom lacks."""
    raise Unsupported(node, "loom has no layer for it")


@reads("Softmax")
def softmax(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Over an axis."""
    axis = graph.of_sample(node.inputs[0], node.attributes.get("axis", -1 if graph.opset >= 13 else 1))
    if axis is None:
        raise Unsupported(node, "it goes over rows")
    if graph.opset < 13 and axis != len(shape) - 1 and math.prod(shape[axis + 1 :]) != 1:
        raise Unsupported(node, "it goes over several axes, as before opset 13")
    if axis == (0 if len(shape) == 3 else len(shape) - 1):
        return [Made(nn.Softmax())]
    if axis == len(shape) - 1:
        return [Made(nn.MaskedSoftmax())]
    return on_axis(len(shape), axis, [Made(nn.MaskedSoftmax())])
