"""Targets of outputs that lead with channels, where losses look for classes in the last axis."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from loom.errors import ShapeError

__all__ = ["check_class_axis", "has_leading_channels", "note_leading_channels"]

_NOTED: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()
"""Outputs of the manual loop that lead with channels, by their identity, for as long as somebody has them."""


def note_leading_channels(output: NDArray[Any]) -> None:
    """Takes note that an output leads with channels; what is made of it, such as a transposed view, does not.

    A loop by hand hands the output to a loss, which knows no network.

    Args:
        output: What a network has made.
    """
    _NOTED[id(output)] = output


def has_leading_channels(output: object) -> bool:
    """Returns whether `note_leading_channels` was told of this very array."""
    return output is not None and _NOTED.get(id(output)) is output


def check_class_axis(target: NDArray[Any], output_shape: tuple[int, ...]) -> None:
    """Refuses targets of an output that leads with channels, where classes are most likely these.

    Args:
        target: As the loss takes it: class indices without the axis of classes, or shares of classes.
        output_shape: One sample's output.

    Raises:
        ShapeError: Which axis is meant cannot be told; or it is not the last one.
    """
    last = len(output_shape)
    told = ", ".join(map(str, ("rows", *output_shape)))
    order = ", ".join(map(str, (*range(1, last), 0)))
    there = f"nn.Permute(({order})) behind the last layer puts them there"
    shape = ", ".join(map(str, output_shape))
    here = f"where the last axis is meant, nn.Reshape(({shape})) behind the last layer says so"
    if target.dtype.kind == "i":
        if output_shape[1:] == output_shape[:-1]:
            raise ShapeError(
                f"target: the output ({told}) has its channels first, and losses look for classes in the "
                f"last axis; where both have {output_shape[0]} places, class indices do not tell which is "
                f"meant. If the channels are the classes, {there}; {here}"
            )
        return
    if _is_shares(target, 1) and not _is_shares(target, last):
        raise ShapeError(
            f"target: shares of classes add up to 1 along the channels of ({told}), and losses look for "
            f"classes in the last axis: {there}, and targets go likewise"
        )


def _is_shares(target: NDArray[Any], axis: int) -> bool:
    """Whether numbers along an axis are shares, that add up to 1."""
    return bool((target >= 0).all() and np.allclose(target.sum(axis=axis), 1.0, atol=1e-3))
