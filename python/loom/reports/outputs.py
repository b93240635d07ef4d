"""What a network's outputs say of classes: which one, and how likely each is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.errors import DataError, DTypeError, ShapeError

__all__ = [
    "ClassTable",
    "Decision",
    "class_axis",
    "class_table",
    "decide",
    "doubles",
    "logistic",
    "may_be_probabilities",
]

# How far a row may be from summing to 1 and still hold probabilities: those of 16-bit arithmetic are.
_SUM_TOLERANCE = 1e-3


class ClassTable(NamedTuple):
    """Outputs and labels of everything that is classified, one below the other."""

    scores: NDArray[np.float64]
    """(places, classes) the outputs; of one column where the network has a single output."""
    labels: NDArray[np.int64]
    """(places,) the right classes."""
    shape: tuple[int, ...]
    """The labels' own extents: (rows,), or (rows, height, width) where each pixel has a class."""


class Decision(NamedTuple):
    """What outputs say of classes."""

    predicted: NDArray[np.int64]
    """(places,) the class of the largest output; -1 where it is not finite, or there is a NaN."""
    probabilities: NDArray[np.float64]
    """(places, classes) how likely each class is."""
    logits: bool
    """Whether the outputs were taken as logits."""


def doubles(x: ArrayLike, what: str) -> NDArray[np.float64]:
    """Returns anything array-like that holds real numbers as float64; a DTypeError for anything else."""
    return np.asarray(as_real_array(x, "float64", what=what), np.float64)


def class_axis(axes: int) -> int:
    """Returns which axis of outputs counts classes: the last, or axis 1 of images."""
    return 1 if axes == 4 else axes - 1


def class_table(outputs: ArrayLike, labels: ArrayLike, *, what: tuple[str, str]) -> ClassTable:
    """Lays outputs and labels out as tables.

    Args:
        outputs: (rows, classes), (rows, time, classes), (rows, classes, height, width), or a single
            output per row as (rows,) or (rows, 1).
        labels: Class indices without the class axis; or one-hot or soft rows of the outputs' shape.
        what: What the two are called in messages.

    Returns:
        The tables.

    Raises:
        DataError: They are empty, or a label names no class.
        DTypeError: Labels are no whole numbers.
        ShapeError: They do not fit together.
    """
    given = doubles(outputs, what[0])
    wanted = as_numpy(labels, what=what[1])
    if given.size == 0 or wanted.size == 0:
        raise DataError(f"{what[0]} {given.shape} and {what[1]} {wanted.shape} are empty; give samples")
    if given.ndim < 2:
        given = given.reshape(-1, 1)
    axis = class_axis(given.ndim)
    width = given.shape[axis]
    per_place = given.shape[:axis] + given.shape[axis + 1 :]
    if wanted.shape == given.shape:
        wanted = wanted.argmax(axis=axis) if width > 1 else np.squeeze(wanted, axis)
    if wanted.shape != per_place:
        raise ShapeError(
            f"{what[0]} have shape {given.shape}, so {what[1]} must be class indices of shape {per_place}, "
            f"or rows of the same shape; got {wanted.shape}"
        )
    classes = _whole_numbers(wanted, what[1]).reshape(-1)
    last = max(width, 2) - 1
    if classes.min() < 0 or classes.max() > last:
        raise DataError(
            f"{what[1]} name classes from {classes.min()} to {classes.max()}, but the {what[0]} have "
            f"classes 0 to {last}" + ("" if width > 1 else ", which a single output tells apart")
        )
    return ClassTable(np.moveaxis(given, axis, -1).reshape(-1, width), classes, per_place)


def may_be_probabilities(rows: NDArray[np.float64]) -> bool:
    """Whether all rows can be probabilities: none is negative, and they sum to 1, or single ones are no more.

    Args:
        rows: (places, classes) outputs, or (places, 1).
    """
    summed = rows.shape[1] == 1 or np.abs(rows.sum(axis=1) - 1.0).max(initial=0.0) <= _SUM_TOLERANCE
    held = rows.min(initial=0.0) >= 0.0 and rows.max(initial=0.0) <= 1.0 + _SUM_TOLERANCE
    return bool(summed and held)


def decide(scores: NDArray[np.float64], logits: bool | None, *, what: str) -> Decision:
    """Says which class every row of outputs means, and how likely each is.

    Args:
        scores: (places, classes) the outputs, or (places, 1): of class 1 against class 0.
        logits: Whether they are logits, whose softmax (or logistic function) is the probability. Where
            None, they are probabilities if all of them can be: none is negative, and rows sum to 1 within
            0.001, or single outputs are at most 1.
        what: What they are called in messages.

    Returns:
        Classes and probabilities, of which rows without a class have NaN.

    Raises:
        DataError: They are to be probabilities and are below 0 or above 1.
    """
    single = scores.shape[1] == 1
    top = scores.argmax(axis=1)
    # The place of a NaN is that of the largest for NumPy.
    known = np.isfinite(scores[np.arange(len(scores)), top])
    rows = scores[known]
    if logits is None:
        logits = not may_be_probabilities(rows)
    elif not logits and (rows.min(initial=0.0) < 0.0 or rows.max(initial=0.0) > 1.0 + _SUM_TOLERANCE):
        raise DataError(
            f"{what} from {rows.min():g} to {rows.max():g} are no probabilities; say logits=True if they "
            "are what a softmax or a logistic function is to be applied to"
        )
    if single:
        top = (scores[:, 0] > (0.0 if logits else 0.5)).astype(np.intp)
        likely = logistic(rows) if logits else rows
        rows = np.concatenate([1.0 - likely, likely], axis=1)
    elif logits:
        rows = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
    probabilities = np.full((len(scores), rows.shape[1]), np.nan)
    probabilities[known] = np.clip(rows, 0.0, 1.0)
    return Decision(np.where(known, top, -1).astype(np.int64), probabilities, logits)


def logistic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 1 / (1 + exp(-x)), without an overflow."""
    small = np.exp(-np.abs(x))
    result: NDArray[np.float64] = np.where(x >= 0.0, 1.0, small) / (1.0 + small)
    return result


def _whole_numbers(labels: NDArray[Any], what: str) -> NDArray[np.int64]:
    if labels.dtype.kind == "f" and np.array_equal(labels, np.trunc(labels)) and np.isfinite(labels).all():
        return labels.astype(np.int64)
    if labels.dtype.kind not in "iub":
        raise DTypeError(f"{what} must be class indices, whole numbers; got {labels.dtype}")
    return labels.astype(np.int64)
