"""What callbacks share that write a training to an experiment tracker."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

from loom._settings.checks import whole
from loom._settings.encoding import encode
from loom.callbacks._pace import Pace
from loom.callbacks.base import Callback, Logs
from loom.errors import ConfigError

__all__ = ["Tracker"]


class Tracker(Callback):
    """Opens a run of a tracker's, writes settings and logs, and ends it as it has ended.

    A resumed training goes on with the run that it began; nothing is written twice of its settings.

    Args:
        batches: Also the loss of every so many batches, as "batch_loss"; None for epochs alone.
    """

    # It writes through another's code.
    interruptible: ClassVar[bool] = True

    def __init__(self, batches: int | None) -> None:
        self.batches = None if batches is None else whole(type(self).__name__, "batches", batches, least=1)
        self._pace = Pace()
        self._run_id: str | None = None
        self._steps = 0
        self._open = False
        if self.batches is not None:
            # Without the hook the engine trains many batches at a time.
            self.on_train_batch_end = self._write_batch  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def run_id(self) -> str | None:
        """The tracker's name of the run; None before there is one."""
        return self._run_id

    @abstractmethod
    def _begin(self, run_id: str | None, settings: dict[str, Any], network: str) -> str:
        """Opens a run, the one of this name where there is one; returns its name."""

    @abstractmethod
    def _write(self, figures: dict[str, float], *, epoch: int | None, step: int) -> None:
        """Writes figures of an epoch, counted from 1, or of a step where there is no epoch."""

    @abstractmethod
    def _end(self, *, failed: bool) -> None:
        """Closes the run."""

    def state_dict(self) -> dict[str, Any]:
        """Returns which run it is, and how far it has come."""
        return {"run": self._run_id, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._run_id, self._steps = state["run"], state["steps"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Opens the run, with the settings of the training and the network's table."""
        if not self._resumed:
            self._run_id, self._steps = None, 0
        settings = _settings_of(self.params)
        self._run_id = self._begin(self._run_id, settings, str(self.network.blueprint()))
        self._open = True

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes when the epoch begins."""
        self._pace.begin(self.params)

    def _write_batch(self, batch: int, logs: Logs | None = None) -> None:
        self._steps += 1
        if self._open and self._steps % (self.batches or 1) == 0:
            found = {f"batch_{name}": value for name, value in dict(logs or {}).items() if value == value}
            if found:
                self._write(found, epoch=None, step=self._steps)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes the epoch's logs, with the learning rate and the samples a second."""
        if self._open:
            found = {**dict(logs or {}), **self._pace.figures(self.params)}
            known = {name: float(value) for name, value in found.items() if value == value}
            self._write(known, epoch=epoch + 1, step=self._steps)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Ends the run, as one that failed where an error ends the training."""
        if self._open:
            self._open = False
            self._end(failed=sys.exc_info()[0] is not None)


def _settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a training and where it runs as plain values; functions as their text."""
    config = params.get("config")
    found: dict[str, Any] = {"device": params.get("device")}
    if is_dataclass(config):
        for field in fields(config):
            value = getattr(config, field.name)
            if field.name == "device":
                continue
            try:
                found[field.name] = encode(value)
            except ConfigError:
                found[field.name] = repr(value)
    return found
