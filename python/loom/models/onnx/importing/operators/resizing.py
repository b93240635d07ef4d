"""Images of other extents: elements repeated or in between, channels as places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import reads
from loom.models.onnx.importing.steps import permuted, reshaped

__all__ = ["depth_to_space", "resized", "space_to_depth"]

UP_SAMPLING: dict[int, Any] = {1: nn.UpSampling1D, 2: nn.UpSampling2D, 3: nn.UpSampling3D}


@reads("Resize", "Upsample")
def resized(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Every element repeated, or straight lines between the centres of elements."""
    after = graph.sample(node.outputs[0]) or ()
    axes = len(shape) - 1
    factors = [new // old for old, new in zip(shape[1:], after[1:], strict=True)]
    fits = [old * factor for old, factor in zip(shape, [1, *factors], strict=True)] == list(after)
    nearest = node.attributes.get("mode", b"nearest") == b"nearest"
    if not fits or axes not in UP_SAMPLING or min(factors) < 1:
        raise Unsupported(node, "only a whole number of elements for each one is read")
    if not nearest:
        linear = node.attributes.get("mode") == b"linear" and not node.attributes.get("antialias", 0)
        centres = node.attributes.get("coordinate_transformation_mode", b"half_pixel")
        if not linear or node.op != "Resize" or centres not in (b"half_pixel", b"pytorch_half_pixel"):
            raise Unsupported(
                node, "only nearest neighbours, and lines between the centres of elements, are read"
            )
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[axes]
        return [Made(UP_SAMPLING[axes](tuple(factors), mode=mode))]
    source = graph.data(node)[0]
    expected = np.arange(math.prod(shape)).reshape(shape)
    for axis, factor in enumerate(factors, 1):
        expected = np.repeat(expected, factor, axis=axis)
    if not np.array_equal(graph.moved(source, node.outputs[0]).reshape(after), expected):
        raise Unsupported(node, "its coordinates are not read")
    return [Made(UP_SAMPLING[axes](tuple(factors)))]


@reads("DepthToSpace")
def depth_to_space(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Channels as places; in the mode DCR those of one place lie far apart."""
    factor = int(node.attributes["blocksize"])
    if node.attributes.get("mode", b"DCR") == b"CRD":
        return [Made(nn.PixelShuffle(factor))]
    channels = shape[0] // factor**2
    together = (factor**2, channels, *shape[1:])
    moved = [*reshaped(shape, together), *permuted((1, 0, 2, 3))]
    ends = reshaped((channels, factor**2, *shape[1:]), shape)
    return [*moved, *ends, Made(nn.PixelShuffle(factor))]


@reads("SpaceToDepth")
def space_to_depth(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Places as channels, those of one place far apart."""
    factor = int(node.attributes["blocksize"])
    within = (shape[0] * factor**2, shape[1] // factor, shape[2] // factor)
    apart = (shape[0], factor**2, *within[1:])
    turned = [*reshaped(within, apart), *permuted((1, 0, 2, 3))]
    return [Made(nn.PixelUnshuffle(factor)), *turned, *reshaped((factor**2, shape[0], *within[1:]), within)]
