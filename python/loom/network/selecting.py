"""Which layers and parameters of a network are meant: by name, kind, pattern, handle or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from loom._settings.suggestions import unknown
from loom.engine import HasEngine, engine_of
from loom.errors import ConfigError
from loom.grid import locate_given, place_in_cell
from loom.network.layers import LayerHandle, layers_of

__all__ = ["Selection", "Where", "layer_at", "select"]

Where: TypeAlias = "str | LayerHandle | Callable[[LayerHandle], object] | Iterable[str | LayerHandle]"
"""Names, kinds or patterns of them; layers; or a function that says of a layer whether it is meant."""

Selection: TypeAlias = "list[tuple[LayerHandle, tuple[str, ...] | None]]"
"""Layers in the order data flows, each with the names of parameters that are meant; None for all of it."""


def select(network: HasEngine, call: str, where: Where | None) -> Selection:
    """Finds the layers and parameters that are meant.

    Args:
        network: The network.
        call: Which call asks, for messages.
        where: A pattern such as "0.0.0.*" or "conv*": of layers' names and kinds, or, where no layer
            matches, of parameters' names, such as "*.bias"; a layer; several of these; or a function
            that takes a layer and says whether it is meant. All layers where None.

    Returns:
        What is meant.

    Raises:
        CellIndexError: A layer is not there any more.
        ConfigError: It is none of these, a pattern matches nothing, or a layer is of another network.
    """
    layers = layers_of(network)
    if where is None:
        return [(layer, None) for layer in layers]
    if callable(where):
        return [(layer, None) for layer in layers if where(layer)]
    entries = [where] if isinstance(where, (str, LayerHandle)) else where
    if not isinstance(entries, Iterable):
        raise ConfigError(_expected(call, where))
    found: dict[str, set[str] | None] = {}
    for entry in entries:
        for layer, names in _matching(network, call, entry, layers):
            known = found.get(layer.path, set())
            found[layer.path] = None if names is None or known is None else known | set(names)
    selection: Selection = []
    for layer in layers:
        if layer.path in found:
            meant = found[layer.path]
            ordered = None if meant is None else tuple(name for name in layer.parameters if name in meant)
            selection.append((layer, ordered))
    return selection


def _matching(network: HasEngine, call: str, entry: object, layers: list[LayerHandle]) -> Selection:
    if isinstance(entry, LayerHandle):
        return [(layer_at(network, entry), None)]
    if not isinstance(entry, str):
        raise ConfigError(_expected(call, entry))
    whole = [layer for layer in layers if fnmatchcase(layer.path, entry) or fnmatchcase(layer.kind, entry)]
    if whole:
        return [(layer, None) for layer in whole]
    named: Selection = []
    for layer in layers:
        names = tuple(name for name in layer.parameters if fnmatchcase(f"{layer.path}.{name}", entry))
        if names:
            named.append((layer, names))
    if not named:
        raise unknown("layer, kind of layer or parameter", entry, {layer.kind for layer in layers})
    return named


def _expected(call: str, given: object) -> str:
    return (
        f'{call} takes a pattern such as "0.0.0.*" or "conv2d", layers, several of these, or a function that '
        f"takes a layer and says whether it is meant; got {given!r}"
    )


def layer_at(network: HasEngine, given: LayerHandle | str | Sequence[int]) -> LayerHandle:
    """Returns the layer that a handle of the network, a name such as "0.0.0.3" or a place means.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: Something else is given, or the layer is of another network.
    """
    if isinstance(given, LayerHandle):
        if engine_of(given) is not engine_of(network):
            raise ConfigError(f"layer {given.path} ({given.kind}) is of another network")
        given = given.at
    elif isinstance(given, str):
        numbers = given.split(".")
        if len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
            raise ConfigError(f'a layer is named "depth.row.column.layer", such as "0.0.0.3", got "{given}"')
        given = [int(number) for number in numbers]
    engine = engine_of(network)
    at, place = locate_given(engine.grid, given)
    if place is None:
        raise ConfigError(f"expected a layer, (depth, row, column, layer), got the cell {tuple(given)}")
    return LayerHandle(network, at, place_in_cell(at, place, engine.native.cell_len(at)))
