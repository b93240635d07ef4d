"""Several inputs and outputs by name: where they enter, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from loom._settings.suggestions import shown, unknown
from loom._typing import Precision
from loom.architecture import Categories, InputConfig, NetworkConfig, OutputConfig, row_shape
from loom.engine import NetworkT, engine_of
from loom.errors import ConfigError
from loom.grid import Coordinate, Extents, as_grid, locate_given

__all__ = ["configured", "enter", "output"]


def configured(
    input_shape: int | Sequence[int | None] | None,
    grid: Sequence[int],
    precision: Precision,
    seed: int,
    inputs: Mapping[str, int | Sequence[int | None] | Categories] | None,
    outputs: Mapping[str, Sequence[int]] | None,
) -> NetworkConfig:
    """Returns the configuration of an empty network, with one input or several."""
    if (input_shape is None) is (inputs is None):
        raise ConfigError(
            "Network takes input_shape=, or several inputs by name, inputs={...}; give one of them"
        )
    extents = as_grid(grid)
    entries: tuple[InputConfig, ...] = ()
    if inputs is not None:
        given: object = inputs
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(f"Network: inputs must be shapes by name, got {shown(inputs)}")
        entries = tuple(InputConfig.of(name, given) for name, given in inputs.items())
        input_shape = row_shape(entries)
    leaves: object = outputs
    if leaves is not None and not isinstance(leaves, Mapping):
        raise ConfigError(f"Network: outputs must be cells by name, got {shown(outputs)}")
    leaving = tuple(OutputConfig(name, _cell(extents, cell)) for name, cell in (outputs or {}).items())
    shape = cast("int | Sequence[int | None]", input_shape)
    return NetworkConfig(shape, extents, precision=precision, seed=seed, inputs=entries, outputs=leaving)


def enter(self: NetworkT, name: str, cell: Sequence[int]) -> NetworkT:
    """Lets a named input enter a cell, in place of what the cell before hands on.

    Several inputs that enter one cell are put side by side, along the last axis, or the channels of images,
    in the order in which the network names them. What a cell hands on that the next one does not read goes
    where `link` and `output` send it.

    Args:
        name: The input's.
        cell: The cell: (depth, row, column), or (row, column) where the depth is 1.

    Returns:
        The network.

    Raises:
        ConfigError: There is no input of this name.
        CellIndexError: There is no such cell.

    Examples:
        >>> net = loom.Network(inputs={"size": 2, "color": loom.Categories(5)}, grid=(1, 3))
        >>> _ = net[0, 0].add(nn.Dense(4))
        >>> _ = net.enter("color", (0, 1))[0, 1].add(nn.Embedding(5, 4), nn.Flatten())
        >>> _ = net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(1))
        >>> net.predict({"size": np.ones((3, 2)), "color": [0, 1, 4]}).shape
        (3, 1)
    """
    engine = engine_of(self)
    entries = cast("tuple[InputConfig, ...]", engine.config.inputs)
    names = [entry.name for entry in entries]
    if name not in names:
        if not names:
            raise ConfigError("the network has one input without a name; Network(inputs={...}) names several")
        raise unknown("input", name, names)
    at = _cell(engine.grid, cell)
    engine.set_inputs([replace(entry, cell=at) if entry.name == name else entry for entry in entries])
    return self


def output(self: NetworkT, name: str, cell: Sequence[int]) -> NetworkT:
    """Makes what a cell hands on an output with a name.

    A network with named outputs gives a dictionary of arrays, and is trained towards one; each output has
    a loss of its own. What the cell hands on flows to the next cell all the same.

    Args:
        name: The output's.
        cell: The cell: (depth, row, column), or (row, column) where the depth is 1.

    Returns:
        The network.

    Raises:
        ConfigError: There is an output of this name already.
        CellIndexError: There is no such cell.

    Examples:
        >>> net = loom.Network(3, grid=(1, 2))
        >>> _ = net[0, 0].add(nn.Dense(4)), net[0, 1].add(nn.Dense(2))
        >>> _ = net.output("code", (0, 0)).output("kind", (0, 1))
        >>> {name: array.shape for name, array in net.predict(np.ones((1, 3))).items()}
        {'code': (1, 4), 'kind': (1, 2)}
    """
    engine = engine_of(self)
    outputs = cast("tuple[OutputConfig, ...]", engine.config.outputs)
    if any(entry.name == name for entry in outputs):
        raise ConfigError(f'the network has an output "{name}" already')
    engine.set_outputs([*outputs, OutputConfig(name, _cell(engine.grid, cell))])
    return self


def _cell(grid: Extents, cell: object) -> Coordinate:
    at, layer = locate_given(grid, cell)
    if layer is not None:
        raise ConfigError("inputs and outputs go to cells, (depth, row, column), not layers")
    return at
