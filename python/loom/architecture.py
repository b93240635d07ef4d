"""What a network is made of, as plain configuration that goes to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from loom import nn
from loom._settings.checks import choice, flag, items, real, whole
from loom._settings.encoding import Plain
from loom._settings.suggestions import shown
from loom._typing import JSON, Precision
from loom.errors import ConfigError
from loom.grid import as_grid, as_open_shape
from loom.nn.composite import as_layer

__all__ = [
    "AdapterSettings",
    "Categories",
    "CellConfig",
    "InputConfig",
    "LayerSettings",
    "LinkConfig",
    "NetworkConfig",
    "OutputConfig",
    "ParameterSettings",
    "as_layer",
    "row_shape",
]

PlainT = TypeVar("PlainT", bound=Plain)


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
        object.__setattr__(self, "at", _place("CellConfig", "at", self.at, "depth, row, column"))
        object.__setattr__(
            self, "layers", tuple(map(as_layer, _several("CellConfig", "layers", self.layers)))
        )


@dataclass(frozen=True)
class LinkConfig(Plain):
    """A cell's output handed to another cell, beside what flows there anyway.

    Args:
        source: The cell whose output is handed over: (depth, row, column).
        target: The cell that gets it.
        combine: "add" or "multiply" (shapes must be equal), "concat", "context": the second input of
            those layers of the target cell that take one, or "replace": in place of what flows there, so
            that a branch begins.
        axis: For concat: the axis; the last, or the channels of images and volumes, where None.

    Raises:
        ConfigError: A coordinate is malformed or the mode unknown.
    """

    source: Sequence[int]
    target: Sequence[int]
    combine: str = "add"
    axis: int | None = None

    def __post_init__(self) -> None:
        where = "LinkConfig"
        for name in ("source", "target"):
            object.__setattr__(self, name, _place(where, name, getattr(self, name), "depth, row, column"))
        combine = choice(where, "combine", self.combine, ("add", "multiply", "concat", "context", "replace"))
        object.__setattr__(self, "combine", combine)
        if self.axis is not None:
            if combine != "concat":
                raise ConfigError(f'{where}: axis goes with combine="concat" alone')
            object.__setattr__(self, "axis", whole(where, "axis", self.axis, least=0))


@dataclass(frozen=True)
class Categories(Plain):
    """An input of whole numbers, each one of so many categories: what an `nn.Embedding` reads.

    Args:
        count: How many categories there are: the numbers go from 0 to count - 1.
        length: How many numbers one sample has; a sample of one may come without an axis. None leaves that
            open: sequences of any length.

    Raises:
        ConfigError: A number is not positive.

    Examples:
        >>> loom.Categories(40).length
        1
    """

    count: int
    length: int | None = 1

    def __post_init__(self) -> None:
        for name in ("count", "length"):
            given = getattr(self, name)
            if name == "count" or given is not None:
                object.__setattr__(self, name, whole("Categories", name, given, least=1))


@dataclass(frozen=True)
class InputConfig(Plain):
    """An input with a name.

    Args:
        name: What it is called.
        shape: One sample's extents, without the batch; None for those that differ from call to call.
        cell: The cell it enters: (depth, row, column); the first input enters the first cell where None.
        categories: What its whole numbers are below; real numbers where None.

    Raises:
        ConfigError: A setting is out of range.
    """

    name: str
    shape: int | Sequence[int | None]
    cell: Sequence[int] | None = None
    categories: int | None = None

    def __post_init__(self) -> None:
        where = f"input {shown(self.name)}"
        object.__setattr__(self, "name", _name("input", self.name))
        try:
            object.__setattr__(self, "shape", as_open_shape(self.shape))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if self.cell is not None:
            object.__setattr__(self, "cell", _place(where, "cell", self.cell, "depth, row, column"))
        if self.categories is not None:
            object.__setattr__(self, "categories", whole(where, "categories", self.categories, least=1))

    @classmethod
    def of(cls, name: str, given: int | Sequence[int | None] | Categories) -> InputConfig:
        """Returns the input that an entry of `inputs=` means."""
        if isinstance(given, Categories):
            return cls(name, (given.length,), categories=given.count)
        return cls(name, given)


@dataclass(frozen=True)
class OutputConfig(Plain):
    """What a cell hands on, as an output with a name.

    Args:
        name: What it is called.
        cell: The cell it comes from: (depth, row, column).

    Raises:
        ConfigError: A setting is out of range.
    """

    name: str
    cell: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name("output", self.name))
        where = f"output {shown(self.name)}"
        object.__setattr__(self, "cell", _place(where, "cell", self.cell, "depth, row, column"))


@dataclass(frozen=True)
class ParameterSettings(Plain):
    """How one parameter is stored, where that is not as its layer is.

    Args:
        dtype: Its numeric type; the network's own for the master.
        granularity: Which of its elements share a scale; as the type has it where None.
        calibration: How its scales are found: "absmax", "percentile(p)" or "mse".
        rounding: How it is rounded to codes: "nearest" or "stochastic".
        activations: The numeric type that inference quantises what it multiplies to: "int8", or None to
            leave that in float.
    """

    dtype: str
    granularity: str | None = None
    calibration: str = "absmax"
    rounding: str = "nearest"
    activations: str | None = None


@dataclass(frozen=True)
class AdapterSettings(Plain):
    """An adapter beside weights of one layer; see `Network.add_adapter`.

    Args:
        name: What it is called.
        rank: How many numbers lie between its two factors.
        alpha: What its scale is made of.
        parameters: The names of the weights in the layer.
        dropout: The probability that training zeroes what it reads.
        rank_stabilized: Whether alpha is divided by the root of the rank, instead of by the rank.
        decomposed: Whether it gives outputs lengths of its own (DoRA).
        active: Whether the layer computes with it.
        trainable: Whether an optimizer may move it.

    Raises:
        ConfigError: A setting is out of range.
    """

    name: str
    rank: int
    alpha: float
    parameters: Sequence[str]
    dropout: float = 0.0
    rank_stabilized: bool = False
    decomposed: bool = False
    active: bool = True
    trainable: bool = True

    def __post_init__(self) -> None:
        where = "AdapterSettings"
        names = items(self.parameters)
        if names is None or not names or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{where}: parameters must be names of weights, got {shown(self.parameters)}")
        settings = {
            "name": _name("adapter", self.name),
            "rank": whole(where, "rank", self.rank, least=1, most=1 << 16),
            "alpha": real(where, "alpha", self.alpha),
            "dropout": real(where, "dropout", self.dropout, least=0.0, below=1.0),
            "rank_stabilized": flag(where, "rank_stabilized", self.rank_stabilized),
            "decomposed": flag(where, "decomposed", self.decomposed),
            "parameters": tuple(str(name) for name in names),
            "active": flag(where, "active", self.active),
            "trainable": flag(where, "trainable", self.trainable),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class LayerSettings(Plain):
    """How one layer is trained and stored, where that is not the usual.

    Args:
        at: Where the layer is: (depth, row, column, place in the cell).
        trainable: Whether an optimizer may move its weights.
        frozen: The parameters that no optimizer may move, though the layer is trained.
        rate_factor: Multiplies the learning rate.
        dtype: The numeric type that it computes from; the network's where None.
        granularity: Which of its weights share a scale; as the type has it where None.
        calibration: How their scales are found: "absmax", "percentile(p)" or "mse".
        rounding: How its weights are rounded to codes: "nearest" or "stochastic".
        activations: The numeric type that inference quantises activations to: "int8", or None to leave
            them in float.
        parameters: What holds for single parameters, by name, instead.
        adapters: What stands beside its weights.

    Raises:
        ConfigError: A setting is out of range.
    """

    at: Sequence[int]
    trainable: bool = True
    frozen: Sequence[str] = ()
    rate_factor: float = 1.0
    dtype: str | None = None
    granularity: str | None = None
    calibration: str = "absmax"
    rounding: str = "nearest"
    activations: str | None = None
    parameters: Mapping[str, ParameterSettings | Mapping[str, Any]] = field(default_factory=dict)
    adapters: Sequence[AdapterSettings | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        settings = {
            "at": _place("LayerSettings", "at", self.at, "depth, row, column, layer"),
            "trainable": flag("LayerSettings", "trainable", self.trainable),
            "frozen": _names(self.frozen),
            "rate_factor": real("LayerSettings", "rate_factor", self.rate_factor, least=0.0),
            "parameters": _parameters(self.parameters),
            "adapters": tuple(
                _made(AdapterSettings, entry)
                for entry in _several("LayerSettings", "adapters", self.adapters)
            ),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class NetworkConfig(Plain):
    """A network without its weights.

    Args:
        input_shape: One sample's extents, without the batch; None for those that differ from call to call.
        grid: (depth, rows, columns), or (rows, columns) where depth is 1.
        cells: The cells that hold layers; kept in the order data flows.
        precision: "float32", "float64" or "mixed".
        seed: What the initial weights are drawn from.
        settings: The layers that are trained or stored in another way than usual.
        links: Cells' outputs handed to other cells, in the order in which they are taken.
        inputs: Inputs with names; `input_shape` is then that of a row that holds all of them, flat, and open
            where an extent of any is.
        outputs: Outputs with names.

    Raises:
        ConfigError: A setting is out of range, a cell lies outside the grid or
            is named twice, or a layer is unknown.

    Examples:
        >>> cell = CellConfig((0, 0, 0), [nn.Dense(2)])
        >>> config = NetworkConfig(input_shape=(8,), grid=(1, 1), cells=[cell])
        >>> NetworkConfig.from_config(config.to_config()) == config
        True
    """

    input_shape: int | Sequence[int | None]
    grid: Sequence[int] = (1, 1, 1)
    cells: Sequence[CellConfig | Mapping[str, Any]] = ()
    precision: Precision = "float32"
    seed: int = 0
    settings: Sequence[LayerSettings | Mapping[str, Any]] = ()
    links: Sequence[LinkConfig | Mapping[str, Any]] = ()
    inputs: Sequence[InputConfig | Mapping[str, Any]] = ()
    outputs: Sequence[OutputConfig | Mapping[str, Any]] = ()

    def to_config(self) -> dict[str, JSON]:
        """Returns the settings as plain JSON values."""
        settings = super().to_config()
        # A network that has none is described as it always was.
        return {name: value for name, value in settings.items() if value or name not in {"inputs", "outputs"}}

    def __post_init__(self) -> None:
        where = "NetworkConfig"
        grid = as_grid(self.grid)
        cells = [_made(CellConfig, cell) for cell in _several(where, "cells", self.cells)]
        seen: set[tuple[int, ...]] = set()
        for cell in cells:
            at = tuple(cell.at)
            if any(number >= extent for number, extent in zip(at, grid, strict=True)):
                raise ConfigError(f"{where}: cell {at} lies outside the grid {grid}")
            if at in seen:
                raise ConfigError(f"{where}: cell {at} is named twice")
            seen.add(at)
        filled = sorted((cell for cell in cells if cell.layers), key=lambda cell: tuple(cell.at))
        settings = {
            "input_shape": as_open_shape(self.input_shape),
            "grid": grid,
            "cells": tuple(filled),
            "precision": choice(where, "precision", self.precision, ("float32", "float64", "mixed")),
            "seed": whole(where, "seed", self.seed, least=0),
            "settings": tuple(
                _made(LayerSettings, entry) for entry in _several(where, "settings", self.settings)
            ),
            "links": tuple(_made(LinkConfig, link) for link in _several(where, "links", self.links)),
            "inputs": tuple(_made(InputConfig, entry) for entry in _several(where, "inputs", self.inputs)),
            "outputs": tuple(
                _made(OutputConfig, entry) for entry in _several(where, "outputs", self.outputs)
            ),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)


def _made(kind: type[PlainT], given: PlainT | Mapping[str, Any]) -> PlainT:
    return given if isinstance(given, kind) else kind.from_config(cast("Mapping[str, Any]", given))


def _several(where: str, name: str, value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - checked one by one
    if not isinstance(value, (str, bytes, Mapping)):
        # Also of arrays, of which those without axes only look like lists.
        with suppress(TypeError):
            return tuple(value)
    raise ConfigError(f"{where}: {name} must be a list, got {shown(value)}")


def _place(where: str, name: str, value: object, axes: str) -> tuple[int, ...]:
    numbers = items(value)
    if numbers is None or len(numbers) != axes.count(",") + 1:
        raise ConfigError(f"{where}: {name} must be ({axes}), got {shown(value)}")
    return tuple(whole(where, name, number, least=0) for number in numbers)


def _name(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the name of an {what} must be a text, got {shown(value)}")
    return value


def _names(value: Sequence[str]) -> tuple[str, ...]:
    names = items(value)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"LayerSettings: frozen must be names of parameters, got {shown(value)}")
    return tuple(str(name) for name in names)


def _parameters(value: object) -> dict[str, ParameterSettings]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"LayerSettings: parameters must be settings by name, got {shown(value)}")
    return {name: _made(ParameterSettings, entry) for name, entry in value.items()}


def row_shape(inputs: Sequence[InputConfig]) -> tuple[int | None, ...]:
    """Returns the extents of a row that holds all inputs, flat.

    Args:
        inputs: The inputs.
    """
    shapes = [cast("tuple[int | None, ...]", entry.shape) for entry in inputs]
    if any(None in shape for shape in shapes):
        return (None,)
    return (sum(math.prod(cast("tuple[int, ...]", shape)) for shape in shapes),)
