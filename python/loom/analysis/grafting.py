"""Grafting: branches of several networks become one network with a copy of their weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from loom import _native, nn
from loom._settings.checks import choice
from loom.engine import engine_of
from loom.errors import ConfigError, LoomError, ShapeError
from loom.network import Network
from loom.network.layers import LayerHandle

__all__ = ["graft"]

GraftMode: TypeAlias = Literal["concat", "add", "average", "grid_scatter", "filter"]
MODES: tuple[GraftMode, ...] = ("concat", "add", "average", "grid_scatter", "filter")

Shape: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class _Part:
    """A layer, or one branch of it, that becomes part of a branch.

    Args:
        layer: The layer.
        branch: The branch of it, such as "branches.1"; "" for the whole layer.
        count: How many layers it is in the new branch.
    """

    layer: LayerHandle
    branch: str
    count: int


@dataclass(frozen=True)
class _Branch:
    """A branch of the new network.

    Args:
        name: What it is made of, for messages.
        layers: Its layers.
        parts: Where they come from, in order.
        shapes: What it reads, then what it makes.
    """

    name: str
    layers: tuple[nn.Layer, ...]
    parts: tuple[_Part, ...]
    shapes: tuple[Shape, Shape]


def graft(
    sources: Iterable[Network | LayerHandle], combine: GraftMode = "concat", *, axis: int | None = None
) -> Network:
    """Puts branches of several networks side by side: a new network of one `nn.Parallel` layer.

    A network whose only layer is a Parallel gives that one's branches, and so does a Parallel layer by
    itself; any other layer, and any other network, is one branch. A branch is copied: its weights with
    their numeric types and scales, what its layers keep (running statistics) and carry, what is frozen,
    the factors of their rates. Training the new network never moves a source, nor the other way
    round.

    What branches read must have one shape. What they make must have, too, for all modes but "concat":
    the first branch's. Others get a projection at their end, without a bias and with weights that are
    drawn: a `Dense` layer where only the last axis differs, a convolution with a kernel of 1 where only the
    channels of images or volumes do. What cannot be reconciled so is refused.

    Args:
        sources: Networks, and layers such as `net.layers[2]`.
        combine: "concat" side by side, "add", "average"; "grid_scatter" each at a place of its own on
            the smallest square grid that has room, row by row; "filter" weighted by a softmax over the
            scores of a Dense gate, which is new.
        axis: For concat: the axis, counted without the batch.

    Returns:
        A network on the CPU with one layer, `graft[0, 0, 0, 0]`. Its precision is the sources', its
        seed the first one's. `cell.insert(place, graft.layers[0])` puts the branches into another one.

    Raises:
        ConfigError: There is no source, something is no network or layer, networks are of different
            precisions, or a network has links, so that its layers are no row.
        InvalidValueError: Layers that become one have different rate factors, or one uses another's
            parameters.
        ShapeError: Branches read different shapes, or make what cannot be combined.
        StateError: Full-precision masters were dropped, or a network is training in another thread.

    Examples:
        >>> one = loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(3)], input_shape=4, seed=1)
        >>> two = loom.Sequential([nn.Dense(3)], input_shape=4, seed=2)
        >>> both = loom.analysis.graft([one, two], combine="average")
        >>> x = np.ones((5, 4))
        >>> bool(np.allclose(both.predict(x), (one.predict(x) + two.predict(x)) / 2))
        True
    """
    combine = choice("graft", "combine", combine, MODES)
    several: object = sources
    # A network is iterable, too: it gives its cells.
    single = isinstance(several, Network) or not isinstance(several, Iterable)
    given: list[Any] = [] if single else list(sources)
    if not given:
        raise ConfigError(f"graft takes a list of networks and layers, at least one, got {sources!r}")
    branches = [branch for number, source in enumerate(given) for branch in _branches(source, number)]
    _check_alike(given, branches)
    rows = [branch.layers for branch in branches]
    if combine != "concat":
        rows = [(*branch.layers, *_projection(branch, branches[0])) for branch in branches]
    side = math.isqrt(len(rows) - 1) + 1
    grid = (side, side) if combine == "grid_scatter" else None
    layer = nn.Parallel(rows, cast("Any", combine), axis=axis, grid=grid)
    first = engine_of(given[0])
    network = Network(branches[0].shapes[0], precision=first.precision, seed=first.config.seed)
    pieces = []
    copies: dict[LayerHandle, _native.LayerCopy] = {}
    for number, branch in enumerate(branches):
        place = 0
        for part in branch.parts:
            if part.layer not in copies:
                copies[part.layer] = _native.copy_layer(engine_of(part.layer).native, part.layer.at)
            to = f"branches.{number}" if part.branch else f"branches.{number}.{place}"
            pieces.append((copies[part.layer], (part.layer.prefix + part.branch).removesuffix("."), to))
            place += part.count
    described = json.dumps(layer.to_config())
    engine_of(network).rearrange(
        "grafting", lambda native: _native.insert_layer(native, (0, 0, 0, 0), described, pieces)
    )
    return network.build()


def _branches(source: object, number: int) -> list[_Branch]:
    """Returns the branches of a source."""
    if isinstance(source, LayerHandle):
        name = f"source {number}, layer {source.path} ({source.kind})"
        return _of_layer(source, name)
    if not isinstance(source, Network):
        raise ConfigError(
            f"graft takes networks and layers such as net.layers[2]; source {number} is {source!r}"
        )
    name = f"source {number}"
    layers = source.layers
    if not layers:
        raise ConfigError(f"graft: {name} has no layers")
    if source.config.links:
        raise ConfigError(
            f"graft: {name} has links between its cells, so its layers are no row; graft single layers "
            "of it, such as net.layers[2]"
        )
    source.build()
    if len(layers) == 1:
        return _of_layer(layers[0], name)
    parts = tuple(_Part(layer, "", 1) for layer in layers)
    shapes = source.input_shape, source.output_shape
    return [_Branch(name, tuple(layer.config for layer in layers), parts, shapes)]


def _of_layer(layer: LayerHandle, name: str) -> list[_Branch]:
    config = layer.config
    shape = layer.input_shape
    if not isinstance(config, nn.Parallel):
        return [_Branch(name, (config,), (_Part(layer, "", 1),), (shape, layer.output_shape))]
    branches = []
    for number, row in enumerate(cast("Sequence[tuple[nn.Layer, ...]]", config.branches)):
        made = _output_shape(row, shape, f"{name}, branch {number}")
        part = _Part(layer, f"branches.{number}", len(row))
        branches.append(_Branch(f"{name}, branch {number}", tuple(row), (part,), (shape, made)))
    return branches


def _output_shape(row: Sequence[nn.Layer], shape: Shape, name: str) -> Shape:
    """Returns what layers in a row make of inputs of a shape."""
    if not row:
        return shape
    try:
        described = json.dumps(nn.Sequential(list(row)).to_config())
        return tuple(_native.layer_output_shape(described, shape, shape))
    except LoomError as error:
        raise type(error)(f"graft: {name}: {error}") from error


def _check_alike(given: Sequence[Any], branches: Sequence[_Branch]) -> None:
    """Refuses sources of different precisions, and branches that read different shapes."""
    precision = engine_of(given[0]).precision
    for number, source in enumerate(given):
        other = engine_of(source).precision
        if other != precision:
            raise ConfigError(f"graft: source 0 is {precision}, source {number} is {other}; they must agree")
    first = branches[0]
    for branch in branches[1:]:
        if branch.shapes[0] != first.shapes[0]:
            raise ShapeError(
                f"graft: {first.name} reads {first.shapes[0]}, {branch.name} reads {branch.shapes[0]}; "
                "branches read one input, so these must agree"
            )


def _projection(branch: _Branch, first: _Branch) -> tuple[nn.Layer, ...]:
    """Returns the layer that brings what a branch makes to the shape of what the first makes, if one must."""
    made, wanted = branch.shapes[1], first.shapes[1]
    if made == wanted:
        return ()
    if len(made) == len(wanted):
        convolutions = {3: nn.Conv2D, 4: nn.Conv3D}
        if made[1:] == wanted[1:] and len(made) in convolutions:
            return (convolutions[len(made)](wanted[0], kernel_size=1, bias=False),)
        if made[:-1] == wanted[:-1]:
            return (nn.Dense(wanted[-1], bias=False),)
    raise ShapeError(
        f"graft: {first.name} makes {wanted}, {branch.name} makes {made}; a projection changes the last "
        'axis, or the channels of images and volumes, alone. Put a layer between, or combine="concat"'
    )
