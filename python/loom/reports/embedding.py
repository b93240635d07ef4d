"""Samples in the plane: their many features projected to two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.errors import ConfigError
from loom.extras import require
from loom.reports.base import TabularReport
from loom.reports.samples import as_samples

__all__ = ["Embedding", "embed"]


@dataclass(frozen=True, eq=False)
class Embedding(TabularReport):
    """Samples in the plane.

    Args:
        method: How they were projected: "pca" or "tsne".
        points: (samples, 2) where they are.
        labels: (samples,) what each is; None where that was not said.
        explained: (2,) the share of all variance that each axis shows; NaN of t-SNE, whose axes mean
            nothing.
        features: How many features they had.
    """

    method: str
    points: NDArray[np.float64]
    labels: tuple[str, ...] | None
    explained: NDArray[np.float64]
    features: int

    def columns(self) -> dict[str, Any]:
        """Returns a row for each sample: x, y, and its label where there are labels."""
        table: dict[str, Any] = {"x": self.points[:, 0], "y": self.points[:, 1]}
        return table if self.labels is None else {**table, "label": list(self.labels)}


def embed(
    data: ArrayLike,
    method: Literal["pca", "tsne"] = "pca",
    *,
    labels: Sequence[object] | NDArray[Any] | None = None,
    perplexity: float = 30.0,
    seed: int = 0,
) -> Embedding:
    """Projects samples to the plane, so that a picture shows which are near each other.

    "pca" are the two directions in which the samples differ most: a turn of the data, the same every
    time, in which far apart is far apart. "tsne" puts neighbours near each other (van der Maaten and
    Hinton 2008): groups show, but their sizes and distances mean little. Both are scikit-learn's.

    Args:
        data: (samples, ...) features, such as what `net.activations` has of a layer.
        method: "pca" or "tsne".
        labels: (samples,) what each is, for the picture.
        perplexity: Of t-SNE: about how many neighbours count; at most a third of the samples.
        seed: Of t-SNE: what its search draws from.

    Returns:
        The points.

    Raises:
        ConfigError: The method is unknown, a setting is out of range, or labels do not fit.
        ShapeError: There is no axis beside the samples.
        DataError: There are fewer than two samples, or, of t-SNE, fewer than four.
        NonFiniteError: A value is NaN or infinite.
        MissingExtraError: scikit-learn is not installed.

    Examples:
        >>> x = np.random.default_rng(0).normal(size=(20, 5)) * [5, 3, 1, 1, 1]
        >>> found = loom.analysis.embed(x)
        >>> found.points.shape, bool(found.explained[0] > found.explained[1])
        ((20, 2), True)
    """
    if method not in ("pca", "tsne"):
        raise unknown("method", str(method), ("pca", "tsne"))
    samples = as_samples(data, what="data", least=2 if method == "pca" else 4)
    names = None if labels is None else tuple(map(str, np.asarray(labels).tolist()))
    if names is not None and len(names) != len(samples):
        raise ConfigError(f"{len(names)} labels do not fit {len(samples)} samples")
    limit = real("embed", "perplexity", perplexity, above=0.0)
    draws = whole("embed", "seed", seed, least=0)
    features = samples.shape[1]
    if features == 1:
        # A line lies in the plane.
        samples = np.concatenate([samples, np.zeros_like(samples)], axis=1)
    explained = np.full(2, np.nan)
    if method == "pca":
        module = require("sklearn.decomposition", extra="analysis", purpose="loom.analysis.embed")
        projection = module.PCA(n_components=2, svd_solver="full")
        # Samples that are all the same have no share of anything.
        with np.errstate(invalid="ignore", divide="ignore"):
            points = projection.fit_transform(samples)
            explained = np.asarray(projection.explained_variance_ratio_, np.float64)
    else:
        module = require("sklearn.manifold", extra="analysis", purpose="loom.analysis.embed")
        neighbours = min(limit, (len(samples) - 1) / 3)
        points = module.TSNE(
            n_components=2, perplexity=neighbours, init="pca", random_state=draws
        ).fit_transform(samples)
    return Embedding(method, np.asarray(points, np.float64), names, explained, features)
