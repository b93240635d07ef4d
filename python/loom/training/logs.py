"""Training in Python's own logs, under the name "loom"."""

from __future__ import annotations

import logging

from loom.callbacks import Callback, Logs
from loom.callbacks._pace import Pace
from loom.training.progress import format_logs

__all__ = ["logged"]

_LOGGER = logging.getLogger("loom")
# Without a handler of the user's nothing is to be written.
_LOGGER.addHandler(logging.NullHandler())


def logged() -> Callback | None:
    """Returns what writes a training to the logger "loom"; None while nobody listens at its level."""
    return _Logged() if _LOGGER.isEnabledFor(logging.INFO) else None


class _Logged(Callback):
    """A line of INFO when training begins, after each epoch, and when it ends."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._epochs = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Says what begins."""
        told = {name: self.params.get(name) for name in ("epochs", "batch_size", "device")}
        going = "goes on" if self._resumed else "begins"
        _LOGGER.info("training %s: %s", going, ", ".join(f"{name} {value}" for name, value in told.items()))

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes when the epoch begins."""
        self._pace.begin(self.params)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Says what the epoch has come to, with the learning rate and the samples a second."""
        self._epochs += 1
        figures = format_logs({**dict(logs or {}), **self._pace.figures(self.params)})
        _LOGGER.info("epoch %d/%s: %s", epoch + 1, self.params.get("epochs"), figures)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Says that it ends."""
        _LOGGER.info("training ends after %d epochs", self._epochs)
