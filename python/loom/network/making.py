"""Networks of one cell, and networks from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from loom import _native, nn
from loom._settings.calls import explained
from loom._settings.checks import file_path, flag, sequence
from loom._settings.suggestions import shown
from loom._typing import Precision
from loom.errors import ConfigError
from loom.network.network import Network, from_native
from loom.network.surgery import Insertable

__all__ = ["Sequential", "load"]

_SHAPE = (
    "a network is told the shape of one sample, without the batch: loom.Sequential([nn.Dense(8), "
    "nn.Dense(3)], input_shape=x.shape[1:])"
)


@explained(input_shape=_SHAPE, layers=_SHAPE)
def Sequential(  # noqa: N802 - reads like the network it makes
    layers: Iterable[Insertable],
    input_shape: int | Sequence[int | None],
    precision: Precision = "float32",
    seed: int = 0,
) -> Network:
    """Makes a network of one cell: layers in a row.

    Args:
        layers: The layers, in order; those of a network, `net.layers[2:]`, are copied with their weights.
        input_shape: One sample's extents, without the batch; None for open ones, as in `Network`.
        precision: "float32", "float64" or "mixed"; see `Network`.
        seed: What initial weights are drawn from.

    Returns:
        A network with a 1x1x1 grid.

    Raises:
        ConfigError: A setting is out of range, or something is no layer.

    Examples:
        >>> net = loom.Sequential([nn.Dense(16, activation="relu"), nn.Dense(3)], input_shape=4)
        >>> net.output_shape
        (3,)
    """
    if isinstance(input_shape, nn.Layer):
        raise ConfigError("layers go in one list: loom.Sequential([first, second], input_shape=...)")
    network = Network(input_shape, precision=precision, seed=seed)
    given: object = layers
    listed = None if isinstance(given, Mapping) else sequence(given)
    if listed is None:
        raise ConfigError(f"layers must be a list of layers, got {shown(layers)}; put it into [ ]")
    network[0, 0, 0].add(*listed)
    return network


def load(path: str | PathLike[str], verify: bool = True) -> Network:
    """Reads a network that `Network.save` wrote.

    Args:
        path: The file.
        verify: Whether what is read is compared with its checksums.

    Returns:
        The network.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, truncated, foreign, or of a later format.
    """
    return from_native(_native.Network.load(file_path("load", path), flag("load", "verify", verify)))
