"""What training did, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import empty_figure, finished
from loom.callbacks import History
from loom.errors import ConfigError, DataError
from loom.training.result import TrainingResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["training_curves"]


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
    figure = empty_figure(width=5.0 * len(panels), height=3.5)
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
    return finished(figure, path)


def _logs(run: TrainingResult | History) -> Mapping[str, Sequence[float]]:
    if isinstance(run, TrainingResult):
        return {"loss": run.loss_history, **run.metrics}
    if isinstance(run, History):
        return run.history
    raise ConfigError(f"training_curves draws a TrainingResult or a History, got {run!r}")
