"""Clusters of samples: k-means, and how well it has gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, whole
from loom._typing import ArrayLike
from loom.convert import as_labels
from loom.errors import ConfigError, DataError, ShapeError
from loom.reports.base import TabularReport
from loom.reports.samples import as_samples, centred

__all__ = ["Clusters", "kmeans", "silhouettes"]

_CHUNK = 1 << 21
"""How many distances are held at a time."""


@dataclass(frozen=True, eq=False)
class Clusters(TabularReport):
    """What k-means has found.

    Args:
        centroids: (clusters, features) the mean of each cluster's samples.
        assignments: (samples,) each sample's cluster: that of the nearest centroid, the first of several.
        sizes: (clusters,) how many samples each cluster has.
        inertias: (clusters,) the sum of squared distances of its samples from its centroid.
        silhouettes: (clusters,) the mean silhouette of its samples; NaN where it was not measured, where
            there is one cluster only, and of clusters without samples.
        inertia: The sum over all clusters.
        silhouette: The mean over all samples, from -1 to 1: near 1 where clusters are tight and apart.
        iterations: How often centroids moved in the start that was kept.
        converged: Whether assignments had stopped changing by then.
    """

    centroids: NDArray[np.float64]
    assignments: NDArray[np.int64]
    sizes: NDArray[np.int64]
    inertias: NDArray[np.float64]
    silhouettes: NDArray[np.float64]
    inertia: float
    silhouette: float
    iterations: int
    converged: bool

    def columns(self) -> dict[str, Any]:
        """Returns a row for each cluster: cluster, size, inertia, silhouette."""
        return {
            "cluster": np.arange(len(self.sizes)),
            "size": self.sizes,
            "inertia": self.inertias,
            "silhouette": self.silhouettes,
        }

    def assign(self, data: ArrayLike) -> NDArray[np.int64]:
        """Returns the cluster of other samples: that of the nearest centroid, the first of several.

        Args:
            data: (samples, features).

        Returns:
            (samples,) the clusters.

        Raises:
            ShapeError: They have other features than the clusters.
            NonFiniteError: A value is NaN or infinite.
        """
        samples = as_samples(data, what="Clusters.assign: data")
        _check_features("Clusters.assign", samples, self.centroids)
        _, means, exponents = centred(self.centroids)
        most = int(exponents.max())
        points = np.ldexp(samples, -most) - np.ldexp(means, exponents - most)
        centroids = np.ldexp(self.centroids, -most) - np.ldexp(means, exponents - most)
        return _nearest(points, centroids)


def kmeans(
    data: ArrayLike,
    k: int,
    *,
    seed: int = 0,
    starts: int = 10,
    iterations: int = 300,
    centroids: ArrayLike | None = None,
    silhouette: bool = True,
) -> Clusters:
    """Finds clusters of samples by k-means.

    Lloyd's algorithm (1982) from the best of several starts, each by k-means++ (Arthur and Vassilvitskii
    2007), in double precision: centroids move to the means of their samples until no sample changes its
    cluster. A cluster that has lost all samples takes the one that is farthest from its centroid. It is
    computed by loom alone, with scikit-learn installed or not: the same data, k and seed give the same
    clusters, and the same centroids to start from the ones that scikit-learn's `KMeans(tol=0)` finds.

    Args:
        data: (samples, features); further axes become features, too. Features of large values count most:
            bring them to one scale first.
        k: How many clusters; at most as many as there are different samples.
        seed: What starts are drawn from.
        starts: How many starts are tried; that of least inertia is kept, the first of several.
        iterations: How often centroids move at most.
        centroids: (k, features) where they are to start, instead of drawn starts.
        silhouette: Whether silhouettes are measured, which takes time with the square of the samples.

    Returns:
        Centroids, assignments, inertia and silhouettes.

    Raises:
        ConfigError: A setting is out of range.
        DataError: There are fewer different samples than clusters.
        ShapeError: The centroids do not fit the data.
        NonFiniteError: A value is NaN or infinite.

    Examples:
        >>> found = loom.analysis.kmeans([[0.0], [1.0], [10.0], [11.0]], 2)
        >>> sorted(found.centroids[:, 0].tolist()), found.inertia
        ([0.5, 10.5], 1.0)
        >>> bool(found.assign([[9.0]])[0] == found.assignments[2])
        True
    """
    samples = as_samples(data, what="kmeans: data")
    k = whole("kmeans", "k", k, least=1)
    starts = whole("kmeans", "starts", starts, least=1)
    iterations = whole("kmeans", "iterations", iterations, least=1)
    random = np.random.default_rng(whole("kmeans", "seed", seed, least=0))
    if k > len(samples):
        raise ConfigError(f"kmeans: {len(samples)} samples have at most as many clusters, not {k}")
    differences, means, exponents = centred(samples)
    # One scale for all features, or distances would change.
    most = int(exponents.max())
    points = np.ldexp(differences, exponents - most)
    origin = np.ldexp(means, exponents - most)
    if centroids is None:
        runs = [_lloyd(points, _spread(points, k, random), iterations) for _ in range(starts)]
    else:
        given = as_samples(centroids, what="kmeans: centroids")
        _check_features("kmeans", samples, given)
        if len(given) != k:
            raise ShapeError(f"kmeans: k is {k}, but there are {len(given)} centroids")
        runs = [_lloyd(points, np.ldexp(given, -most) - origin, iterations)]
    best = min(runs, key=lambda run: run.inertia)
    sizes = np.bincount(best.assignments, minlength=k)
    squares = _squares(points, best)
    each = silhouettes(points, best.assignments) if flag("kmeans", "silhouette", silhouette) else None
    return Clusters(
        centroids=np.ldexp(best.centroids + origin, most),
        assignments=best.assignments,
        sizes=sizes,
        inertias=np.ldexp(np.bincount(best.assignments, squares, k), 2 * most),
        silhouettes=_means(each, best.assignments, k),
        inertia=float(np.ldexp(squares.sum(), 2 * most)),
        silhouette=float("nan") if each is None else float(each.mean()),
        iterations=best.iterations,
        converged=best.converged,
    )


def silhouettes(data: ArrayLike, assignments: ArrayLike) -> NDArray[np.float64]:
    """Measures how well each sample lies in its cluster (Rousseeuw 1987).

    (b - a) / max(a, b), where a is the mean distance to the other samples of its cluster and b the least
    mean distance to those of another one: 1 deep within its cluster, 0 between two, below 0 in the wrong
    one. It is 0 for a cluster's only sample, and where both are 0.

    Args:
        data: (samples, features).
        assignments: (samples,) each sample's cluster, from 0.

    Returns:
        (samples,) from -1 to 1; NaN where there is one cluster only.

    Raises:
        ShapeError: There is not one cluster for each sample.
        DataError: A cluster's number is negative.
        NonFiniteError: A value is NaN or infinite.

    Examples:
        >>> loom.analysis.silhouettes([[0.0], [1.0], [10.0]], [0, 0, 1]).round(3).tolist()
        [0.9, 0.889, 0.0]
    """
    samples = as_samples(data, what="silhouettes: data")
    given = as_labels(assignments, what="silhouettes: assignments")
    if given.shape != (len(samples),):
        raise ShapeError(f"silhouettes: {len(samples)} samples need as many assignments, got {given.shape}")
    if given.min() < 0:
        raise DataError(f"silhouettes: clusters are numbered from 0, got {given.min()}")
    clusters, labels, sizes = np.unique(given, return_inverse=True, return_counts=True)
    if len(clusters) == 1:
        return np.full(len(samples), np.nan)
    differences, _, exponents = centred(samples)
    points = np.ldexp(differences, exponents - exponents.max())
    members = (labels[:, None] == np.arange(len(clusters))).astype(np.float64)
    found = np.empty(len(points))
    step = max(1, _CHUNK // len(points))
    for start in range(0, len(points), step):
        rows = np.arange(start, min(start + step, len(points)))
        totals = _distances(points, rows) @ members
        mine = labels[rows]
        own = totals[np.arange(len(rows)), mine] / np.maximum(sizes[mine] - 1, 1)
        means = totals / sizes
        means[np.arange(len(rows)), mine] = np.inf
        other = means.min(axis=1)
        larger = np.maximum(own, other)
        found[rows] = np.where(
            (sizes[mine] > 1) & (larger > 0.0), (other - own) / np.where(larger > 0.0, larger, 1.0), 0.0
        )
    return found


@dataclass(frozen=True)
class _Run:
    """Where one start has led."""

    centroids: NDArray[np.float64]
    assignments: NDArray[np.int64]
    inertia: float
    iterations: int
    converged: bool


def _lloyd(points: NDArray[np.float64], centroids: NDArray[np.float64], iterations: int) -> _Run:
    columns = np.ascontiguousarray(points.T)
    assignments = _nearest(points, centroids)
    for iteration in range(1, iterations + 1):
        centroids = _moved(points, columns, centroids, assignments)
        before, assignments = assignments, _nearest(points, centroids)
        if (converged := np.array_equal(before, assignments)) or iteration == iterations:
            break
    run = _Run(centroids, assignments, 0.0, iteration, converged)
    return _Run(centroids, assignments, float(_squares(points, run).sum()), iteration, converged)


def _squares(points: NDArray[np.float64], run: _Run) -> NDArray[np.float64]:
    return np.asarray(((points - run.centroids[run.assignments]) ** 2).sum(axis=1))


def _nearest(points: NDArray[np.float64], centroids: NDArray[np.float64]) -> NDArray[np.int64]:
    found = np.empty(len(points), np.int64)
    lengths = (centroids**2).sum(axis=1)
    step = max(1, _CHUNK // len(centroids))
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        # The squared distances but for the point's own length, which is the same for all centroids.
        found[rows] = (lengths - 2.0 * (points[rows] @ centroids.T)).argmin(axis=1)
    return found


def _moved(
    points: NDArray[np.float64],
    columns: NDArray[np.float64],
    centroids: NDArray[np.float64],
    assignments: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The means of the clusters' points; those without any take the points that are farthest off."""
    k = len(centroids)
    sizes = np.bincount(assignments, minlength=k)
    if not sizes.all():
        assignments = assignments.copy()
        squares = ((points - centroids[assignments]) ** 2).sum(axis=1)
        for empty in np.flatnonzero(sizes == 0):
            farthest = int(np.where(sizes[assignments] > 1, squares, 0.0).argmax())
            if squares[farthest] > 0.0:
                sizes[assignments[farthest]] -= 1
                assignments[farthest], sizes[empty], squares[farthest] = empty, 1, 0.0
    sums = np.stack([np.bincount(assignments, column, k) for column in columns], axis=1)
    return np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centroids)


def _spread(points: NDArray[np.float64], k: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Points far from each other: each is drawn with its squared distance from those drawn before."""
    chosen = [int(random.integers(len(points)))]
    squares = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k:
        total = np.cumsum(squares)
        if total[-1] == 0.0:
            raise DataError(
                f"kmeans: {k} clusters need as many different samples, but there are only {len(chosen)}"
            )
        drawn = int(np.searchsorted(total, random.random() * total[-1], side="right"))
        # Rounding may take the draw to the very end, behind the last that can be drawn.
        chosen.append(min(drawn, int(np.flatnonzero(squares)[-1])))
        squares = np.minimum(squares, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return np.asarray(points[chosen])


def _distances(points: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The distances of some points from all."""
    lengths = (points**2).sum(axis=1)
    sums = lengths[rows, None] + lengths
    squares = sums - 2.0 * (points[rows] @ points.T)
    # Where two points nearly meet the difference above is mostly rounding.
    near = np.argwhere(squares <= 1e-6 * sums)
    step = max(1, _CHUNK // points.shape[1])
    for start in range(0, len(near), step):
        i, j = near[start : start + step].T
        squares[i, j] = ((points[rows[i]] - points[j]) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(squares))


def _means(each: NDArray[np.float64] | None, assignments: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    found = np.full(k, np.nan)
    if each is not None:
        sizes = np.bincount(assignments, minlength=k)
        np.divide(np.bincount(assignments, each, k), sizes, out=found, where=sizes > 0)
    return found


def _check_features(where: str, samples: NDArray[np.float64], centroids: NDArray[np.float64]) -> None:
    if samples.shape[1] != centroids.shape[1]:
        raise ShapeError(
            f"{where}: samples have {samples.shape[1]} features but centroids {centroids.shape[1]}"
        )
