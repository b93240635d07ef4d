"""Groups: clusters of samples, pairs of models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, FAINT, INK, MANY_POINTS, MARKERS, PAPER
from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.errors import DataError, ShapeError
from loom.reports import Clusters, Matches
from loom.reports.samples import as_samples

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["clusters", "matches"]


def clusters(clusters: Clusters, data: ArrayLike, path: str | Path | None = None) -> Figure:
    """Draws samples in the colours of their clusters, with the centroids as crosses.

    More than two features are seen along their first two principal components, the directions in which the
    samples differ most.

    Args:
        clusters: What `loom.analysis.kmeans` returned.
        data: (samples, features) what it was given.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        ShapeError: The clusters are of other data.
        FileError: The picture cannot be written.
    """
    check_drawn("clusters", clusters, Clusters)
    samples = as_samples(data, what="clusters: data")
    if len(samples) != len(clusters.assignments) or samples.shape[1] != clusters.centroids.shape[1]:
        raise ShapeError(
            f"data of shape {samples.shape} are not what the clusters are of: "
            f"{len(clusters.assignments)} samples of {clusters.centroids.shape[1]} features"
        )
    center = samples.mean(axis=0)
    _, lengths, directions = np.linalg.svd(samples - center, full_matrices=False)
    # A direction may be turned round; its largest entry is to be positive, so that pictures are the same.
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.where(directions[np.arange(len(directions)), largest] < 0, -1.0, 1.0)[:, None]
    plane = np.zeros((samples.shape[1], 2))
    plane[:, : len(directions)] = directions[:2].T
    points, centroids = (samples - center) @ plane, (clusters.centroids - center) @ plane
    shares = [*(lengths**2 / max(float((lengths**2).sum()), np.finfo(float).tiny)), 0.0]
    figure = empty_figure(width=6.0, height=5.0)
    axes = figure.add_subplot()
    many = len(points) > MANY_POINTS
    for number in range(len(centroids)):
        own = points[clusters.assignments == number]
        color, marker = COLORS[number % len(COLORS)], MARKERS[number // len(COLORS) % len(MARKERS)]
        axes.scatter(own[:, 0], own[:, 1], s=14, color=color, marker=marker, rasterized=many)
    axes.scatter(centroids[:, 0], centroids[:, 1], marker="X", s=110, color=INK, edgecolors=PAPER)
    axes.set_xlabel(f"first principal component ({shares[0]:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({shares[1]:.0%})")
    silhouette = "" if np.isnan(clusters.silhouette) else f", mean silhouette {clusters.silhouette:.2f}"
    axes.set_title(f"{len(centroids)} clusters{silhouette}")
    return finished(figure, path)


def matches(matches: Matches, path: str | Path | None = None, *, most: int = 20) -> Figure:
    """Draws pairs of models as bars: what both have right, what only one has, what neither has.

    Args:
        matches: What `loom.analysis.match` returned.
        path: Where to write the picture; its ending says the format.
        most: How many pairs are drawn, the best first.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        DataError: No pair has coverage enough to be listed.
        FileError: The picture cannot be written.
    """
    check_drawn("matches", matches, Matches)
    pairs = matches.pairs[: whole("matches", "most", most, least=1)]
    if not pairs:
        raise DataError(f"there is nothing to draw: no pair covers {matches.minimum:g} of the samples")
    both = np.array([pair.overlap for pair in pairs])
    either = np.array([pair.coverage for pair in pairs])
    figure = empty_figure(width=7.0, height=1.3 + 0.3 * len(pairs))
    axes = figure.add_subplot()
    places = np.arange(len(pairs))
    axes.barh(places, both, color=COLORS[0], label="both right")
    axes.barh(places, either - both, left=both, color=COLORS[5], label="one right")
    axes.barh(places, 1.0 - either, left=either, color=FAINT, label="neither")
    axes.set_yticks(places, [f"{pair.first}, {pair.second}" for pair in pairs], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel(f"share of {matches.samples} samples")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return finished(figure, path)
