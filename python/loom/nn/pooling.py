"""Pooling: one number for each window, over one, two and three axes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import cast

from loom._settings.checks import ExtentsLike
from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
]


@dataclass(frozen=True)
class _Pool(Layer):
    """What windows over any number of axes have in common."""

    pool_size: ExtentsLike
    stride: ExtentsLike | None = None
    _: KW_ONLY
    padding: ExtentsLike = 0
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        window = cast("tuple[int, ...]", self.pool_size)
        rim = cast("tuple[int, ...]", self.padding)
        if any(2 * edge > extent for edge, extent in zip(rim, window, strict=True)):
            where = type(self).__name__
            raise ConfigError(f"{where}: padding must be at most half of pool_size {window}, got {rim}")
        if self.stride is None:
            self._set(stride=window)


def _check_ceil(layer: AvgPool1D | AvgPool2D | AvgPool3D) -> None:
    if layer.ceil_mode and layer.count_include_pad and any(cast("tuple[int, ...]", layer.padding)):
        where = type(layer).__name__
        raise ConfigError(
            f"{where}: with ceil_mode, padding does not count: set count_include_pad=False; or, where it is "
            f"to count, padding=0 with nn.ZeroPadding{where[-2:]}({layer.padding}) before the layer"
        )


@FAMILY.register("max_pool1d")
@dataclass(frozen=True)
class MaxPool1D(_Pool):
    """The largest value in each window; ties go to the first.

    Input (channels, length); output (channels, length') with
    length' = (length + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size.
        stride: One step; the pool size by default.
        padding: Minus infinities added on every side, at most half the pool
            size: one number.
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.MaxPool1D(2).stride
        (2,)
    """


@FAMILY.register("max_pool2d")
@dataclass(frozen=True)
class MaxPool2D(_Pool):
    """The largest value in each window; ties go to the first.

    Input (channels, height, width); output (channels, height', width') with
    height' = (height + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (height, width).
        stride: One step or (height, width); the pool size by default.
        padding: Minus infinities added on every side, at most half the pool
            size: one number or (height, width).
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.MaxPool2D(2).stride
        (2, 2)
    """


@FAMILY.register("max_pool3d")
@dataclass(frozen=True)
class MaxPool3D(_Pool):
    """The largest value in each window; ties go to the first.

    Input (channels, depth, height, width); output (channels, depth', height', width') with
    depth' = (depth + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (depth, height, width).
        stride: One step or (depth, height, width); the pool size by default.
        padding: Minus infinities added on every side, at most half the pool
            size: one number or (depth, height, width).
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.MaxPool3D(2).stride
        (2, 2, 2)
    """


@FAMILY.register("avg_pool1d")
@dataclass(frozen=True)
class AvgPool1D(_Pool):
    """The mean of each window.

    Input (channels, length); output (channels, length') with
    length' = (length + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size.
        stride: One step; the pool size by default.
        padding: Zeros added on every side, at most half the pool size: one number.
        count_include_pad: Whether the padding counts in the mean's divisor.
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding, and what is beyond does not count.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.AvgPool1D(3, stride=2, padding=1).padding
        (1,)
    """

    _: KW_ONLY
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ceil(self)


@FAMILY.register("avg_pool2d")
@dataclass(frozen=True)
class AvgPool2D(_Pool):
    """The mean of each window.

    Input (channels, height, width); output (channels, height', width') with
    height' = (height + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (height, width).
        stride: One step or (height, width); the pool size by default.
        padding: Zeros added on every side, at most half the pool size: one
            number or (height, width).
        count_include_pad: Whether the padding counts in the mean's divisor.
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding, and what is beyond does not count.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.AvgPool2D(3, stride=2, padding=1).padding
        (1, 1)
    """

    _: KW_ONLY
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ceil(self)


@FAMILY.register("avg_pool3d")
@dataclass(frozen=True)
class AvgPool3D(_Pool):
    """The mean of each window.

    Input (channels, depth, height, width); output (channels, depth', height', width') with
    depth' = (depth + 2 padding - pool) // stride + 1.

    Args:
        pool_size: One size or (depth, height, width).
        stride: One step or (depth, height, width); the pool size by default.
        padding: Zeros added on every side, at most half the pool size: one
            number or (depth, height, width).
        count_include_pad: Whether the padding counts in the mean's divisor.
        ceil_mode: Whether the number of windows is rounded up: the last may end
            beyond the padding, and what is beyond does not count.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.AvgPool3D(3, stride=2, padding=1).padding
        (1, 1, 1)
    """

    _: KW_ONLY
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ceil(self)


@FAMILY.register("global_max_pool1d")
@dataclass(frozen=True)
class GlobalMaxPool1D(Layer):
    """The largest value of each channel: input (channels, length), output (channels,).

    Examples:
        >>> nn.GlobalMaxPool1D().to_config()
        {'type': 'global_max_pool1d'}
    """


@FAMILY.register("global_max_pool2d")
@dataclass(frozen=True)
class GlobalMaxPool2D(Layer):
    """The largest value of each channel: input (channels, height, width), output (channels,).

    Examples:
        >>> nn.GlobalMaxPool2D().to_config()
        {'type': 'global_max_pool2d'}
    """


@FAMILY.register("global_max_pool3d")
@dataclass(frozen=True)
class GlobalMaxPool3D(Layer):
    """The largest value of each channel: input (channels, depth, height, width), output (channels,).

    Examples:
        >>> nn.GlobalMaxPool3D().to_config()
        {'type': 'global_max_pool3d'}
    """


@FAMILY.register("global_avg_pool1d")
@dataclass(frozen=True)
class GlobalAvgPool1D(Layer):
    """The mean of each channel: input (channels, length), output (channels,).

    Examples:
        >>> nn.GlobalAvgPool1D().to_config()
        {'type': 'global_avg_pool1d'}
    """


@FAMILY.register("global_avg_pool2d")
@dataclass(frozen=True)
class GlobalAvgPool2D(Layer):
    """The mean of each channel: input (channels, height, width), output (channels,).

    Examples:
        >>> nn.GlobalAvgPool2D().to_config()
        {'type': 'global_avg_pool2d'}
    """


@FAMILY.register("global_avg_pool3d")
@dataclass(frozen=True)
class GlobalAvgPool3D(Layer):
    """The mean of each channel: input (channels, depth, height, width), output (channels,).

    Examples:
        >>> nn.GlobalAvgPool3D().to_config()
        {'type': 'global_avg_pool3d'}
    """
