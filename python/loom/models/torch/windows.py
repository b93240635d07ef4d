"""Convolutions, pooling, padding and other extents, in PyTorch's functions."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loom import nn
from loom.models.torch.activations import activate
from loom.models.torch.scope import Scope

if find_spec("torch") is not None:
    import torch.nn.functional as F  # noqa: N812 - as everybody writes it

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "adaptive_average_pool",
    "adaptive_max_pool",
    "average_pool",
    "convolution",
    "crop",
    "global_average_pool",
    "global_max_pool",
    "max_pool",
    "pixel_shuffle",
    "pixel_unshuffle",
    "transposed_convolution",
    "up_sampling",
    "zero_padding",
]


def _by_axes(name: str, axes: int) -> Any:  # noqa: ANN401 - a function of torch.nn.functional
    return getattr(F, f"{name}{axes}d")


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
    return activate(
        layer.activation, _by_axes("conv", axes)(F.pad(x, rims), scope("weight"), bias, **settings)
    )


def transposed_convolution(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The gradient of a convolution's input; "same" leaves extent x stride, more cut at the end."""
    axes = len(layer.kernel_size)
    settings = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    bias = scope.given("bias", layer.bias)
    if layer.padding != "same":
        y = _by_axes("conv_transpose", axes)(
            x, scope("weight"), bias, padding=layer.padding, output_padding=layer.output_padding, **settings
        )
        return activate(layer.activation, y)
    y = _by_axes("conv_transpose", axes)(x, scope("weight"), None, **settings)
    rims: list[int] = []
    for axis in range(axes):
        total = y.shape[2 + axis] - x.shape[2 + axis] * layer.stride[axis]
        before = max(total, 0) // 2
        rims = [-before, before - total, *rims]
    y = F.pad(y, rims)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * axes)
    return activate(layer.activation, y)


def max_pool(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The largest in each window."""
    return _by_axes("max_pool", len(layer.pool_size))(
        x, layer.pool_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode
    )


def average_pool(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The mean of each window."""
    pool = _by_axes("avg_pool", len(layer.pool_size))
    counted = layer.count_include_pad
    rounded = layer.ceil_mode
    return pool(x, layer.pool_size, layer.stride, layer.padding, ceil_mode=rounded, count_include_pad=counted)


def global_max_pool(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """The largest of each channel; the first of several takes the gradient."""
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    return pool[x.dim() - 2](x, 1).flatten(1)


def global_average_pool(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return x.flatten(2).mean(dim=2)


def zero_padding(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Zeros before and after each axis, which PyTorch names from the last one on."""
    ends = zip(layer.before, layer.after or layer.before, strict=True)
    return F.pad(x, [zeros for pair in reversed(list(ends)) for zeros in pair])


def crop(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Without what stands before and after."""
    for axis, (before, after) in enumerate(zip(layer.before, layer.after or layer.before, strict=True)):
        x = x.narrow(2 + axis, before, x.shape[2 + axis] - before - after)
    return x


def up_sampling(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Neighbours repeated, or straight lines between centres."""
    factors = tuple(float(factor) for factor in layer.scale)
    if layer.mode == "nearest":
        return F.interpolate(x, scale_factor=factors, mode="nearest")
    return F.interpolate(x, scale_factor=factors, mode=layer.mode, align_corners=False)


def adaptive_max_pool(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The largest in each of so many windows."""
    pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    y: Tensor = pool[len(layer.size)](x, layer.size)
    return y


def adaptive_average_pool(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """The mean of each of so many windows."""
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    y: Tensor = pool[len(layer.size)](x, layer.size)
    return y


def pixel_shuffle(layer: nn.PixelShuffle, scope: Scope, x: Tensor) -> Tensor:
    """Channels as places."""
    return F.pixel_shuffle(x, layer.factor)


def pixel_unshuffle(layer: nn.PixelUnshuffle, scope: Scope, x: Tensor) -> Tensor:
    """Places as channels."""
    return F.pixel_unshuffle(x, layer.factor)
