"""The networks that estimators learn with: of widths, of layers, of a function, or like another network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from loom import nn
from loom._settings.checks import whole
from loom._settings.suggestions import shown
from loom._typing import Precision
from loom.activations import ActivationLike
from loom.errors import ConfigError
from loom.network import Network, Sequential
from loom.network.pickling import bare_copy

__all__ = ["Architecture", "Layers", "built", "hidden_layers"]

Layers: TypeAlias = "Sequence[nn.Layer | Mapping[str, Any]]"

Architecture: TypeAlias = "Network | Layers | Callable[[int, int], Network | Layers]"
"""What an estimator's network is made of, as its parameter `network` says."""


def hidden_layers(
    widths: Iterable[int], activation: ActivationLike, dropout: float
) -> list[nn.Layer | Mapping[str, Any]]:
    """Returns fully connected layers of some widths, each with its dropout where there is any."""
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Iterable):
        raise ConfigError(
            f"hidden must be the widths of the hidden layers, such as (64, 64), got {shown(widths)}"
        )
    layers: list[nn.Layer | Mapping[str, Any]] = []
    for width in widths:
        layers.append(nn.Dense(whole("hidden", "a width", width, least=1), activation=activation))
        if dropout:
            layers.append(nn.Dropout(dropout))
    return layers


def built(
    given: Architecture | None,
    default: Layers,
    n_features: int,
    n_outputs: int | None,
    precision: Precision,
    seed: int,
) -> Network:
    """Makes the network that learns.

    Args:
        given: The estimator's `network`; None for the default.
        default: The hidden layers of the default.
        n_features: How many numbers a sample has.
        n_outputs: How many numbers the network is to give; any where None, of a network that is there.
        precision: The arithmetic of a network that is made here.
        seed: What its initial weights are drawn from.

    Returns:
        The network, built; a copy of the one that was given.

    Raises:
        ConfigError: It reads or gives another number of numbers, or something else was given.
    """
    if isinstance(given, Network):
        network = bare_copy(given.build())
    elif n_outputs is None:
        raise ConfigError(f"expected a loom.Network, got {shown(given)}")
    else:
        asked: object = given
        layers: object = asked
        if asked is None:
            layers = [*default, nn.Dense(n_outputs)]
        elif callable(asked):
            layers = asked(n_features, n_outputs)
        elif isinstance(asked, Sequence) and not isinstance(asked, str):
            layers = [*asked, nn.Dense(n_outputs)]
        if isinstance(layers, Network):
            network = layers
        elif isinstance(layers, Sequence) and not isinstance(layers, str):
            network = Sequential(layers, n_features, precision=precision, seed=seed)
        else:
            raise ConfigError(
                "network must be a loom.Network, a list of hidden layers, or a function of n_features and "
                f"n_outputs that returns either with the output layer, got {shown(given)}"
            )
    network.build()
    if prod(network.input_shape) != n_features:
        raise ConfigError(
            f"the network reads {network.input_shape}, {prod(network.input_shape)} numbers a sample, "
            f"but X has {n_features} features"
        )
    if n_outputs is not None and network.output_shape != (n_outputs,):
        raise ConfigError(
            f"the network gives {network.output_shape} for a sample, but {(n_outputs,)} are needed here: end "
            f"it with nn.Dense({n_outputs}), without activation"
        )
    return network
