"""A whole network drawn at random: cells, links between them, and what it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn
from loom._typing import Precision
from trials.chance import Chance
from trials.drawing_layers import (
    Shape,
    activation,
    any_layer,
    attention,
    output_shape,
    recurrent,
    row,
)

Place = tuple[int, int, int]
Link = tuple[Place, Place, str, "int | None"]

_STOCHASTIC = {
    "dropout": "rate",
    "gaussian_noise": "standard_deviation",
    "spatial_dropout1d": "rate",
    "spatial_dropout2d": "rate",
    "spatial_dropout3d": "rate",
    "rnn": "dropout",
    "lstm": "dropout",
    "gru": "dropout",
    "multi_head_attention": "dropout",
}


@dataclass
class Drawn:
    """A network that was drawn, and what it is to be shown.

    Args:
        input_shape: One sample's.
        vocabulary: Below what the whole numbers are that it reads; 0 where it reads real ones.
        grid: Depth, rows, columns.
        cells: The layers of each cell that has any.
        links: Cells' outputs that are handed to other cells beside the usual flow.
        padded: What the padding of sequences consists of, where some layer leaves it out.
        tied: Whether it reads small whole numbers as real ones, many of them equal.
    """

    input_shape: Shape
    vocabulary: int = 0
    grid: Place = (1, 1, 1)
    cells: dict[Place, list[nn.Layer]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    padded: float | None = None
    tied: bool = False

    def network(self, precision: Precision, seed: int = 0) -> loom.Network:
        """Builds it in loom."""
        net = loom.Network(self.input_shape, grid=self.grid, precision=precision, seed=seed)
        for at, layers in self.cells.items():
            net[at].add(*layers)
        for source, target, combine, axis in self.links:
            net.link(source, target, cast("Any", combine), axis)
        return net.build()

    @property
    def places(self) -> list[Place]:
        """Every cell in the order data flows."""
        depth, rows, columns = self.grid
        return [(z, y, x) for z in range(depth) for y in range(rows) for x in range(columns)]

    @property
    def layers(self) -> list[tuple[str, nn.Layer]]:
        """Every layer with its path, in the order data flows."""
        return [
            (f"{at[0]}.{at[1]}.{at[2]}.{place}", layer)
            for at in self.places
            for place, layer in enumerate(self.cells.get(at, ()))
        ]

    @property
    def configs(self) -> list[dict[str, Any]]:
        """Every layer's configuration, those within others among them."""
        found: list[dict[str, Any]] = []
        for _, layer in self.layers:
            gather(layer.to_config(), found)
        return found

    @property
    def draws(self) -> bool:
        """Whether something in it draws at random in training, which two programs cannot do alike."""
        return any(
            config["type"] == "gumbel_softmax" or config.get(_STOCHASTIC.get(config["type"], ""), 0.0)
            for config in self.configs
        )

    def has(self, kind: str, **settings: object) -> bool:
        """Whether a layer of this kind, with these settings, is somewhere in it."""
        return any(
            config["type"] == kind and all(config.get(name) == value for name, value in settings.items())
            for config in self.configs
        )

    def samples(self, random: np.random.Generator, rows: int) -> NDArray[Any]:
        """Draws inputs, with padding at the end of sequences where layers leave it out."""
        shape = (rows, *self.input_shape)
        if self.vocabulary:
            x: NDArray[Any] = random.integers(0, self.vocabulary, shape)
        else:
            x = random.normal(size=shape).astype(np.float32).astype(np.float64)
            x = np.rint(x) if self.tied else x
        if self.padded is not None:
            steps = self.input_shape[0]
            # Mostly at the end, sometimes in between, and never all of a sample.
            real = random.integers(1, steps + 1, rows)
            gone = np.arange(steps) >= real[:, None]
            gone |= (random.random((rows, steps)) < 0.1) & (np.arange(steps) > 0)
            x[gone] = self.padded
        return x


def gather(config: object, found: list[dict[str, Any]]) -> None:
    """Collects the configurations of layers within a configuration."""
    if isinstance(config, dict):
        if "type" in config:
            found.append(config)
        for value in config.values():
            gather(value, found)
    elif isinstance(config, (list, tuple)):
        for value in config:
            gather(value, found)


def draw(seed: int, number: int) -> tuple[Drawn, Chance]:
    """Draws a network; what is drawn after it goes on from where it stopped."""
    chance = Chance(seed, number)
    chance.wide = chance.happens(0.1)
    kind = chance.whole(0, 99)
    if kind < 14:
        return words(chance), chance
    shape = input_shape(chance)
    if kind < 40:
        # One layer by itself, so that a difference has one place to come from.
        layer = any_layer(chance, shape)
        return finished(chance, Drawn(shape, cells={(0, 0, 0): [layer]})), chance
    if kind < 60:
        return finished(chance, Drawn(shape, cells={(0, 0, 0): row(chance, shape, 4)})), chance
    return finished(chance, grid(chance, shape)), chance


def input_shape(chance: Chance) -> Shape:
    """Draws what one sample looks like."""
    axes = chance.one([1, 2, 2, 2, 3, 3, 4])
    if chance.wide:
        wide: list[Shape] = [(chance.whole(17, 80),), (chance.whole(3, 20), chance.whole(9, 40))]
        wide.append((chance.whole(1, 3), chance.whole(8, 14), chance.whole(8, 14)))
        wide.append((chance.whole(1, 2), chance.whole(3, 7), chance.whole(3, 7), chance.whole(3, 9)))
        return wide[axes - 1]
    if axes == 1:
        return (chance.whole(1, 9),)
    if axes == 2:
        return (chance.whole(1, 6), chance.whole(1, 8))
    if axes == 3:
        return (chance.whole(1, 4), chance.whole(1, 6), chance.whole(1, 6))
    return (chance.whole(1, 3), chance.whole(1, 4), chance.whole(1, 4), chance.whole(1, 4))


def finished(chance: Chance, drawn: Drawn) -> Drawn:
    """Says what padding consists of, where the first layer leaves it out."""
    first = next((layer for _, layer in drawn.layers), None)
    if isinstance(first, nn.Masked):
        drawn.padded = first.value
    # Where a sparse softmax has ties, any of several gradients is right.
    if not (drawn.has("sparsemax") or drawn.has("entmax")):
        drawn.tied = chance.happens(0.08)
    return drawn


def words(chance: Chance) -> Drawn:
    """Draws a network that reads whole numbers."""
    vocabulary, width, time = chance.whole(2, 9), chance.whole(1, 8), chance.whole(1, 7)
    embedding = nn.Embedding(vocabulary, width)
    drawn = Drawn((time,), vocabulary=vocabulary)
    kind = chance.whole(0, 9)
    layers: list[nn.Layer]
    if kind == 0:
        layer = recurrent(chance, (time, width))
        drawn.padded = 0.0
        layers = [nn.Masked([embedding, layer] if layer is not None else [embedding])]
        shape = output_shape_of(layers, (time,), vocabulary)
    elif kind == 1:
        other = nn.Embedding(vocabulary, width)
        combine = chance.one(["add", "concat", "average"])
        layers = [nn.Parallel([embedding, other], combine=cast("Any", combine))]
        shape = (time, 2 * width if combine == "concat" else width)
    elif kind == 2 and time % 2 == 0:
        layers = [nn.Reshape((2, time // 2)), embedding]
        shape = (2, time // 2, width)
    else:
        layers = [embedding]
        shape = (time, width)
    if chance.happens(0.7):
        more = row(chance, shape, 2)
        layers += more
        for layer in more:
            shape = output_shape(layer, shape)
    if isinstance(layers[0], nn.Embedding) and chance.happens(0.5):
        if shape[-1] != width:
            layers.append(nn.Dense(width, activation=activation(chance)))
        layers.append(nn.TiedHead(vocabulary, tied_to=(0, 0, 0, 0)))
    drawn.cells = {(0, 0, 0): layers}
    return drawn


def output_shape_of(layers: list[nn.Layer], shape: Shape, vocabulary: int) -> Shape:
    """Returns what layers that read whole numbers make."""
    return loom.Sequential(layers, input_shape=shape).output_shape


def grid(chance: Chance, shape: Shape) -> Drawn:
    """Draws a grid of cells, some of them empty, with links between them."""
    extents = chance.one([(1, 1, 2), (1, 1, 3), (1, 2, 2), (2, 1, 2), (2, 2, 1), (1, 3, 1)])
    drawn = Drawn(shape, grid=extents)
    made: dict[Place, Shape] = {}
    for at in drawn.places:
        layers: list[nn.Layer] = []
        shape = _context(chance, drawn, at, shape, made, layers)
        shape = _links(chance, drawn, at, shape, made)
        if layers:
            # The shape that a layer with a second input makes is known from the way it was drawn.
            shape = _with_context(layers[0], shape)
        if not layers or chance.happens(0.4):
            for layer in [] if chance.happens(0.15) else row(chance, shape, 2):
                layers.append(layer)
                shape = output_shape(layer, shape)
        if layers:
            drawn.cells[at] = layers
        made[at] = shape
    if not drawn.cells:
        drawn.cells[drawn.places[-1]] = [any_layer(chance, shape)]
    return drawn


def _with_context(layer: nn.Layer, shape: Shape) -> Shape:
    if isinstance(layer, nn.Residual):
        return shape
    if isinstance(layer, nn.MultiHeadAttention):
        return shape
    settings: Any = layer
    width = settings.units * (2 if settings.bidirectional else 1)
    return (shape[0], width) if settings.return_sequences else (width,)


def _context(
    chance: Chance, drawn: Drawn, at: Place, shape: Shape, made: dict[Place, Shape], layers: list[nn.Layer]
) -> Shape:
    """Sometimes gives a cell a second input, and a first layer that takes it."""
    if len(shape) != 2 or not made or chance.happens(0.4):
        return shape
    source = chance.one(list(made))
    found: nn.Layer | None
    if len(made[source]) == 2 and chance.happens(0.6):
        found = attention(chance, shape, cross=True, other=made[source][0])
        if found is not None and chance.happens(0.3):
            found = nn.Residual(found)
    else:
        found = recurrent(chance, shape, context=prod(made[source]))
    if found is not None:
        layers.append(found)
        drawn.links.append((source, at, "context", None))
    return shape


def _links(chance: Chance, drawn: Drawn, at: Place, shape: Shape, made: dict[Place, Shape]) -> Shape:
    """Sometimes hands earlier outputs to a cell; returns what its layers then read."""
    fixed = bool(drawn.links) and drawn.links[-1][1] == at
    for source in chance.shuffled(list(made)):
        if chance.happens(0.5):
            continue
        other = made[source]
        if other == shape and chance.happens(0.6):
            drawn.links.append((source, at, "add", None))
        elif not fixed and len(other) == len(shape):
            axes = [
                axis
                for axis in range(len(shape))
                if other[:axis] == shape[:axis] and other[axis + 1 :] == shape[axis + 1 :]
            ]
            if not axes:
                continue
            usual = 0 if len(shape) > 2 else len(shape) - 1
            axis = chance.one(axes)
            named = axis if axis != usual or chance.happens(0.5) else None
            drawn.links.append((source, at, "concat", named))
            shape = (*shape[:axis], shape[axis] + other[axis], *shape[axis + 1 :])
    return shape
