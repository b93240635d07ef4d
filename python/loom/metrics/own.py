"""The metrics that the engine computes, too: accuracy, top_k_accuracy, mae, mse, r2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._settings.encoding import Named, NamedFamily
from loom._typing import ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.data.labels import as_names
from loom.errors import DataError, DTypeError, ShapeError

__all__ = [
    "FAMILY",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "Metric",
    "Perplexity",
    "TopKAccuracy",
    "class_table",
    "correct",
    "same_values",
]


class Metric(Named):
    """Base of the metrics that loom computes."""

    __slots__ = ()
    # Whether the engine computes it from batches as they come; otherwise it is called with all of them.
    in_engine: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What the metric is called in logs and results."""
        return self.kind

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the metric.

        Args:
            outputs: (rows, ...) what the network gave.
            targets: (rows, ...) what was wanted.

        Returns:
            The metric over all rows.
        """
        raise NotImplementedError


FAMILY: NamedFamily[Metric] = NamedFamily("metric", aliases={"top_k": "top_k_accuracy"})
"""The metrics by name."""


@FAMILY.register("accuracy")
@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of rows whose largest output is the target's class; a row that holds NaN has none.

    With a single output per row, the share on the target's side of a threshold:
    in training 0 under losses whose outputs are scores on both sides of it
    (`losses.decides_at_zero`), and 0.5 otherwise. Under such losses several outputs are labels of which
    several can be right, and the share is that of all labels of all rows.
    """

    def __call__(self, outputs: ArrayLike, targets: ArrayLike, threshold: float | None = None) -> float:
        """Computes the share of right rows.

        Args:
            outputs: (rows, classes), (rows, classes, height, width) or (rows, 1).
            targets: Class indices, one-hot rows or soft rows.
            threshold: A single output above it means class 1; needed for such. Of several outputs each is
                then a label of its own.

        Returns:
            The share over all rows.
        """
        return float(np.mean(correct(outputs, targets, threshold)))


@FAMILY.register("top_k_accuracy")
@dataclass(frozen=True)
class TopKAccuracy(Metric):
    """The share of rows whose target class is among the k largest outputs; a row that holds NaN has none.

    Args:
        k: How many of the largest outputs count.
    """

    k: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("TopKAccuracy", "k", self.k, least=1))

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the share; a tie at the k-th place goes to the lower class."""
        scores, classes = class_table(outputs, targets)
        mine = np.take_along_axis(scores, classes[:, None], axis=1)
        ties_before = (scores == mine) & (np.arange(scores.shape[1]) < classes[:, None])
        rank = (scores > mine).sum(axis=1) + ties_before.sum(axis=1)
        return float(np.mean((rank < self.k) & ~np.isnan(scores).any(axis=1)))


@FAMILY.register("perplexity")
@dataclass(frozen=True)
class Perplexity(Metric):
    """Among how many classes a model wavers: e to the mean cross-entropy.

    It is computed at the end of an epoch, from all outputs. These are logits, or where all of them can be
    probabilities, none negative and rows that sum to 1, such as a softmax at the network's end makes.

    Examples:
        >>> round(loom.metrics.Perplexity()([[0.0, 0.0, 0.0, 0.0]], [2]), 6)
        4.0
    """

    in_engine: ClassVar[bool] = False

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the perplexity.

        Args:
            outputs: (rows, ..., classes) logits or probabilities, or (rows, classes, height, width).
            targets: Class indices or one-hot rows.
        """
        # Reports take metrics themselves.
        from loom.reports.outputs import may_be_probabilities

        scores, classes = class_table(outputs, targets)
        if may_be_probabilities(scores):
            # As "nll" has it.
            scores = np.log(np.maximum(scores, 1e-12))
        largest = scores.max(axis=1, keepdims=True)
        sums = np.log(np.exp(scores - largest).sum(axis=1)) + largest[:, 0]
        return float(np.exp(np.mean(sums - np.take_along_axis(scores, classes[:, None], axis=1)[:, 0])))


@FAMILY.register("mae")
@dataclass(frozen=True)
class MAE(Metric):
    """The mean of |output - target| over all elements."""

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the mean absolute error."""
        given, wanted = same_values(outputs, targets)
        return float(np.mean(np.abs(given - wanted)))


@FAMILY.register("mse")
@dataclass(frozen=True)
class MSE(Metric):
    """The mean of (output - target)^2 over all elements."""

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the mean squared error."""
        given, wanted = same_values(outputs, targets)
        return float(np.mean((given - wanted) ** 2))


@FAMILY.register("r2")
@dataclass(frozen=True)
class R2(Metric):
    """The coefficient of determination over all elements.

    1 - sum (target - output)^2 / sum (target - mean target)^2: 1 is perfect and
    0 as good as the targets' mean; nan or minus infinity where targets never vary.
    """

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the coefficient of determination."""
        given, wanted = same_values(outputs, targets)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(1.0 - np.sum((wanted - given) ** 2) / np.sum((wanted - wanted.mean()) ** 2))


def correct(outputs: ArrayLike, targets: ArrayLike, threshold: float | None = None) -> NDArray[np.bool_]:
    """Returns which rows `Accuracy` counts as right.

    Args:
        outputs: (rows, classes), (rows, classes, height, width) or (rows, 1).
        targets: Class indices, one-hot rows or soft rows.
        threshold: A single output above it means class 1; needed for such. Of several outputs each is then a
            label of its own.

    Returns:
        (rows,) booleans; of images and sequences a row for each place, and of labels for each of them.

    Raises:
        ShapeError: Outputs and targets do not fit together, or a threshold is missing.
        DataError: There are no rows, or a target is no class of the outputs.
    """
    if threshold is not None:
        given, wanted = same_values(outputs, targets)
        return np.asarray(((given > threshold) == (wanted > 0.5)) & ~np.isnan(given)).reshape(-1)
    scores, classes = class_table(outputs, targets)
    return np.asarray((scores.argmax(axis=1) == classes) & ~np.isnan(scores).any(axis=1))


def same_values(outputs: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns outputs and targets of one shape, as float64.

    Args:
        outputs: (rows, ...) what the network gave.
        targets: Numbers of the same shape, or without a last axis of one.

    Raises:
        ShapeError: They do not fit together.
        DataError: There are no rows.
    """
    given = as_real_array(outputs, "float64", what="outputs").astype(np.float64, copy=False)
    wanted = as_real_array(targets, "float64", what="targets").astype(np.float64, copy=False)
    if given.ndim == wanted.ndim + 1 and given.shape[-1] == 1:
        wanted = wanted[..., None]
    if given.shape != wanted.shape:
        raise ShapeError(f"outputs have shape {given.shape} but targets {wanted.shape}")
    if given.size == 0:
        raise DataError("a metric of no rows is undefined")
    return given, wanted


def class_table(outputs: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Lays outputs out as (rows, classes) and targets as (rows,) class indices.

    Args:
        outputs: (rows, classes), (rows, ..., classes) or (rows, classes, height, width).
        targets: Class indices, one-hot rows or soft rows.

    Raises:
        ShapeError: They do not fit together, or there is one class only.
        DTypeError: Targets are no numbers.
        DataError: A target is no class of the outputs.
    """
    scores = as_real_array(outputs, "float64", what="outputs").astype(np.float64, copy=False)
    wanted = as_names(as_numpy(targets, what="targets"))
    if scores.ndim < 2 or scores.size == 0:
        raise ShapeError(f"outputs must be (rows, classes), got shape {scores.shape}")
    axis = 1 if scores.ndim == 4 else scores.ndim - 1
    if scores.shape[axis] == 1:
        raise ShapeError(
            "a metric of classes of a single output needs a threshold: threshold=0.0 for logits, "
            "threshold=0.5 for probabilities"
        )
    per_row = scores.shape[:axis] + scores.shape[axis + 1 :]
    if wanted.dtype.kind not in "iufb":
        raise DTypeError(
            f"targets: expected class indices or rows of numbers, got dtype {wanted.dtype}; of labels the "
            "indices are np.unique(labels, return_inverse=True)[1]"
        )
    if wanted.shape == scores.shape:
        wanted = wanted.argmax(axis=axis)
    if wanted.shape != per_row:
        raise ShapeError(f"outputs have shape {scores.shape} but targets {wanted.shape}")
    rows = np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis])
    classes = wanted.reshape(-1).astype(np.int64)
    if classes.min() < 0 or classes.max() >= rows.shape[1]:
        raise DataError(
            f"targets name classes from {classes.min()} to {classes.max()}, "
            f"but the outputs have classes 0 to {rows.shape[1] - 1}"
        )
    return rows, classes
