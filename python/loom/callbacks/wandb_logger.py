"""Logs for Weights & Biases."""

from __future__ import annotations

from typing import Any

from loom.callbacks._tracking import Tracker
from loom.extras import require

__all__ = ["WandbLogger"]


class WandbLogger(Tracker):
    """Writes logs to Weights & Biases, through its package wandb, which the extra "wandb" installs.

    Each epoch's loss, metrics, learning rate and samples a second over "epoch", the settings as the run's
    config, the network's table in its summary. Where `wandb.run` is open already, as in a sweep, that one is
    written to and left open; otherwise one is opened and closed again. A resumed training goes on with its
    run. `WANDB_MODE=offline` keeps all of it on this machine.

    Args:
        project: The project; wandb's own default where None.
        name: The run's name; wandb makes one where None.
        batches: Also the loss of every so many batches, as "batch_loss" over "step"; None for epochs alone,
            which does not slow training down.
        options: Whatever else `wandb.init` takes, such as tags=["first"] or mode="offline".

    Raises:
        ConfigError: `batches` is not a positive whole number.
        MissingExtraError: wandb is not installed; when training begins.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        name: str | None = None,
        batches: int | None = None,
        **options: Any,  # noqa: ANN401 - wandb's own
    ) -> None:
        super().__init__(batches)
        self.project, self.name, self.options = project, name, options
        self._run: Any = None
        self._owns = False

    def _begin(self, run_id: str | None, settings: dict[str, Any], network: str) -> str:
        wandb = require("wandb", extra="wandb", purpose="loom.WandbLogger")
        self._run, self._owns = wandb.run, wandb.run is None
        if self._run is None:
            going = {} if run_id is None else {"id": run_id, "resume": "allow"}
            self._run = wandb.init(project=self.project, name=self.name, **{**going, **self.options})
        self._run.config.update(settings, allow_val_change=True)
        self._run.define_metric("*", step_metric="epoch")
        self._run.define_metric("batch_loss", step_metric="step")
        self._run.summary["network"] = network
        return str(self._run.id)

    def _write(self, figures: dict[str, float], *, epoch: int | None, step: int) -> None:
        over: dict[str, float] = {"step": step} if epoch is None else {"epoch": epoch}
        self._run.log({**figures, **over})

    def _end(self, *, failed: bool) -> None:
        run, self._run = self._run, None
        if self._owns:
            run.finish(exit_code=1 if failed else 0)
