"""Weights as `nn.WeightNorm` and `nn.SpectralNorm` make them, as arrays: for formats that hold them made."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_length", "by_singular_value"]


def by_length(weight: NDArray[Any], gain: NDArray[Any]) -> NDArray[np.float64]:
    """Returns a weight whose outputs' rows have these lengths; rows of zeros stay."""
    rows = np.asarray(weight, np.float64).reshape(len(weight), -1)
    lengths = np.linalg.norm(rows, axis=1)
    share = np.divide(gain, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    made: NDArray[np.float64] = (rows * share[:, None]).reshape(weight.shape)
    return made


def by_singular_value(weight: NDArray[Any], left: NDArray[Any]) -> NDArray[np.float64]:
    """Returns a weight divided by its largest singular value, after one iteration from this vector."""
    rows = np.asarray(weight, np.float64).reshape(len(weight), -1)
    right = rows.T @ np.asarray(left, np.float64)
    right = right / max(float(np.linalg.norm(right)), 1e-12)
    made: NDArray[np.float64] = np.asarray(weight, np.float64) / max(
        float(np.linalg.norm(rows @ right)), 1e-12
    )
    return made
