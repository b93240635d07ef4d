"""Curves over all thresholds of a score, and of how far probabilities are to be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import DataError, ShapeError
from loom.reports.base import Report
from loom.reports.outputs import doubles

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CalibrationCurve", "PrecisionRecallCurve", "RocCurve"]


@dataclass(frozen=True, eq=False)
class RocCurve(Report):
    """The receiver operating characteristic: the share found against the share of false alarms.

    Where either is of nothing, because all or none of the samples are positive, the curve is empty and
    the area NaN. Points in the middle of straight lines are left out.

    Args:
        false_positive_rate: (points,) the share of negatives at or above the threshold, rising from 0 to 1.
        true_positive_rate: (points,) the share of positives.
        thresholds: (points,) the thresholds; infinite at the first.
        area: The area below: the chance that a positive has a higher score than a negative, ties by half.
    """

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    area: float

    @classmethod
    def of(cls, scores: ArrayLike, positive: ArrayLike) -> Self:
        """Draws the curve of scores.

        Args:
            scores: (samples,) higher for what is more likely positive.
            positive: (samples,) whether each is.

        Returns:
            The curve.

        Raises:
            DataError: There are no samples, or scores are NaN.
            ShapeError: The two are of different lengths.
        """
        found, hits, alarms = _counts(scores, positive)
        if not hits[-1] or not alarms[-1]:
            empty = np.empty(0)
            return cls(empty, empty, empty, float("nan"))
        area = float(np.sum(np.diff(alarms) * (hits[1:] + hits[:-1]))) / 2.0
        if len(hits) > 3:
            # The first point, at the origin, is no threshold of the scores: what lies on a line counts
            # from the next.
            corner = (np.diff(hits[1:], 2) != 0) | (np.diff(alarms[1:], 2) != 0)
            kept = np.concatenate([[True, True], corner, [True]])
            found, hits, alarms = found[kept], hits[kept], alarms[kept]
        return cls(alarms / alarms[-1], hits / hits[-1], found, float(area / (hits[-1] * alarms[-1])))


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve(Report):
    """Precision against recall; empty, with an average precision of NaN, where nothing is positive.

    Points that have the recall of both neighbours are left out.

    Args:
        precision: (points,) the share of what is at or above the threshold that is positive; 1 at the last.
        recall: (points,) the share of positives at or above the threshold, falling to 0 at the last.
        thresholds: (points - 1,) the thresholds, rising; the last point has none.
        average_precision: The sum of precisions, each times the recall that it adds.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    average_precision: float

    @classmethod
    def of(cls, scores: ArrayLike, positive: ArrayLike) -> Self:
        """Draws the curve of scores.

        Args:
            scores: (samples,) higher for what is more likely positive.
            positive: (samples,) whether each is.

        Returns:
            The curve.

        Raises:
            DataError: There are no samples, or scores are NaN.
            ShapeError: The two are of different lengths.
        """
        found, hits, alarms = _counts(scores, positive)
        if not hits[-1]:
            empty = np.empty(0)
            return cls(empty, empty, empty, float("nan"))
        recall = hits / hits[-1]
        found, hits, alarms = found[1:], hits[1:], alarms[1:]
        precision = hits / (hits + alarms)
        average = float(np.sum(np.diff(recall) * precision))
        recall = recall[1:]
        if len(hits) > 2:
            corner = (np.diff(hits[:-1]) != 0) | (np.diff(hits[1:]) != 0)
            kept = np.concatenate([[True], corner, [True]])
            found, recall, precision = found[kept], recall[kept], precision[kept]
        return cls(np.append(precision[::-1], 1.0), np.append(recall[::-1], 0.0), found[::-1].copy(), average)


@dataclass(frozen=True, eq=False)
class CalibrationCurve(Report):
    """How often what was said to be likely happened (a reliability diagram).

    Bins are of equal width; a bin's upper edge belongs to it, and 0 to the first. Those that hold nothing
    have NaN. Errors as in Guo et al. 2017, "On calibration of modern neural networks".

    Args:
        edges: (bins + 1,) the edges of the bins, from 0 to 1.
        probability: (bins,) the mean probability that was said.
        frequency: (bins,) how often it happened.
        count: (bins,) how many samples each bin holds.
        error: The expected calibration error: the mean of |frequency - probability| over all samples.
        largest_error: The largest |frequency - probability| of a bin.
    """

    edges: NDArray[np.float64]
    probability: NDArray[np.float64]
    frequency: NDArray[np.float64]
    count: NDArray[np.int64]
    error: float
    largest_error: float

    @classmethod
    def of(cls, probabilities: ArrayLike, happened: ArrayLike, bins: int = 10) -> Self:
        """Compares probabilities with what happened.

        Args:
            probabilities: (samples,) from 0 to 1.
            happened: (samples,) whether it did.
            bins: How many bins there are between 0 and 1.

        Returns:
            The curve.

        Raises:
            DataError: There are no samples, or probabilities outside 0 to 1.
            ShapeError: The two are of different lengths.
            ConfigError: There is to be no bin.
        """
        bins = whole("CalibrationCurve", "bins", bins, least=1)
        said, did = _paired(probabilities, happened, "probabilities", "happened")
        if not (said.min() >= 0.0 and said.max() <= 1.0):
            raise DataError(f"probabilities must be from 0 to 1, got {said.min():g} to {said.max():g}")
        edges = np.linspace(0.0, 1.0, bins + 1)
        held = np.searchsorted(edges[1:-1], said, side="left")
        count = np.bincount(held, minlength=bins)
        with np.errstate(invalid="ignore"):
            probability = np.bincount(held, weights=said, minlength=bins) / count
            frequency = np.bincount(held, weights=did, minlength=bins) / count
        gaps = np.abs(frequency - probability)[count > 0]
        error = float(np.sum(gaps * count[count > 0]) / len(said))
        return cls(edges, probability, frequency, count.astype(np.int64), error, float(gaps.max()))


def _counts(
    scores: ArrayLike, positive: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Every different score, falling, with how many positives and negatives are at or above it.

    The first is infinite, above which there are none.
    """
    given, hit = _paired(scores, positive, "scores", "positive")
    if np.isnan(given).any():
        raise DataError("scores hold NaN; leave those samples out")
    order = np.argsort(-given, kind="stable")
    given, hit = given[order], hit[order]
    last = np.append(np.flatnonzero(np.diff(given)), len(given) - 1)
    hits = np.cumsum(hit)[last]
    alarms = last + 1.0 - hits
    return np.append(np.inf, given[last]), np.append(0.0, hits), np.append(0.0, alarms)


def _paired(
    first: ArrayLike, second: ArrayLike, name: str, other: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one = doubles(first, name)
    two = as_numpy(second, what=other).astype(bool).astype(np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise ShapeError(f"{name} and {other} must both be (samples,), got {one.shape} and {two.shape}")
    if not one.size:
        raise DataError(f"{name} are empty; give samples")
    return one, two
