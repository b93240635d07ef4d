"""Images, with what a network makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_labels, as_real_array
from loom.errors import ShapeError
from loom.plot.figures import empty_figure, finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["predictions"]


def predictions(
    images: ArrayLike,
    predicted: ArrayLike,
    actual: ArrayLike | None = None,
    *,
    columns: int = 10,
    path: str | Path | None = None,
) -> Figure:
    """Draws images with the classes that a network gave them.

    Args:
        images: (rows, height, width), (rows, 1, height, width) or, in colour,
            (rows, 3, height, width).
        predicted: (rows,) the network's classes, or (rows, classes) its outputs.
        actual: (rows,) the right classes; wrong predictions are drawn in red.
        columns: How many images stand side by side.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ShapeError: The arrays do not fit together.
        FileError: The picture cannot be written.
    """
    pictures = _pictures(images)
    given = _class_per_row(predicted)
    right = given if actual is None else as_labels(actual, what="actual")
    if not len(pictures) == len(given) == len(right):
        raise ShapeError(
            f"{len(pictures)} images, {len(given)} predictions and {len(right)} actual classes do not match"
        )
    columns = whole("predictions", "columns", columns, least=1)
    rows = -(-len(pictures) // columns)
    figure = empty_figure(width=1.1 * columns, height=1.4 * rows)
    for position, (picture, guess, truth) in enumerate(zip(pictures, given, right, strict=True), start=1):
        axes = figure.add_subplot(rows, columns, position)
        axes.imshow(picture, cmap="gray")
        axes.set_axis_off()
        wrong = guess != truth
        title = f"{guess} (is {truth})" if wrong else f"{guess}"
        axes.set_title(title, fontsize=9, color="tab:red" if wrong else "black")
    return finished(figure, path)


def _pictures(images: ArrayLike) -> np.ndarray[Any, np.dtype[np.floating[Any]]]:
    array = as_real_array(images, what="images")
    if array.ndim == 4 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim == 4 and array.shape[1] == 3:
        return np.moveaxis(array, 1, -1)
    if array.ndim != 3:
        raise ShapeError(
            "images must be (rows, height, width), (rows, 1, height, width) or (rows, 3, height, width), "
            f"got {array.shape}"
        )
    return array


def _class_per_row(predicted: ArrayLike) -> np.ndarray[Any, np.dtype[np.int64]]:
    array = np.asarray(predicted)
    return array.argmax(axis=1) if array.ndim == 2 else as_labels(array, what="predicted")
