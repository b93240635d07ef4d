"""Pooling: one number for each window."""

from __future__ import annotations

from dataclasses import dataclass

from loom._checks import PairLike, flag, pair
from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer

__all__ = ["AvgPool2D", "GlobalAvgPool2D", "MaxPool2D"]


@FAMILY.register("max_pool2d")
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


@FAMILY.register("avg_pool2d")
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


@FAMILY.register("global_avg_pool2d")
@dataclass(frozen=True)
class GlobalAvgPool2D(Layer):
    """The mean of each channel: input (channels, height, width), output (channels,).

    Examples:
        >>> nn.GlobalAvgPool2D().to_config()
        {'type': 'global_avg_pool2d'}
    """


def _pool(where: str, size: PairLike, stride: PairLike | None, padding: PairLike) -> dict[str, object]:
    window = pair(where, "pool_size", size, least=1)
    rim = pair(where, "padding", padding, least=0)
    if any(2 * edge > extent for edge, extent in zip(rim, window, strict=True)):
        raise ConfigError(f"{where}: padding must be at most half of pool_size {window}, got {rim}")
    step = window if stride is None else pair(where, "stride", stride, least=1)
    return {"pool_size": window, "stride": step, "padding": rim}
