"""Files of the network, written after epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from loom._settings.checks import choice, flag
from loom._settings.endings import check_ending
from loom._settings.suggestions import shown
from loom.callbacks._monitoring import checked, improves, monitored
from loom.callbacks.base import Callback, Logs
from loom.errors import ConfigError

__all__ = ["ModelCheckpoint"]


class ModelCheckpoint(Callback):
    """Saves the network after epochs, once all other callbacks have seen the epoch.

    `loom.train(loom.load(path), ..., resume=True)` goes on from such a file as if the run had
    never stopped, the callbacks included.

    Args:
        filepath: Where to; may name the epoch (from 1) and logs:
            "run-{epoch:03d}-{val_loss:.3f}.loom".
        monitor: The log that is watched with `save_best_only`.
        save_best_only: Saves only when the watched log improves; beside a callback that averages weights,
            and for a log of validation, the average that it was measured with.
        mode: "min", "max", or "auto": max for accuracies, r2 and
            scikit-learn's scores, otherwise min.
        optimizer: Whether the files hold what a resumed run goes on from, too: the optimizer's
            state, the place in the data, the state of the callbacks. Without it they are smaller
            (a third of the size, with Adam), and training can only start anew from them.

    Raises:
        ConfigError: The mode is unknown.
    """

    def __init__(
        self,
        filepath: str | Path,
        monitor: str = "val_loss",
        *,
        save_best_only: bool = False,
        mode: Literal["auto", "min", "max"] = "auto",
        optimizer: bool = True,
    ) -> None:
        check_ending("ModelCheckpoint", filepath)
        self.filepath = str(filepath)
        self.monitor = checked("ModelCheckpoint", monitor)
        self.save_best_only = flag("ModelCheckpoint", "save_best_only", save_best_only)
        self.mode = choice("ModelCheckpoint", "mode", mode, ("auto", "min", "max"))
        self.optimizer = flag("ModelCheckpoint", "optimizer", optimizer)
        self.best = math.nan
        self.last_path: Path | None = None
        # The epoch that was judged last, and where it is to be saved.
        self._judged: int | None = None
        self._due: Path | None = None

    def __repr__(self) -> str:
        return f"ModelCheckpoint({self.filepath!r})"

    @property
    def state_key(self) -> str:
        """Its name, with what it watches."""
        watched = f"{self.monitor}, {self.mode}" if self.save_best_only else ""
        return f"ModelCheckpoint({watched})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best so far, and the newest file."""
        return {"best": self.best, "last_path": None if self.last_path is None else str(self.last_path)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self.best = float(state["best"])
        self.last_path = None if state["last_path"] is None else Path(state["last_path"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it."""
        self._judged = self._due = None
        if not self._resumed:
            self.best = math.nan

    def judge(self, epoch: int, logs: Logs | None = None) -> None:
        """Finds out where the epoch is to be saved, if it is, before anything is saved."""
        self._judged, self._due = epoch, None
        if self.save_best_only:
            value = monitored("ModelCheckpoint", self.monitor, logs)
            if not improves(value, self.best, self.monitor, self.mode, 0.0):
                return
            self.best = value
        self._due = self.last_path = self._path(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves, if it is time to."""
        if self._judged != epoch:
            self.judge(epoch, logs)
        self._judged = None
        if self._due is not None:
            with self._as_measured(self.monitor if self.save_best_only else ""):
                self.network.save(self._due, optimizer=self.optimizer)

    def _path(self, epoch: int, logs: Logs | None) -> Path:
        try:
            return Path(self.filepath.format(epoch=epoch + 1, **(logs or {})))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *(logs or {})])
            raise ConfigError(
                f'ModelCheckpoint: "{self.filepath}" cannot be filled in ({shown(error)}); known: {known}'
            ) from error
