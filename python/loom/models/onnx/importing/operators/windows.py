"""What goes over windows: convolutions, pooling, and zeros around axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import fixed, reads
from loom.models.onnx.importing.steps import permuted

__all__ = ["convolution", "not_negative", "padded", "pooling", "transposed"]

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1D, 2: nn.Conv2D, 3: nn.Conv3D}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1D, 2: nn.ConvTranspose2D, 3: nn.ConvTranspose3D}
PADDING: dict[int, Any] = {1: nn.ZeroPadding1D, 2: nn.ZeroPadding2D, 3: nn.ZeroPadding3D}
LARGEST: dict[int, Any] = {1: nn.MaxPool1D, 2: nn.MaxPool2D, 3: nn.MaxPool3D}
MEAN: dict[int, Any] = {1: nn.AvgPool1D, 2: nn.AvgPool2D, 3: nn.AvgPool3D}


def _window(node: Node, shape: tuple[int, ...], kernel: Sequence[int]) -> tuple[list[int], ...]:
    """Returns strides, dilations, and zeros before and after each axis."""
    axes = len(kernel)
    if len(shape) != axes + 1 or axes not in CONVOLUTIONS:
        raise Unsupported(node, f"windows over {axes} axes of {shape} are not read")
    strides = list(node.attributes.get("strides", [1] * axes))
    dilations = list(node.attributes.get("dilations", [1] * axes))
    pads = list(node.attributes.get("pads", [0] * 2 * axes))
    automatic = node.attributes.get("auto_pad", b"NOTSET").decode()
    if automatic.startswith("SAME"):
        pads = [0] * 2 * axes
        for axis, extent in enumerate(shape[1:]):
            reach = dilations[axis] * (kernel[axis] - 1) + 1
            total = max((-(-extent // strides[axis]) - 1) * strides[axis] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            pads[axis], pads[axis + axes] = (small, large) if automatic == "SAME_UPPER" else (large, small)
    return strides, dilations, pads[:axes], pads[axes:]


@reads("Conv")
def convolution(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """A convolution; zeros that differ before and after stand in a layer of their own."""
    weight = fixed(graph, node, 1, "weight")
    kernel = weight.shape[2:]
    strides, dilations, before, after = _window(node, shape, kernel)
    tensors = {"weight": weight}
    if len(node.inputs) > 2 and node.inputs[2]:
        tensors["bias"] = fixed(graph, node, 2, "bias")
    padding: list[Made] = []
    if before != after:
        padding = [Made(PADDING[len(kernel)](tuple(before), tuple(after)))]
        before = [0] * len(kernel)
    layer = CONVOLUTIONS[len(kernel)](
        weight.shape[0],
        kernel,
        stride=tuple(strides),
        padding=tuple(before),
        dilation=tuple(dilations),
        groups=node.attributes.get("group", 1),
        bias="bias" in tensors,
    )
    return [*padding, Made(layer, tensors)]


@reads("ConvTranspose")
def transposed(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """A transposed convolution."""
    weight = fixed(graph, node, 1, "weight")
    kernel, axes = weight.shape[2:], weight.ndim - 2
    strides, dilations, before, after = _window(node, shape, kernel)
    added = list(node.attributes.get("output_padding", [0] * axes))
    if node.attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or "output_shape" in node.attributes:
        extents = (graph.sample(node.outputs[0]) or ())[1:]
        totals = [
            (extent - 1) * strides[axis]
            + added[axis]
            + dilations[axis] * (kernel[axis] - 1)
            + 1
            - extents[axis]
            for axis, extent in enumerate(shape[1:])
        ]
        lower = node.attributes.get("auto_pad") != b"SAME_UPPER"
        before = [total - total // 2 if lower else total // 2 for total in totals]
        after = [total - less for total, less in zip(totals, before, strict=True)]
    padding: Any = tuple(before)
    reach = [dilations[axis] * (kernel[axis] - 1) + 1 - strides[axis] for axis in range(axes)]
    same = [max(total, 0) for total in reach]
    if (before, after, added) == (
        [total // 2 for total in same],
        [total - total // 2 for total in same],
        [max(-total, 0) for total in reach],
    ) and before != after:
        padding, added = "same", [0] * axes
    elif before != after:
        added = [more + first - last for more, first, last in zip(added, before, after, strict=True)]
    if any(more < 0 or more >= max(s, d) for more, s, d in zip(added, strides, dilations, strict=True)):
        raise Unsupported(node, f"loom has no pads {before} and {after}")
    groups = node.attributes.get("group", 1)
    bias = len(node.inputs) > 2 and bool(node.inputs[2])
    layer = TRANSPOSED[axes](
        weight.shape[1] * groups,
        kernel,
        stride=tuple(strides),
        padding=padding,
        dilation=tuple(dilations),
        groups=groups,
        bias=bias,
        output_padding=tuple(added),
    )
    return [Made(layer, {"weight": weight, **({"bias": fixed(graph, node, 2, "bias")} if bias else {})})]


@reads("MaxPool", "AveragePool")
def pooling(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """The largest, or the mean, of each window."""
    kernel = node.attributes["kernel_shape"]
    axes, mean = len(kernel), node.op == "AveragePool"
    strides, dilations, before, after = _window(node, shape, kernel)
    counted = bool(node.attributes.get("count_include_pad", 0))
    if any(distance != 1 for distance in dilations):
        raise Unsupported(node, "loom's pooling has no dilation")
    out = (graph.sample(node.outputs[0]) or ())[1:]
    # What is rounded up is reached by more at the end.
    short = [
        max((made - 1) * step + size - extent - low - high, 0)
        for made, step, size, extent, low, high in zip(
            out, strides, kernel, shape[1:], before, after, strict=True
        )
    ]
    padding: list[Made] = []
    # The last window begins before the padding ends, or is left out.
    reached = all(
        (made - 1) * step < extent + low
        for made, step, extent, low in zip(out, strides, shape[1:], before, strict=True)
    )
    ceil = before == after and any(short) and reached and not (mean and counted and any(before))
    if any(short) and not reached:
        raise Unsupported(node, "a window begins behind all that there is")
    if ceil:
        counted = False
    elif before != after or any(short):
        positive = not_negative(graph, graph.data(node)[0])
        if (any(short) and mean) or (not (mean and counted) and not (positive and not mean)):
            raise Unsupported(node, f"pads {before} and {after}, {short} beyond the end, are not read")
        padding = [
            Made(PADDING[axes](tuple(before), tuple(a + s for a, s in zip(after, short, strict=True))))
        ]
        before = [0] * axes
    elif any(2 * rim > size for rim, size in zip(before, kernel, strict=True)):
        raise Unsupported(node, "it pads by more than half of its window")
    settings: dict[str, Any] = {"stride": tuple(strides), "padding": tuple(before)}
    if ceil:
        settings["ceil_mode"] = True
    if mean:
        settings["count_include_pad"] = counted
    return [*padding, Made((MEAN if mean else LARGEST)[axes](tuple(kernel), **settings))]


def not_negative(graph: Graph, name: str) -> bool:
    """Whether a value has no elements below zero, so that zeros are not larger than what a window holds."""
    node = graph.producer.get(name)
    return node is not None and node.op in ("Relu", "Sigmoid", "Softmax")


@reads("Pad")
def padded(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Zeros around axes."""
    rank = len(graph.shapes[node.inputs[0]] or ())
    pads = node.attributes.get("pads")
    pads = list(pads) if pads is not None else fixed(graph, node, 1, "pads").tolist()
    value = node.attributes.get("value", 0.0)
    if len(node.inputs) > 2 and node.inputs[2]:
        value = float(fixed(graph, node, 2, "value").reshape(-1)[0])
    axes = list(range(rank))
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = [int(axis) % rank for axis in fixed(graph, node, 3, "axes")]
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    constant = node.attributes.get("mode", b"constant") == b"constant"
    if not constant or value or min(before + after) < 0 or before[0] or after[0] or rank != len(shape) + 1:
        raise Unsupported(node, "only zeros around axes other than the rows are read")
    around = [axis for axis in range(len(shape)) if before[axis + 1] or after[axis + 1]]
    if not around:
        return []
    order = list(range(len(shape)))
    if around[0] == 0:
        calm = [axis for axis in order if axis not in around]
        if not calm:
            raise Unsupported(node, "it pads every axis")
        order = [calm[0], *(axis for axis in order if axis != calm[0])]
    if len(order) - 1 not in PADDING:
        raise Unsupported(node, f"samples of shape {shape} are not padded")
    rims = [tuple(ends[axis + 1] for axis in order[1:]) for ends in (before, after)]
    return [
        *permuted(order),
        Made(PADDING[len(order) - 1](*rims)),
        *permuted([order.index(axis) for axis in range(len(shape))]),
    ]
