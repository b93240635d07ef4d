"""A run's course, written down as it goes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from loom._settings.checks import file_path, whole
from loom._settings.encoding import encode
from loom.callbacks._pace import Pace
from loom.callbacks.base import Callback, Logs
from loom.device import frame_statistics
from loom.errors import ConfigError, FileError
from loom.runs.events import EVENTS, Writer

__all__ = ["RunRecorder"]


class RunRecorder(Callback):
    """Writes losses, rates, measures of layers and device statistics into a run's directory.

    `events.jsonl` there has a line of JSON for each event: what the run began with and the network's
    blueprint, then every epoch. Each line is written at once, so that a process that is killed
    leaves at most one half line, which readers leave out. `loom.read_run` reads it, and `loom watch
    DIRECTORY` shows it while it grows.

    Measures of layers are written where there are any: with `observe=True`, or in learning by
    targets. A resumed run goes on in the same file; any other one begins it anew.

    Args:
        directory: The run's directory, which is made where there is none.
        batches: Also every so many batches; None for epochs alone, which does not slow training down.

    Raises:
        ConfigError: The directory is no path, or `batches` not a positive whole number.

    Examples:
        >>> import tempfile
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> config = loom.TrainingConfig(epochs=3, verbose=False)
        >>> with tempfile.TemporaryDirectory() as run:
        ...     recorder = loom.RunRecorder(run)
        ...     _ = loom.train(net, (np.eye(3), np.zeros((3, 2))), config, callbacks=[recorder])
        ...     len(loom.read_run(run).epochs)
        3
    """

    def __init__(self, directory: str | Path, *, batches: int | None = None) -> None:
        self.directory = file_path("RunRecorder", directory, "directory")
        self.batches = None if batches is None else whole("RunRecorder", "batches", batches, least=1)
        self._writer: Writer | None = None
        self._epoch = 0
        self._pace = Pace()
        if self.batches is not None:
            # Without the hook the engine trains many batches at a time.
            self.on_train_batch_end = self._record_batch  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"RunRecorder({str(self.directory)!r})"

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Writes what the run begins with, and the blueprint."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._writer = Writer(self.directory / EVENTS, append=self._resumed)
        except OSError as error:
            raise FileError(
                error.errno, f"RunRecorder cannot write: {error.strerror}", str(self.directory)
            ) from error
        named = ("epochs", "steps", "batch_size", "metrics", "device", "resumed")
        settings = {name: self.params.get(name) for name in named}
        network = json.loads(self.network.to_json())
        training = _settings(self.params.get("config"))
        self._write("start", **settings, network=network, training=training)
        self._write("blueprint", blueprint=self.network.blueprint().to_dict())

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes when the epoch begins."""
        self._epoch = epoch
        self._pace.begin(self.params)

    def _record_batch(self, batch: int, logs: Logs | None = None) -> None:
        if (batch + 1) % (self.batches or 1) == 0:
            self._write("batch", epoch=self._epoch, batch=batch, **self._rate(), **dict(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes the logs, measures of layers, and device statistics."""
        pace = self._pace.figures(self.params)
        self._write("epoch", epoch=epoch, seconds=self._pace.seconds, **pace, **dict(logs or {}))
        measures = self.network.measures
        if measures.steps:
            columns = {
                "path": measures.layers,
                "gap": measures.gaps.tolist(),
                "alignment": measures.alignments.tolist(),
                "gain": measures.gains.tolist(),
                "link_budget": measures.link_budgets.tolist(),
            }
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            self._write("layers", epoch=epoch, layers=rows)
        self._write("device", epoch=epoch, **_device(str(self.params.get("device", "cpu"))))

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Writes that the run has ended, and closes the file."""
        self._write("end")
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _rate(self) -> dict[str, float]:
        rate = self.params.get("learning_rate")
        return {} if rate is None else {"learning_rate": rate}

    def _write(self, event: str, **values: object) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write({"event": event, "time": time.time(), **values})
        except OSError as error:
            raise FileError(
                error.errno, f"RunRecorder cannot write: {error.strerror}", str(self.directory)
            ) from error


def _settings(config: Any) -> dict[str, Any]:  # noqa: ANN401
    """Returns the settings of a training; functions by their names, which JSON cannot hold."""
    found: dict[str, Any] = {}
    for field in fields(config) if config is not None else ():
        value = getattr(config, field.name)
        try:
            found[field.name] = encode(value)
        except ConfigError:
            found[field.name] = [getattr(entry, "__name__", None) or encode(entry) for entry in value]
    return found


def _device(name: str) -> dict[str, Any]:
    """Returns what the process and its device have used so far."""
    found: dict[str, Any] = {"device": name, "processor_seconds": time.process_time(), **_peak_memory()}
    if name.startswith("gpu"):
        statistics = asdict(frame_statistics(name))
        statistics.pop("kernels")
        found.update({f"gpu_{key}": value for key, value in statistics.items()})
    return found


def _peak_memory() -> Mapping[str, int]:
    try:
        import resource
    except ImportError:
        # Windows has none.
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_memory": peak if sys.platform == "darwin" else peak * 1024}
