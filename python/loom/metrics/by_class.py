"""Metrics of hits and misses by class, which the engine computes, too: precision, recall, f1, iou, auc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.errors import DataError, ShapeError
from loom.metrics.own import FAMILY, Metric, class_table, same_values

__all__ = ["AUC", "F1", "AverageName", "Counted", "IoU", "Precision", "Recall"]

AverageName = Literal["auto", "macro", "micro", "weighted"]
"""How figures by class become one.

"auto" is the figure of class 1 where there are two classes, else "macro"; "macro" the mean over the classes
that occur in targets or predictions (over all where each is a label of its own), "weighted" the same by how
often each is the target; "micro" counts hits and misses of all classes together.
"""


class Counted(Metric):
    """Base of what is made of hits, predictions and targets of every class."""

    __slots__ = ()
    average: AverageName

    def __call__(self, outputs: ArrayLike, targets: ArrayLike, threshold: float | None = None) -> float:
        """Computes the figure.

        Args:
            outputs: (rows, classes), (rows, classes, height, width) or (rows, 1).
            targets: Class indices, one-hot rows or soft rows.
            threshold: A single output above it means class 1; needed for such. Of several outputs each is
                then a label of its own, of which several can be right.

        Returns:
            The figure over all rows; a row that holds NaN is predicted to be of no class.

        Raises:
            ShapeError: Outputs and targets do not fit together, or a threshold is missing.
            DataError: There are no rows, or a target is no class of the outputs.
        """
        right, predicted, wanted, labels = _counts(outputs, targets, threshold)
        average = self.average
        if average == "auto" and len(wanted) == 2 and not labels:
            return float(self._share(right, predicted, wanted)[1])
        if average == "micro":
            return float(self._share(right[:1] * 0 + right.sum(), predicted.sum(), wanted.sum())[0])
        shares = self._share(right, predicted, wanted)
        weight = wanted if average == "weighted" else np.asarray(wanted + predicted > 0, float)
        if labels and average != "weighted":
            weight = np.ones_like(wanted)
        return float(np.sum(weight * shares) / weight.sum()) if weight.any() else 0.0

    def _share(
        self, right: NDArray[np.float64], predicted: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        raise NotImplementedError


@dataclass(frozen=True)
class _Averaged(Counted):
    average: AverageName = "auto"

    def __post_init__(self) -> None:
        known = ("auto", "macro", "micro", "weighted")
        object.__setattr__(self, "average", choice(type(self).__name__, "average", self.average, known))

    @property
    def name(self) -> str:
        """What the metric is called in logs and results: "f1"."""
        return self.kind


@FAMILY.register("precision")
@dataclass(frozen=True)
class Precision(_Averaged):
    """Of the predictions of a class the share that is right; 0 where it is never predicted.

    Args:
        average: How the classes' figures become one: "auto" (class 1 of two, else "macro"), "macro",
            "micro" or "weighted".

    Examples:
        >>> loom.metrics.Precision()([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], [0, 1, 0])
        0.5
    """

    def _share(
        self, right: NDArray[np.float64], predicted: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return _of(right, predicted)


@FAMILY.register("recall")
@dataclass(frozen=True)
class Recall(_Averaged):
    """Of the targets of a class the share that is predicted; 0 where it is never the target.

    Args:
        average: How the classes' figures become one, as in `Precision`.
    """

    def _share(
        self, right: NDArray[np.float64], predicted: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return _of(right, wanted)


@FAMILY.register("f1")
@dataclass(frozen=True)
class F1(_Averaged):
    """The harmonic mean of precision and recall (van Rijsbergen 1979).

    Args:
        average: How the classes' figures become one, as in `Precision`.
    """

    def _share(
        self, right: NDArray[np.float64], predicted: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return _of(2.0 * right, predicted + wanted)


@FAMILY.register("iou")
@dataclass(frozen=True)
class IoU(_Averaged):
    """Intersection over union (Jaccard 1912).

    Args:
        average: How the classes' figures become one, as in `Precision`.
    """

    def _share(
        self, right: NDArray[np.float64], predicted: NDArray[np.float64], wanted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return _of(right, predicted + wanted - right)


@FAMILY.register("auc")
@dataclass(frozen=True)
class AUC(Metric):
    """The area under the receiver operating characteristic, of a single output or of two classes.

    How probable it is that a row of class 1 scores higher than one of class 0, ties by half (Mann and
    Whitney 1947). For more classes there is "sklearn.roc_auc_score".

    Examples:
        >>> loom.metrics.AUC()([[0.1], [0.4], [0.35], [0.8]], [0, 0, 1, 1])
        0.75
    """

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the area.

        Args:
            outputs: (rows, 1), or (rows, 2) whose difference ranks the rows.
            targets: Class indices or one-hot rows.

        Returns:
            The area; NaN where all rows are of one class, or an output is NaN.

        Raises:
            ShapeError: There are more than two classes, or targets do not fit the outputs.
            DataError: There are no rows.
        """
        scores = as_real_array(outputs, "float64", what="outputs")
        axis = 1 if scores.ndim == 4 else scores.ndim - 1
        if scores.ndim >= 2 and scores.shape[axis] > 2:
            raise ShapeError(
                f"auc is of a single output or of two classes, got {scores.shape[axis]}; "
                '"sklearn.roc_auc_score" averages over classes'
            )
        if scores.ndim >= 2 and scores.shape[axis] == 2:
            table, classes = class_table(outputs, targets)
            margins, of_class = table[:, 1] - table[:, 0], classes == 1
        else:
            given, wanted = same_values(outputs, targets)
            margins, of_class = given.reshape(-1), wanted.reshape(-1) > 0.5
        if np.isnan(margins).any() or of_class.all() or not of_class.any():
            return float("nan")
        _, place, count = np.unique(margins, return_inverse=True, return_counts=True)
        ranks = np.cumsum(count) - (count - 1) / 2.0
        ones = int(of_class.sum())
        above = ranks[place.reshape(-1)][of_class].sum() - ones * (ones + 1) / 2.0
        return float(above / (ones * (len(margins) - ones)))


def _of(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) != 0)


def _counts(
    outputs: ArrayLike, targets: ArrayLike, threshold: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], bool]:
    """Returns how often each class is hit, predicted and wanted, and whether each is a label of its own."""
    if threshold is None:
        scores, classes = class_table(outputs, targets)
        count = scores.shape[1]
        chosen = np.where(np.isnan(scores).any(axis=1), count, scores.argmax(axis=1))
        right, predicted, wanted = (
            np.asarray(np.bincount(numbers, minlength=count + 1)[:count], np.float64)
            for numbers in (classes[chosen == classes], chosen, classes)
        )
        return right, predicted, wanted, False
    given, true_values = same_values(outputs, targets)
    axis = 1 if given.ndim == 4 else given.ndim - 1
    said = np.moveaxis(given > threshold, axis, -1).reshape(-1, given.shape[axis])
    true = np.moveaxis(true_values > 0.5, axis, -1).reshape(said.shape)
    if said.shape[1] > 1:
        return (said & true).sum(axis=0) * 1.0, said.sum(axis=0) * 1.0, true.sum(axis=0) * 1.0, True
    number = np.isnan(given).reshape(-1)
    said, true = said[:, 0], true[:, 0]
    ones = [said & true, said, true]
    zeros = [~said & ~true & ~number, ~said & ~number, ~true]
    both = [np.asarray([zero.sum(), one.sum()], float) for zero, one in zip(zeros, ones, strict=True)]
    if not said.size:
        raise DataError("a metric of no rows is undefined")
    return both[0], both[1], both[2], False
