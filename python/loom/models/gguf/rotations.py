"""Rotations as llama.cpp writes them: factors of angles, and rows in which neighbours turn together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["llama3_factors", "llama3_settings", "to_halves", "to_pairs"]


def llama3_factors(
    base: float, head_dim: int, factor: float, low: float, high: float, original: float
) -> NDArray[np.float64]:
    """Returns what Llama 3 divides the rates by with which pairs of a head turn.

    Args:
        base: The base of the rates.
        head_dim: The extent of a head.
        factor: What slow rates are divided by.
        low: Turns in the length of training below which a rate is slow.
        high: Turns above which a rate is left as it is.
        original: The length of training.
    """
    turns = original * base ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    divided: NDArray[np.float64] = 1 / ((1 - smooth) / factor + smooth)
    return divided


def llama3_settings(
    factors: NDArray[np.float64], config: Mapping[str, Any], original: object
) -> dict[str, Any]:
    """Finds the settings of which factors come: all of Llama 3 have them, but for two; else as they are."""
    low, high = 1.0, 4.0
    lengths = [original] if isinstance(original, int) else [8192]
    for length in lengths:
        for factor in (float(factors.max()), 8.0, 32.0):
            base, head_dim = config.get("rope_theta", 10_000.0), config["head_dim"]
            expected = llama3_factors(base, head_dim, factor, low, high, length)
            if expected.shape == factors.shape and np.allclose(expected, factors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": length,
                }
    divided = factors.tolist()
    return {"rope_type": "longrope", "long_factor": divided, "short_factor": divided, "attention_factor": 1.0}


def to_halves(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Orders rows of queries or keys so that halves of a head turn together, where neighbours did.

    Args:
        rows: A weight or a bias.
        heads: How many heads it has.
    """
    split = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def to_pairs(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Orders rows of queries or keys so that neighbours turn together, where halves of a head did.

    Args:
        rows: A weight or a bias.
        heads: How many heads it has.
    """
    split = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)
