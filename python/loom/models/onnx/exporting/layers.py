"""Layers without a time of their own: products, windows, norms, rearrangements, composites."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loom.models.onnx.exporting.scope import Scope, Unsayable, exports
from loom.models.remade import by_length, by_singular_value

__all__: list[str] = []


def bias_of(scope: Scope, name: str = "bias") -> str | None:
    """Enters the bias where the layer has one."""
    return scope.weight(name) if scope.layer.bias else None


@exports("dense")
def dense(scope: Scope, x: str) -> str:
    """`activation(x W^T + b)` over the last axis."""
    y = scope.linear(x, scope.weight("weight"), bias_of(scope), flat=len(scope.shape) == 1)
    return scope.graph.activate(scope.layer.activation, y)


@exports("activation")
def activation(scope: Scope, x: str) -> str:
    """An activation by itself."""
    return scope.graph.activate(scope.layer.function, x)


@exports("prelu")
def prelu(scope: Scope, x: str) -> str:
    """Learned slopes below 0."""
    slopes = scope.values("weight")
    axes = len(scope.shape) if scope.layer.per_channel else 1
    return scope.graph.add("PRelu", x, scope.bake("weight", slopes.reshape(-1, *[1] * (axes - 1))))


@exports("conv1d", "conv2d", "conv3d")
def convolution(scope: Scope, x: str) -> str:
    """A cross-correlation; "same" gives ceil(extent / stride), an odd zero at the end."""
    layer = scope.layer
    before, after = list(layer.padding), list(layer.padding)
    if layer.padding == "same":
        before, after = [], []
        for extent, kernel, step, distance in _windows(scope):
            total = max((-(-extent // step) - 1) * step + distance * (kernel - 1) + 1 - extent, 0)
            before.append(total // 2)
            after.append(total - total // 2)
    return _convolve(scope, "Conv", x, [*before, *after])


@exports("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(scope: Scope, x: str) -> str:
    """The gradient of a convolution's input; "same" leaves extent x stride, more cut at the end."""
    layer = scope.layer
    before, after, added = list(layer.padding), list(layer.padding), list(layer.output_padding)
    if layer.padding == "same":
        totals = [distance * (kernel - 1) + 1 - step for _, kernel, step, distance in _windows(scope)]
        before = [max(total, 0) // 2 for total in totals]
        after = [max(total, 0) - less for total, less in zip(totals, before, strict=True)]
        added = [max(-total, 0) for total in totals]
    beyond = [0] * len(added)
    if any(more >= step for more, step in zip(added, layer.stride, strict=True)):
        # ONNX allows it below the dilation, too, ONNX Runtime does not: less is cut at the end, and what lies
        # beyond that is zeros, behind which no window reaches.
        cut = [min(more, rim) for more, rim in zip(added, after, strict=True)]
        after = [rim - less for rim, less in zip(after, cut, strict=True)]
        added = [more - less for more, less in zip(added, cut, strict=True)]
        beyond = [more if more >= step else 0 for more, step in zip(added, layer.stride, strict=True)]
        added = [more - less for more, less in zip(added, beyond, strict=True)]
    return _convolve(scope, "ConvTranspose", x, [*before, *after], beyond, output_padding=added)


def _windows(scope: Scope) -> list[tuple[int, int, int, int]]:
    layer = scope.layer
    return list(zip(scope.shape[1:], layer.kernel_size, layer.stride, layer.dilation, strict=True))


def _convolve(
    scope: Scope,
    op: str,
    x: str,
    pads: list[int],
    beyond: Sequence[int] = (),
    **others: Any,  # noqa: ANN401
) -> str:
    """Writes a convolution, with as many zeros at the end of each axis as are `beyond`."""
    layer, graph = scope.layer, scope.graph
    behind = any(beyond)
    bias = None if behind else bias_of(scope)
    y = graph.add(
        op,
        x,
        scope.weight("weight"),
        *([bias] if bias else []),
        kernel_shape=layer.kernel_size,
        strides=layer.stride,
        dilations=layer.dilation,
        group=layer.groups,
        pads=pads,
        **others,
    )
    if behind:
        y = graph.add("Pad", y, graph.whole([0] * (len(beyond) + 4) + [*beyond]))
        if layer.bias:
            extents = (-1, *[1] * len(beyond))
            y = graph.add("Add", y, scope.bake("bias", scope.values("bias").reshape(extents)))
    return graph.activate(layer.activation, y)


@exports("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def pooling(scope: Scope, x: str) -> str:
    """The largest, or the mean, in each window."""
    layer = scope.layer
    settings = {"kernel_shape": layer.pool_size, "strides": layer.stride, "pads": [*layer.padding] * 2}
    if layer.ceil_mode:
        settings |= _rounded_up(scope)
    if layer.kind.startswith("avg"):
        counted = layer.count_include_pad and not layer.ceil_mode
        return scope.graph.add("AveragePool", x, count_include_pad=int(counted), **settings)
    return scope.graph.add("MaxPool", x, **settings)


def _rounded_up(scope: Scope) -> dict[str, Any]:
    """How ONNX is told of windows rounded up in number, but for a last one that begins behind the padding."""
    layer = scope.layer
    over, plain = [], True
    for extent, size, step, rim in zip(
        scope.shape[1:], layer.pool_size, layer.stride, layer.padding, strict=True
    ):
        steps = -(-(extent + 2 * rim - size) // step)
        last = max(steps, 0)
        last -= last > 0 and last * step >= extent + rim
        # Where ONNX counts other windows, what these reach beyond the padding is padding, too.
        plain &= last == steps
        over.append(max(last * step + size - extent - 2 * rim, 0))
    if not any(over):
        # As many as rounded down.
        return {}
    if plain:
        return {"ceil_mode": 1}
    return {"pads": [*layer.padding, *(rim + more for rim, more in zip(layer.padding, over, strict=True))]}


@exports(*(f"global_{what}_pool{axes}d" for what in ("max", "avg") for axes in (1, 2, 3)))
def global_pooling(scope: Scope, x: str) -> str:
    """The largest, or the mean, of each channel."""
    op = "GlobalMaxPool" if "max" in scope.layer.kind else "GlobalAveragePool"
    return scope.graph.add("Flatten", scope.graph.add(op, x), axis=1)


@exports("zero_padding1d", "zero_padding2d", "zero_padding3d")
def zero_padding(scope: Scope, x: str) -> str:
    """Zeros before and after each axis."""
    before = scope.layer.before
    after = before if scope.layer.after is None else scope.layer.after
    return scope.graph.add("Pad", x, scope.graph.whole([0, 0, *before, 0, 0, *after]))


@exports("crop1d", "crop2d", "crop3d")
def crop(scope: Scope, x: str) -> str:
    """Without what stands before and after each axis."""
    before = scope.layer.before
    after = before if scope.layer.after is None else scope.layer.after
    ends = [extent - less for extent, less in zip(scope.shape[1:], after, strict=True)]
    axes = list(range(2, 2 + len(before)))
    return scope.graph.add("Slice", x, *map(scope.graph.whole, (before, ends, axes)))


@exports("slice")
def slice_axis(scope: Scope, x: str) -> str:
    """A range of one axis."""
    layer, rank = scope.layer, len(scope.shape)
    axis = layer.axis % rank
    start, stop, step = slice(layer.start, layer.stop, layer.step).indices(scope.shape[axis])
    return scope.graph.add("Slice", x, *map(scope.graph.whole, ([start], [stop], [1 + axis], [step])))


@exports("up_sampling1d", "up_sampling2d", "up_sampling3d")
def up_sampling(scope: Scope, x: str) -> str:
    """Neighbours repeated, or straight lines between centres."""
    scales = scope.graph.constant([1.0, 1.0, *scope.layer.scale])
    if scope.layer.mode == "nearest":
        settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return scope.graph.add("Resize", x, "", scales, mode="nearest", **settings)
    return scope.graph.add("Resize", x, "", scales, mode="linear")


@exports("pixel_shuffle")
def pixel_shuffle(scope: Scope, x: str) -> str:
    """Channels as places."""
    return scope.graph.add("DepthToSpace", x, blocksize=scope.layer.factor, mode="CRD")


@exports("pixel_unshuffle")
def pixel_unshuffle(scope: Scope, x: str) -> str:
    """Places as channels, in another order than that of ONNX's own."""
    graph, factor, (channels, height, width) = scope.graph, scope.layer.factor, scope.shape
    parts = graph.reshape(x, (channels, height // factor, factor, width // factor, factor))
    return graph.reshape(graph.transpose(parts, 0, 1, 3, 5, 2, 4), scope.handle.output_shape)


@exports(*(f"adaptive_{what}_pool{axes}d" for what in ("max", "avg") for axes in (1, 2, 3)))
def adaptive_pooling(scope: Scope, x: str) -> str:
    """The largest, or the mean, in each of so many windows, which ONNX has where they are alike."""
    layer, extents = scope.layer, scope.shape[1:]
    if any(extent % size for extent, size in zip(extents, layer.size, strict=True)):
        raise Unsayable(
            f"ONNX has no pooling of {extents} to {layer.size}, whose windows differ in length; it has those "
            "of sizes that divide the input's extents"
        )
    window = [extent // size for extent, size in zip(extents, layer.size, strict=True)]
    op = "MaxPool" if "max" in layer.kind else "AveragePool"
    return scope.graph.add(op, x, kernel_shape=window, strides=window)


@exports("instance_norm")
def instance_norm(scope: Scope, x: str) -> str:
    """Channels one by one."""
    layer, graph, channels = scope.layer, scope.graph, scope.shape[0]
    gain = scope.weight("weight") if layer.gain else graph.constant(np.ones(channels))
    bias = bias_of(scope) or graph.constant(np.zeros(channels))
    return graph.add("InstanceNormalization", x, gain, bias, epsilon=layer.epsilon)


@exports("layer_norm")
def layer_norm(scope: Scope, x: str) -> str:
    """Over the last axes."""
    layer, graph = scope.layer, scope.graph
    extents = scope.shape[len(scope.shape) - layer.axes :]
    gain = scope.weight("weight") if layer.gain else graph.constant(np.ones(extents))
    bias = bias_of(scope)
    return graph.add(
        "LayerNormalization",
        x,
        gain,
        *([bias] if bias else []),
        axis=-layer.axes,
        epsilon=layer.epsilon,
    )


def root_mean_square(scope: Scope, x: str, epsilon: float, gain: str | None) -> str:
    """Divides by the root mean square over the last axis."""
    graph = scope.graph
    mean = graph.reduce("ReduceMean", graph.add("Mul", x, x), -1)
    y = graph.add("Div", x, graph.add("Sqrt", graph.add("Add", mean, graph.constant(epsilon))))
    return graph.add("Mul", y, gain) if gain else y


@exports("rms_norm")
def rms_norm(scope: Scope, x: str) -> str:
    """Over the last axis."""
    gain = scope.weight("weight") if scope.layer.gain else None
    return root_mean_square(scope, x, scope.layer.epsilon, gain)


@exports("group_norm")
def group_norm(scope: Scope, x: str) -> str:
    """Channels group by group."""
    layer, graph, shape = scope.layer, scope.graph, scope.shape
    one, zero = graph.constant(np.ones(layer.groups)), graph.constant(np.zeros(layer.groups))
    rows = graph.reshape(x, (layer.groups, math.prod(shape) // layer.groups))
    y = graph.reshape(graph.add("InstanceNormalization", rows, one, zero, epsilon=layer.epsilon), shape)
    extents = (-1, *[1] * (len(shape) - 1))
    if layer.gain:
        y = graph.add("Mul", y, scope.bake("weight", scope.values("weight").reshape(extents)))
    if layer.bias:
        y = graph.add("Add", y, scope.bake("bias", scope.values("bias").reshape(extents)))
    return y


@exports("batch_norm")
def batch_norm(scope: Scope, x: str) -> str:
    """By the running statistics."""
    layer, states = scope.layer, scope.handle.states
    channels = scope.shape[0]
    return scope.graph.add(
        "BatchNormalization",
        x,
        scope.weight("weight") if layer.gain else scope.graph.constant(np.ones(channels)),
        scope.weight("bias") if layer.bias else scope.graph.constant(np.zeros(channels)),
        *(scope.bake(name, states[name]) for name in ("running_mean", "running_var")),
        epsilon=layer.epsilon,
    )


@exports("swiglu", "geglu")
def gated(scope: Scope, x: str) -> str:
    """`down(function(gate(x)) * up(x))`."""

    def product(name: str, x: str) -> str:
        bias = bias_of(scope, f"{name}_bias")
        return scope.linear(x, scope.weight(f"{name}_weight"), bias, flat=len(scope.shape) == 1)

    gate = scope.graph.activate(scope.layer.activation, product("gate", x))
    return product("down", scope.graph.add("Mul", gate, product("up", x)))


@exports("kmeans")
def clusters(scope: Scope, x: str) -> str:
    """A softmax of `-distance^2 / (2 temperature^2)`, of which what all clusters share falls out."""
    centroids = scope.values("centroids").astype(np.float64)
    scale = scope.layer.temperature**2
    weight = scope.bake("centroids", centroids / scale)
    offset = scope.graph.constant(-(centroids**2).sum(axis=1) / (2 * scale))
    scores = scope.linear(x, weight, offset, flat=len(scope.shape) == 1)
    return scope.graph.add("Softmax", scores, axis=-1)


@exports("flatten")
def flatten(scope: Scope, x: str) -> str:
    """One axis."""
    return scope.graph.add("Flatten", x, axis=1)


@exports("reshape")
def reshape(scope: Scope, x: str) -> str:
    """Other extents."""
    return scope.graph.reshape(x, scope.handle.output_shape)


@exports("permute")
def permute(scope: Scope, x: str) -> str:
    """Axes in another order."""
    return scope.graph.transpose(x, 0, *(1 + axis for axis in scope.layer.axes))


@exports("dropout", "spatial_dropout1d", "spatial_dropout2d", "spatial_dropout3d", "gaussian_noise")
def dropout(scope: Scope, x: str) -> str:
    """Nothing at inference."""
    return x


@exports("sequential", "checkpoint")
def sequential(scope: Scope, x: str) -> str:
    """A row."""
    return scope.inside(scope.handle.layers, x)


@exports("weight_norm")
def weight_norm(scope: Scope, x: str) -> str:
    """The layer inside, with the weight as it is made."""
    made = by_length(scope.values("0.weight"), scope.values("gain"))
    return replace(scope, made=made).inside(scope.handle.layers, x)


@exports("spectral_norm")
def spectral_norm(scope: Scope, x: str) -> str:
    """The layer inside, with the weight as it is made."""
    made = by_singular_value(scope.values("0.weight"), scope.handle.states["left_vector"])
    return replace(scope, made=made).inside(scope.handle.layers, x)


@exports("masked")
def masked(scope: Scope, x: str) -> str:
    """A row that is told which steps are padding."""
    graph, shape = scope.graph, scope.shape
    steps = graph.reshape(x, (shape[0], math.prod(shape[1:])))
    padding = graph.add("Equal", steps, graph.constant(scope.layer.value))
    least = graph.reduce("ReduceMin", graph.add("Cast", padding, to=1), -1)
    real = graph.add("Less", graph.reshape(least, shape[:1]), graph.constant(0.5))
    inner = Scope(graph, scope.handle, scope.of, scope.row, scope.context, real)
    return inner.inside(scope.handle.layers, x)


@exports("residual")
def residual(scope: Scope, x: str) -> str:
    """`layers(x) + projection(x)`."""
    y = scope.inside(scope.handle.layers, x)
    return scope.graph.add("Add", y, scope.inside(scope.handle.projection, x))


@exports("parallel")
def parallel(scope: Scope, x: str) -> str:
    """Branches, combined."""
    layer, graph, shape = scope.layer, scope.graph, scope.handle.output_shape
    made = [scope.inside(branch, x) for branch in scope.handle.branches]
    if layer.combine == "concat":
        usual = 0 if len(shape) >= 3 else len(shape) - 1
        return graph.add("Concat", *made, axis=1 + (usual if layer.axis is None else layer.axis))
    if layer.combine in ("add", "average"):
        return graph.add("Sum" if layer.combine == "add" else "Mean", *made)
    if layer.combine == "multiply":
        return functools.reduce(lambda one, other: graph.add("Mul", one, other), made)
    if layer.combine == "grid_scatter":
        rows, columns = layer.grid
        places = layer.places or [divmod(branch, columns) for branch in range(len(made))]
        by_place = {tuple(place): y for place, y in zip(places, made, strict=True)}
        empty = graph.constant(np.zeros((1, *shape[2:])))
        if len(by_place) < rows * columns:
            extents = graph.add("Concat", graph.rows_of(x), graph.whole(list(shape[2:])), axis=0)
            empty = graph.add("Expand", empty, extents)
        cells = [by_place.get((row, column), empty) for row in range(rows) for column in range(columns)]
        placed = [graph.add("Unsqueeze", cell, graph.whole([1])) for cell in cells]
        return graph.reshape(graph.add("Concat", *placed, axis=1), shape)
    shares = graph.add("Softmax", scope.inside(scope.handle.gate, x), axis=-1)
    parts = graph.split(shares, [1] * len(made))
    ones = [1] * len(shape)
    weighted = [graph.add("Mul", y, graph.reshape(s, ones)) for y, s in zip(made, parts, strict=True)]
    return graph.add("Sum", *weighted)
