"""How well a model tells classes apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.errors import ConfigError, ShapeError
from loom.reports.base import Report, TabularReport
from loom.reports.curves import CalibrationCurve, PrecisionRecallCurve, RocCurve
from loom.reports.outputs import class_table, decide, doubles

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ClassAverages", "ClassErrors", "ClassificationReport"]


@dataclass(frozen=True, eq=False)
class ClassAverages(Report):
    """Precision, recall and F1, averaged over classes."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class ClassErrors(TabularReport):
    """Wrong answers with their inputs, those that were given with most confidence first.

    Args:
        rows: (errors,) which samples.
        inputs: (errors, ...) what the model was shown.
        expected: (errors,) the right classes.
        predicted: (errors,) the answers; -1 where an output was not finite and so named none.
        confidence: (errors,) the probability of the answer; NaN where there is none.
        names: The names of the classes.
    """

    rows: NDArray[np.int64]
    inputs: NDArray[np.float64]
    expected: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    names: tuple[str, ...]

    def columns(self) -> dict[str, Any]:
        """Returns everything but the inputs, with the names of classes."""
        return {
            "row": self.rows.tolist(),
            "expected": [self.names[label] for label in self.expected],
            "predicted": [self.names[label] if label >= 0 else None for label in self.predicted],
            "confidence": self.confidence.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ClassificationReport(TabularReport):
    """How well a model tells classes apart. Made by `of`.

    A sample whose outputs hold a NaN, or the largest of which is infinite, has no answer: it is a miss in
    accuracies and recalls, stands in no column of `confusion`, and curves are drawn without it. A share of
    nothing is 0: the precision of a class that was never the answer, the recall of one that never was
    right. Averages are over classes that were right or the answer at least once.

    Args:
        names: The names of the classes.
        samples: How many samples there were; pixels or steps, where each has a class.
        unanswered: How many of them have no answer.
        logits: Whether the outputs were taken as logits, not as probabilities.
        confusion: (classes, classes) how often each class in rows was answered by each in columns.
        precision: (classes,) the share of a class's answers that was right.
        recall: (classes,) the share of a class that was found.
        f1: (classes,) the harmonic mean of the two.
        support: (classes,) how often each class was right.
        macro: Means over classes.
        weighted: Means over classes, weighted by `support`.
        accuracy: The share of right answers.
        balanced_accuracy: The mean recall of the classes that occur.
        roc: Each class against the rest; with their areas.
        precision_recall: Each class against the rest; with their average precision.
        calibration: How far the probability of the answer is to be believed.
        top_k: (classes,) the share of samples whose class is among the 1, 2, ... most likely; a tie goes
            to the lower class.
        labels: (samples,) the right classes.
        predicted: (samples,) the answers; -1 for none.
        confidence: (samples,) the probabilities of the answers; NaN for none.
        shape: The labels' own extents, of which `samples` is the product.
    """

    names: tuple[str, ...]
    samples: int
    unanswered: int
    logits: bool
    confusion: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]
    macro: ClassAverages
    weighted: ClassAverages
    accuracy: float
    balanced_accuracy: float
    roc: tuple[RocCurve, ...]
    precision_recall: tuple[PrecisionRecallCurve, ...]
    calibration: CalibrationCurve | None
    top_k: NDArray[np.float64]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls,
        outputs: ArrayLike,
        labels: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        logits: bool | None = None,
        bins: int = 10,
    ) -> Self:
        """Compares outputs with the right classes.

        Args:
            outputs: (rows, classes), (rows, time, classes) or (rows, classes, height, width); or a single
                output per row, (rows,) or (rows, 1), which speaks for class 1 against class 0.
            labels: Class indices without the class axis; or one-hot or soft rows of the outputs' shape.
            names: The names of the classes; their numbers where None.
            logits: Whether the outputs are logits, rather than probabilities. Where None, they are
                probabilities if all of them can be: none is negative, and rows sum to 1 within 0.001, or
                single outputs are at most 1.
            bins: How many bins the calibration has.

        Returns:
            The report.

        Raises:
            DataError: There are no samples, a label names no class, or outputs that are to be
                probabilities are below 0 or above 1.
            ShapeError: The two do not fit together.
            DTypeError: Labels are no whole numbers.
            ConfigError: There are not as many names as classes, or no bins.

        Examples:
            >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]
            >>> report = loom.analysis.ClassificationReport.of(probabilities, [0, 0, 1, 1], ["cat", "dog"])
            >>> report.accuracy, report.confusion.tolist(), report.roc[1].area
            (0.75, [[2, 0], [1, 1]], 1.0)
        """
        table = class_table(outputs, labels, what=("outputs", "labels"))
        found = decide(table.scores, logits, what="outputs")
        right, predicted, probabilities = table.labels, found.predicted, found.probabilities
        classes = probabilities.shape[1]
        called = tuple(map(str, range(classes) if names is None else names))
        if len(called) != classes:
            raise ConfigError(f"names must name each of the {classes} classes, got {len(called)}")
        known = predicted >= 0
        pairs = right[known] * classes + predicted[known]
        confusion = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
        support = np.bincount(right, minlength=classes)
        answers = confusion.sum(axis=0)
        hits = np.diagonal(confusion).astype(np.float64)
        precision, recall = _share(hits, answers), _share(hits, support)
        f1 = _share(2.0 * hits, answers + support)
        everywhere, occurs = (answers + support) > 0, support > 0
        figures = (precision, recall, f1)
        confidence = np.full(len(right), np.nan)
        confidence[known] = probabilities[known, predicted[known]]
        bins = whole("ClassificationReport", "bins", bins, least=1)
        # Without any answer, curves are of a sample that is not positive: undefined.
        each = [(np.zeros(1), np.zeros(1, bool))] * classes
        calibration = None
        if known.any():
            each = [(probabilities[known, label], right[known] == label) for label in range(classes)]
            calibration = CalibrationCurve.of(confidence[known], (predicted == right)[known], bins)
        return cls(
            names=called,
            samples=len(right),
            unanswered=int(np.sum(~known)),
            logits=found.logits,
            confusion=confusion,
            precision=precision,
            recall=recall,
            f1=f1,
            support=support,
            macro=ClassAverages(*(float(np.mean(figure[everywhere])) for figure in figures)),
            weighted=ClassAverages(*(float(np.sum(figure * support) / len(right)) for figure in figures)),
            accuracy=float(np.mean(predicted == right)),
            balanced_accuracy=float(np.mean(recall[occurs])),
            roc=tuple(RocCurve.of(*one) for one in each),
            precision_recall=tuple(PrecisionRecallCurve.of(*one) for one in each),
            calibration=calibration,
            top_k=_top_k(probabilities, right, known),
            labels=right,
            predicted=predicted,
            confidence=confidence,
            shape=table.shape,
        )

    @property
    def roc_area(self) -> float:
        """The mean area under the ROC curves, over classes that have one; NaN where none has."""
        return _mean([curve.area for curve in self.roc])

    @property
    def average_precision(self) -> float:
        """The mean average precision, over classes that occur; NaN where none has an answer."""
        return _mean([curve.average_precision for curve in self.precision_recall])

    def top_errors(self, x: ArrayLike, n: int = 10) -> ClassErrors:
        """Returns the wrong answers that were given with most confidence, with what was shown.

        Samples without an answer come first.

        Args:
            x: (rows, ...) the inputs that the outputs are of.
            n: How many at most.

        Returns:
            The errors.

        Raises:
            ShapeError: There are not as many inputs as the report has rows.

        Examples:
            >>> report = loom.analysis.ClassificationReport.of([[0.9, 0.1], [0.2, 0.8]], [1, 1])
            >>> report.top_errors([[5.0, 6.0], [7.0, 8.0]]).inputs.tolist()
            [[5.0, 6.0]]
        """
        n = whole("top_errors", "n", n, least=1)
        wrong = np.flatnonzero(self.predicted != self.labels)
        certain = np.where(np.isnan(self.confidence), np.inf, self.confidence)[wrong]
        places = wrong[np.argsort(-certain, kind="stable")[:n]]
        rows = places // (self.samples // self.shape[0])
        return ClassErrors(
            rows=rows,
            inputs=inputs_of(x, rows, self.shape[0]),
            expected=self.labels[places],
            predicted=self.predicted[places],
            confidence=self.confidence[places],
            names=self.names,
        )

    def columns(self) -> dict[str, Any]:
        """Returns the classes and what is said of each."""
        return {
            "class": list(self.names),
            "precision": self.precision.tolist(),
            "recall": self.recall.tolist(),
            "f1": self.f1.tolist(),
            "support": self.support.tolist(),
            "roc_area": [curve.area for curve in self.roc],
            "average_precision": [curve.average_precision for curve in self.precision_recall],
        }

    def __str__(self) -> str:
        width = max(len(name) for name in (*self.names, "weighted"))
        total = int(self.support.sum())
        rows = [
            *zip(self.names, self.precision, self.recall, self.f1, self.support, strict=True),
            *(
                (name, mean.precision, mean.recall, mean.f1, total)
                for name, mean in (("macro", self.macro), ("weighted", self.weighted))
            ),
        ]
        lines = [f"{'':{width}}  precision  recall      f1  support"]
        lines += [f"{name:{width}}  {p:9.4f}  {r:6.4f}  {f:6.4f}  {count:7}" for name, p, r, f, count in rows]
        lines.append(f"accuracy {self.accuracy:.4f}, balanced {self.balanced_accuracy:.4f}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"ClassificationReport({self.samples} samples, {len(self.names)} classes, accuracy "
            f"{self.accuracy:.4g}, macro F1 {self.macro.f1:.4g})"
        )


def inputs_of(x: ArrayLike, rows: NDArray[np.int64], expected: int) -> NDArray[np.float64]:
    """Returns the inputs of some rows, where there are as many inputs as there are to be."""
    inputs = doubles(x, "x")
    if inputs.shape[:1] != (expected,):
        raise ShapeError(f"x must hold the {expected} inputs that the report is of, got shape {inputs.shape}")
    return inputs[rows]


def _share(part: NDArray[Any], of: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(np.divide(part, of, out=np.zeros(len(part)), where=of > 0))


def _mean(areas: Sequence[float]) -> float:
    defined = [area for area in areas if not np.isnan(area)]
    return float(np.mean(defined)) if defined else float("nan")


def _top_k(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    classes = probabilities.shape[1]
    rows, right = probabilities[known], labels[known]
    mine = np.take_along_axis(rows, right[:, None], axis=1)
    before = (rows == mine) & (np.arange(classes) < right[:, None])
    rank = (rows > mine).sum(axis=1) + before.sum(axis=1)
    found: NDArray[np.float64] = np.cumsum(np.bincount(rank, minlength=classes)) / len(labels)
    return found
