"""Where losses look for classes, and where convolutions of series and volumes have put them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from loom._typing import RealArray
from loom.architecture import CellConfig, NetworkConfig
from loom.data.class_axis import note_leading_channels
from loom.grid import Coordinate
from loom.nn import Layer

__all__ = ["leads_with_channels", "noted"]

_KEEPS = frozenset({"activation", "batch_norm", "dropout", "gaussian_noise", "group_norm", "instance_norm"})
_KEEPS |= {"prelu", "scale", "soft_cap", "softmax"}
"""Layers that say nothing of which axis is which."""

_HOLDS = frozenset(["checkpoint", "masked", "residual", "sequential", "spectral_norm", "weight_norm"])
"""Layers whose output is that of the last layer inside."""


def leads_with_channels(
    config: NetworkConfig, output_shape: Sequence[int], cell: Coordinate | None = None
) -> bool:
    """Whether an output has its channels first, and no axis of classes last, as far as layers tell.

    Losses take the last axis for that of classes, but of images, (channels, height, width).

    Args:
        config: The network's.
        output_shape: One sample's output.
        cell: Which cell makes it; None for the last one.
    """
    if len(output_shape) not in (2, 4):
        return False
    # Cells are kept in the order data flows.
    cells = cast("Sequence[CellConfig]", config.cells)
    chosen = [each for each in cells if cell is None or tuple(each.at) == tuple(cell)]
    return _of_last([cast("Layer", layer) for each in chosen for layer in each.layers])


def noted(config: NetworkConfig, output: RealArray, cell: Coordinate | None = None) -> RealArray:
    """Takes note of an output that leads with channels, for losses in a loop by hand; returns it.

    Args:
        config: The network's.
        output: (rows, ...) what was made.
        cell: Which cell has made it; None for the last one.
    """
    if leads_with_channels(config, output.shape[1:], cell):
        note_leading_channels(output)
    return output


def _of_last(layers: Sequence[Layer]) -> bool:
    for layer in reversed(layers):
        if layer.kind in _HOLDS:
            return _of_last(list(getattr(layer, "layers", ())))
        if layer.kind not in _KEEPS:
            return layer.kind.endswith(("1d", "3d"))
    return False
