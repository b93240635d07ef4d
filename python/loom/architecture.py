"""What a network is made of, as plain configuration that goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom import nn
from loom._checks import choice, flag, items, real, whole
from loom._config import Plain
from loom.errors import ConfigError
from loom.grid import as_grid, as_shape, coordinates

__all__ = ["CellConfig", "LayerSettings", "NetworkConfig", "as_layer"]


@dataclass(frozen=True)
class CellConfig(Plain):
    """The layers of one cell.

    Args:
        at: Where the cell is: (depth, row, column).
        layers: Its layers, in order.

    Raises:
        ConfigError: The coordinate is malformed or a layer unknown.
    """

    at: Sequence[int]
    layers: Sequence[nn.Layer | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        numbers = items(self.at)
        if numbers is None or len(numbers) != 3:
            raise ConfigError(f"CellConfig: at must be (depth, row, column), got {self.at!r}")
        at = tuple(whole("CellConfig", "at", number, least=0) for number in numbers)
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "layers", tuple(as_layer(layer) for layer in self.layers))


@dataclass(frozen=True)
class LayerSettings(Plain):
    """How one layer is trained and stored, where that is not the usual.

    Args:
        at: Where the layer is: (depth, row, column, place in the cell).
        trainable: Whether an optimizer may move its weights.
        rate_factor: Multiplies the learning rate.
        dtype: The numeric type that it computes from; the network's where None.

    Raises:
        ConfigError: A setting is out of range.
    """

    at: Sequence[int]
    trainable: bool = True
    rate_factor: float = 1.0
    dtype: str | None = None

    def __post_init__(self) -> None:
        numbers = items(self.at)
        if numbers is None or len(numbers) != 4:
            raise ConfigError(f"LayerSettings: at must be (depth, row, column, layer), got {self.at!r}")
        settings = {
            "at": tuple(whole("LayerSettings", "at", number, least=0) for number in numbers),
            "trainable": flag("LayerSettings", "trainable", self.trainable),
            "rate_factor": real("LayerSettings", "rate_factor", self.rate_factor, least=0.0),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class NetworkConfig(Plain):
    """A network without its weights.

    Args:
        input_shape: One sample's extents, without the batch.
        grid: (depth, rows, columns), or (rows, columns) where depth is 1.
        cells: The cells that hold layers; kept in the order data flows.
        precision: "float32" or "float64".
        seed: What the initial weights are drawn from.
        settings: The layers that are trained or stored in another way than usual.

    Raises:
        ConfigError: A setting is out of range, a cell lies outside the grid or
            is named twice, or a layer is unknown.

    Examples:
        >>> cell = CellConfig((0, 0, 0), [nn.Dense(2)])
        >>> config = NetworkConfig(input_shape=(8,), grid=(1, 1), cells=[cell])
        >>> NetworkConfig.from_config(config.to_config()) == config
        True
    """

    input_shape: int | Sequence[int]
    grid: Sequence[int] = (1, 1, 1)
    cells: Sequence[CellConfig | Mapping[str, Any]] = ()
    precision: str = "float32"
    seed: int = 0
    settings: Sequence[LayerSettings | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        where = "NetworkConfig"
        grid = as_grid(self.grid)
        cells = [
            cell if isinstance(cell, CellConfig) else CellConfig.from_config(cell) for cell in self.cells
        ]
        order = {at: place for place, at in enumerate(coordinates(grid))}
        seen: set[tuple[int, ...]] = set()
        for cell in cells:
            at = tuple(cell.at)
            if at not in order:
                raise ConfigError(f"{where}: cell {at} lies outside the grid {grid}")
            if at in seen:
                raise ConfigError(f"{where}: cell {at} is named twice")
            seen.add(at)
        filled = sorted((cell for cell in cells if cell.layers), key=lambda cell: order[_at(cell)])
        settings = {
            "input_shape": as_shape(self.input_shape),
            "grid": grid,
            "cells": tuple(filled),
            "precision": choice(where, "precision", self.precision, ("float32", "float64")),
            "seed": whole(where, "seed", self.seed, least=0),
            "settings": tuple(
                entry if isinstance(entry, LayerSettings) else LayerSettings.from_config(entry)
                for entry in self.settings
            ),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)


def _at(cell: CellConfig) -> tuple[int, int, int]:
    z, y, x = cell.at
    return z, y, x


def as_layer(layer: object) -> nn.Layer:
    """Returns the layer that something stands for.

    Args:
        layer: A layer, its JSON form, or an activation function.

    Returns:
        The layer.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(layer, nn.Layer):
        return layer
    if isinstance(layer, Mapping):
        return nn.layer_from_config(layer)
    if isinstance(layer, nn.ActivationFunction):
        return nn.Activation(layer)
    raise ConfigError(f"expected a layer such as nn.Dense(10), got {layer!r}")
