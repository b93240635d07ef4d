"""What numbers are divided by to be of one size."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["divisors"]

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)


def divisors(mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Returns what columns are divided by: their deviations, and 1 where they do not vary.

    The mean of a column that holds one number throughout is some roundings off that number, and its deviation
    is that small. Divided by it the next number that comes would be 1e15.

    Args:
        mean: (columns,) the mean of each column, or that of one.
        deviation: Their standard deviations.
    """
    centre, spread = np.abs(np.asarray(mean, np.float64)), np.asarray(deviation, np.float64)
    return np.where(spread > _ROUNDING * centre, spread, 1.0)
