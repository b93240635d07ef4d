"""Watching a log: what it is now, and whether that is better than before."""

from __future__ import annotations

import math

from loom._settings.spellings import spelling
from loom._settings.suggestions import shown
from loom.callbacks.base import Logs
from loom.errors import ConfigError
from loom.metrics import is_score, names

__all__ = ["checked", "improves", "monitored", "rises"]

# How names of logs end of which more is better.
_RISING = ("accuracy", "acc", "r2", "precision", "recall", "f1", "iou", "auc")


def checked(where: str, monitor: object) -> str:
    """Returns the name of the log that is to be watched, if it is one."""
    if not isinstance(monitor, str):
        # A number that comes first is how long to wait.
        patience = f"; patience={shown(monitor)} says how long to wait" if isinstance(monitor, int) else ""
        raise ConfigError(
            f'{where}: monitor must be the name of a log, such as "val_loss", got {shown(monitor)}{patience}'
        )
    return monitor


def monitored(where: str, monitor: str, logs: Logs | None) -> float:
    """Returns the log that is watched; a ConfigError where there is none of its name."""
    values = dict(logs or {})
    if monitor in values:
        return values[monitor]
    hint = _meant(monitor, values)
    raise ConfigError(f'{where}: there is no log "{monitor}"{hint}. Logs: {", ".join(values) or "none"}')


def _meant(monitor: str, values: dict[str, float]) -> str:
    """Says what was meant by a log that is not there, or what makes one of that name."""
    prefix = "val_" if monitor.startswith("val_") else ""
    name = monitor.removeprefix("val_")
    if prefix and not any(log.startswith("val_") for log in values):
        return "; give validation data or monitor the loss"
    ours = spelling(name, names())
    if ours is not None and prefix + ours in values:
        return f'; in loom that is "{prefix}{ours}"'
    by_output = [log for log in values if log.startswith(prefix) and log.endswith(f"_{ours or name}")]
    if by_output:
        return f"; of outputs with names there is {' and '.join(map(repr, by_output))}"
    if ours is not None or name in names():
        return f'; metrics=["{ours or name}"] of training makes "{prefix}{ours or name}"'
    return ""


def rises(monitor: str) -> bool:
    """Returns whether more of a log is better, by its name."""
    name = monitor.removeprefix("val_")
    # Of outputs with names these stand first.
    parts = name.split("_")
    return monitor.endswith(_RISING) or any(is_score("_".join(parts[at:])) for at in range(len(parts)))


def improves(value: float, best: float, monitor: str, mode: str, min_delta: float) -> bool:
    """Returns whether a watched log is better than the best before, which is nan before any."""
    if math.isnan(best):
        return not math.isnan(value)
    rising = mode == "max" or (mode == "auto" and rises(monitor))
    return value > best + min_delta if rising else value < best - min_delta
