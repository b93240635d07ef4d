"""Which layers and parameters of a network are meant: by name, kind, pattern, handle or a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from loom._settings.checks import sequence
from loom._settings.suggestions import shown, unknown
from loom.engine import HasEngine, engine_of
from loom.errors import ConfigError
from loom.grid import locate_given, place_in_cell
from loom.network.layers import InnerLayerHandle, LayerHandle, layers_of

__all__ = ["LayerLike", "Selection", "Where", "find_layers", "layer_at", "select"]

LayerLike: TypeAlias = "LayerHandle | str | Sequence[int]"
"""A layer of a network: its handle, its path such as "z.y.x.l" or "z.y.x.l.layers.0", or (z, y, x, l)."""

Where: TypeAlias = "str | LayerHandle | Callable[[LayerHandle], object] | Iterable[str | LayerHandle]"
"""Names, kinds or patterns of them; layers; or a function that says of a layer whether it is meant."""

Selection: TypeAlias = "list[tuple[LayerHandle, tuple[str, ...] | None]]"
"""Layers in the order data flows, each with the names of parameters that are meant; None for all of it."""


def select(network: HasEngine, call: str, where: Where | None) -> Selection:
    """Finds the layers and parameters that are meant.

    Args:
        network: The network.
        call: Which call asks, for messages.
        where: A pattern such as "0.0.0.*" or "conv*": of the names and kinds of layers, also inside others,
            or, where no layer matches, of parameters' names, such as "*.bias"; a layer; several of these;
            or a function that takes a layer of a cell and says whether it is meant. All layers where None.

    Returns:
        What is meant; of a layer inside another its parameters.

    Raises:
        CellIndexError: A layer is not there any more.
        ConfigError: It is none of these, a pattern matches nothing, or a layer is of another network.
    """
    layers = layers_of(network)
    if where is None:
        return [(layer, None) for layer in layers]
    if callable(where):
        return [(layer, None) for layer in layers if where(layer)]
    entries: Any = [where] if isinstance(where, (str, LayerHandle)) else sequence(where)
    if entries is None:
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
        return [_meant(layer_at(network, entry))]
    if not isinstance(entry, str):
        raise ConfigError(_expected(call, entry))

    def matches(layer: LayerHandle) -> bool:
        return fnmatchcase(layer.path, entry) or fnmatchcase(layer.kind, entry)

    named: Selection = []
    for layer in layers:
        # Only to look inside needs a network whose layers fit together.
        if matches(layer):
            named.append((layer, None))
        elif layer.holds_layers:
            named += [_meant(inner) for inner in layer.inner if matches(inner)]
    if named:
        return named
    for layer in layers:
        names = tuple(name for name in layer.parameters if fnmatchcase(f"{layer.path}.{name}", entry))
        if names:
            named.append((layer, names))
    if not named:
        raise unknown("layer, kind of layer or parameter", entry, {layer.kind for layer in layers})
    return named


def _meant(layer: LayerHandle) -> tuple[LayerHandle, tuple[str, ...] | None]:
    if isinstance(layer, InnerLayerHandle):
        return layer.whole, tuple(layer.prefix + name for name in layer.parameters)
    return layer, None


def _expected(call: str, given: object) -> str:
    return (
        f'{call} takes a pattern such as "0.0.0.*" or "conv2d", layers, several of these, or a function that '
        f"takes a layer and says whether it is meant; got {given!r}"
    )


def find_layers(network: HasEngine, layers: Sequence[LayerLike] | None) -> list[LayerHandle]:
    """Finds layers of a network, those inside others as well.

    Args:
        network: The network.
        layers: Handles, paths or places; every layer of every cell where None.

    Returns:
        Their handles.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: A handle is of another network, or the path of none.
    """
    if layers is None:
        return layers_of(network)
    if isinstance(layers, LayerHandle | str) or not isinstance(layers, Sequence):
        raise ConfigError(f"layers is a list of layers, such as [net[0, 0, 0, 0]], got {shown(layers)}")
    return [layer_at(network, layer) for layer in layers]


# Nothing has a place of more digits, and Python reads numbers of a few thousand alone.
_PATH = re.compile(r"([0-9]{1,99})\.([0-9]{1,99})\.([0-9]{1,99})\.([0-9]{1,99})(?:\.(.+))?")


def layer_at(network: HasEngine, given: LayerLike) -> LayerHandle:
    """Returns the layer that a handle of the network, a path such as "0.0.0.3" or a place means.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: Something else is given, the layer is of another network, or a path leads to no
            layer inside another.
    """
    name = ""
    if isinstance(given, LayerHandle):
        if engine_of(given) is not engine_of(network):
            raise ConfigError(f"layer {given.path} ({given.kind}) is of another network")
        name, given = given.prefix[:-1], given.at
    elif isinstance(given, str):
        path = _PATH.fullmatch(given)
        if path is None:
            raise ConfigError(
                f'a layer is named "depth.row.column.layer", such as "0.0.0.3" or, inside another, '
                f'"0.0.0.3.layers.1", got "{given}"'
            )
        *numbers, name = path.groups(default="")
        given = [int(number) for number in numbers]
    elif isinstance(given, int):
        raise ConfigError(
            f"a layer is not a number here: net.layers[{shown(given)}] is the layer that is meant"
        )
    engine = engine_of(network)
    at, place = locate_given(engine.grid, given)
    if place is None:
        raise ConfigError(f"expected a layer, (depth, row, column, layer), got the cell {tuple(given)}")
    layer = LayerHandle(network, at, place_in_cell(at, place, engine.native.cell_len(at)))
    if not name:
        return layer
    inner = {handle.path: handle for handle in layer.inner}
    if f"{layer.path}.{name}" not in inner:
        raise unknown("layer", f"{layer.path}.{name}", inner)
    return inner[f"{layer.path}.{name}"]
