"""What the units of a layer make of samples: activations as arrays, and their clusters."""

from __future__ import annotations

import numpy as np

from loom._typing import ArrayLike, RealArray
from loom.errors import ConfigError
from loom.network import Network
from loom.network.looking import layer_values
from loom.network.selecting import LayerLike, find_layers
from loom.reports.clustering import Clusters, kmeans

__all__ = ["cluster_units", "initialize_kmeans", "unit_activations"]


def unit_activations(
    net: Network, layer: LayerLike, x: ArrayLike, *, axis: int | None = None, batch_size: int = 256
) -> RealArray:
    """Returns what the units of a layer give for samples, dropout off; see `Network.activations`.

    Args:
        net: The network.
        layer: The layer: its handle, its path such as "z.y.x.l" or "z.y.x.l.layers.0", or (z, y, x, l).
        x: (samples, *input_shape) what goes into the network.
        axis: Which axis of one sample's output counts the units: 0 for the channels of images, -1 for the
            features of sequences; each place then is a sample of its own. Where None every element of the
            output is a unit.
        batch_size: How many samples are computed at a time.

    Returns:
        (samples, units), or (samples x places, units) where an axis is given.

    Raises:
        CellIndexError: The network has no such layer.
        ConfigError: The layer is of another network, or has no such axis.
        DataError: There are no samples.
        ShapeError: The samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.

    Examples:
        >>> net = loom.Sequential([nn.Conv1D(5, kernel_size=3), nn.Flatten()], input_shape=(1, 8))
        >>> loom.analysis.unit_activations(net, net[0, 0, 0, 0], np.ones((4, 1, 8))).shape
        (4, 30)
        >>> loom.analysis.unit_activations(net, "0.0.0.0", np.ones((4, 1, 8)), axis=0).shape
        (24, 5)
    """
    (found,) = find_layers(net, [layer])
    (values,) = layer_values(net, [(found, "output")], x, batch_size=batch_size)
    if axis is None:
        return values.reshape(len(values), -1)
    axes = values.ndim - 1
    try:
        place = range(1, axes + 1)[axis]
    except (IndexError, TypeError):
        raise ConfigError(
            f"axis must be one of the {axes} of an output of layer {found.path}, got {axis!r}"
        ) from None
    return np.moveaxis(values, place, -1).reshape(-1, values.shape[place])


def cluster_units(
    net: Network,
    layer: LayerLike,
    x: ArrayLike,
    k: int,
    *,
    axis: int | None = None,
    batch_size: int = 256,
    seed: int = 0,
    starts: int = 10,
) -> Clusters:
    """Finds units of a layer that do the same: clusters of units by their activations.

    Each unit is a point with a coordinate for each sample, its activations less their mean and divided by
    their length, so that units are near each other that vary together, however strongly: the squared
    distance of two is 2 - 2r, with r their correlation. A unit that never varies is at the origin.

    Args:
        net: The network.
        layer: The layer: its handle, its path such as "z.y.x.l" or "z.y.x.l.layers.0", or (z, y, x, l).
        x: (samples, *input_shape) what goes into the network.
        k: How many clusters.
        axis: Which axis of an output counts the units; see `unit_activations`.
        batch_size: How many samples are computed at a time.
        seed: What starts are drawn from.
        starts: How many starts are tried.

    Returns:
        The clusters; `assignments` has the cluster of each unit.

    Raises:
        CellIndexError: The network has no such layer.
        ConfigError: The layer is of another network, or a setting is out of range.
        DataError: There are no samples, or fewer different units than clusters.
        ShapeError: The samples do not have the network's input shape.
    """
    units = unit_activations(net, layer, x, axis=axis, batch_size=batch_size).T.astype(np.float64)
    varies = units.min(axis=1) < units.max(axis=1)
    units -= units.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(units, axis=1)
    units = np.where(varies[:, None], units / np.where(varies, lengths, 1.0)[:, None], 0.0)
    return kmeans(units, k, seed=seed, starts=starts)


def initialize_kmeans(
    net: Network,
    layer: LayerLike,
    x: ArrayLike,
    *,
    batch_size: int = 256,
    seed: int = 0,
    starts: int = 10,
) -> Clusters:
    """Sets the centroids of an `nn.KMeans` layer to those of what it reads.

    The layers before it are as they are: call it again once they have been trained.

    Args:
        net: The network.
        layer: The layer: its handle, its path such as "z.y.x.l" or "z.y.x.l.layers.0", or (z, y, x, l).
        x: (samples, *input_shape) what goes into the network; of sequences every step is a point.
        batch_size: How many samples are computed at a time.
        seed: What starts are drawn from.
        starts: How many starts are tried.

    Returns:
        The clusters of what the layer reads; their centroids are the layer's now.

    Raises:
        CellIndexError: The network has no such layer.
        ConfigError: It is no `nn.KMeans`, or of another network.
        DataError: There are fewer different points than clusters.
        ShapeError: The samples do not have the network's input shape.

    Examples:
        >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]])
        >>> net = loom.Sequential([nn.KMeans(2)], input_shape=2)
        >>> found = loom.analysis.initialize_kmeans(net, net[0, 0, 0, 0], x)
        >>> sorted(net[0, 0, 0, 0].centroids.tolist())
        [[0.0, 0.5], [8.0, 0.5]]
    """
    (found,) = find_layers(net, [layer])
    if found.kind != "kmeans":
        raise ConfigError(f"initialize_kmeans sets an nn.KMeans layer; layer {found.path} is {found.kind}")
    (values,) = layer_values(net, [(found, "input")], x, batch_size=batch_size)
    clusters = len(found.parameters["centroids"])
    result = kmeans(
        values.reshape(-1, values.shape[-1]), clusters, seed=seed, starts=starts, silhouette=False
    )
    found.parameters["centroids"] = result.centroids
    return result
