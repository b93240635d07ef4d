"""Logs for Aim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loom.callbacks._tracking import Tracker
from loom.extras import require

__all__ = ["AimLogger"]


class AimLogger(Tracker):
    """Writes logs to Aim, through its package, which the extra "aim" installs.

    Each epoch's loss, metrics, learning rate and samples a second; those of validation have the same name in
    the context {"subset": "val"}, so that Aim draws them into one picture, and those of training
    {"subset": "train"}. The settings are the run's "settings", the network's table its "network". A resumed
    training goes on with its run.

    Args:
        repo: The folder of the repository, or an address of Aim's server; the current folder where None.
        experiment: The experiment's name; Aim's own default where None.
        name: The run's name; Aim makes one where None.
        batches: Also the loss of every so many batches, as "batch_loss" over steps; None for epochs alone,
            which does not slow training down.

    Raises:
        ConfigError: `batches` is not a positive whole number.
        MissingExtraError: aim is not installed; when training begins.
    """

    def __init__(
        self,
        repo: str | Path | None = None,
        *,
        experiment: str | None = None,
        name: str | None = None,
        batches: int | None = None,
    ) -> None:
        super().__init__(batches)
        self.repo = None if repo is None else str(repo)
        self.experiment, self.name = experiment, name
        self._run: Any = None

    def _begin(self, run_id: str | None, settings: dict[str, Any], network: str) -> str:
        aim = require("aim", extra="aim", purpose="loom.AimLogger")
        known = {"run_hash": run_id, "repo": self.repo, "experiment": self.experiment}
        given = {name: value for name, value in known.items() if value is not None}
        # What a training writes is its own: neither the machine's load nor what terminals show.
        self._run = aim.Run(**given, system_tracking_interval=None, capture_terminal_logs=False)
        if self.name is not None:
            self._run.name = self.name
        self._run["settings"] = settings
        self._run["network"] = network
        return str(self._run.hash)

    def _write(self, figures: dict[str, float], *, epoch: int | None, step: int) -> None:
        for name, value in figures.items():
            subset = "val" if name.startswith("val_") else "train"
            at = {"step": step} if epoch is None else {"step": epoch, "epoch": epoch}
            self._run.track(value, name=name.removeprefix("val_"), context={"subset": subset}, **at)

    def _end(self, *, failed: bool) -> None:
        run, self._run = self._run, None
        if failed:
            run["failed"] = True
        run.close()
