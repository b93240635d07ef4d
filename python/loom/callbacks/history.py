"""The logs of every epoch, kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom._curves import draw_curves
from loom.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["History"]


class History(Callback):
    """Keeps the logs of every epoch.

    `epoch` lists the epochs, `history` holds a list for each log; in a resumed run those of the
    run that it goes on from come first.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def __repr__(self) -> str:
        return f"History({len(self.epoch)} epochs, {', '.join(self.history) or 'no logs'})"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draws the loss and the metrics over the epochs.

        Args:
            path: Where to write the picture; its ending says the format.

        Returns:
            The matplotlib figure; notebooks show it.

        Raises:
            MissingExtraError: Matplotlib is not installed.
            DataError: No epoch was completed.
            FileError: The picture cannot be written.
        """
        return draw_curves(self.history, path)

    def state_dict(self) -> dict[str, Any]:
        """Returns epochs and logs."""
        return {"epoch": self.epoch, "history": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes epochs and logs back."""
        self.epoch = list(state["epoch"])
        self.history = {name: list(series) for name, series in state["history"].items()}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it."""
        if not self._resumed:
            self.epoch = []
            self.history = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Appends the epoch's logs; nan stands where a log is missing."""
        missing = [math.nan] * len(self.epoch)
        self.epoch.append(epoch)
        values = dict(logs or {})
        for name in values:
            self.history.setdefault(name, list(missing))
        for name, series in self.history.items():
            series.append(values.get(name, math.nan))
