"""The layers, described by plain configuration objects.

A layer object says what a layer does; the network that it is added to owns the
weights. One object may therefore be added in several places. Shapes below leave
out the batch, which always comes first. Images are channels, height, width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom import activations, initializers
from loom._checks import PairLike, flag, items, pair, real, whole
from loom._config import Tagged, TaggedFamily
from loom.activations import ELU, ActivationFunction, ActivationLike, LeakyReLU
from loom.errors import ConfigError
from loom.initializers import InitializerLike

__all__ = [
    "ELU",
    "Activation",
    "ActivationFunction",
    "AvgPool2D",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAvgPool2D",
    "Layer",
    "LeakyReLU",
    "MaxPool2D",
    "Reshape",
    "Softmax",
    "layer_from_config",
]


class Layer(Tagged):
    """Base of the layer configurations."""

    __slots__ = ()

    def _set(self, **settings: object) -> None:
        for name, value in settings.items():
            object.__setattr__(self, name, value)


_FAMILY: TaggedFamily[Layer] = TaggedFamily("layer")


@_FAMILY.register("dense")
@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer: `activation(x @ weight.T + bias)`.

    Works on the last axis: input (..., features), output (..., units). The
    weight is (units, features), the bias (units,).

    Args:
        units: How many outputs.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added.
        weight_initializer: The weight's first values; Xavier normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Dense(10, activation="relu").units
        10
    """

    units: int
    activation: ActivationLike = "linear"
    bias: bool = True
    weight_initializer: InitializerLike | None = None
    bias_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        self._set(
            units=whole("Dense", "units", self.units, least=1),
            activation=activations.resolve(self.activation),
            bias=flag("Dense", "bias", self.bias),
            weight_initializer=initializers.resolve(self.weight_initializer),
            bias_initializer=initializers.resolve(self.bias_initializer),
        )


@_FAMILY.register("conv2d")
@dataclass(frozen=True)
class Conv2D(Layer):
    """A two-dimensional convolution (cross-correlation, as elsewhere).

    Input (channels, height, width); output (filters, height', width') with
    height' = (height + 2 padding - dilation (kernel - 1) - 1) // stride + 1.
    The weight is (filters, channels / groups, kernel height, kernel width).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size or (height, width).
        stride: One step or (height, width).
        padding: Zeros added on every side: one number or (height, width).
            "valid" means none; "same" as many as give ceil(height / stride),
            an odd one below and to the right.
        dilation: Distance between kernel elements: one number or (height, width).
        groups: Into how many groups channels and filters are split.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Conv2D(32, kernel_size=3, padding=1, activation="relu").padding
        (1, 1)
    """

    filters: int
    kernel_size: PairLike
    stride: PairLike = 1
    padding: PairLike | str = 0
    dilation: PairLike = 1
    groups: int = 1
    activation: ActivationLike = "linear"
    bias: bool = True
    weight_initializer: InitializerLike | None = None
    bias_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        filters = whole("Conv2D", "filters", self.filters, least=1)
        groups = whole("Conv2D", "groups", self.groups, least=1)
        if filters % groups:
            raise ConfigError(
                f"Conv2D: filters must be a multiple of groups, got {filters} filters in {groups} groups"
            )
        self._set(
            filters=filters,
            kernel_size=pair("Conv2D", "kernel_size", self.kernel_size, least=1),
            stride=pair("Conv2D", "stride", self.stride, least=1),
            padding=_padding(self.padding),
            dilation=pair("Conv2D", "dilation", self.dilation, least=1),
            groups=groups,
            activation=activations.resolve(self.activation),
            bias=flag("Conv2D", "bias", self.bias),
            weight_initializer=initializers.resolve(self.weight_initializer),
            bias_initializer=initializers.resolve(self.bias_initializer),
        )


@_FAMILY.register("max_pool2d")
@dataclass(frozen=True)
class MaxPool2D(Layer):
    """The largest value in each window; ties go to the first.

    Input (channels, height, width); output (channels, height', width') with
    height' = (height + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (height, width).
        stride: One step or (height, width); the pool size by default.
        padding: Minus infinities added on every side, at most half the pool
            size: one number or (height, width).

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.MaxPool2D(2).stride
        (2, 2)
    """

    pool_size: PairLike
    stride: PairLike | None = None
    padding: PairLike = 0

    def __post_init__(self) -> None:
        self._set(**_pool("MaxPool2D", self.pool_size, self.stride, self.padding))


@_FAMILY.register("avg_pool2d")
@dataclass(frozen=True)
class AvgPool2D(Layer):
    """The mean of each window.

    Input (channels, height, width); output (channels, height', width') with
    height' = (height + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (height, width).
        stride: One step or (height, width); the pool size by default.
        padding: Zeros added on every side, at most half the pool size: one
            number or (height, width).
        count_include_pad: Whether the padding counts in the mean's divisor.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.AvgPool2D(3, stride=2, padding=1).padding
        (1, 1)
    """

    pool_size: PairLike
    stride: PairLike | None = None
    padding: PairLike = 0
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        self._set(
            **_pool("AvgPool2D", self.pool_size, self.stride, self.padding),
            count_include_pad=flag("AvgPool2D", "count_include_pad", self.count_include_pad),
        )


@_FAMILY.register("global_avg_pool2d")
@dataclass(frozen=True)
class GlobalAvgPool2D(Layer):
    """The mean of each channel: input (channels, height, width), output (channels,).

    Examples:
        >>> nn.GlobalAvgPool2D().to_config()
        {'type': 'global_avg_pool2d'}
    """


@_FAMILY.register("flatten")
@dataclass(frozen=True)
class Flatten(Layer):
    """Lays a sample out as one axis: input (a, b, ...), output (a * b * ...,).

    Examples:
        >>> nn.Flatten().to_config()
        {'type': 'flatten'}
    """


@_FAMILY.register("reshape")
@dataclass(frozen=True)
class Reshape(Layer):
    """Gives a sample another shape with the same number of elements.

    Args:
        shape: The new extents, without the batch; one may be -1 and is then
            worked out from the others.

    Raises:
        ConfigError: An extent is out of range, or more than one is -1.

    Examples:
        >>> nn.Reshape((1, 28, -1)).shape
        (1, 28, -1)
    """

    shape: int | Sequence[int]

    def __post_init__(self) -> None:
        extents = items(self.shape)
        if extents == ():
            raise ConfigError("Reshape: shape must be one or more whole numbers, got ()")
        shape = tuple(
            -1 if extent == -1 else whole("Reshape", "shape", extent, least=1)
            for extent in (extents or (self.shape,))
        )
        if shape.count(-1) > 1:
            raise ConfigError(f"Reshape: only one extent of shape may be -1, got {shape!r}")
        self._set(shape=shape)


@_FAMILY.register("dropout")
@dataclass(frozen=True)
class Dropout(Layer):
    """Zeroes elements at random while training; the others grow by 1 / (1 - rate).

    Input and output have the same shape. At inference it changes nothing.

    Args:
        rate: The chance that an element is zeroed; from 0 to below 1.

    Raises:
        ConfigError: The rate is out of range.

    Examples:
        >>> nn.Dropout(0.25).rate
        0.25
    """

    rate: float

    def __post_init__(self) -> None:
        self._set(rate=real("Dropout", "rate", self.rate, least=0.0, below=1.0))


@_FAMILY.register("activation")
@dataclass(frozen=True)
class Activation(Layer):
    """An activation function as a layer of its own; the shape stays.

    Args:
        function: A name, or an object such as `LeakyReLU(0.2)`.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.

    Examples:
        >>> nn.Activation("gelu").function
        'gelu'
    """

    function: ActivationLike

    def __post_init__(self) -> None:
        self._set(function=activations.resolve(self.function))


@_FAMILY.register("softmax")
@dataclass(frozen=True)
class Softmax(Layer):
    """Softmax over the class axis (the last; the channels of images): the shape stays.

    Args:
        temperature: What the logits are divided by; above zero.

    Raises:
        ConfigError: The temperature is out of range.

    Examples:
        >>> nn.Softmax(temperature=0.5).temperature
        0.5
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        self._set(temperature=real("Softmax", "temperature", self.temperature, above=0.0))


def layer_from_config(config: Mapping[str, Any]) -> Layer:
    """Builds the layer that a configuration's "type" names.

    Args:
        config: What a layer's `to_config` returned.

    Returns:
        The layer.

    Raises:
        ConfigError: The type or a key is unknown (the message suggests the
            nearest), or a value is out of range.

    Examples:
        >>> layer_from_config({"type": "dropout", "rate": 0.5})
        Dropout(rate=0.5)
    """
    return _FAMILY.from_config(config)


def _padding(padding: PairLike | str) -> tuple[int, int] | str:
    if padding == "same":
        return "same"
    if padding == "valid":
        return 0, 0
    if isinstance(padding, str):
        raise ConfigError(
            f'Conv2D: padding must be "same", "valid", a whole number or a pair, got "{padding}"'
        )
    return pair("Conv2D", "padding", padding, least=0)


def _pool(where: str, size: PairLike, stride: PairLike | None, padding: PairLike) -> dict[str, object]:
    window = pair(where, "pool_size", size, least=1)
    rim = pair(where, "padding", padding, least=0)
    if any(2 * edge > extent for edge, extent in zip(rim, window, strict=True)):
        raise ConfigError(f"{where}: padding must be at most half of pool_size {window}, got {rim}")
    step = window if stride is None else pair(where, "stride", stride, least=1)
    return {"pool_size": window, "stride": step, "padding": rim}
