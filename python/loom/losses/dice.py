"""The overlap of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, real
from loom.errors import InvalidValueError
from loom.losses.computed import ComputedLoss

__all__ = ["Dice"]


@dataclass(frozen=True)
class Dice(ComputedLoss):
    """One less the soft Dice coefficient (Milletari et al. 2016), for segmentation where most is background.

    1 - (2 sum p t + smooth) / (sum p + sum t + smooth) of each region, the mean over regions and samples.

    Without `by_class` p is the sigmoid of each logit, t a mask of the output's shape from 0 to 1, and a
    region each channel of an image (channels, height, width), or all of a sample of another shape. With it p
    is the softmax over the class axis, t class indices without that axis or shares shaped like the
    output, and a region each class, the background among them.

    It is computed by NumPy on the CPU, on every device.

    Args:
        smooth: Keeps empty masks from dividing by nothing; above zero.
        by_class: Whether the output has one channel a class.

    Examples:
        >>> mask = np.array([[[[1.0, 0.0], [0.0, 1.0]]]])
        >>> loss, _ = loom.losses.value_and_gradient(loom.losses.Dice(), 40 * mask - 20, mask)
        >>> abs(round(loss, 6))
        0.0
    """

    smooth: float = 1.0
    by_class: bool = False
    takes: ClassVar[bool | None] = None
    labelled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "smooth", real("Dice", "smooth", self.smooth, above=0.0))
        object.__setattr__(self, "by_class", flag("Dice", "by_class", self.by_class))
        self._enter(self.kind, self.rows, None if self.by_class else False)

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns each row's loss and its gradient.

        Args:
            output: (rows, ...) logits.
            target: Masks, or class indices.

        Raises:
            InvalidValueError: A mask holds numbers below 0 or above 1.
        """
        axis = 1 if output.ndim == 4 or not self.by_class else output.ndim - 1
        logits = output.astype(np.float64)
        if self.by_class:
            logits = np.moveaxis(logits, axis, 1)
        rows = len(logits)
        regions = logits.shape[1] if self.by_class or output.ndim == 4 else 1
        wanted = np.asarray(target)
        if self.by_class:
            if wanted.ndim < output.ndim:
                shape = (1, regions) + (1,) * (wanted.ndim - 1)
                wanted = np.expand_dims(wanted, 1) == np.arange(regions).reshape(shape)
            else:
                wanted = np.moveaxis(wanted, axis, 1)
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            p = powers / powers.sum(axis=1, keepdims=True)
        else:
            p = 0.5 * (1 + np.tanh(logits / 2))
        shape = p.shape
        p, t = p.reshape(rows, regions, -1), wanted.astype(np.float64).reshape(rows, regions, -1)
        if t.size and not (t.min() >= 0 and t.max() <= 1):
            # Negative ones could make the quotient's denominator 0.
            raise InvalidValueError(
                f"dice: masks hold numbers from 0 to 1, got {t.min():g} to {t.max():g}; `mask > 0` is one"
            )
        over = 2 * (p * t).sum(axis=2, keepdims=True) + self.smooth
        under = p.sum(axis=2, keepdims=True) + t.sum(axis=2, keepdims=True) + self.smooth
        values = (1 - over / under).mean(axis=(1, 2))
        slope = (over / under - 2 * t) / under / regions
        slope, p = slope.reshape(shape), p.reshape(shape)
        if self.by_class:
            gradient = p * (slope - (p * slope).sum(axis=1, keepdims=True))
            return values, np.moveaxis(gradient, 1, axis)
        return values, slope * p * (1 - p)
