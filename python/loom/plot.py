"""Pictures: training curves, predictions, measures of layers. Needs the extra "plot"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.callbacks import History
from loom.convert import as_labels, as_real_array
from loom.errors import ConfigError, DataError, FileError, ShapeError
from loom.extras import require
from loom.measuring import Measures
from loom.training.result import TrainingResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loom.network import Network

__all__ = ["predictions", "training_curves", "tween"]


def training_curves(run: TrainingResult | History, path: str | Path | None = None) -> Figure:
    """Draws the loss and the metrics over the epochs.

    Args:
        run: A training run's result or history.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        DataError: No epoch was completed.
        FileError: The picture cannot be written.
    """
    logs = _logs(run)
    if not logs or not any(logs.values()):
        raise DataError("there is nothing to draw: no epoch was completed")
    panels = list(dict.fromkeys(name.removeprefix("val_") for name in logs))
    figure = _figure(width=5.0 * len(panels), height=3.5)
    for position, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), position)
        for name, label in ((panel, "training"), (f"val_{panel}", "validation")):
            if name in logs:
                values = np.asarray(logs[name], dtype=float)
                shown = np.flatnonzero(~np.isnan(values))
                axes.plot(shown + 1, values[shown], marker="o", markersize=3, label=label)
        axes.set_title(panel.replace("_", " "))
        axes.set_xlabel("epoch")
        axes.locator_params(axis="x", integer=True)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    return _finished(figure, path)


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
    figure = _figure(width=1.1 * columns, height=1.4 * rows)
    for position, (picture, guess, truth) in enumerate(zip(pictures, given, right, strict=True), start=1):
        axes = figure.add_subplot(rows, columns, position)
        axes.imshow(picture, cmap="gray")
        axes.set_axis_off()
        wrong = guess != truth
        title = f"{guess} (is {truth})" if wrong else f"{guess}"
        axes.set_title(title, fontsize=9, color="tab:red" if wrong else "black")
    return _finished(figure, path)


def tween(measured: Measures | Network, path: str | Path | None = None) -> Figure:
    """Draws heat maps of gaps and of link budgets: steps to the right, layers downward.

    White lines mark the steps that exploded. The colours of gaps follow their logarithm.

    Args:
        measured: A `TweenState`, or a network that learned by targets or was observed; the
            history has to be kept, as by `TweenConfig(history=1)`.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        DataError: No history was kept.
        FileError: The picture cannot be written.
    """
    measures = getattr(measured, "measures", measured)
    if not isinstance(measures, Measures):
        raise ConfigError(f"tween draws a network, its measures or a TweenState, got {measured!r}")
    history = measures.history
    if not len(history):
        raise DataError("there is nothing to draw: no history was kept; give history=1 to keep every step")
    colors = require("matplotlib.colors", extra="plot", purpose="loom.plot")
    layers = len(history.layers)
    figure = _figure(width=9.0, height=2.0 + 2 * max(1.0, 0.22 * layers))
    count = len(history.explosions)
    exploded = f", {count} explosion{'s' * (count > 1)}" if count else ""
    # A step's column reaches to the next step that was kept; the last is as wide as the one before.
    width = history.steps[-1] - history.steps[-2] if len(history) > 1 else 1
    edges = np.append(history.steps, history.steps[-1] + width)
    for position, (title, table) in enumerate(
        (("gap", history.gaps), ("link budget", history.link_budgets)), start=1
    ):
        axes = figure.add_subplot(2, 1, position)
        shown = np.ma.masked_invalid(table.T)
        if title == "gap":
            shown = np.ma.masked_less_equal(shown, 0.0)
        scale = colors.LogNorm() if title == "gap" and shown.count() else None
        image = axes.pcolormesh(edges, np.arange(layers + 1), shown, norm=scale, cmap="viridis")
        figure.colorbar(image, ax=axes)
        for step in history.explosions:
            axes.axvline(step, color="white", linewidth=1.2)
        axes.set_title(title + exploded)
        axes.set_yticks(np.arange(layers) + 0.5, history.layers, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("step")
    return _finished(figure, path)


def _logs(run: TrainingResult | History) -> Mapping[str, Sequence[float]]:
    if isinstance(run, TrainingResult):
        return {"loss": run.loss_history, **run.metrics}
    if isinstance(run, History):
        return run.history
    raise ConfigError(f"training_curves draws a TrainingResult or a History, got {run!r}")


def _figure(*, width: float, height: float) -> Figure:
    # The object interface leaves pyplot's global state, and the user's backend, alone.
    module = require("matplotlib.figure", extra="plot", purpose="loom.plot")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure


def _finished(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    return figure


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
