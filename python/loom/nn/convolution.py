"""Convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from loom import activations, initializers
from loom._checks import PairLike, flag, pair, whole
from loom.activations import ActivationLike
from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Conv2D"]


@FAMILY.register("conv2d")
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
            padding=padding_of(self.padding),
            dilation=pair("Conv2D", "dilation", self.dilation, least=1),
            groups=groups,
            activation=activations.resolve(self.activation),
            bias=flag("Conv2D", "bias", self.bias),
            weight_initializer=initializers.resolve(self.weight_initializer),
            bias_initializer=initializers.resolve(self.bias_initializer),
        )


def padding_of(padding: PairLike | str) -> tuple[int, int] | str:
    if padding == "same":
        return "same"
    if padding == "valid":
        return 0, 0
    if isinstance(padding, str):
        raise ConfigError(
            f'Conv2D: padding must be "same", "valid", a whole number or a pair, got "{padding}"'
        )
    return pair("Conv2D", "padding", padding, least=0)
