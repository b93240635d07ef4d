"""Operators of one value, each as layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.patterns import ELEMENTWISE, activation_of, axes_of
from loom.models.onnx.importing.steps import affine, dense, on_axis, permuted, reshaped

__all__ = ["AFFINE", "CONVERTERS", "convert", "not_negative"]

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
        raise Unsupported(node, "it divides a constant by what it reads")
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


CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1D, 2: nn.Conv2D, 3: nn.Conv3D}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1D, 2: nn.ConvTranspose2D, 3: nn.ConvTranspose3D}
UP_SAMPLING: dict[int, Any] = {1: nn.UpSampling1D, 2: nn.UpSampling2D, 3: nn.UpSampling3D}
PADDING: dict[int, Any] = {1: nn.ZeroPadding1D, 2: nn.ZeroPadding2D, 3: nn.ZeroPadding3D}
LARGEST: dict[int, Any] = {1: nn.MaxPool1D, 2: nn.MaxPool2D, 3: nn.MaxPool3D}
MEAN: dict[int, Any] = {1: nn.AvgPool1D, 2: nn.AvgPool2D, 3: nn.AvgPool3D}
GLOBAL_LARGEST: dict[int, Any] = {1: nn.GlobalMaxPool1D, 2: nn.GlobalMaxPool2D, 3: nn.GlobalMaxPool3D}
GLOBAL_MEAN: dict[int, Any] = {1: nn.GlobalAvgPool1D, 2: nn.GlobalAvgPool2D, 3: nn.GlobalAvgPool3D}


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


@reads("Gather")
def embedding(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """A row of a table for each number."""
    table = fixed(graph, node, 0, "table")
    if node.attributes.get("axis", 0) or table.ndim != 2:
        raise Unsupported(node, "only rows of a matrix are looked up")
    return [Made(nn.Embedding(*table.shape), {"weight": table})]


@reads("Scaler")
def scaler(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Scikit-learn's scalers."""
    offset, scale = (np.asarray(node.attributes[name], np.float32) for name in ("offset", "scale"))
    return affine(shape, scale, -offset * scale)


@reads("Normalizer")
def normalizer(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Nothing, where probabilities sum to one already."""
    source = graph.producer.get(node.inputs[0])
    settings = {} if source is None else source.attributes
    after = settings.get("post_transform")
    numbers = np.asarray(settings.get("coefficients", []))
    halves = np.split(numbers, 2) if after == b"LOGISTIC" and numbers.size % 2 == 0 else []
    two = len(halves) == 2 and np.allclose(halves[0], -halves[1])
    if node.attributes.get("norm") != b"L1" or not (after == b"SOFTMAX" or two):
        raise Unsupported(node, "loom has no layer for it")
    return []


@reads("LinearRegressor", "LinearClassifier")
def linear(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Scikit-learn's linear models."""
    weight = np.asarray(node.attributes["coefficients"], np.float32).reshape(-1, shape[-1])
    bias = np.asarray(node.attributes.get("intercepts", [0.0] * len(weight)), np.float32)
    after = node.attributes.get("post_transform", b"NONE").decode()
    functions: dict[str, list[Made]] = {
        "NONE": [],
        "LOGISTIC": [Made(nn.Activation("sigmoid"))],
        "SOFTMAX": [Made(nn.Softmax())],
    }
    if after not in functions:
        raise Unsupported(node, f"post_transform {after} for {len(weight)} scores is not read")
    return [dense(weight, bias), *functions[after]]
