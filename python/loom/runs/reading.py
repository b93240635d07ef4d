"""Runs as `RunRecorder` writes them: line-delimited JSON, read while it is still being written, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom._settings.checks import file_path
from loom.errors import FileError, SerializationError
from loom.reports import TabularReport
from loom.reports.blueprint import Blueprint
from loom.runs.events import EVENTS, parsed, whole_lines

__all__ = ["Run", "read_run"]


@dataclass(frozen=True, eq=False)
class Run(TabularReport):
    """What a run has written so far.

    Args:
        path: Its directory.
        started: What it began with: time, device, epochs, steps, network and training configuration.
        blueprint: The network's blueprint; None where the run was killed before it was written.
        epochs: A dictionary for each epoch: its number, learning rate, samples a second, seconds, logs such
            as "loss".
        batches: The same for batches, where they were recorded.
        layers: The measures of layers after epochs: epoch, path, gap, alignment, gain, link budget.
        devices: Device statistics after epochs: peak memory, processor seconds, GPU frames.
        finished: Whether the run has come to its end in good order.
        skipped: How many lines could not be read: the last one of a run that was killed, or is
            writing now.
    """

    path: str
    started: dict[str, Any]
    blueprint: Blueprint | None
    epochs: tuple[dict[str, Any], ...]
    batches: tuple[dict[str, Any], ...]
    layers: tuple[dict[str, Any], ...]
    devices: tuple[dict[str, Any], ...]
    finished: bool
    skipped: int

    def columns(self) -> dict[str, Any]:
        """Returns a row for every epoch."""
        return _columns(self.epochs)

    def batch_columns(self) -> dict[str, Any]:
        """Returns a row for every recorded batch."""
        return _columns(self.batches)

    def layer_columns(self) -> dict[str, Any]:
        """Returns a row for every layer after every epoch."""
        return _columns(self.layers)


def read_run(path: str | Path) -> Run:
    """Reads what a `RunRecorder` has written, also while it still writes.

    A last line that is not complete is left out.

    Args:
        path: The run's directory.

    Returns:
        The run; `to_frame` gives a row for every epoch.

    Raises:
        ConfigError: The path is none.
        FileError: There is no run.
        SerializationError: The file holds nothing that a recorder writes.
    """
    file = file_path("read_run", path) / EVENTS
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FileError(error.errno, f"there is no run to read: {error.strerror}", str(file)) from error
    lines, rest = whole_lines(data)
    parts: dict[str, list[dict[str, Any]]] = {}
    finished = False
    skipped = int(bool(rest))
    for line in lines:
        try:
            event = parsed(line)
        except ValueError:
            # Begun by a run that was killed, before another one went on in the same file.
            skipped += 1
            continue
        kind = event.pop("event")
        if kind in ("start", "end"):
            # A process that was killed has left a start without an end.
            finished = kind == "end"
        parts.setdefault(kind, []).append(event)
    if lines and not parts:
        raise SerializationError(f"{file} holds no events of a run: {lines[0][:60]!r}")
    starts = parts.get("start", [{}])
    blueprints = parts.get("blueprint", [])
    return Run(
        path=str(path),
        started=starts[-1],
        blueprint=Blueprint.from_dict(blueprints[-1]["blueprint"]) if blueprints else None,
        epochs=_newest(parts.get("epoch", []), "epoch"),
        batches=_newest(parts.get("batch", []), "epoch", "batch"),
        layers=_newest(
            [
                {"epoch": event["epoch"], **layer}
                for event in parts.get("layers", [])
                for layer in event["layers"]
            ],
            "epoch",
            "path",
        ),
        devices=_newest(parts.get("device", []), "epoch"),
        finished=finished,
        skipped=skipped,
    )


def _newest(rows: list[dict[str, Any]], *names: str) -> tuple[dict[str, Any], ...]:
    """Returns the rows; of what a resumed run has done again the newest."""
    return tuple({tuple(row.get(name) for name in names): row for row in rows}.values())


def _columns(rows: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
