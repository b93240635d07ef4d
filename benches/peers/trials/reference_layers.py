"""Layers without a time of their own, in PyTorch: products, windows, norms, composites."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

from loom import nn
from trials.reference import Scope, apply, apply_row, computes

_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_LARGEST = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def activate(function: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - a name or an object
    """Computes an activation function."""
    if isinstance(function, nn.LeakyReLU):
        return F.leaky_relu(x, function.slope)
    if isinstance(function, nn.ELU):
        return torch.where(x > 0, x, function.alpha * torch.expm1(torch.where(x > 0, 0.0, x)))
    functions: dict[str, Any] = {
        "linear": lambda x: x,
        "relu": torch.relu,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
        "elu": F.elu,
        "selu": F.selu,
        "relu_squared": lambda x: torch.relu(x) ** 2,
        "scaled_relu": lambda x: 1.1 * torch.relu(x),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        # PyTorch's own is linear above 20, which is 2e-9 away.
        "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        "hardswish": F.hardswish,
        # PyTorch's own goes back with a sixth in float32, which is 3e-8 away.
        "hardsigmoid": lambda x: (x / 6 + 0.5).clamp(0, 1),
        "mish": lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
    }
    return functions[function](x)


@computes(nn.Dense)
def dense(layer: nn.Dense, scope: Scope, x: Tensor) -> Tensor:
    """`activation(x W^T + b)` over the last axis."""
    return activate(layer.activation, F.linear(x, scope("weight"), scope.given("bias", layer.bias)))


@computes(nn.Activation)
def activation(layer: nn.Activation, scope: Scope, x: Tensor) -> Tensor:
    """An activation by itself."""
    return activate(layer.function, x)


@computes(nn.PReLU)
def prelu(layer: nn.PReLU, scope: Scope, x: Tensor) -> Tensor:
    """Learned slopes below 0, of all elements or of each channel."""
    return F.prelu(x, scope("weight"))


@computes(nn.Expr)
def expression(layer: nn.Expr, scope: Scope, x: Tensor) -> Tensor:
    """The text, which is Python's arithmetic, too."""
    names = {parameter["name"]: scope(parameter["name"]) for parameter in layer.parameters}
    names.update(x=x, sigmoid=torch.sigmoid, tanh=torch.tanh)
    y: Tensor = eval(layer.expression, {}, names)
    return y


@computes(nn.Conv1D, nn.Conv2D, nn.Conv3D)
def convolution(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """A cross-correlation; "same" gives ceil(extent / stride), an odd zero at the end."""
    axes = len(layer.kernel_size)
    settings = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    rims: list[int] = []
    for axis in range(axes):
        if layer.padding == "same":
            extent, step = x.shape[2 + axis], layer.stride[axis]
            reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
            total = max((-(-extent // step) - 1) * step + reach - extent, 0)
            before, after = total // 2, total - total // 2
        else:
            before = after = layer.padding[axis]
        rims = [before, after, *rims]
    bias = scope.given("bias", layer.bias)
    return activate(layer.activation, _CONVOLVE[axes](F.pad(x, rims), scope("weight"), bias, **settings))


@computes(nn.ConvTranspose1D, nn.ConvTranspose2D, nn.ConvTranspose3D)
def transposed(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The gradient of a convolution's input; "same" leaves extent x stride, more cut at the end."""
    axes = len(layer.kernel_size)
    settings = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    bias = scope.given("bias", layer.bias)
    if layer.padding != "same":
        y = _TRANSPOSE[axes](
            x, scope("weight"), bias, padding=layer.padding, output_padding=layer.output_padding, **settings
        )
        return activate(layer.activation, y)
    y = _TRANSPOSE[axes](x, scope("weight"), None, **settings)
    rims: list[int] = []
    for axis in range(axes):
        total = y.shape[2 + axis] - x.shape[2 + axis] * layer.stride[axis]
        before = max(total, 0) // 2
        rims = [-before, before - total, *rims]
    y = F.pad(y, rims)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * axes)
    return activate(layer.activation, y)


@computes(nn.MaxPool1D, nn.MaxPool2D, nn.MaxPool3D)
def largest(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The largest in each window."""
    return _LARGEST[len(layer.pool_size)](
        x, layer.pool_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode
    )


@computes(nn.AvgPool1D, nn.AvgPool2D, nn.AvgPool3D)
def mean(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The mean of each window."""
    pool = _MEAN[len(layer.pool_size)]
    settings = {"count_include_pad": layer.count_include_pad, "ceil_mode": layer.ceil_mode}
    return pool(x, layer.pool_size, layer.stride, layer.padding, **settings)


@computes(nn.GlobalMaxPool1D, nn.GlobalMaxPool2D, nn.GlobalMaxPool3D)
def global_largest(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """The largest of each channel; the first of several takes the gradient."""
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    return pool[x.dim() - 2](x, 1).flatten(1)


@computes(nn.GlobalAvgPool1D, nn.GlobalAvgPool2D, nn.GlobalAvgPool3D)
def global_mean(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return x.flatten(2).mean(dim=2)


@computes(nn.AdaptiveMaxPool1D, nn.AdaptiveMaxPool2D, nn.AdaptiveMaxPool3D)
def adaptive_largest(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The largest in each of so many windows."""
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    y: Tensor = pool[len(layer.size)](x, layer.size)
    return y


@computes(nn.AdaptiveAvgPool1D, nn.AdaptiveAvgPool2D, nn.AdaptiveAvgPool3D)
def adaptive_mean(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The mean of each of so many windows."""
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    y: Tensor = pool[len(layer.size)](x, layer.size)
    return y


@computes(nn.UpSampling1D, nn.UpSampling2D, nn.UpSampling3D)
def up_sampling(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Neighbours repeated, or straight lines between centres."""
    factors = tuple(float(factor) for factor in layer.scale)
    if layer.mode == "nearest":
        return F.interpolate(x, scale_factor=factors, mode="nearest")
    return F.interpolate(x, scale_factor=factors, mode=layer.mode, align_corners=False)


@computes(nn.PixelShuffle)
def pixel_shuffle(layer: nn.PixelShuffle, scope: Scope, x: Tensor) -> Tensor:
    """Channels as places."""
    return F.pixel_shuffle(x, layer.factor)


@computes(nn.PixelUnshuffle)
def pixel_unshuffle(layer: nn.PixelUnshuffle, scope: Scope, x: Tensor) -> Tensor:
    """Places as channels."""
    return F.pixel_unshuffle(x, layer.factor)


@computes(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axes."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    return F.layer_norm(x, x.shape[x.dim() - layer.axes :], weight, bias, layer.epsilon)


@computes(nn.RMSNorm)
def rms_norm(layer: nn.RMSNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axis."""
    return F.rms_norm(x, x.shape[-1:], scope.given("weight", layer.gain), layer.epsilon)


@computes(nn.InstanceNorm)
def instance_norm(layer: nn.InstanceNorm, scope: Scope, x: Tensor) -> Tensor:
    """Channels one by one."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    return F.instance_norm(x, weight=weight, bias=bias, eps=layer.epsilon)


@computes(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, scope: Scope, x: Tensor) -> Tensor:
    """Channels group by group."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    rows = x.reshape(x.shape[0], layer.groups, -1)
    centred = rows - rows.mean(dim=2, keepdim=True)
    y = (centred / (centred.square().mean(dim=2, keepdim=True) + layer.epsilon).sqrt()).reshape(x.shape)
    extents = [1, -1, *[1] * (x.dim() - 2)]
    y = y if weight is None else y * weight.reshape(extents)
    return y if bias is None else y + bias.reshape(extents)


@computes(nn.BatchNorm)
def batch_norm(layer: nn.BatchNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the batch and all places of each channel."""
    names = [f"{scope.prefix}running_mean", f"{scope.prefix}running_var"]
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    running = [scope.states[name].clone() for name in names]
    y = F.batch_norm(x, running[0], running[1], weight, bias, scope.training, layer.momentum, layer.epsilon)
    scope.states.update(zip(names, running, strict=True))
    return y


@computes(nn.SwiGLU, nn.GeGLU)
def gated(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of two classes
    """`down(activation(gate(x)) * up(x))`."""

    def product(name: str, x: Tensor) -> Tensor:
        return F.linear(x, scope(f"{name}_weight"), scope.given(f"{name}_bias", layer.bias))

    return product("down", activate(layer.activation, product("gate", x)) * product("up", x))


@computes(nn.MixtureOfExperts)
def experts(layer: nn.MixtureOfExperts, scope: Scope, x: Tensor) -> Tensor:
    """Every expert's result, times its share where it is chosen and 0 where not."""

    def expert(prefix: str, number: int | None) -> Tensor:
        def weight(name: str) -> Tensor:
            stored = scope(f"{prefix}{name}_weight")
            return stored if number is None else stored[number]

        up = F.linear(x, weight("up"))
        opened = activate(layer.activation, F.linear(x, weight("gate")) if layer.gated else up)
        return F.linear(opened * up if layer.gated else opened, weight("down"))

    logits = F.linear(x, scope("router_weight"))
    best = logits.topk(layer.top_k, dim=-1)
    shares = torch.softmax(best.values if layer.normalize else logits, dim=-1)
    chosen = shares if layer.normalize else shares.gather(-1, best.indices)
    gates = torch.zeros_like(logits).scatter(-1, best.indices, chosen)
    y = sum(gates[..., i : i + 1] * expert("", i) for i in range(layer.experts))
    if layer.shared_units is not None:
        shared = expert("shared_", None)
        if layer.shared_gate:
            shared = torch.sigmoid(F.linear(x, scope("shared_router_weight"))) * shared
        y = y + shared
    return y


@computes(nn.ClassToken)
def class_token(layer: nn.ClassToken, scope: Scope, x: Tensor) -> Tensor:
    """Trained steps, then the sequence."""
    return torch.cat([scope("weight").expand(len(x), -1, -1), x], dim=1)


@computes(nn.SequencePool)
def sequence_pool(layer: nn.SequencePool, scope: Scope, x: Tensor) -> Tensor:
    """The first real step, the last one, or the mean of all."""
    real = torch.ones_like(x[:, :, 0], dtype=torch.bool) if scope.mask is None else scope.mask
    place = torch.arange(x.shape[1]).expand(real.shape)
    if layer.steps == "first":
        real = real & (place == torch.where(real, place, x.shape[1]).amin(dim=1, keepdim=True))
    elif layer.steps == "last":
        real = real & (place == torch.where(real, place, -1).amax(dim=1, keepdim=True))
    counts = real.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(real[:, :, None], x, 0.0).sum(dim=1) / counts


@computes(nn.L2Norm)
def unit_length(layer: nn.L2Norm, scope: Scope, x: Tensor) -> Tensor:
    """Vectors of length 1."""
    return x / (x.square().sum(dim=-1, keepdim=True) + layer.epsilon).sqrt()


@computes(nn.Scale)
def scale(layer: nn.Scale, scope: Scope, x: Tensor) -> Tensor:
    """A fixed factor."""
    return layer.factor * x


@computes(nn.SoftCap)
def soft_cap(layer: nn.SoftCap, scope: Scope, x: Tensor) -> Tensor:
    """Held between plus and minus a cap."""
    return layer.cap * torch.tanh(x / layer.cap)


@computes(nn.KMeans)
def clusters(layer: nn.KMeans, scope: Scope, x: Tensor) -> Tensor:
    """A softmax of `-distance^2 / (2 temperature^2)`."""
    distances = (x.unsqueeze(-2) - scope("centroids")).square().sum(dim=-1)
    return torch.softmax(-distances / (2 * layer.temperature**2), dim=-1)


@computes(nn.Embedding)
def embedding(layer: nn.Embedding, scope: Scope, x: Tensor) -> Tensor:
    """A row of the table for each number."""
    return F.embedding(x, scope("weight"))


@computes(nn.TiedHead)
def tied(layer: nn.TiedHead, scope: Scope, x: Tensor) -> Tensor:
    """Products with an embedding's table, or with one of its own."""
    if layer.tied_to is None:
        return F.linear(x, scope("weight"))
    place = ".".join(map(str, layer.tied_to))
    return F.linear(x, scope.at(f"{place}.")("weight"))


@computes(nn.PositionalEmbedding)
def positions(layer: nn.PositionalEmbedding, scope: Scope, x: Tensor) -> Tensor:
    """A trained vector added to each step."""
    return x + scope("weight")[: x.shape[1]]


@computes(nn.SinusoidalPositions)
def waves(layer: nn.SinusoidalPositions, scope: Scope, x: Tensor) -> Tensor:
    """Sines at even and cosines at odd elements."""
    time, width = x.shape[1:]
    element = torch.arange(width, dtype=torch.float64)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * layer.base ** (-2.0 * (element // 2) / width)
    return x + torch.where(element % 2 == 0, angles.sin(), angles.cos()).to(x.dtype)


@computes(nn.Flatten)
def flatten(layer: nn.Flatten, scope: Scope, x: Tensor) -> Tensor:
    """One axis."""
    return x.flatten(1)


@computes(nn.Reshape)
def reshape(layer: nn.Reshape, scope: Scope, x: Tensor) -> Tensor:
    """Other extents."""
    shape: Any = layer.shape
    return x.reshape(x.shape[0], *shape)


@computes(nn.Permute)
def permute(layer: nn.Permute, scope: Scope, x: Tensor) -> Tensor:
    """Axes in another order."""
    return x.permute(0, *(1 + axis for axis in layer.axes))


@computes(nn.ZeroPadding1D, nn.ZeroPadding2D, nn.ZeroPadding3D)
def zero_padding(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Zeros before and after each axis, which PyTorch names from the last one on."""
    ends = zip(layer.before, layer.after or layer.before, strict=True)
    return F.pad(x, [zeros for pair in reversed(list(ends)) for zeros in pair])


@computes(nn.Crop1D, nn.Crop2D, nn.Crop3D)
def crop(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Without what stands before and after."""
    for axis, (before, after) in enumerate(zip(layer.before, layer.after or layer.before, strict=True)):
        x = x.narrow(2 + axis, before, x.shape[2 + axis] - before - after)
    return x


@computes(nn.Slice)
def slice_axis(layer: nn.Slice, scope: Scope, x: Tensor) -> Tensor:
    """A range of one axis, as Python takes it."""
    taken = [slice(None)] * x.ndim
    taken[layer.axis % (x.ndim - 1) + 1] = slice(layer.start, layer.stop, layer.step)
    return x[tuple(taken)]


@computes(nn.Dropout, nn.SpatialDropout1D, nn.SpatialDropout2D, nn.SpatialDropout3D, nn.GaussianNoise)
def dropout(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """Nothing at inference, and nothing at rate 0; other rates are not trained here."""
    return x


@computes(nn.Sequential, nn.Checkpoint)
def sequential(layer: nn.Sequential | nn.Checkpoint, scope: Scope, x: Tensor) -> Tensor:
    """A row."""
    return apply_row(layer.layers, scope, x)


@computes(nn.WeightNorm)
def weight_norm(layer: nn.WeightNorm, scope: Scope, x: Tensor) -> Tensor:
    """The layer with rows of lengths that are trained."""
    v = scope.within("0")("weight")
    rows = scope("gain")[:, None] * F.normalize(v.flatten(1), dim=1)
    return apply_row(layer.layers, replace(scope, made=rows.reshape(v.shape)), x)


@computes(nn.SpectralNorm)
def spectral_norm(layer: nn.SpectralNorm, scope: Scope, x: Tensor) -> Tensor:
    """The layer with a weight divided by its singular value, one iteration on."""
    weight, left = scope.within("0")("weight"), scope.states[scope.prefix + "left_vector"]
    rows = weight.flatten(1)
    product = rows @ F.normalize(rows.mT @ left, dim=0)
    if scope.training:
        scope.states[scope.prefix + "left_vector"] = (product / product.norm()).detach()
    return apply_row(layer.layers, replace(scope, made=weight / product.norm()), x)


@computes(nn.Masked)
def masked(layer: nn.Masked, scope: Scope, x: Tensor) -> Tensor:
    """A row that is told which steps are padding."""
    real = (x.detach() != layer.value).reshape(*x.shape[:2], -1).any(dim=2)
    return apply_row(layer.layers, replace(scope, mask=real), x)


@computes(nn.Residual)
def residual(layer: nn.Residual, scope: Scope, x: Tensor) -> Tensor:
    """`layers(x) + projection(x)`."""
    y = apply_row(layer.layers, scope.within("layers"), x)
    around = scope.within("projection")
    if layer.projection:
        return y + apply_row(layer.projection, around, x)
    if y.shape == x.shape:
        return y + x
    weight = around.within("0")("weight")
    # An image whose last axis no stride makes is projected as other shapes are.
    if weight.dim() == 4:
        stride = [-(-before // after) for before, after in zip(x.shape[2:], y.shape[2:], strict=True)]
        return y + F.conv2d(x, weight, stride=stride)
    return y + F.linear(x, weight)


@computes(nn.Parallel)
def parallel(layer: nn.Parallel, scope: Scope, x: Tensor) -> Tensor:
    """Branches, combined."""
    branches: Any = layer.branches
    made = [apply_row(branch, scope.within(f"branches.{i}"), x) for i, branch in enumerate(branches)]
    if layer.combine == "concat":
        usual = 0 if made[0].dim() > 3 else made[0].dim() - 2
        return torch.cat(made, dim=1 + (usual if layer.axis is None else layer.axis))
    if layer.combine in ("add", "average"):
        return sum(made[1:], made[0]) / (len(made) if layer.combine == "average" else 1)
    if layer.combine == "multiply":
        return math.prod(made[1:], start=made[0])
    if layer.combine == "grid_scatter":
        rows, columns = layer.grid or (1, 1)
        places = layer.places or [divmod(i, columns) for i in range(len(made))]
        empty = torch.zeros_like(made[0])
        by_place = {tuple(place): y for place, y in zip(places, made, strict=True)}
        cells = [by_place.get((row, column), empty) for row in range(rows) for column in range(columns)]
        return torch.stack(cells, dim=1).reshape(x.shape[0], rows, columns, *made[0].shape[1:])
    gate: Any = layer.gate or [nn.Flatten(), nn.Dense(len(made))]
    shares = torch.softmax(apply_row(gate, scope.within("gate"), x), dim=-1)
    weighted = [y * shares[:, i].reshape(-1, *[1] * (y.dim() - 1)) for i, y in enumerate(made)]
    return sum(weighted[1:], weighted[0])


__all__ = ["activate", "apply"]
