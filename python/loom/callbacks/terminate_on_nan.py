"""Stopping where a loss is no number any more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loom._settings.checks import whole
from loom.callbacks.base import Callback, Logs, StopTraining

__all__ = ["TerminateOnNaN"]


class TerminateOnNaN(Callback):
    """Stops in good order after a batch whose loss is NaN or infinite; the name is Keras'.

    It is for runs with `on_nonfinite="skip"`, where such steps are left out: the loss of a batch is NaN then.
    By default, "raise", training raises a `loom.NonFiniteError` there by itself. Python is called after every
    step.

    Args:
        patience: How many such batches in a row are borne with.
    """

    def __init__(self, patience: int = 0) -> None:
        self.patience = whole("TerminateOnNaN", "patience", patience, least=0)
        self._seen = 0

    def __repr__(self) -> str:
        return f"TerminateOnNaN(patience={self.patience})"

    def state_dict(self) -> dict[str, Any]:
        """Returns how many such batches have come in a row."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._seen = int(state["seen"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins to count, or goes on."""
        if not self._resumed:
            self._seen = 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Looks at the batch's loss."""
        # Where what is not finite raises, a step without a loss is one in which no sample counts, or by which
        # mixed precision finds its scale.
        if self._raises() or math.isfinite(dict(logs or {}).get("loss", 0.0)):
            self._seen = 0
            return
        self._seen += 1
        if self._seen > self.patience:
            raise StopTraining(f"the loss of batch {batch} is not finite")

    def _raises(self) -> bool:
        config = self.params.get("config")
        return config is not None and config.on_nonfinite == "raise"
