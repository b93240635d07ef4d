"""What a training run has come to so far, in all processes that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loom.training.result import StopReason, TrainingResult

__all__ = ["Course"]


@dataclass
class Course:
    """The figures of a run, from which its result is made.

    Args:
        history: For each log its value at each epoch.
        epoch_times: The seconds that each epoch took.
        step_times: The seconds that each step took, where they are recorded.
        step_parts: Those of parts of steps, by their names, where processes share steps.
        rows: Samples learned from.
        skipped: Steps left out.
        exploded: Steps that exploded.
        seconds: What processes before this one took.
    """

    history: dict[str, list[float]] = field(default_factory=dict)
    epoch_times: list[float] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    step_parts: dict[str, list[float]] = field(default_factory=dict)
    rows: int = 0
    skipped: int = 0
    exploded: int = 0
    seconds: float = 0.0

    def note_times(self, times: list[float], parts: list[list[tuple[str, float]]]) -> None:
        """Notes how long steps took, and parts of them."""
        self.step_times += times
        for step in parts:
            for name, seconds in step:
                self.step_parts.setdefault(name, []).append(seconds)

    def logs(self) -> dict[str, float]:
        """Returns the newest value of each log."""
        return {name: values[-1] for name, values in self.history.items() if values}

    def counts(self) -> dict[str, Any]:
        """Returns what is the same in every run of this kind."""
        return {
            "history": self.history,
            "rows": self.rows,
            "skipped": self.skipped,
            "exploded": self.exploded,
        }

    def times(self, seconds: float) -> dict[str, Any]:
        """Returns what is another in every run; `seconds` is what this process has taken."""
        return {
            "epochs": np.array(self.epoch_times),
            "steps": np.array(self.step_times),
            "seconds": self.seconds + seconds,
        }

    def restore(self, counts: Mapping[str, Any], times: Mapping[str, Any]) -> None:
        """Takes back what `counts` and `times` have returned."""
        self.history = {name: list(values) for name, values in counts["history"].items()}
        self.rows, self.skipped, self.exploded = (
            int(counts[name]) for name in ("rows", "skipped", "exploded")
        )
        self.epoch_times, self.step_times = times["epochs"].tolist(), times["steps"].tolist()
        self.seconds = float(times["seconds"])

    def result(self, seconds: float, device: str, stop_reason: StopReason, message: str) -> TrainingResult:
        """Returns what the run gives back; `seconds` is what this process has taken."""
        total = self.seconds + seconds
        history = dict(self.history)
        return TrainingResult(
            loss_history=history.pop("loss", []),
            epoch_times=self.epoch_times,
            total_time=total,
            throughput=self.rows / max(total, 1e-9),
            metrics=history,
            step_times=self.step_times,
            step_parts=self.step_parts,
            skipped_steps=self.skipped,
            device=device,
            stop_reason=stop_reason,
            explosions=self.exploded,
            message=message,
        )
