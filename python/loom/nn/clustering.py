"""Soft assignment to clusters."""

from __future__ import annotations

from dataclasses import dataclass

from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["KMeans"]


@FAMILY.register("kmeans")
@dataclass(frozen=True)
class KMeans(Layer):
    """How near each centroid is: a softmax of `-distance ** 2 / (2 * temperature ** 2)`.

    Works on the last axis: input (..., features), output (..., clusters), which
    sums to one. The weight `centroids` is (clusters, features) and is trained like
    any other; it stays float when the layer takes on another numeric type.
    `loom.analysis.initialize_kmeans` begins them where the data are.

    Args:
        clusters: How many centroids.
        temperature: The distance that counts as near; above zero. Small values
            choose the nearest centroid alone.
        centroid_initializer: The centroids' first values; normal with standard
            deviation 1 by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.KMeans(4, temperature=0.5).clusters
        4
    """

    clusters: int
    temperature: float = 1.0
    centroid_initializer: InitializerLike | None = None
