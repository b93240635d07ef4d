"""Convolutions and transposed convolutions over one, two and three axes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, cast

from loom._settings.checks import ExtentsLike
from loom.activations import ActivationLike
from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "ConvTranspose2D", "ConvTranspose3D"]


@dataclass(frozen=True)
class _Window(Layer):
    """What convolutions over any number of axes have in common."""

    filters: int
    kernel_size: ExtentsLike
    _: KW_ONLY
    stride: ExtentsLike = 1
    padding: ExtentsLike | Literal["same", "valid"] = 0
    dilation: ExtentsLike = 1
    groups: int = 1
    activation: ActivationLike = "linear"
    bias: bool = True
    weight_initializer: InitializerLike | None = None
    bias_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filters % self.groups:
            raise ConfigError(
                f"{type(self).__name__}: filters must be a multiple of groups, got {self.filters} filters "
                f"in {self.groups} groups"
            )


@dataclass(frozen=True)
class _Transpose(_Window):
    """What transposed convolutions over any number of axes have in common."""

    _: KW_ONLY
    output_padding: ExtentsLike = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        where = type(self).__name__
        added, stride, dilation = (
            cast("tuple[int, ...]", each) for each in (self.output_padding, self.stride, self.dilation)
        )
        steps = zip(added, stride, dilation, strict=True)
        if any(extra >= max(step, distance) for extra, step, distance in steps):
            raise ConfigError(
                f"{where}: output_padding must be smaller than stride or dilation, got {added} with "
                f"stride {stride} and dilation {dilation}"
            )
        if self.padding == "same" and any(added):
            raise ConfigError(f'{where}: padding "same" leaves nothing for output_padding to say')


@FAMILY.register("conv1d")
@dataclass(frozen=True)
class Conv1D(_Window):
    """A one-dimensional convolution (cross-correlation, as elsewhere).

    Input (channels, length); output (filters, length') with
    length' = (length + 2 padding - dilation (kernel - 1) - 1) // stride + 1.
    The weight is (filters, channels / groups, kernel size).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size.
        stride: One step.
        padding: Zeros added on every side: one number.
            "valid" means none; "same" as many as give ceil(length / stride),
            an odd one at the end.
        dilation: Distance between kernel elements: one number.
        groups: Into how many groups channels and filters are split; as many as
            there are channels for a depthwise convolution.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Conv1D(16, kernel_size=5, stride=2, padding="same").stride
        (2,)
    """


@FAMILY.register("conv2d")
@dataclass(frozen=True)
class Conv2D(_Window):
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
        groups: Into how many groups channels and filters are split; as many as
            there are channels for a depthwise convolution.
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


@FAMILY.register("conv3d")
@dataclass(frozen=True)
class Conv3D(_Window):
    """A three-dimensional convolution (cross-correlation, as elsewhere).

    Input (channels, depth, height, width); output (filters, depth', height', width') with
    depth' = (depth + 2 padding - dilation (kernel - 1) - 1) // stride + 1.
    The weight is (filters, channels / groups, kernel depth, kernel height,
    kernel width).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size or (depth, height, width).
        stride: One step or (depth, height, width).
        padding: Zeros added on every side: one number or (depth, height, width).
            "valid" means none; "same" as many as give ceil(depth / stride),
            an odd one at the end.
        dilation: Distance between kernel elements: one number or (depth, height, width).
        groups: Into how many groups channels and filters are split; as many as
            there are channels for a depthwise convolution.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Conv3D(8, kernel_size=(1, 3, 3)).kernel_size
        (1, 3, 3)
    """


@FAMILY.register("conv_transpose1d")
@dataclass(frozen=True)
class ConvTranspose1D(_Transpose):
    """The gradient of a one-dimensional convolution's input, used forwards.

    Input (channels, length); output (filters, length') with
    length' = (length - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
    The weight is (channels, filters / groups, kernel size).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size.
        stride: One step.
        padding: Taken away on every side: one number.
            "valid" means none; "same" as many as leave length x stride.
        output_padding: Added at the end, less than the stride or the
            dilation: one number.
        dilation: Distance between kernel elements: one number.
        groups: Into how many groups channels and filters are split.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.ConvTranspose1D(16, kernel_size=4, stride=2, padding=1).stride
        (2,)
    """


@FAMILY.register("conv_transpose2d")
@dataclass(frozen=True)
class ConvTranspose2D(_Transpose):
    """The gradient of a two-dimensional convolution's input, used forwards.

    Input (channels, height, width); output (filters, height', width') with
    height' = (height - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
    The weight is (channels, filters / groups, kernel height, kernel width).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size or (height, width).
        stride: One step or (height, width).
        padding: Taken away on every side: one number or (height, width).
            "valid" means none; "same" as many as leave height x stride.
        output_padding: Added at the end, less than the stride or the
            dilation: one number or (height, width).
        dilation: Distance between kernel elements: one number or (height, width).
        groups: Into how many groups channels and filters are split.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.ConvTranspose2D(8, kernel_size=3, stride=2, output_padding=1).output_padding
        (1, 1)
    """


@FAMILY.register("conv_transpose3d")
@dataclass(frozen=True)
class ConvTranspose3D(_Transpose):
    """The gradient of a three-dimensional convolution's input, used forwards.

    Input (channels, depth, height, width); output (filters, depth', height', width') with
    depth' = (depth - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
    The weight is (channels, filters / groups, kernel depth, kernel height,
    kernel width).

    Args:
        filters: How many output channels; a multiple of `groups`.
        kernel_size: One size or (depth, height, width).
        stride: One step or (depth, height, width).
        padding: Taken away on every side: one number or (depth, height, width).
            "valid" means none; "same" as many as leave depth x stride.
        output_padding: Added at the end, less than the stride or the
            dilation: one number or (depth, height, width).
        dilation: Distance between kernel elements: one number or (depth, height, width).
        groups: Into how many groups channels and filters are split.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added to each filter.
        weight_initializer: The weight's first values; He normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.ConvTranspose3D(8, kernel_size=2, stride=2).kernel_size
        (2, 2, 2)
    """
