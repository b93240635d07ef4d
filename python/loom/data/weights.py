"""How much samples count, and where outputs have steps or other places, how much each of these does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.data.labels import KINDS, Classes
from loom.errors import ShapeError

__all__ = ["by_place", "counting", "is_by_place", "places_of"]


def places_of(output_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the extents of an output without its classes: the last axis, or the channels of an image."""
    return output_shape[1:] if len(output_shape) == 3 else output_shape[:-1]


def is_by_place(weight: NDArray[Any], output_shape: tuple[int, ...]) -> bool:
    """Returns whether weights are one for each place of an output, an axis of one class among them or not."""
    given, places = weight.shape[1:], places_of(output_shape)
    of_one = (1, *places) if len(output_shape) == 3 else (*places, 1)
    return bool(places) and given in {places, of_one}


def by_place(weight: NDArray[Any], output_shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns weights as a training takes them: one for each sample, or one for each place of each.

    Args:
        weight: (rows,); or (rows, ...) with a number for each place of the output, such as a step or a pixel.
        output_shape: One sample's output, without the batch.

    Returns:
        (rows,) or (rows, places); what else has two axes is told of where it is compared with the output.

    Raises:
        ShapeError: The weights are of no places of the output.
    """
    if weight.ndim < 2:
        return weight
    rows, places = len(weight), places_of(output_shape)
    if is_by_place(weight, output_shape):
        return weight.reshape(rows, -1)
    of_image = len(output_shape) == 3
    if weight.ndim == 2:
        if of_image and weight.shape[1] == 1:
            return weight.reshape(rows)
        if not of_image or weight.shape[1] == math.prod(places):
            return weight
    steps = f", or {(rows, *places)}, one for each place of the output" if places else ""
    raise ShapeError(f"weight: expected ({rows},), one for each sample{steps}, got {weight.shape}")


def counting(
    target: NDArray[Any],
    weight: NDArray[Any],
    *,
    labels: bool,
    own: bool = False,
    classes: Classes | None = None,
) -> NDArray[Any]:
    """Returns targets in which those of weight 0 are such as no loss refuses, whatever stood there.

    Missing values are NaN, and ignored labels are of no class, in data that says by a weight of 0 what does
    not count. Such labels become one that counts, and such numbers 0.5, which every loss takes.

    Args:
        target: (rows, ...) labels, or numbers.
        weight: (rows,), or (rows, ...) for each place of an output.
        labels: Whether whole numbers and texts are classes.
        own: Whether the loss is of the user's own, which may take any numbers and labels; then what is not
            finite alone is replaced.
        classes: What labels stand for, where somebody has said so.
    """
    if weight.dtype.kind not in "biuf" or target.shape[:1] != weight.shape[:1] or bool(weight.all()):
        return target
    spread = _spread(weight, target)
    if spread is None:
        return target
    idle = np.broadcast_to(spread == 0, target.shape)
    if target.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            idle = idle & ~(np.isfinite(target) if own else (target >= 0) & (target <= 1))
        return np.where(idle, target.dtype.type(0.5), target) if idle.any() else target
    if own or not labels or target.dtype.kind not in "iuUT":
        return target
    if not idle.all():
        known = target[~idle].flat[0]
    elif classes is not None and target.dtype.kind in KINDS[classes.kind]:
        known = classes.values[0]
    elif target.dtype.kind in "iu":
        known = 0
    else:
        return target
    return np.where(idle, known, target)


def _spread(weight: NDArray[Any], target: NDArray[Any]) -> NDArray[Any] | None:
    """Returns weights with axes like those of targets; None where they are of other places."""
    rows, count = len(target), math.prod(weight.shape[1:])
    extents = [(*target.shape[1:],), (*target.shape[1:-1], 1)]
    if target.ndim == 4:
        extents.insert(1, (1, *target.shape[2:]))
    if weight.ndim == 1:
        extents = [(1,) * (target.ndim - 1)]
    fitting = [each for each in extents if math.prod(each) == count]
    return weight.reshape(rows, *fitting[0]) if fitting else None
