"""Watching a log: what it is now, and whether that is better than before."""

from __future__ import annotations

import math

from loom.callbacks.base import Logs
from loom.errors import ConfigError

__all__ = ["improves", "monitored"]


def monitored(where: str, monitor: str, logs: Logs | None) -> float:
    """Returns the log that is watched.

    Args:
        where: Who watches, for the message.
        monitor: The log's name.
        logs: All of them.

    Raises:
        ConfigError: There is no such log.
    """
    values = dict(logs or {})
    if monitor in values:
        return values[monitor]
    hint = "; give validation data or monitor the loss" if monitor.startswith("val_") else ""
    raise ConfigError(f'{where}: there is no log "{monitor}"{hint}. Logs: {", ".join(values) or "none"}')


def improves(value: float, best: float, monitor: str, mode: str, min_delta: float) -> bool:
    """Returns whether a watched log is better than the best so far.

    Args:
        value: The log now.
        best: The best before; nan before any.
        monitor: The log's name.
        mode: "min", "max", or "auto": max for accuracies and r2, otherwise min.
        min_delta: A smaller change than this is no improvement.
    """
    if math.isnan(best):
        return not math.isnan(value)
    rising = mode == "max" or (mode == "auto" and monitor.endswith(("accuracy", "acc", "r2")))
    return value > best + min_delta if rising else value < best - min_delta
