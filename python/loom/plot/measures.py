"""Measures of layers, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import empty_figure, finished
from loom.errors import ConfigError, DataError
from loom.extras import require
from loom.measuring import Measures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loom.network import Network


__all__ = ["tween"]


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
        raise DataError(
            "there is nothing to draw: no history was kept; training keeps every step's with "
            "observe=loom.Observe(history=1), learning by targets with loom.TweenConfig(history=1)"
        )
    colors = require("matplotlib.colors", extra="plot", purpose="loom.plot")
    layers = len(history.layers)
    figure = empty_figure(width=9.0, height=2.0 + 2 * max(1.0, 0.22 * layers))
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
        rows = np.arange(layers + 1)
        image = axes.pcolormesh(edges, rows, shown, norm=scale, cmap="viridis", rasterized=True)
        figure.colorbar(image, ax=axes)
        for step in history.explosions:
            axes.axvline(step, color="white", linewidth=1.2)
        axes.set_title(title + exploded)
        axes.set_yticks(np.arange(layers) + 0.5, history.layers, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("step")
    return finished(figure, path)
