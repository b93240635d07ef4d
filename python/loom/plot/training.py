"""What training did, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom.callbacks import History
from loom.errors import ConfigError
from loom.training.result import TrainingResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["training_curves"]


def training_curves(run: TrainingResult | History, path: str | Path | None = None) -> Figure:
    """Draws the loss and the metrics over the epochs, as `run.plot()` does.

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
    if not isinstance(run, TrainingResult | History):
        raise ConfigError(f"training_curves draws a TrainingResult or a History, got {run!r}")
    return run.plot(path)
