"""Layers for what has none of its own: elements moved, scaled and shifted; rows of layers made shorter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.movements import Made, dense, moved, on_axis, permuted, reshaped

__all__ = ["affine", "dense", "joined", "moved", "nested", "on_axis", "permuted", "reshaped", "tidy"]


def affine(shape: tuple[int, ...], scale: NDArray[Any], shift: NDArray[Any]) -> list[Made]:
    """`scale x + shift`, element by element; both broadcast to one sample's shape."""
    scale, shift = (np.broadcast_to(np.asarray(each, np.float32), shape) for each in (scale, shift))
    if bool((scale == 1).all()):
        if not shift.any():
            return []
        if len(shape) == 2:
            return [Made(nn.PositionalEmbedding(shape[0]), {"weight": shift})]
    # Running statistics of 0 and 1 leave nothing of a BatchNorm but its weight and bias.
    varying = [
        axis
        for axis in range(len(shape))
        if shape[axis] > 1 and any(bool((np.diff(each, axis=axis) != 0).any()) for each in (scale, shift))
    ]
    if len(varying) > 1:
        flat = (math.prod(shape),)
        return [*reshaped(shape, flat), _scaled(scale.reshape(-1), shift.reshape(-1)), *reshaped(flat, shape)]
    axis = varying[0] if varying else 0
    order = [axis, *(place for place in range(len(shape)) if place != axis)]
    picked = tuple(slice(None) if place == axis else 0 for place in range(len(shape)))
    back = [order.index(place) for place in range(len(shape))]
    return [*permuted(order), _scaled(scale[picked], shift[picked]), *permuted(back)]


def _scaled(scale: NDArray[Any], shift: NDArray[Any]) -> Made:
    epsilon = 1e-5
    return Made(
        nn.BatchNorm(epsilon=epsilon),
        {
            "weight": scale,
            "bias": shift,
            "running_mean": np.zeros_like(scale),
            "running_var": np.full_like(scale, 1 - epsilon),
        },
    )


def nested(rows: dict[str, Sequence[Made]]) -> dict[str, NDArray[Any]]:
    """Returns the tensors of rows of layers inside another, by what their names begin with there."""
    return {
        f"{begin}{place}.{name}": values
        for begin, row in rows.items()
        for place, made in enumerate(row)
        for name, values in made.tensors.items()
    }


def layers_of(row: Sequence[Made]) -> list[nn.Layer]:
    """The layers of a row."""
    return [made.layer for made in row]


def joined(branches: list[list[Made]], combine: str, axis: int | None = None) -> Made:
    """Branches, added up or side by side."""
    empty = [branch for branch in branches if not branch]
    if combine == "add" and len(branches) == 2 and len(empty) < 2:
        longer, shorter = sorted(branches, key=len, reverse=True)
        layer: nn.Layer = nn.Residual(layers_of(longer), projection=layers_of(shorter))
        return Made(layer, nested({"layers.": longer, "projection.": shorter}))
    layer = nn.Parallel([layers_of(branch) for branch in branches], combine=cast("Any", combine), axis=axis)
    return Made(layer, nested({f"branches.{place}.": branch for place, branch in enumerate(branches)}))


def tidy(row: list[Made], shapes: Sequence[tuple[int, ...]] = ()) -> list[Made]:
    """Puts biases, gains and activations into the layers that they follow, and gated rows together."""
    made: list[Made] = []
    for step in row:
        made.append(step)
        while len(made) > 1:
            together = _together(made[-2], made[-1])
            if together is None:
                break
            made[-2:] = together
    return made


def _together(first: Made, second: Made) -> list[Made] | None:
    one, two = first.layer, second.layer
    if isinstance(one, nn.Reshape) and isinstance(two, (nn.Reshape, nn.Flatten)):
        return [second]
    if isinstance(one, nn.PositionalEmbedding) and one == two:
        return [Made(one, {"weight": first.tensors["weight"] + second.tensors["weight"]})]
    if isinstance(one, nn.Permute) and isinstance(two, nn.Permute):
        return permuted([one.axes[axis] for axis in two.axes])
    if (
        isinstance(two, nn.Activation)
        and isinstance(one, (nn.Dense, nn.Conv1D, nn.Conv2D, nn.Conv3D))
        and one.activation == "linear"
    ):
        return [Made(replace(one, activation=two.function), first.tensors)]
    return None
