"""Layers put into cells and taken out of them, and networks cut short; weights go along."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from loom import _native, nn
from loom._settings.calls import explained
from loom._settings.suggestions import shown, unknown
from loom.architecture import LinkConfig, NetworkConfig, OutputConfig, as_layer, row_shape
from loom.engine import HasEngine, engine_of
from loom.engine.told import tell, told
from loom.errors import ConfigError, InvalidValueError, ShapeError
from loom.grid import Coordinate
from loom.network.layers import LayerHandle
from loom.network.pickling import Restored, around
from loom.network.selecting import layer_at
from loom.training.record import record_of

__all__ = ["Insertable", "append", "cut", "popped", "put", "resized"]

Insertable: TypeAlias = "nn.Layer | Mapping[str, Any] | LayerHandle"
"""A layer's configuration, whose weights are drawn, or a layer in its place, whose weights are copied."""


class _Growing(Restored, HasEngine, Protocol):
    """What is asked of a network that others are made of."""


NetworkT = TypeVar("NetworkT", bound=_Growing)


def put(network: HasEngine, at: tuple[int, int, int, int], layer: Insertable, *, replaces: bool) -> None:
    """Puts a layer into a place, before the layer that is there or in its stead; or, after an error, not.

    Args:
        network: The network.
        at: Depth, row, column, and the place in the cell.
        layer: What is put in.
        replaces: Whether the layer that is there goes.
    """
    engine = engine_of(network)
    what = "putting a layer in"
    engine.check_idle(what)
    pieces = []
    if isinstance(layer, LayerHandle):
        copy = _native.copy_layer(engine_of(layer).native, layer.at)
        # Of a layer inside another the copy of that one has more than is taken.
        described = json.dumps(layer.config.to_config()) if layer.prefix else copy.config()
        pieces = [(copy, layer.prefix[:-1], "")]
    else:
        described = json.dumps(as_layer(layer).to_config())
    change = _native.replace_layer if replaces else _native.insert_layer
    engine.rearrange(what, lambda native: change(native, at, described, pieces))


def append(network: HasEngine, at: Coordinate, layers: Sequence[Insertable]) -> None:
    """Puts layers at the end of a cell; all of them or, after an error, none.

    Args:
        network: The network.
        at: The cell.
        layers: What is put in.
    """
    engine = engine_of(network)
    if not any(isinstance(layer, LayerHandle) for layer in layers):
        engine.add(at, cast("Sequence[nn.Layer | Mapping[str, Any]]", layers))
        return
    before = engine.native.cell_len(at)
    try:
        for place, layer in enumerate(layers, before):
            put(network, (*at, place), layer, replaces=False)
    except BaseException:
        while (count := engine.native.cell_len(at)) > before:
            engine.rearrange("taking a layer out", partial(_native.remove_layer, at=(*at, count - 1)))
        raise


def popped(layer: LayerHandle, network: HasEngine) -> LayerHandle:
    """Takes a layer out of its network; returns it in a network of its own, with all that belongs to it."""
    engine = engine_of(network)
    what = "taking a layer out"
    engine.check_idle(what)
    config = engine.config
    described, pieces, shape = json.dumps(layer.config.to_config()), [], None
    try:
        copy = _native.copy_layer(engine.native, layer.at)
    except (InvalidValueError, ShapeError):
        # The layers do not fit together, and never did: there are no weights yet.
        pass
    else:
        described, pieces, shape = copy.config(), [(copy, "", "")], copy.input_shape()
    alone = NetworkConfig(shape or config.input_shape, precision=config.precision, seed=config.seed)
    native = _native.Network(json.dumps(alone.to_config()))
    _native.insert_layer(native, (0, 0, 0, 0), described, pieces)
    engine.rearrange(what, lambda native: _native.remove_layer(native, layer.at))
    return LayerHandle(around(cast("type[_Growing]", type(network)), native), (0, 0, 0), 0)


def resized(
    self: NetworkT, input_shape: int | Sequence[int | None] | Mapping[str, int | Sequence[int | None]]
) -> NetworkT:
    """Returns a new network with these layers and weights for inputs of other extents.

    All that belongs to its layers comes along: what they keep and carry, packed weights as they are, with or
    without masters, what was calibrated and what is frozen; and links, the card, and what training judged it
    by. No optimizer state does. So a network of open extents becomes one of fixed ones, for whatever needs
    those, and the other way round.

    Args:
        input_shape: One sample's extents, without the batch; None for open ones. Of named inputs a dictionary
            of extents; those that are left out stay.

    Returns:
        The new network, on the CPU; training it does not move this one.

    Raises:
        ShapeError: A layer's parameters would have other shapes.
        ConfigError: The extents are none, or are not given by name where inputs have names.

    Examples:
        >>> net = loom.Sequential([nn.LSTM(4), nn.Dense(2)], input_shape=(None, 3))
        >>> fixed, x = net.resized((7, 3)), np.ones((2, 7, 3))
        >>> fixed.input_shape, bool((fixed.predict(x) == net.predict(x)).all())
        ((7, 3), True)
    """
    engine = engine_of(self)
    engine.check_thread()
    named: Any = engine.config.inputs
    if named and not isinstance(input_shape, Mapping):
        names = ", ".join(f'"{entry.name}"' for entry in named)
        raise ConfigError(f"resized: the network has named inputs; give extents by name, of {names}")
    if not named and isinstance(input_shape, Mapping):
        raise ConfigError(
            f"resized: the network has one input without a name; give its extents, got {shown(input_shape)}"
        )
    if isinstance(input_shape, Mapping):
        for name in input_shape:
            if name not in [entry.name for entry in named]:
                raise unknown("resized: input", name, [entry.name for entry in named])
        inputs = [replace(entry, shape=input_shape.get(entry.name, entry.shape)) for entry in named]
        config = replace(engine.config, input_shape=row_shape(inputs), inputs=inputs)
    else:
        config = replace(engine.config, input_shape=input_shape)
    # Layers are copied as they are: what their weights are packed as need not follow from the masters, which
    # may have been dropped.
    bare = replace(config, cells=(), links=(), outputs=(), settings=())
    made = around(type(self), _native.Network(json.dumps(bare.to_config())))
    _fill(made, self, engine.layer_places(), cast("tuple[LinkConfig, ...]", config.links))
    other = engine_of(made)
    if config.outputs:
        other.set_outputs(cast("tuple[OutputConfig, ...]", config.outputs))
    other.build()
    tell(other.native, told(engine.native))
    record_of(made).judged_by = record_of(self).judged_by
    return made


@explained(start="layers behind one are loom.Sequential(net.layers[2:], input_shape=...), with their weights")
def cut(self: NetworkT, until: LayerHandle | str | Sequence[int]) -> NetworkT:
    """Returns a new network of the layers up to one, and including it: a feature extractor.

    Weights are copied, and all else that belongs to the layers: what they keep and carry, their numeric
    types, what is frozen, the factors of their rates. The grid stays, so that every layer has the name
    that it has here; the cells behind the last layer are empty, and can be filled. Links among what is
    kept are kept, and inputs that enter there; names of outputs are not, for the one output is what the last
    layer makes. The new network is on the CPU and has no optimizer state.

    Args:
        until: The last layer that is kept: `net.layers[3]`, its name, "0.0.0.3", or its place,
            (depth, row, column, place in the cell).

    Returns:
        The new network; training it does not move this one.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: Something else is given; a layer that is kept uses the parameters of one that is not;
            or a link into what is kept comes from what is not.
        ShapeError: The layers do not fit together.
        InvalidValueError: A branch that is kept goes nowhere without what is cut off.
        StateError: The network is training in another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=3)
        >>> features = net.cut(until="0.0.0.0")
        >>> features.output_shape
        (8,)
        >>> _ = features[0, 0, 0].add(nn.Dense(5))
        >>> features.output_shape
        (5,)
    """
    engine = engine_of(self)
    engine.check_thread()
    end = layer_at(self, until)
    if end.prefix:
        raise ConfigError(
            f"cut: layer {end.path} is inside layer {LayerHandle(self, end.cell, end.index).path}; cut there"
        )
    last = end.at
    config = engine.config
    named: Any = [entry for entry in cast("Any", config.inputs) if tuple(entry.cell or (0, 0, 0)) <= last[:3]]
    bare = NetworkConfig(
        row_shape(named) if named else config.input_shape,
        config.grid,
        precision=config.precision,
        seed=config.seed,
        inputs=named,
    )
    made = around(type(self), _native.Network(json.dumps(bare.to_config())))
    kept = [(at, place) for at, place in engine.layer_places() if (*at, place) <= last]
    for at, place in kept:
        tied = getattr(engine.layer_config(at, place), "tied_to", None)
        if tied is not None and tuple(tied) > last:
            name, owner = (".".join(map(str, numbers)) for numbers in ((*at, place), tied))
            raise ConfigError(
                f"cut: layer {name} uses the parameters of layer {owner}, which is behind the last layer "
                f"that is kept; cut there or later"
            )
    links = []
    for link in cast("tuple[LinkConfig, ...]", config.links):
        source, target = tuple(link.source), tuple(link.target)
        if target > last[:3]:
            continue
        if link.combine == "context" and target == last[:3]:
            read = [engine.layer_config(at, place) for at, place in kept if tuple(at) == target]
            if not any(_takes_context(layer.to_config()) for layer in read):
                # Those that read it are cut off.
                continue
        if source > last[:3] or (source == last[:3] and last[3] + 1 < engine.native.cell_len(last[:3])):
            raise ConfigError(
                f"cut: the link from cell {source} to cell {target} brings what layers behind the last one "
                "that is kept make; cut later"
            )
        links.append(link)
    _fill(made, self, kept, links)
    engine_of(made).build()
    return made


def _takes_context(described: object) -> bool:
    """Whether a layer of this configuration, or one inside it, reads what a link brings as a context."""
    if isinstance(described, Mapping):
        own = described.get("cross") is True or described.get("initial_state") == "context"
        return own or any(_takes_context(value) for value in described.values())
    return isinstance(described, (list, tuple)) and any(_takes_context(value) for value in described)


def _fill(
    made: HasEngine,
    network: HasEngine,
    places: Iterable[tuple[tuple[int, int, int], int]],
    links: Sequence[LinkConfig],
) -> None:
    """Puts copies of layers into an empty network, and the links among them.

    What a layer reads must have its shape when it comes, so a cell's links come before its layers, and after
    those of the cells that they lead from.
    """
    engine = engine_of(made)
    layers: dict[tuple[int, ...], list[int]] = {}
    for at, place in places:
        layers.setdefault(tuple(at), []).append(place)
    ahead = [link for link in links if tuple(link.source) < tuple(link.target)]
    for cell in sorted({*layers, *(tuple(link.target) for link in ahead)}):
        for link in ahead:
            if tuple(link.target) == cell:
                engine.link(link)
        for place in layers.get(cell, ()):
            at = cast("tuple[int, int, int]", cell)
            put(made, (*at, place), LayerHandle(network, at, place), replaces=False)
    for link in links:
        if link not in ahead:
            engine.link(link)
