"""Where losses look for classes, and where convolutions of series and volumes have put them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.engine import Engine
from loom.errors import ShapeError
from loom.nn import Layer

__all__ = ["check_class_axis", "leads_with_channels"]

_KEEPS = frozenset({"activation", "batch_norm", "dropout", "gaussian_noise", "group_norm", "instance_norm"})
_KEEPS |= {"prelu", "scale", "soft_cap", "softmax"}
"""Layers that say nothing of which axis is which."""

_HOLDS = frozenset(["checkpoint", "masked", "residual", "sequential", "spectral_norm", "weight_norm"])
"""Layers whose output is that of the last layer inside."""


def leads_with_channels(engine: Engine) -> bool:
    """Whether a network's output has its channels first, and no axis of classes last, as far as layers tell.

    Losses take the last axis for that of classes, but of images, (channels, height, width).

    Args:
        engine: The network's; it is built.
    """
    if len(engine.native.output_shape()) not in (2, 4):
        return False
    layers = [engine.layer_config(at, place) for at, place in engine.layer_places()]
    return _of_last(layers)


def _of_last(layers: list[Layer]) -> bool:
    for layer in reversed(layers):
        if layer.kind in _HOLDS:
            return _of_last(list(getattr(layer, "layers", ())))
        if layer.kind not in _KEEPS:
            return layer.kind.endswith(("1d", "3d"))
    return False


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
