"""How features vary together: Pearson's and Spearman's correlation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice, real, whole
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.reports.base import TabularReport
from loom.reports.samples import as_names, as_samples, centred

__all__ = ["CorrelatedPairs", "Correlation", "correlation"]


@dataclass(frozen=True, eq=False)
class CorrelatedPairs(TabularReport):
    """Pairs of features, the strongest correlation first.

    Iterating gives (first, second, correlation).

    Args:
        first: The first features' labels.
        second: The second features' labels.
        correlations: (pairs,) their correlations.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    correlations: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[tuple[str, str, float]]:
        return iter(zip(self.first, self.second, self.correlations.tolist(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Returns a row for each pair: first, second, correlation."""
        return {"first": self.first, "second": self.second, "correlation": self.correlations}


@dataclass(frozen=True, eq=False)
class Correlation(TabularReport):
    """Correlations of all pairs of features, and what each feature is by itself.

    A feature that never varies has no correlation: its row and its column, the diagonal among them, are NaN,
    and no pair of it is above any threshold.

    Args:
        method: "pearson" or "spearman".
        samples: How many samples were measured.
        labels: The features' names.
        matrix: (features, features) the correlations, from -1 to 1.
        means: (features,) each feature's mean.
        deviations: (features,) its standard deviation, the mean taken over all samples (not samples - 1).
        minima: (features,) its smallest value.
        maxima: (features,) its largest value.
    """

    method: str
    samples: int
    labels: tuple[str, ...]
    matrix: NDArray[np.float64]
    means: NDArray[np.float64]
    deviations: NDArray[np.float64]
    minima: NDArray[np.float64]
    maxima: NDArray[np.float64]

    def columns(self) -> dict[str, Any]:
        """Returns a row for each feature: its label, figures, and correlation with every feature."""
        return {
            "feature": self.labels,
            "mean": self.means,
            "deviation": self.deviations,
            "minimum": self.minima,
            "maximum": self.maxima,
            **{f"correlation with {label}": self.matrix[:, i] for i, label in enumerate(self.labels)},
        }

    def above(self, threshold: float) -> CorrelatedPairs:
        """Returns the pairs whose correlation, its sign aside, is larger than a threshold.

        Args:
            threshold: From 0 to 1.

        Returns:
            The pairs, the strongest first; equally strong ones in the order of their features.

        Raises:
            ConfigError: The threshold is out of range.
        """
        bound = real("Correlation.above", "threshold", threshold, least=0.0, most=1.0)
        first, second = np.triu_indices(len(self.labels), 1)
        strong = np.abs(self.matrix[first, second]) > bound
        return self._pairs(first[strong], second[strong])

    def strongest(self, feature: str | int, n: int = 5) -> CorrelatedPairs:
        """Returns the strongest pairs of one feature.

        Args:
            feature: Its label or its place.
            n: How many pairs at most.

        Returns:
            The pairs, the strongest first; the feature is the first of each.

        Raises:
            ConfigError: There is no such feature, or n is not positive.
        """
        count = whole("Correlation.strongest", "n", n, least=1)
        place = self._place(feature)
        others = np.array([i for i in range(len(self.labels)) if i != place], dtype=np.intp)
        known = others[~np.isnan(self.matrix[place, others])]
        return self._pairs(np.full_like(known, place), known, count)

    def _place(self, feature: str | int) -> int:
        if isinstance(feature, str):
            if feature not in self.labels:
                raise unknown("feature", feature, self.labels)
            return self.labels.index(feature)
        return whole("Correlation.strongest", "feature", feature, least=0, most=len(self.labels) - 1)

    def _pairs(self, first: NDArray[Any], second: NDArray[Any], most: int | None = None) -> CorrelatedPairs:
        values = self.matrix[first, second]
        order = np.argsort(-np.abs(values), kind="stable")[:most]
        return CorrelatedPairs(
            tuple(self.labels[i] for i in first[order]),
            tuple(self.labels[i] for i in second[order]),
            values[order],
        )


def correlation(
    x: ArrayLike,
    method: Literal["pearson", "spearman"] = "pearson",
    labels: Sequence[object] | None = None,
) -> Correlation:
    """Measures how features vary together.

    Pearson's coefficient is the covariance over both standard deviations; Spearman's is Pearson's of the
    ranks, where equal values share the mean of their ranks.

    Args:
        x: (samples, features) the values; further axes become features, too. For the activations of a
            layer see `loom.analysis.unit_activations`; for the units of a dense layer give
            `layer.weight.T`, whose rows are inputs.
        method: "pearson" or "spearman".
        labels: The features' names, all different; their numbers where None.

    Returns:
        The correlations, with each feature's mean, deviation and extremes.

    Raises:
        ShapeError: The array has no axis beside the samples.
        DataError: There are fewer than two samples, or no features.
        NonFiniteError: A value is NaN or infinite.
        ConfigError: The method is unknown, or the labels do not fit.

    Examples:
        >>> found = loom.analysis.correlation([[1, 2, 5], [2, 4, 3], [3, 6, 4]], labels=["a", "b", "c"])
        >>> [(first, second, round(value, 3)) for first, second, value in found.above(0.9)]
        [('a', 'b', 1.0)]
        >>> found.matrix.round(3).tolist()
        [[1.0, 1.0, -0.5], [1.0, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    choice("correlation", "method", method, ("pearson", "spearman"))
    data = as_samples(x, what="correlation: x", least=2)
    names = as_names(labels, data.shape[1], what="features")
    minima, maxima = data.min(axis=0), data.max(axis=0)
    constant = minima == maxima
    differences, means, exponents = centred(data)
    deviations = np.ldexp(np.sqrt((differences**2).mean(axis=0)), exponents)
    if method == "spearman":
        differences = centred(_ranks(data))[0]
    return Correlation(
        method=method,
        samples=len(data),
        labels=names,
        matrix=_cosines(differences, constant),
        means=np.where(constant, minima, np.ldexp(means, exponents)),
        deviations=np.where(constant, 0.0, deviations),
        minima=minima,
        maxima=maxima,
    )


def _cosines(differences: NDArray[np.float64], constant: NDArray[np.bool_]) -> NDArray[np.float64]:
    # Scaled first by the largest, or squares of small differences would be lost.
    largest = np.abs(differences).max(axis=0)
    directions = differences / np.where(constant, 1.0, largest)
    norms = np.sqrt((directions**2).sum(axis=0))
    directions /= np.where(constant, 1.0, norms)
    matrix = np.clip(directions.T @ directions, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    matrix[constant] = matrix[:, constant] = np.nan
    return np.asarray((matrix + matrix.T) / 2)


def _ranks(data: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks = np.empty_like(data)
    for column, values in enumerate(data.T):
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        ranks[:, column] = (last - (counts - 1) / 2)[places]
    return ranks
