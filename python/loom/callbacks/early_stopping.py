"""Stopping where a log no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice, flag, real, whole
from loom._settings.encoding import Plain
from loom.callbacks._lending import Lending
from loom.callbacks._monitoring import checked, improves, monitored
from loom.callbacks._states import moving
from loom.callbacks.base import Logs, StopTraining

__all__ = ["EarlyStopping"]


@dataclass
class EarlyStopping(Lending, Plain):
    """Stops when a log has not improved for some epochs.

    Args:
        monitor: The log that is watched.
        patience: After how many epochs without improvement it stops; epochs
            without validation do not count.
        min_delta: A smaller change than this is no improvement.
        mode: "min", "max", or "auto": max for accuracies, r2 and
            scikit-learn's scores, otherwise min.
        restore_best_weights: Whether the network gets the weights of the best
            epoch back when training ends: those that the log was measured with, which beside a callback
            that averages weights is the average, for logs of validation. A run that is resumed with it goes
            on from where training was, unless other weights were set since.

    Raises:
        ConfigError: A setting is out of range.
    """

    monitor: str = "val_loss"
    _: KW_ONLY
    patience: int = 0
    min_delta: float = 0.0
    mode: Literal["auto", "min", "max"] = "auto"
    restore_best_weights: bool = False

    def __post_init__(self) -> None:
        self.monitor = checked("EarlyStopping", self.monitor)
        self.patience = whole("EarlyStopping", "patience", self.patience, least=0)
        self.min_delta = real("EarlyStopping", "min_delta", self.min_delta, least=0.0)
        self.mode = choice("EarlyStopping", "mode", self.mode, ("auto", "min", "max"))
        restores = flag("EarlyStopping", "restore_best_weights", self.restore_best_weights)
        self.restore_best_weights = restores
        self._forget()

    def _forget(self) -> None:
        self.best = math.nan
        self.best_epoch = -1
        self._waited = 0
        self._best_weights: dict[str, NDArray[Any]] | None = None
        self._own = None

    @property
    def state_key(self) -> str:
        """Its name, with what it watches."""
        return f"EarlyStopping({self.monitor}, {self.mode})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best with its weights, how long it has waited, and what training goes on from."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "waited": self._waited,
            "best_weights": self._best_weights,
            **self.lent_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self.best = float(state["best"])
        self.best_epoch = int(state["best_epoch"])
        self._waited = int(state["waited"])
        self._best_weights = state["best_weights"]
        self.load_lent_state(state)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run; one that goes on where its patience has ended stops again."""
        if not self._resumed:
            self._forget()
            return
        if self._best_weights is not None:
            self.take_back(self._best_weights)
        if self._waited > 0:
            self._stop_if_exhausted()

    def _stop_if_exhausted(self) -> None:
        if self._waited >= self.patience:
            raise StopTraining(
                f"{self.monitor} has not improved since epoch {self.best_epoch + 1} ({self.best:.6g})"
            )

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the watched log with the best so far."""
        value = monitored("EarlyStopping", self.monitor, logs)
        if math.isnan(value):
            return
        self._waited += 1
        if improves(value, self.best, self.monitor, self.mode, self.min_delta):
            self.best = value
            self.best_epoch = epoch
            self._waited = 0
            if self.restore_best_weights:
                with self._as_measured(self.monitor):
                    state = moving(self.network)
                self._best_weights = {name: np.array(values) for name, values in state.items()}
        else:
            self._stop_if_exhausted()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the best weights back, if asked; a resumed run may still need them."""
        if self.restore_best_weights and self._best_weights is not None:
            self.lend(self._best_weights)
