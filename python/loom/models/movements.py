"""Elements of a sample that are moved, or left out, as layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn

__all__ = ["Made", "dense", "moved", "on_axis", "permuted", "reshaped"]

LARGEST = 2**22
"""Elements of a weight that picks elements."""


@dataclass
class Made:
    """A layer with its parameters and states by name."""

    layer: nn.Layer
    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)


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
        narrow = _ranged(axis, picks, extent) or _narrowed(before, axis, picks)
        if narrow is not None:
            return [*narrow, *reshaped(shape, after)]
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


def _ranged(axis: int, picks: list[int], extent: int) -> list[Made] | None:
    """Every so manieth element of a part of one axis."""
    step = picks[1] - picks[0] if len(picks) > 1 else 1
    if step < 2 or picks != list(range(picks[0], picks[-1] + 1, step)):
        return None
    stop = None if picks[-1] + step >= extent else picks[-1] + 1
    return [Made(nn.Slice(picks[0], stop, step, axis))]


def _narrowed(before: tuple[int, ...], axis: int, picks: list[int]) -> list[Made] | None:
    """A part of one axis without a gap, by leaving out what stands before and after it."""
    start, rest = picks[0], before[axis] - picks[-1] - 1
    if picks != list(range(start, start + len(picks))):
        return None
    rank = len(before)
    if axis == 0 or rank not in _CROPS:
        return [Made(nn.Slice(start, None if rest == 0 else start + len(picks), axis=axis))]
    first, last = ([ends if at == axis else 0 for at in range(1, rank)] for ends in (start, rest))
    return [Made(_CROPS[rank](tuple(first), tuple(last)))]


def _picked(before: tuple[int, ...], axis: int, picks: list[int]) -> list[Made] | None:
    extent = before[axis]
    if len(picks) * extent > LARGEST:
        return None
    weight = np.zeros((len(picks), extent), np.float32)
    weight[np.arange(len(picks)), picks] = 1
    return [dense(weight)]
