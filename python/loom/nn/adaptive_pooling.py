"""Pooling to an output of a given size, whatever the input's."""

from __future__ import annotations

from dataclasses import dataclass

from loom._settings.checks import ExtentsLike
from loom.nn._layer import FAMILY, Layer

__all__ = [
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D",
]


@dataclass(frozen=True)
class _AdaptivePool(Layer):
    size: ExtentsLike


@FAMILY.register("adaptive_max_pool1d")
@dataclass(frozen=True)
class AdaptiveMaxPool1D(_AdaptivePool):
    """The largest value of each window: input (channels, length), output (channels, size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element. Ties go to the first.

    Args:
        size: How many windows there are along each axis: one number.

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> net = loom.Sequential([nn.AdaptiveMaxPool1D(2)], input_shape=(1, 3))
        >>> net.predict(np.array([[[1.0, 2.0, 6.0]]])).tolist()
        [[[2.0, 6.0]]]
    """


@FAMILY.register("adaptive_max_pool2d")
@dataclass(frozen=True)
class AdaptiveMaxPool2D(_AdaptivePool):
    """The largest value of each window: input (channels, height, width), output (channels, *size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element. Ties go to the first.

    Args:
        size: How many windows there are along each axis: one number or (height, width).

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> loom.Sequential([nn.AdaptiveMaxPool2D((2, 3))], input_shape=(4, 7, 5)).output_shape
        (4, 2, 3)
    """


@FAMILY.register("adaptive_max_pool3d")
@dataclass(frozen=True)
class AdaptiveMaxPool3D(_AdaptivePool):
    """The largest value of each window: input (channels, depth, height, width), output (channels, *size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element. Ties go to the first.

    Args:
        size: How many windows there are along each axis: one number or (depth, height, width).

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> loom.Sequential([nn.AdaptiveMaxPool3D(2)], input_shape=(4, 7, 5, 3)).output_shape
        (4, 2, 2, 2)
    """


@FAMILY.register("adaptive_avg_pool1d")
@dataclass(frozen=True)
class AdaptiveAvgPool1D(_AdaptivePool):
    """The mean of each window: input (channels, length), output (channels, size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element.

    Args:
        size: How many windows there are along each axis: one number.

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> net = loom.Sequential([nn.AdaptiveAvgPool1D(2)], input_shape=(1, 3))
        >>> net.predict(np.array([[[1.0, 2.0, 6.0]]])).tolist()
        [[[1.5, 4.0]]]
    """


@FAMILY.register("adaptive_avg_pool2d")
@dataclass(frozen=True)
class AdaptiveAvgPool2D(_AdaptivePool):
    """The mean of each window: input (channels, height, width), output (channels, *size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element.

    Args:
        size: How many windows there are along each axis: one number or (height, width).

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> loom.Sequential([nn.AdaptiveAvgPool2D((2, 3))], input_shape=(4, 7, 5)).output_shape
        (4, 2, 3)
    """


@FAMILY.register("adaptive_avg_pool3d")
@dataclass(frozen=True)
class AdaptiveAvgPool3D(_AdaptivePool):
    """The mean of each window: input (channels, depth, height, width), output (channels, *size).

    Window i of an axis reaches from floor(i extent / size) to before ceil((i + 1) extent / size), as
    PyTorch's: windows share the input out, and may overlap by an element.

    Args:
        size: How many windows there are along each axis: one number or (depth, height, width).

    Raises:
        ConfigError: A size is out of range.

    Examples:
        >>> loom.Sequential([nn.AdaptiveAvgPool3D(2)], input_shape=(4, 7, 5, 3)).output_shape
        (4, 2, 2, 2)
    """
