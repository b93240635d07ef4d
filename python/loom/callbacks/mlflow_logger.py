"""Logs for MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from loom._settings.suggestions import shown
from loom.callbacks._tracking import Tracker
from loom.errors import ConfigError
from loom.extras import require

__all__ = ["MLflowLogger"]

_LONGEST = 500
"""Letters of a parameter that every version of MLflow's stores takes."""


class MLflowLogger(Tracker):
    """Writes logs to MLflow, through its package, which the extra "mlflow" installs.

    Each epoch's loss, metrics, learning rate and samples a second are metrics of a run, over epochs; the
    settings are its parameters, with dots for what is nested; the network's table is the tag "network". Where
    a run is open already (`with mlflow.start_run():`), that one is written to and left open. A resumed
    training goes on with its run.

    Args:
        experiment: The experiment's name, which is made where there is none; MLflow's own default where None.
        name: The run's name; MLflow makes one where None.
        tracking_uri: A server, a database or a folder ("sqlite:///mlflow.db"); MLflow's default where None,
            which `MLFLOW_TRACKING_URI` says.
        tags: What else the run is marked with.
        batches: Also the loss of every so many batches, as "batch_loss" over steps; None for epochs alone,
            which does not slow training down.

    Raises:
        ConfigError: `batches` is not a positive whole number.
        MissingExtraError: mlflow is not installed; when training begins.
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        name: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
        batches: int | None = None,
    ) -> None:
        super().__init__(batches)
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        if tags is not None and not isinstance(tags, Mapping):
            raise ConfigError(
                f'MLflowLogger: tags must be texts by name, such as {{"team": "a"}}, got {shown(tags)}'
            )
        self.tags = dict(tags or {})
        self._mlflow: Any = None
        self._client: Any = None
        self._owns = False

    def _begin(self, run_id: str | None, settings: dict[str, Any], network: str) -> str:
        mlflow = self._mlflow = require("mlflow", extra="mlflow", purpose="loom.MLflowLogger")
        self._client = mlflow.MlflowClient(self.tracking_uri)
        active = mlflow.active_run() if self.tracking_uri is None else None
        self._owns = active is None
        if active is not None:
            found, is_new = str(active.info.run_id), str(active.info.run_id) != run_id
        elif run_id is not None:
            found, is_new = run_id, False
            self._client.update_run(run_id, status="RUNNING")
        else:
            made = self._client.create_run(self._experiment_id(), tags=self.tags, run_name=self.name)
            found, is_new = str(made.info.run_id), True
        if is_new:
            # A parameter can be written once.
            known = self._client.get_run(found).data.params
            for name, value in _flat(settings):
                if _plain(name) not in known:
                    self._client.log_param(found, _plain(name), str(value)[:_LONGEST])
            self._client.set_tag(found, "network", network)
        return found

    def _experiment_id(self) -> str:
        if self.experiment is None:
            return "0"
        known = self._client.get_experiment_by_name(self.experiment)
        return str(self._client.create_experiment(self.experiment) if known is None else known.experiment_id)

    def _write(self, figures: dict[str, float], *, epoch: int | None, step: int) -> None:
        now, at = int(time.time() * 1000), step if epoch is None else epoch
        metric = self._mlflow.entities.Metric
        entries = [metric(_plain(name), value, now, at) for name, value in figures.items()]
        self._client.log_batch(self._run_id, metrics=entries)

    def _end(self, *, failed: bool) -> None:
        if self._owns:
            self._client.set_terminated(self._run_id, status="FAILED" if failed else "FINISHED")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Returns nested settings as a list, with dots in their names."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def _plain(name: str) -> str:
    """Returns a name as MLflow takes it: letters, digits, and "_", "-", ".", "/" and blanks."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
