"""What the units of a layer make of samples: activations as arrays, and their clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike, RealArray
from loom.engine import engine_of
from loom.errors import CellIndexError, ConfigError, DataError
from loom.network import Network
from loom.network.layers import LayerHandle
from loom.reports.clustering import Clusters, kmeans

__all__ = [
    "LayerLike",
    "cluster_units",
    "initialize_kmeans",
    "layer_values",
    "layers_named",
    "unit_activations",
]

LayerLike: TypeAlias = "LayerHandle | str | Sequence[int]"
"""A layer of a network: its handle, its path "z.y.x.l", or (z, y, x, l)."""


def unit_activations(
    net: Network, layer: LayerLike, x: ArrayLike, *, axis: int | None = None, batch_size: int = 256
) -> RealArray:
    """Returns what the units of a layer give for samples, dropout off.

    The network's layers then show the last batch of these samples, as after `forward(x, training=False)`.

    Args:
        net: The network.
        layer: The layer: its handle, "z.y.x.l" or (z, y, x, l).
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
    (found,) = layers_named(net, [layer])
    (values,) = layer_values(net, [found], x, batch_size=batch_size)
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
        layer: The layer: its handle, "z.y.x.l" or (z, y, x, l).
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
        layer: The layer: its handle, "z.y.x.l" or (z, y, x, l).
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
    (found,) = layers_named(net, [layer])
    if found.kind != "kmeans":
        raise ConfigError(f"initialize_kmeans sets an nn.KMeans layer; layer {found.path} is {found.kind}")
    (values,) = layer_values(net, [found], x, batch_size=batch_size, value="input")
    clusters = len(found.parameters["centroids"])
    result = kmeans(
        values.reshape(-1, values.shape[-1]), clusters, seed=seed, starts=starts, silhouette=False
    )
    found.parameters["centroids"] = result.centroids
    return result


def layers_named(net: Network, layers: Sequence[LayerLike] | None) -> list[LayerHandle]:
    """Finds layers of a network.

    Args:
        net: The network.
        layers: Handles, paths or places; all layers where None.

    Returns:
        Their handles.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: A handle is of another network, or the path of none.
    """
    known = {layer.path: layer for layer in net.layers}
    found = []
    for layer in known.values() if layers is None else layers:
        if isinstance(layer, LayerHandle):
            if engine_of(layer) is not engine_of(net):
                raise ConfigError(f"layer {layer.path} belongs to another network")
            found.append(layer)
        elif isinstance(layer, str):
            if layer not in known:
                raise unknown("layer", layer, known)
            found.append(known[layer])
        else:
            z, y, x, place = _place(layer)
            found.append(net[z, y, x, place])
    return found


def _place(layer: object) -> tuple[int, int, int, int]:
    place = tuple(layer) if isinstance(layer, Sequence) else ()
    if len(place) != 4:
        raise CellIndexError(f"a layer is its handle, its path or (z, y, x, l), got {layer!r}")
    z, y, x, index = place
    return z, y, x, index


def layer_values(
    net: Network,
    layers: Sequence[LayerHandle],
    x: ArrayLike,
    *,
    batch_size: int,
    value: Literal["activation", "input"] = "activation",
) -> list[NDArray[Any]]:
    """Returns what layers give, or read, for samples, dropout off.

    Args:
        net: The network.
        layers: The layers.
        x: (samples, *input_shape) what goes into the network.
        batch_size: How many samples are computed at a time.
        value: Which.

    Returns:
        For each layer (samples, ...).

    Raises:
        DataError: There are no samples, or no layers.
    """
    size = whole("analysis", "batch_size", batch_size, least=1)
    array = engine_of(net).as_input(x)
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"there are no samples to look at: x has shape {array.shape}")
    if not layers:
        raise DataError("the network has no layers to look at")
    parts: list[list[NDArray[Any]]] = [[] for _ in layers]
    for start in range(0, len(array), size):
        net.forward(array[start : start + size], training=False)
        for layer, kept in zip(layers, parts, strict=True):
            kept.append(getattr(layer, value))
    return [np.concatenate(kept) for kept in parts]
