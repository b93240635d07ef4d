"""Exponentials and logarithms with the same bits on every machine.

NumPy's own are another library's on each system and processor, and differ in their last bits; a draw that
falls between two tokens would then be another one elsewhere. Here are sums, products and powers of two alone,
which IEEE 754 rounds in one way, and sums in one order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["exponentials", "logarithm", "total"]

_PER_LOG_TWO = 1.4426950408889634
# The logarithm of two in two parts, of which the first has zeros behind, so that its products are exact.
_LOG_TWO_HIGH = 0.6931471803691238
_LOG_TWO_LOW = 1.9082149292705877e-10
# Beyond it an exponential is no normal number: it counts as 0.
_LEAST = -708.0
_PIECE = 4096
_TAYLOR = [1.0 / math.factorial(power) for power in range(14)]


def exponentials(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns exp(x) for numbers that are not above 0.

    The argument becomes k log(2) + r with |r| below 0.35, for which Taylor's series to r**13 is right to a
    unit or two in the last place.

    Args:
        x: Any shape.
    """
    flat = x.reshape(-1)
    y = np.empty_like(flat)
    # A piece at a time stays in the processor's cache.
    for start in range(0, len(flat), _PIECE):
        y[start : start + _PIECE] = _piece(flat[start : start + _PIECE])
    return y.reshape(x.shape)


def _piece(x: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded = np.maximum(x, _LEAST)
    steps = np.rint(bounded * _PER_LOG_TWO)
    rest = bounded - steps * _LOG_TWO_HIGH
    rest -= steps * _LOG_TWO_LOW
    y = np.full_like(rest, _TAYLOR[-1])
    for factor in reversed(_TAYLOR[:-1]):
        y *= rest
        y += factor
    # Powers of two from their bits: ldexp takes ten times as long.
    powers = (steps.astype(np.int64) + 1023) << 52
    y *= powers.view(np.float64)
    y[x < _LEAST] = 0.0
    return y


def total(x: NDArray[np.float64]) -> float:
    """Returns the sum, from first to last; `numpy.sum` has an order of its own."""
    return float(np.add.accumulate(x)[-1]) if len(x) else 0.0


def logarithm(x: float) -> float:
    """Returns the natural logarithm of a positive number, right to a few units in the last place."""
    fraction, power = math.frexp(x)
    if fraction < 0.7071067811865476:
        fraction, power = 2.0 * fraction, power - 1
    ratio = (fraction - 1.0) / (fraction + 1.0)
    square, series = ratio * ratio, 0.0
    for odd in range(25, 0, -2):
        series = series * square + 1.0 / odd
    return power * _LOG_TWO_HIGH + (power * _LOG_TWO_LOW + 2.0 * ratio * series)
