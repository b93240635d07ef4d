"""What attention adds to scores by distance, as arrays: for formats that hold it as numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loom import nn

__all__ = ["bias_rows", "slope_biases"]


def slope_biases(heads: int, asking: int, asked: int) -> NDArray[np.float64]:
    """Returns what `nn.ALiBi` adds to the scores of so many steps, (heads, asking, asked)."""
    power = 1 << (heads.bit_length() - 1)
    exponents = [-8.0 * (head + 1) / power for head in range(power)]
    exponents += [-8.0 * (2 * head + 1) / (2 * power) for head in range(heads - power)]
    distance = np.abs(np.arange(asked) - np.arange(asking)[:, None])
    added: NDArray[np.float64] = -(2.0 ** np.array(exponents))[:, None, None] * distance
    return added


def bias_rows(bias: nn.RelativeBias, causal: bool, asking: int, asked: int) -> NDArray[np.int64]:
    """Returns the rows that steps take of the table of an `nn.RelativeBias`, (asking, asked)."""
    distance = np.arange(asked) - np.arange(asking)[:, None]
    count = bias.buckets if causal else bias.buckets // 2
    far = np.maximum(-distance, 0) if causal else np.abs(distance)
    single = count // 2
    share = np.log(np.maximum(far, 1) / single) / np.log(bias.max_distance / single)
    # A share that is a whole number of buckets must not come out just below it.
    shared = np.minimum(single + (share * (count - single) + 1e-9).astype(np.int64), count - 1)
    rows: NDArray[np.int64] = np.where(far < single, far, shared)
    if not causal:
        rows += np.where(distance > 0, count, 0)
    return rows
