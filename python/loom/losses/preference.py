"""Losses of pairs of texts, of which one is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real
from loom._typing import ArrayLike
from loom.errors import ShapeError
from loom.losses.computed import ComputedLoss

__all__ = ["DPO"]

# Labels are whole numbers of 32 bits; sums of logarithms are told in such parts.
_PARTS = 1 << 14


@dataclass(frozen=True)
class DPO(ComputedLoss):
    """The first text of each pair is to become more probable than the second (Rafailov et al. 2023).

    `-log sigmoid(beta (log(p(chosen) / r(chosen)) - log(p(rejected) / r(rejected))))`, the mean over pairs,
    with p the probability of a text's answer by the network and r by the network that is gone out from. Rows
    0, 2, 4 of a batch are chosen and those behind each rejected, so batches come from an iterable and not
    from arrays that are shuffled; where a step is cut into shards each must have whole pairs, as data of
    `loom.data.by_shard` can say. Outputs are scores, (rows, steps, classes). `DPO.targets` makes targets;
    `loom.text.align` does all of it.

    It is computed by NumPy on the CPU, on every device.

    Args:
        beta: How dear it is to go away from r; above zero.

    Examples:
        >>> scores = np.zeros((2, 3, 5))
        >>> target = loom.losses.DPO.targets([[4, 2, -1], [1, -1, -1]], [2 * np.log(0.2), np.log(0.2)])
        >>> loss, _ = loom.losses.value_and_gradient(loom.losses.DPO(), scores, target)
        >>> round(loss, 4)
        0.6931
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", real("DPO", "beta", self.beta, above=0.0))
        super().__post_init__()

    @staticmethod
    def targets(labels: ArrayLike, before: ArrayLike) -> NDArray[np.int32]:
        """Returns targets as the loss reads them: labels, and how probable the answers were.

        Args:
            labels: (rows, steps) the tokens of the answers, -1 at every step that is none of an answer. The
                last step is none: how probable the answer was is written there, in parts of 1 / 16384.
            before: (rows,) the sum of the logarithms of their probabilities by the network that is gone out
                from.

        Raises:
            ShapeError: There are other numbers of rows, or the last step is one of an answer.
        """
        made = np.array(labels, np.int32)
        told = np.asarray(before, np.float64)
        if made.ndim != 2 or told.shape != made.shape[:1] or not made.shape[1] or (made[:, -1] >= 0).any():
            raise ShapeError(
                "DPO.targets takes labels (rows, steps), which are -1 at the last step, and a number for "
                f"each row; got {made.shape} and {told.shape}"
            )
        made[:, -1] = np.clip(np.rint(told * _PARTS), -(2**31), 2**31 - 1).astype(np.int32)
        return made

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Returns the batch's loss and its gradient.

        Args:
            output: (rows, steps, classes) scores.
            target: (rows, steps) as `targets` makes them.
        """
        if output.ndim != 3 or len(output) % 2:
            raise ShapeError(
                f"loss {self.kind}: takes scores (rows, steps, classes) of an even number of rows, chosen "
                f"and rejected by turns, got {output.shape}; where a step is cut into shards, data of "
                "loom.data.by_shard says which pairs each has"
            )
        before = target[:, -1].astype(np.float64) / _PARTS
        labels = target.astype(np.int64)
        labels[:, -1] = -1
        counted = labels >= 0
        labels = np.where(counted, labels, 0)
        if (labels >= output.shape[2]).any():
            raise ShapeError(f"loss {self.kind}: a label is {labels.max()}, of {output.shape[2]} classes")
        scores = output.astype(np.float64)
        scores -= scores.max(axis=-1, keepdims=True)
        powers = np.exp(scores)
        sums = powers.sum(axis=-1, keepdims=True)
        told = np.take_along_axis(scores, labels[:, :, None], axis=-1)[:, :, 0] - np.log(sums[:, :, 0])
        now = (told * counted).sum(axis=1)
        margin = self.beta * ((now - before)[0::2] - (now - before)[1::2])
        pairs = len(margin)
        loss = float(np.logaddexp(0.0, -margin).sum()) / pairs
        slope = -self.beta * np.exp(-np.logaddexp(0.0, margin)) / pairs
        shares = np.empty(len(output))
        shares[0::2], shares[1::2] = slope, -slope
        gradient = powers / -sums
        place = np.take_along_axis(gradient, labels[:, :, None], axis=-1) + 1.0
        np.put_along_axis(gradient, labels[:, :, None], place, axis=-1)
        gradient *= (shares[:, None] * counted)[:, :, None]
        return loss, gradient
