"""Layers that rearrange or leave out elements, and compute nothing from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loom._settings.checks import items, whole
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer

__all__ = ["Dropout", "Flatten", "Permute", "Reshape"]


@FAMILY.register("flatten")
@dataclass(frozen=True)
class Flatten(Layer):
    """Lays a sample out as one axis: input (a, b, ...), output (a * b * ...,).

    Examples:
        >>> nn.Flatten().to_config()
        {'type': 'flatten'}
    """


@FAMILY.register("reshape")
@dataclass(frozen=True)
class Reshape(Layer):
    """Gives a sample another shape with the same number of elements.

    Args:
        shape: The new extents, without the batch; one may be -1 and is then
            worked out from the others.

    Raises:
        ConfigError: An extent is out of range, or more than one is -1.

    Examples:
        >>> nn.Reshape((1, 28, -1)).shape
        (1, 28, -1)
    """

    shape: int | Sequence[int]

    def __post_init__(self) -> None:
        extents = items(self.shape)
        if extents == ():
            raise ConfigError("Reshape: shape must be one or more whole numbers, got ()")
        shape = tuple(
            -1
            if isinstance(extent, (int, np.integer)) and extent == -1
            else whole("Reshape", "shape", extent, least=1)
            for extent in (extents or (self.shape,))
        )
        if shape.count(-1) > 1:
            raise ConfigError(f"Reshape: only one extent of shape may be -1, got {shown(shape)}")
        self._set(shape=shape)
        super().__post_init__()


@FAMILY.register("dropout")
@dataclass(frozen=True)
class Dropout(Layer):
    """Zeroes elements at random while training; the others grow by 1 / (1 - rate).

    Input and output have the same shape. At inference it changes nothing. Every training pass
    of a manual loop draws anew, so that several of one input show how sure the network is.

    Args:
        rate: The chance that an element is zeroed; from 0 to below 1.

    Raises:
        ConfigError: The rate is out of range.

    Examples:
        >>> nn.Dropout(0.25).rate
        0.25
    """

    rate: float


@FAMILY.register("permute")
@dataclass(frozen=True)
class Permute(Layer):
    """A sample with its axes in another order.

    Args:
        axes: For each axis of the output, which one of the input it is; counted from 0 without
            the batch.

    Raises:
        ConfigError: The axes are not each of 0, 1, ... once.

    Examples:
        >>> loom.Sequential([nn.Permute((1, 0))], input_shape=(2, 5)).output_shape
        (5, 2)
    """

    axes: Sequence[int]

    def __post_init__(self) -> None:
        if items(self.axes):
            super().__post_init__()
        if not items(self.axes) or sorted(self.axes) != list(range(len(self.axes))):
            given: list[Any] = list(items(self.axes) or ())
            counted = set(given) == set(range(1, 1 + len(given)))
            zero = tuple(axis - 1 for axis in given) if counted else ()
            remedy = f"; they are a sample's, without the batch, from 0 on: Permute({zero})" if zero else ""
            raise ConfigError(
                f"Permute: axes must name each axis from 0 on once, got {shown(self.axes)}{remedy}"
            )
