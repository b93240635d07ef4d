"""Images, with what a network makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, INK
from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_labels, as_real_array
from loom.errors import DataError, ShapeError
from loom.reports import ClassErrors, RegressionErrors

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["predictions", "top_errors"]


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
        predicted: (rows,) the network's classes, by number or by name, or (rows, classes) its outputs.
        actual: (rows,) the right classes, in the same form; wrong predictions are drawn in red.
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
    given = _class_per_row(predicted, "predicted")
    right = given if actual is None else _class_per_row(actual, "actual")
    if not len(pictures) == len(given) == len(right):
        raise ShapeError(
            f"{len(pictures)} images, {len(given)} predictions and {len(right)} actual classes do not match"
        )
    columns = whole("predictions", "columns", columns, least=1)
    rows = -(-len(pictures) // columns)
    figure = empty_figure(width=1.1 * columns, height=1.4 * rows)
    for position, (picture, guess, truth) in enumerate(zip(pictures, given, right, strict=True), start=1):
        axes = figure.add_subplot(rows, columns, position)
        axes.imshow(picture, cmap="gray", interpolation="none")
        axes.set_axis_off()
        wrong = guess != truth
        title = f"{guess} (is {truth})" if wrong else f"{guess}"
        axes.set_title(title, fontsize=9, color=COLORS[1] if wrong else INK)
    return finished(figure, path)


def top_errors(
    errors: ClassErrors | RegressionErrors, *, columns: int = 5, path: str | Path | None = None
) -> Figure:
    """Draws the images that were answered most wrongly, with what was answered and what was right.

    Args:
        errors: What `top_errors` of a report has found; its inputs are (errors, height, width),
            (errors, 1, height, width) or, in colour, (errors, 3, height, width).
        columns: How many images stand side by side.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report, or there is to be no column.
        DataError: There are no errors.
        ShapeError: The inputs are no images.
        FileError: The picture cannot be written.
    """
    check_drawn("top_errors", errors, ClassErrors, RegressionErrors)
    if not len(errors.rows):
        raise DataError("there is nothing to draw: there are no errors")
    pictures = _pictures(errors.inputs)
    columns = min(whole("top_errors", "columns", columns, least=1), len(pictures))
    rows = -(-len(pictures) // columns)
    figure = empty_figure(width=1.6 * columns, height=1.9 * rows)
    for place, picture in enumerate(pictures):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(picture, cmap="gray", interpolation="none")
        axes.set_axis_off()
        if isinstance(errors, RegressionErrors):
            said, right = f"{errors.predicted[place]:.4g}", f"{errors.expected[place]:.4g}"
        else:
            label, right = errors.predicted[place], errors.names[errors.expected[place]]
            said = f"{errors.names[label]} ({errors.confidence[place]:.0%})" if label >= 0 else "no answer"
        axes.set_title(f"{said}\nis {right}, row {errors.rows[place]}", fontsize=8)
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


def _class_per_row(given: Any, what: str) -> list[Any]:  # noqa: ANN401 - classes of any kind
    array = np.asarray(given)
    if array.ndim == 2:
        return list(array.argmax(axis=1))
    # Names are classes as they are, such as those of `predict_classes`.
    return list(array) if array.dtype.kind in "UOb" else list(as_labels(array, what=what))
