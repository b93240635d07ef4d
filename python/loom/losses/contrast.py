"""Losses of distances between samples of a batch, for networks that say how alike things are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice, real
from loom.errors import ShapeError
from loom.losses.computed import ComputedLoss

__all__ = ["Contrastive", "Triplet"]


@dataclass(frozen=True)
class Triplet(ComputedLoss):
    """Samples of a class are to be nearer to each other, by a margin, than to those of other classes.

    max(0, d(a, p) - d(a, n) + margin) with d the Euclidean distance of outputs, a and p of one class and n of
    another. Triples are made of the batch by the targets' labels, so that any data of samples and labels
    will do and a batch of n samples has up to n^3 of them:

    - "hard" (Hermans et al. 2017): for every a the farthest p and the nearest n; the mean over a.
    - "all": the mean over all triples that cost anything.

    A sample that is alone in its class, or a batch of one class, has no triples. Targets are (rows,) whole
    numbers, which need not be below the output's width. Batches should have some samples of each class, and
    a batch that is taken apart (accumulate=, samples one by one) has fewer triples.

    It is computed by NumPy on the CPU, on every device.

    Args:
        margin: By how much; above zero.
        mining: Which triples count.

    Examples:
        >>> points = [[0.0, 0.0], [1.0, 0.0], [1.5, 0.0]]
        >>> loss, _ = loom.losses.value_and_gradient(loom.losses.Triplet(margin=1.0), points, [0, 0, 1])
        >>> loss
        1.0
    """

    margin: float = 1.0
    mining: Literal["hard", "all"] = "hard"

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", real("Triplet", "margin", self.margin, above=0.0))
        object.__setattr__(self, "mining", choice("Triplet", "mining", self.mining, ("hard", "all")))
        super().__post_init__()

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Returns the batch's loss and its gradient.

        Args:
            output: (rows, features) where each sample is.
            target: (rows,) its class.
        """
        distances, steps, same = _pairs(self.kind, output, target)
        count = len(output)
        alike = same & ~np.eye(count, dtype=bool)
        # How much each distance counts, from sample to sample.
        shares = np.zeros_like(distances)
        if self.mining == "hard":
            anchors = np.flatnonzero(alike.any(axis=1) & ~same.all(axis=1))
            far = np.where(alike, distances, -np.inf).argmax(axis=1)[anchors]
            near = np.where(same, np.inf, distances).argmin(axis=1)[anchors]
            costs = distances[anchors, far] - distances[anchors, near] + self.margin
            costing = costs > 0
            total = max(len(anchors), 1)
            np.add.at(shares, (anchors[costing], far[costing]), 1.0)
            np.subtract.at(shares, (anchors[costing], near[costing]), 1.0)
        else:
            valid = alike[:, :, None] & ~same[:, None, :]
            costs = np.where(valid, distances[:, :, None] - distances[:, None, :] + self.margin, 0.0)
            costing = costs > 0
            costs = costs[costing]
            total = max(len(costs), 1)
            shares = costing.sum(axis=2) - costing.sum(axis=1).astype(np.float64)
        loss = float(np.maximum(costs, 0.0).sum()) / total
        return loss, _spread(shares / total, distances, steps)


@dataclass(frozen=True)
class Contrastive(ComputedLoss):
    """Pairs of one class are drawn together, others pushed apart up to a margin (Hadsell et al. 2006).

    d^2 / 2 of a pair of one class and max(0, margin - d)^2 / 2 of any other, d the Euclidean distance of
    outputs; the mean over all pairs of the batch. Targets are (rows,) whole numbers, which need not be below
    the output's width.

    It is computed by NumPy on the CPU, on every device.

    Args:
        margin: How far pairs of different classes are to be apart; above zero.

    Examples:
        >>> points = [[0.0, 0.0], [1.0, 0.0], [1.0, 0.5]]
        >>> loss, _ = loom.losses.value_and_gradient(loom.losses.Contrastive(), points, [0, 0, 1])
        >>> round(loss, 6)
        0.208333
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin", real("Contrastive", "margin", self.margin, above=0.0))
        super().__post_init__()

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Returns the batch's loss and its gradient.

        Args:
            output: (rows, features) where each sample is.
            target: (rows,) its class.
        """
        distances, steps, same = _pairs(self.kind, output, target)
        short = np.maximum(self.margin - distances, 0.0)
        pairs = np.triu(np.ones_like(distances, dtype=bool), 1)
        total = max(int(pairs.sum()), 1)
        costs = np.where(same, distances**2, short**2) / 2
        shares = np.where(pairs, np.where(same, distances, -short), 0.0)
        return float(costs[pairs].sum()) / total, _spread(shares / total, distances, steps)


def _pairs(
    kind: str, output: NDArray[Any], target: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Returns distances (rows, rows), differences (rows, rows, features), which pairs are of one class."""
    if output.ndim != 2:
        raise ShapeError(
            f"loss {kind}: takes outputs (rows, features), got {output.shape}; nn.Flatten() leaves one axis"
        )
    points = output.astype(np.float64)
    steps = points[:, None, :] - points[None, :, :]
    return np.sqrt((steps**2).sum(axis=2)), steps, target[:, None] == target[None, :]


def _spread(
    shares: NDArray[np.float64], distances: NDArray[np.float64], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the gradient with respect to the points, of what distances count; none of those that are 0."""
    directions = shares / np.where(distances > 0, distances, np.inf)
    pulled = (directions[:, :, None] * steps).sum(axis=1)
    pushed: NDArray[np.float64] = (directions[:, :, None] * steps).sum(axis=0)
    gradient: NDArray[np.float64] = pulled - pushed
    return gradient
