"""How far a model's answers are from the right ones, in per cent of these."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import DataError, ShapeError
from loom.reports.base import Report, TabularReport
from loom.reports.outputs import class_axis, class_table, decide, doubles, logistic

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "MILESTONES",
    "DeviationBucket",
    "DeviationCourse",
    "DeviationReport",
    "WorstDeviation",
    "deviation_under",
]

_EDGES = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 100.0, np.inf)
MILESTONES = tuple(range(10, 101, 10))
"""The scores whose first epoch is kept."""
# Below this magnitude of what was expected, a share of it would say nothing.
_TINY = 1e-10


@dataclass(frozen=True, eq=False)
class DeviationBucket(Report):
    """The answers whose deviation is above `lower` and at most `upper`; 0 is in the first bucket.

    Args:
        name: The bucket, such as "10-20 %".
        lower: Its lower edge in per cent, which belongs to the bucket before.
        upper: Its upper edge in per cent, which belongs to it; infinite for the last.
        count: How many answers it holds.
        share: What share of all answers that is, from 0 to 1.
        samples: (count,) their samples, in order.
        outputs: (count,) which output of the sample each is; 0 where there is one.
    """

    name: str
    lower: float
    upper: float
    count: int
    share: float
    samples: NDArray[np.int64]
    outputs: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WorstDeviation(Report):
    """An answer that deviates much.

    Args:
        sample: Which sample.
        output: Which of its outputs; 0 where there is one.
        expected: What was right.
        actual: What was answered; NaN where an output was not finite and so named no class.
        deviation: In per cent.
    """

    sample: int
    output: int
    expected: float
    actual: float
    deviation: float


@dataclass(frozen=True, eq=False)
class DeviationReport(TabularReport):
    """How far a model's answers are from the right ones.

    An answer's deviation is |actual - expected| / |expected| * 100; where |expected| is below 1e-10, it is
    |actual - expected| * 100. What is not finite counts 100. Made by `of`.

    Args:
        compared: What was compared: "values", one number of each sample; "classes", the index of the
            largest output with that of the right class; or "outputs", each output by itself.
        samples: How many samples there were.
        actual: (samples,) the answers, or (samples, outputs).
        expected: What was right, likewise.
        deviations: Each answer's deviation in per cent, likewise.
        score: The mean of max(0, 100 - deviation): 100 where all is exact.
        mean_deviation: The mean of the deviations.
        failures: How many deviations are over 100.
        exact_matches: How many answers are exactly right.
        not_finite: How many answers count 100 because something was not finite.
        buckets: Deviations of at most 10, 20, 30, 40, 50 and 100 %, and over that.
        worst: The answers that deviate most, the worst first.
    """

    compared: str
    samples: int
    actual: NDArray[np.float64]
    expected: NDArray[np.float64]
    deviations: NDArray[np.float64]
    score: float
    mean_deviation: float
    failures: int
    exact_matches: int
    not_finite: int
    buckets: tuple[DeviationBucket, ...]
    worst: tuple[WorstDeviation, ...]

    @classmethod
    def of(
        cls, actual: ArrayLike, expected: ArrayLike, *, classes: bool | None = None, worst: int = 10
    ) -> Self:
        """Compares answers with what is right.

        Class indices are compared as the numbers they are: class 8 instead of 10 deviates by 20 %, any
        class k instead of 0 by 100 k %. What this says of classes is the share of exact matches; use
        `ClassificationReport` for more.

        Args:
            actual: (samples, ...) the answers. Outputs wider than one go by argmax, over the last axis or
                axis 1 of images, where `expected` holds class indices and lacks that axis; otherwise each
                output is compared by itself.
            expected: What is right: numbers of the same shape, or class indices.
            classes: True takes the argmax of both where `expected` has the outputs' shape, as one-hot rows
                have. None decides by the shape alone.
            worst: How many of the worst answers are listed.

        Returns:
            The report.

        Raises:
            DataError: There are no samples, or a class index is out of range.
            ShapeError: The two do not fit together.
            DTypeError: They are no real numbers, or class indices no whole ones.

        Examples:
            >>> report = loom.analysis.DeviationReport.of([1.05, 3.0, 0.5], [1.0, 2.0, 0.0])
            >>> report.deviations.round(6).tolist()
            [5.0, 50.0, 50.0]
            >>> [bucket.count for bucket in report.buckets], round(report.score, 6)
            ([1, 0, 0, 0, 2, 0, 0], 65.0)
        """
        worst = whole("DeviationReport", "worst", worst, least=0)
        compared, given, wanted = _pairs(actual, expected, classes)
        deviations, finite = _deviations(given, wanted)
        flat, width = deviations.reshape(-1), deviations.size // len(deviations)
        order = np.argsort(-flat, kind="stable")[:worst]
        return cls(
            compared=compared,
            samples=len(deviations),
            actual=given,
            expected=wanted,
            deviations=deviations,
            score=float(np.mean(np.maximum(0.0, 100.0 - flat))),
            mean_deviation=_mean(flat),
            failures=int(np.sum(flat > 100.0)),
            exact_matches=int(np.sum((flat == 0.0) & finite.reshape(-1))),
            not_finite=int(np.sum(~finite)),
            buckets=tuple(_buckets(flat, width)),
            worst=tuple(
                WorstDeviation(
                    sample=int(place // width),
                    output=int(place % width),
                    expected=float(wanted.reshape(-1)[place]),
                    actual=float(given.reshape(-1)[place]),
                    deviation=float(flat[place]),
                )
                for place in order
            ),
        )

    def columns(self) -> dict[str, Any]:
        """Returns the buckets: name, edges, count and share."""
        return {
            name: [getattr(bucket, name) for bucket in self.buckets]
            for name in ("name", "lower", "upper", "count", "share")
        }

    def __repr__(self) -> str:
        return (
            f"DeviationReport({self.samples} samples by {self.compared}, score {self.score:.4g}, "
            f"mean deviation {self.mean_deviation:.4g} %, {self.failures} failures, "
            f"{self.exact_matches} exact)"
        )


@dataclass(frozen=True, eq=False)
class DeviationCourse(TabularReport):
    """What deviations did over training, one entry for each epoch that was measured.

    Args:
        epochs: The epochs, counted from 0.
        scores: The quality scores.
        mean_deviations: The mean deviations in per cent.
        failures: How many deviations were over 100.
        exact_matches: How many answers were exactly right.
        buckets: (epochs, 7) how many answers each bucket held.
        milestones: For each score of 10, 20, ... 100 the first epoch that reached it; None where none did.
    """

    epochs: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    mean_deviations: tuple[float, ...] = ()
    failures: tuple[int, ...] = ()
    exact_matches: tuple[int, ...] = ()
    buckets: tuple[tuple[int, ...], ...] = ()
    milestones: tuple[int | None, ...] = (None,) * len(MILESTONES)

    @property
    def first_epochs(self) -> dict[int, int | None]:
        """The milestones by their score."""
        return dict(zip(MILESTONES, self.milestones, strict=True))

    def with_epoch(self, epoch: int, report: DeviationReport) -> DeviationCourse:
        """Returns the course with one more epoch.

        Args:
            epoch: The epoch, counted from 0.
            report: What was measured after it.
        """
        return DeviationCourse(
            epochs=(*self.epochs, epoch),
            scores=(*self.scores, report.score),
            mean_deviations=(*self.mean_deviations, report.mean_deviation),
            failures=(*self.failures, report.failures),
            exact_matches=(*self.exact_matches, report.exact_matches),
            buckets=(*self.buckets, tuple(bucket.count for bucket in report.buckets)),
            milestones=tuple(
                epoch if first is None and report.score >= score else first
                for score, first in zip(MILESTONES, self.milestones, strict=True)
            ),
        )

    def columns(self) -> dict[str, Any]:
        """Returns the epochs and what was measured after each."""
        return {
            "epoch": list(self.epochs),
            "score": list(self.scores),
            "mean_deviation": list(self.mean_deviations),
            "failures": list(self.failures),
            "exact_matches": list(self.exact_matches),
        }


def deviation_under(
    loss: str | None, outputs: ArrayLike, targets: ArrayLike, *, worst: int = 10
) -> DeviationReport:
    """Compares a network's outputs with targets as its loss reads them.

    Args:
        loss: The name of the loss, which says that outputs are of classes, or logits of probabilities;
            None where it is not known.
        outputs: (samples, ...) what the network gave.
        targets: (samples, ...) what was wanted.
        worst: How many of the worst answers are listed.

    Returns:
        The report.
    """
    if loss in ("binary_cross_entropy", "binary_focal"):
        outputs = logistic(doubles(outputs, "outputs"))
    classes = True if loss in ("cross_entropy", "focal", "nll") else None
    return DeviationReport.of(outputs, targets, classes=classes, worst=worst)


def _pairs(
    actual: ArrayLike, expected: ArrayLike, classes: bool | None
) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """What is compared, and both sides of it: of (samples,), or (samples, outputs)."""
    what = ("actual", "expected")
    given = np.atleast_1d(doubles(actual, what[0]))
    raw = np.atleast_1d(as_numpy(expected, what=what[1]))
    if given.size == 0 or raw.size == 0:
        raise DataError(f"actual {given.shape} and expected {raw.shape} are empty; give samples to compare")
    wide = given.ndim > 1 and given.shape[class_axis(given.ndim)] > 1
    indices = wide and given.ndim == raw.ndim + 1
    if wide and (classes or (classes is None and indices)):
        table = class_table(given, raw, what=what)
        predicted = decide(table.scores, True, what="actual").predicted
        answers = np.where(predicted < 0, np.nan, predicted.astype(np.float64)).reshape(table.shape)
        return (
            "classes",
            _by_sample(answers),
            _by_sample(table.labels.astype(np.float64).reshape(table.shape)),
        )
    wanted = doubles(raw, what[1])
    if given.ndim == wanted.ndim + 1 and given.shape[-1] == 1:
        wanted = wanted[..., None]
    elif wanted.ndim == given.ndim + 1 and wanted.shape[-1] == 1:
        given = given[..., None]
    if given.shape != wanted.shape:
        raise ShapeError(
            f"actual has shape {given.shape} and expected {wanted.shape}; both must be the same, or expected "
            "hold class indices and lack the class axis"
        )
    given, wanted = _by_sample(given), _by_sample(wanted)
    return "values" if given.ndim == 1 else "outputs", given, wanted


def _by_sample(values: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = values.reshape(len(values), -1)
    # A copy: a report is of what was compared, whatever becomes of the arrays.
    return np.array(rows[:, 0] if rows.shape[1] == 1 else rows)


def _deviations(
    given: NDArray[np.float64], wanted: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    size = np.abs(wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.abs(given - wanted) / np.where(size < _TINY, 1.0, size) * 100.0
    finite = np.isfinite(found)
    return np.where(finite, found, 100.0), finite


def _mean(flat: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore"):
        mean = np.mean(flat)
    # The sum of large ones may be beyond what a float holds.
    return float(mean if np.isfinite(mean) else np.sum(flat / flat.size))


def _buckets(flat: NDArray[np.float64], width: int) -> list[DeviationBucket]:
    # An upper edge belongs to its bucket, and zero to the first.
    held = np.searchsorted(_EDGES[1:-1], flat, side="left")
    buckets = []
    for index, (lower, upper) in enumerate(pairwise(_EDGES)):
        places = np.flatnonzero(held == index)
        buckets.append(
            DeviationBucket(
                name=f"{lower:g}-{upper:g} %" if np.isfinite(upper) else f"over {lower:g} %",
                lower=lower,
                upper=upper,
                count=len(places),
                share=len(places) / flat.size,
                samples=places // width,
                outputs=places % width,
            )
        )
    return buckets
