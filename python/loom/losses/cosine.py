"""How far directions are from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loom.losses.computed import ComputedLoss

__all__ = ["Cosine"]


@dataclass(frozen=True)
class Cosine(ComputedLoss):
    """One less the cosine of the angle between output and target, vectors along the last axis.

    1 - sum(o t) / (|o| |t|), the mean over all vectors: 0 where they point the same way, 2 where they point
    opposite ways, whatever their lengths (`CosineEmbeddingLoss` of PyTorch for pairs that belong together).
    A vector of zeros has no direction: it costs 1 and moves nothing.

    It is computed by NumPy on the CPU, on every device.

    Examples:
        >>> loss, gradient = loom.losses.value_and_gradient(loom.losses.Cosine(), [[3.0, 4.0]], [[1.0, 0.0]])
        >>> round(loss, 6), gradient.round(6).tolist()
        (0.4, [[-0.128, 0.096]])
    """

    takes: ClassVar[bool | None] = False
    labelled: ClassVar[bool] = False

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns each row's loss and its gradient.

        Args:
            output: (rows, ..., features).
            target: The same.
        """
        o = output.astype(np.float64).reshape(len(output), -1, output.shape[-1])
        t = np.asarray(target, np.float64).reshape(o.shape)
        lengths = np.linalg.norm(o, axis=2, keepdims=True), np.linalg.norm(t, axis=2, keepdims=True)
        share_o, share_t = (np.divide(1.0, x, out=np.zeros_like(x), where=x > 0) for x in lengths)
        unit_o, unit_t = o * share_o, t * share_t
        cosine = (unit_o * unit_t).sum(axis=2, keepdims=True)
        gradient = (cosine * unit_o - unit_t) * share_o / o.shape[1]
        return (1 - cosine).mean(axis=(1, 2)), gradient.reshape(output.shape)
