"""How much samples count, and where outputs have steps or other places, how much each of these does."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from loom.errors import ShapeError

__all__ = ["by_place", "is_by_place", "places_of"]


def places_of(output_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the extents of an output without its classes: the last axis, or the channels of an image."""
    return output_shape[1:] if len(output_shape) == 3 else output_shape[:-1]


def is_by_place(weight: NDArray[Any], output_shape: tuple[int, ...]) -> bool:
    """Returns whether weights are one for each place of an output, an axis of one class among them or not."""
    given, places = weight.shape[1:], places_of(output_shape)
    of_one = (1, *places) if len(output_shape) == 3 else (*places, 1)
    return bool(places) and given in {places, of_one}


def by_place(weight: NDArray[Any], output_shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns weights as a training takes them: one for each sample, or one for each step of each.

    Args:
        weight: (rows,); or (rows, ...) with a number for each place of the output, such as a step.
        output_shape: One sample's output, without the batch.

    Returns:
        (rows,) or (rows, places); what else has two axes is told of where it is compared with the output.

    Raises:
        ShapeError: The weights are of pixels of an image, or of no places of the output.
    """
    if weight.ndim < 2:
        return weight
    rows, given = len(weight), weight.shape[1:]
    if len(output_shape) != 3:
        if is_by_place(weight, output_shape):
            return weight.reshape(rows, -1)
        if weight.ndim == 2:
            return weight
    elif given == (1,):
        return weight.reshape(rows)
    elif is_by_place(weight, output_shape) or given == (math.prod(output_shape[1:]),):
        channels, pixels = output_shape[0], math.prod(output_shape[1:])
        raise ShapeError(
            f"weight: a training takes one number for each sample, ({rows},), or for each step, and no "
            f"weights of pixels, got {weight.shape}. nn.Reshape(({channels}, {pixels})) and "
            "nn.Permute((1, 0)) behind the last layer make steps of them: then class indices are "
            f"y.reshape(rows, -1), other targets y.reshape(rows, {channels}, -1).transpose(0, 2, 1), and "
            "weights w.reshape(rows, -1)"
        )
    places = places_of(output_shape)
    several = len(output_shape) != 3 and places
    steps = f", or {(rows, *places)}, one for each place of the output" if several else ""
    raise ShapeError(f"weight: expected ({rows},), one for each sample{steps}, got {weight.shape}")
