"""Layers for what has none of its own: elements moved, scaled and shifted; rows of layers made shorter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.graph import Made

__all__ = ["affine", "dense", "joined", "moved", "nested", "permuted", "reshaped", "tidy"]

LARGEST = 2**22
"""Elements of a weight that picks elements."""


def dense(weight: NDArray[Any], bias: NDArray[Any] | None = None) -> Made:
    """A Dense layer with a weight (units, features)."""
    tensors = {"weight": weight} if bias is None else {"weight": weight, "bias": np.reshape(bias, -1)}
    return Made(nn.Dense(weight.shape[0], bias=bias is not None), tensors)


def reshaped(before: Sequence[int], after: Sequence[int]) -> list[Made]:
    """Another shape, where it is another."""
    return [] if tuple(before) == tuple(after) else [Made(nn.Reshape(tuple(after) or (1,)))]


def permuted(axes: Sequence[int]) -> list[Made]:
    """Another order of axes, where it is another."""
    return [] if list(axes) == sorted(axes) else [Made(nn.Permute(tuple(axes)))]


def on_axis(rank: int, axis: int, made: Sequence[Made]) -> list[Made]:
    """Layers of the last axis, on another one."""
    order = [place for place in range(rank) if place != axis] + [axis]
    return [*permuted(order), *made, *permuted([order.index(place) for place in range(rank)])]


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


_CROPS: dict[int, Any] = {2: nn.Crop1D, 3: nn.Crop2D, 4: nn.Crop3D}


def moved(before: tuple[int, ...], after: tuple[int, ...], places: NDArray[np.int64]) -> list[Made] | None:
    """Layers that make a sample of elements that stand at these places of another; None without any."""
    flat = places.reshape(-1)
    if flat.size == math.prod(before) and np.array_equal(flat, np.arange(flat.size)):
        return reshaped(before, after)
    grid = np.arange(math.prod(before)).reshape(before)
    if flat.size == grid.size and len(before) <= 6:
        some = np.linspace(0, flat.size - 1, 64).astype(np.int64)
        for order in permutations(range(len(before))):
            if np.array_equal(grid.transpose(order).flat[some], flat[some]) and np.array_equal(
                grid.transpose(order).reshape(-1), flat
            ):
                return [*permuted(order), *reshaped([before[axis] for axis in order], after)]
    for axis, extent in enumerate(before):
        # Some of one axis: where the other places of it are the same, the first element of each tells which.
        step = math.prod(before[axis + 1 :])
        picks = list(dict.fromkeys((flat // step % extent).tolist()))
        taken = np.take(grid, picks, axis=axis)
        if not np.array_equal(taken.reshape(-1), flat):
            continue
        shape = (*before[:axis], len(picks), *before[axis + 1 :])
        picked = _picked(before, axis, picks)
        return picked and [*on_axis(len(before), axis, picked), *reshaped(shape, after)]
    return _cropped(before, after, grid, flat)


def _cropped(
    before: tuple[int, ...], after: tuple[int, ...], grid: NDArray[Any], flat: NDArray[Any]
) -> list[Made] | None:
    """The inside of every channel, where that is what the places are."""
    if len(before) not in _CROPS or len(after) != len(before) or before[0] != after[0] or not flat.size:
        return None
    first = np.unravel_index(int(flat[0]), before)
    inside = grid[tuple(slice(start, start + extent) for start, extent in zip(first, after, strict=True))]
    if inside.shape != after or not np.array_equal(inside.reshape(-1), flat):
        return None
    rest = [old - int(start) - new for old, start, new in zip(before, first, after, strict=True)]
    return [Made(_CROPS[len(before)](tuple(int(start) for start in first[1:]), tuple(rest[1:])))]


def _picked(before: tuple[int, ...], axis: int, picks: list[int]) -> list[Made] | None:
    extent, rank = before[axis], len(before)
    stride = picks[1] - picks[0] if len(picks) > 1 else extent
    if rank == 2 and picks == list(range(0, extent, stride)):
        return [Made(nn.MaxPool1D(1, stride=stride))]
    if len(picks) * extent > LARGEST:
        return None
    weight = np.zeros((len(picks), extent), np.float32)
    weight[np.arange(len(picks)), picks] = 1
    return [dense(weight)]


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
