"""Layers made of layers, drawn at random."""

from __future__ import annotations

from typing import Any, cast

from loom import nn
from trials.chance import Chance
from trials.drawing_layers import (
    Draw,
    Shape,
    any_layer,
    attention,
    dense,
    feed_forward,
    function,
    normalization,
    output_shape,
    recurrent,
    row,
)


def composite(chance: Chance, shape: Shape, depth: int) -> nn.Layer | None:
    """Draws a layer made of layers."""
    kind = chance.whole(0, 9)
    if kind <= 2:
        return residual(chance, shape, depth)
    if kind <= 6:
        return parallel(chance, shape, depth)
    if kind == 7 and chance.happens(0.4):
        inside = dense(chance, shape)
        return nn.WeightNorm(inside) if chance.happens(0.5) else nn.SpectralNorm(inside)
    if kind == 7 or len(shape) != 2:
        layers = row(chance, shape, 2, depth)
        return nn.Checkpoint(layers) if chance.happens(0.3) else nn.Sequential(layers)
    return masked(chance, shape, depth)


def residual(chance: Chance, shape: Shape, depth: int) -> nn.Layer:
    """Draws a skip, with the projection it makes itself, one that is given, or none."""
    layers = row(chance, shape, 2, depth)
    made = layers_shape(layers, shape)
    if made == shape and chance.happens(0.8):
        return nn.Residual(layers)
    if len(shape) == 3 and chance.happens(0.6):
        stride = (chance.whole(1, 2), chance.whole(1, 2))
        return nn.Residual([nn.Conv2D(chance.whole(1, 4), 3, stride=stride, padding=1)])
    if made[:-1] == shape[:-1] and chance.happens(0.6):
        return nn.Residual(layers)
    return nn.Residual(layers, projection=into(chance, shape, made))


def parallel(chance: Chance, shape: Shape, depth: int) -> nn.Layer:
    """Draws branches, and any way to combine what they make."""
    combine = chance.one(["concat", "add", "average", "multiply", "grid_scatter", "filter"])
    first: list[nn.Layer] = [] if chance.happens(0.15) else row(chance, shape, 2, depth)
    made = layers_shape(first, shape)
    branches = [first]
    axis = None
    for _ in range(chance.whole(0, 2)):
        if chance.happens(0.3) and made == shape:
            branches.append([])
        elif combine == "multiply" and shape[:-1] == made[:-1] and chance.happens(0.4):
            # One number for a whole row of the others.
            branches.append([nn.Dense(1, activation="sigmoid")])
        else:
            branches.append(into(chance, shape, made))
    if combine == "concat" and chance.happens(0.5):
        axis = chance.whole(0, len(made) - 1)
    if combine == "grid_scatter":
        grid = (chance.whole(1, 2), chance.whole(2, 3))
        if grid[0] * grid[1] < len(branches):
            grid = (2, 3)
        places = None
        if chance.happens(0.5):
            spots = [(y, x) for y in range(grid[0]) for x in range(grid[1])]
            places = chance.shuffled(spots)[: len(branches)]
        return nn.Parallel(branches, combine=cast("Any", combine), grid=grid, places=places)
    gate: list[nn.Layer] = []
    if combine == "filter" and chance.happens(0.5):
        gate = [nn.Flatten(), dense(chance, shape), nn.Dense(len(branches))]
    return nn.Parallel(branches, combine=cast("Any", combine), axis=axis, gate=gate)


def masked(chance: Chance, shape: Shape, depth: int) -> nn.Layer:
    """Draws layers that leave out padding, over (time, features)."""
    layers: list[nn.Layer] = []
    for _ in range(chance.whole(1, 3)):
        if len(shape) != 2:
            break
        kinds: list[Draw] = [recurrent, attention, attention, dense, normalization, feed_forward, last]
        layer = chance.one(kinds)(chance, shape)
        if layer is not None:
            layers.append(layer)
            shape = output_shape(layer, shape)
    return nn.Masked(layers or [function(chance, shape)], value=chance.one([0.0, 0.0, 1.0]))


def last(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a softmax that heeds the padding, or a skip around a layer that does."""
    if chance.happens(0.5):
        return nn.MaskedSoftmax(axis=chance.one([-1, 0]))
    layer = attention(chance, shape)
    return nn.Residual(layer) if layer is not None else any_layer(chance, shape, 2)


def into(chance: Chance, shape: Shape, made: Shape) -> list[nn.Layer]:
    """Draws layers that bring one shape to another."""
    if shape[:-1] == made[:-1]:
        return [nn.Dense(made[-1], activation=chance.one(["linear", "tanh"]), bias=chance.happens(0.5))]
    elements = 1
    for extent in made:
        elements *= extent
    return [nn.Flatten(), nn.Dense(elements), nn.Reshape(made)]


def layers_shape(layers: list[nn.Layer], shape: Shape) -> Shape:
    """Returns what layers in a row make."""
    return output_shape(nn.Sequential(layers), shape) if layers else shape
