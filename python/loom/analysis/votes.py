"""What networks decide together, of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import Precision, RealArray
from loom.reports.outputs import class_axis

__all__ = ["by_output", "majority", "weighted"]


def by_output(outputs: Sequence[Any], decide: Callable[..., RealArray], *more: object) -> Any:  # noqa: ANN401
    """What is decided of the networks' outputs: of named ones by name."""
    if isinstance(outputs[0], dict):
        return {name: decide(np.stack([each[name] for each in outputs]), name, *more) for name in outputs[0]}
    return decide(np.stack(outputs), "", *more)


def weighted(outputs: RealArray, weights: NDArray[np.float64], precision: Precision) -> RealArray:
    """Returns the mean of outputs, each counting as much as its weight.

    Args:
        outputs: (networks, rows, ...).
        weights: (networks,) numbers whose sum is 1.
        precision: What the mean is rounded to.
    """
    mean = np.zeros(outputs.shape[1:])
    for output, weight in zip(outputs, weights, strict=True):
        mean += np.multiply(output, weight, dtype=np.float64)
    return mean.astype(precision)


def majority(outputs: RealArray, threshold: float, precision: Precision) -> RealArray:
    """Returns the share of networks that choose each class; see `Ensemble`.

    Args:
        outputs: (networks, rows, ...).
        threshold: What a single output is above for class 1.
        precision: What the shares are rounded to.
    """
    axis = class_axis(outputs[0].ndim)
    # (networks, rows, ..., classes)
    each = np.moveaxis(outputs, axis + 1, -1)
    mean = each.mean(axis=0, dtype=np.float64)
    if each.shape[-1] == 1:
        votes = (each > threshold).sum(axis=0)
        raised = (2 * votes == len(each)) & (mean > threshold)
    else:
        classes = np.arange(each.shape[-1])
        votes = (each.argmax(axis=-1)[..., None] == classes).sum(axis=0)
        most = votes == votes.max(axis=-1, keepdims=True)
        winner = np.where(most, mean, -np.inf).argmax(axis=-1)
        raised = (classes == winner[..., None]) & (most.sum(axis=-1, keepdims=True) > 1)
    shares = (votes / len(each)).astype(precision)
    shares = np.where(raised, np.nextafter(shares, shares.dtype.type(2.0)), shares)
    return np.ascontiguousarray(np.moveaxis(shares, -1, axis))
