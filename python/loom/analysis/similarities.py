"""How alike the layers of two networks are."""

from __future__ import annotations

from collections.abc import Sequence

from loom._typing import ArrayLike
from loom.network import Network
from loom.network.layers import LayerHandle
from loom.network.looking import layer_values
from loom.network.selecting import LayerLike, find_layers
from loom.reports.similarity import Similarity, alignments

__all__ = ["similarity"]


def similarity(
    net_a: Network,
    net_b: Network,
    x: ArrayLike,
    *,
    layers_a: Sequence[LayerLike] | None = None,
    layers_b: Sequence[LayerLike] | None = None,
    batch_size: int = 256,
) -> Similarity:
    """Compares what the layers of two networks make of the same samples, by linear CKA.

    The activations of all these layers are held at once: a few hundred samples say as much as many.

    Args:
        net_a: A network.
        net_b: Another one that reads the same; or the same, to compare its layers with each other.
        x: (samples, *input_shape) what goes into both; see `cka` for how many.
        layers_a: Which layers of the first: handles, those inside others as well, paths such as
            "z.y.x.l.layers.0", or (z, y, x, l); every layer of every cell where None.
        layers_b: Which layers of the second.
        batch_size: How many samples are computed at a time.

    Returns:
        The similarity of every pair of layers.

    Raises:
        CellIndexError: A network has no such layer.
        ConfigError: A layer is of another network.
        DataError: There are fewer than two samples.
        ShapeError: The samples do not have a network's input shape.
        NonFiniteError: They, or activations, hold NaN or infinity.

    Examples:
        >>> nets = [loom.Sequential([nn.Dense(8), nn.Dense(3)], input_shape=4, seed=s) for s in (0, 1)]
        >>> found = loom.analysis.similarity(*nets, np.random.default_rng(0).normal(size=(64, 4)))
        >>> found.first, found.matrix.shape
        (('0.0.0.0 dense', '0.0.0.1 dense'), (2, 2))
    """
    first, second = find_layers(net_a, layers_a), find_layers(net_b, layers_b)
    mine = layer_values(net_a, [(layer, "output") for layer in first], x, batch_size=batch_size)
    other = layer_values(net_b, [(layer, "output") for layer in second], x, batch_size=batch_size)
    return Similarity(len(mine[0]), _names(first), _names(second), alignments(mine, other))


def _names(layers: Sequence[LayerHandle]) -> tuple[str, ...]:
    return tuple(f"{layer.path} {layer.kind}" for layer in layers)
