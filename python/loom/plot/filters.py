"""What layers that read images look for: their weights as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._figures import empty_figure, finished
from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.errors import ConfigError, DataError, ShapeError
from loom.network import Network
from loom.network.layers import LayerHandle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["filters"]

_MOST_CHANNELS = 8
_DIMENSIONS = 4
"""Filters, channels, height, width."""


def filters(
    weights: Network | LayerHandle | ArrayLike,
    *,
    shape: Sequence[int] | None = None,
    most: int = 64,
    columns: int = 8,
    path: str | Path | None = None,
) -> Figure:
    """Draws filters of images: red where a filter looks for bright, blue where for dark.

    Filters of one channel stand side by side, those of three are drawn in colour, and all others have a row
    each with their channels, eight at most.

    Args:
        weights: A network, whose first layer with such weights is drawn; a layer of one; or an array,
            (filters, channels, height, width) or, with a shape, (units, elements).
        shape: (height, width) or (channels, height, width) of the images that a Dense layer reads flattened:
            its units are drawn as filters.
        most: How many filters are drawn, the first ones.
        columns: How many stand side by side.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ShapeError: The weights are not those of images, or do not have the shape.
        DataError: There are none.
        FileError: The picture cannot be written.

    Examples:
        >>> net = loom.Sequential([nn.Conv2D(4, kernel_size=3), nn.Flatten()], input_shape=(1, 8, 8))
        >>> len(loom.plot.filters(net).axes)
        4
        >>> units = loom.Sequential([nn.Flatten(), nn.Dense(6)], input_shape=(1, 8, 8))
        >>> len(loom.plot.filters(units, shape=(8, 8)).axes)
        6
    """
    drawn = _of_images(_weights(weights, flat=shape is not None), shape)
    drawn = drawn[: whole("filters", "most", most, least=1)]
    if not len(drawn):
        raise DataError("there is nothing to draw: there are no filters")
    channels = drawn.shape[1]
    if channels in (1, 3):
        columns = min(whole("filters", "columns", columns, least=1), len(drawn))
        pictures = [(str(number), entry) for number, entry in enumerate(drawn)]
    else:
        columns = min(channels, _MOST_CHANNELS)
        pictures = [
            (f"{number}, channel {channel}", entry[channel : channel + 1])
            for number, entry in enumerate(drawn)
            for channel in range(columns)
        ]
    rows = -(-len(pictures) // columns)
    figure = empty_figure(width=max(1.0 * columns, 2.0), height=max(1.15 * rows, 1.5))
    # One scale for all: pale filters hold small weights.
    largest = max(float(np.abs(drawn).max()), np.finfo(float).tiny)
    for position, (title, picture) in enumerate(pictures, start=1):
        axes = figure.add_subplot(rows, columns, position)
        if len(picture) == 1:
            axes.imshow(picture[0], cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="none")
        else:
            colored = np.moveaxis(0.5 + 0.5 * picture / largest, 0, -1)
            axes.imshow(colored, vmin=0.0, vmax=1.0, interpolation="none")
        axes.set_title(title, fontsize=7, pad=2)
        axes.set_axis_off()
    return finished(figure, path)


def _weights(given: Any, *, flat: bool) -> NDArray[np.float64]:  # noqa: ANN401 - checked here
    axes = 2 if flat else _DIMENSIONS
    if isinstance(given, Network):
        given.build()
        for layer in given.layers:
            found = layer.parameters.get("weight")
            if found is not None and found.ndim == axes:
                return np.asarray(found, np.float64)
        hint = "" if flat else "; the units of a Dense layer are drawn with shape=(height, width)"
        raise ShapeError(f"the network has no layer with a weight of {axes} axes{hint}")
    if isinstance(given, LayerHandle):
        found = given.parameters.get("weight")
        if found is None:
            raise ConfigError(f"filters draws the weight of a layer, and {given!r} has none")
        return np.asarray(found, np.float64)
    return np.asarray(as_real_array(given, "float64", what="weights"), np.float64)


def _of_images(weights: NDArray[np.float64], shape: Sequence[int] | None) -> NDArray[np.float64]:
    if shape is None:
        if weights.ndim != _DIMENSIONS:
            raise ShapeError(
                f"filters of images have (filters, channels, height, width), got shape {weights.shape}; the "
                "units of a Dense layer are drawn with shape=(height, width)"
            )
        return weights
    extents = tuple(whole("filters", "shape", extent, least=1) for extent in shape)
    if len(extents) not in (2, 3) or weights.ndim != 2 or weights.shape[1] != int(np.prod(extents)):
        raise ShapeError(
            f"weights of shape {weights.shape} are not those of (units, elements) with elements of an image "
            f"(height, width) or (channels, height, width), got shape={tuple(shape)}"
        )
    return weights.reshape(-1, *((1, *extents) if len(extents) == 2 else extents))
