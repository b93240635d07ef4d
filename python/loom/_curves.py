"""Losses and metrics over epochs, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import empty_figure, finished
from loom.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_curves"]

_MOST_COLUMNS = 3


def draw_curves(logs: Mapping[str, Sequence[float]], path: str | Path | None = None) -> Figure:
    """Draws logs over epochs: a panel for each, training and validation together.

    Args:
        logs: Values by name, one an epoch; those of validation begin with "val_", and NaN is left out.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        DataError: No epoch was completed.
        FileError: The picture cannot be written.
    """
    if not logs or not any(logs.values()):
        raise DataError("there is nothing to draw: no epoch was completed")
    panels = list(dict.fromkeys(name.removeprefix("val_") for name in logs))
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    figure = empty_figure(width=5.0 * columns, height=3.5 * rows)
    for position, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, position)
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
    return finished(figure, path)
