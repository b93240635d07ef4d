"""Metrics: accuracy, top_k_accuracy, mae, mse, r2, or any callable(outputs, targets) -> float.

Class metrics look at the class axis of the outputs, which is the last, or axis
1 for images; targets are class indices, one-hot rows or soft rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._settings.encoding import Named, NamedFamily
from loom._typing import ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.errors import DataError, ShapeError

__all__ = [
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "Metric",
    "MetricFunction",
    "MetricLike",
    "TopKAccuracy",
    "name_of",
    "names",
    "resolve",
    "resolve_all",
]


class Metric(Named):
    """Base of the metrics that loom computes."""

    __slots__ = ()

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


MetricFunction: TypeAlias = "Callable[[NDArray[Any], NDArray[Any]], float]"
MetricLike: TypeAlias = "str | Metric | MetricFunction | Mapping[str, Any]"

FAMILY: NamedFamily[Metric] = NamedFamily("metric", aliases={"top_k": "top_k_accuracy"})


@FAMILY.register("accuracy")
@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of rows whose largest output is the target's class; a row that holds NaN has none.

    With a single output per row, the share on the target's side of a threshold:
    in training 0 under binary_cross_entropy, whose outputs are logits, and 0.5
    otherwise.
    """

    def __call__(self, outputs: ArrayLike, targets: ArrayLike, threshold: float | None = None) -> float:
        """Computes the share of right rows.

        Args:
            outputs: (rows, classes), (rows, classes, height, width) or (rows, 1).
            targets: Class indices, one-hot rows or soft rows.
            threshold: A single output above it means class 1; needed for such.

        Returns:
            The share over all rows.
        """
        if threshold is not None:
            given, wanted = _values(outputs, targets)
            return float(np.mean(((given > threshold) == (wanted > 0.5)) & ~np.isnan(given)))
        scores, classes = _classes(outputs, targets)
        return float(np.mean((scores.argmax(axis=1) == classes) & ~np.isnan(scores).any(axis=1)))


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
        scores, classes = _classes(outputs, targets)
        mine = np.take_along_axis(scores, classes[:, None], axis=1)
        ties_before = (scores == mine) & (np.arange(scores.shape[1]) < classes[:, None])
        rank = (scores > mine).sum(axis=1) + ties_before.sum(axis=1)
        return float(np.mean((rank < self.k) & ~np.isnan(scores).any(axis=1)))


@FAMILY.register("mae")
@dataclass(frozen=True)
class MAE(Metric):
    """The mean of |output - target| over all elements."""

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the mean absolute error."""
        given, wanted = _values(outputs, targets)
        return float(np.mean(np.abs(given - wanted)))


@FAMILY.register("mse")
@dataclass(frozen=True)
class MSE(Metric):
    """The mean of (output - target)^2 over all elements."""

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the mean squared error."""
        given, wanted = _values(outputs, targets)
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
        given, wanted = _values(outputs, targets)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(1.0 - np.sum((wanted - given) ** 2) / np.sum((wanted - wanted.mean()) ** 2))


def resolve(value: MetricLike) -> Metric | MetricFunction:
    """Returns the metric that an entry of `metrics=` means.

    Args:
        value: A name, a metric, its JSON form, or a callable that takes outputs
            and targets and returns a float.

    Returns:
        The metric, or the callable as it is.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    if callable(value):
        return value
    return cast(Metric, FAMILY.resolve(value))  # never a bare name: every metric is a class


def resolve_all(values: Iterable[MetricLike]) -> tuple[Metric | MetricFunction, ...]:
    """Returns what each entry of `metrics=` means; see `resolve`."""
    return tuple(resolve(value) for value in values)


def name_of(metric: Metric | MetricFunction) -> str:
    """Returns what a metric is called in logs and results."""
    if isinstance(metric, Metric):
        return metric.name
    return getattr(metric, "__name__", type(metric).__name__)


def names() -> list[str]:
    """Returns every metric's name, sorted."""
    return FAMILY.names()


def _values(outputs: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    given = as_real_array(outputs, "float64", what="outputs").astype(np.float64, copy=False)
    wanted = as_real_array(targets, "float64", what="targets").astype(np.float64, copy=False)
    if given.ndim == wanted.ndim + 1 and given.shape[-1] == 1:
        wanted = wanted[..., None]
    if given.shape != wanted.shape:
        raise ShapeError(f"outputs have shape {given.shape} but targets {wanted.shape}")
    if given.size == 0:
        raise DataError("a metric of no rows is undefined")
    return given, wanted


def _classes(outputs: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Lays outputs out as (rows, classes) and targets as (rows,) class indices."""
    scores = as_real_array(outputs, "float64", what="outputs").astype(np.float64, copy=False)
    wanted = as_numpy(targets, what="targets")
    if scores.ndim < 2 or scores.size == 0:
        raise ShapeError(f"outputs must be (rows, classes), got shape {scores.shape}")
    axis = 1 if scores.ndim == 4 else scores.ndim - 1
    if scores.shape[axis] == 1:
        raise ShapeError(
            "accuracy of a single output needs a threshold: threshold=0.0 for logits, "
            "threshold=0.5 for probabilities"
        )
    per_row = scores.shape[:axis] + scores.shape[axis + 1 :]
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
