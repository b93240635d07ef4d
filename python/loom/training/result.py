"""What a training run gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from loom._curves import draw_curves
from loom._settings.spellings import result_remark
from loom._tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loom.training.receipt import Receipt

__all__ = ["StopReason", "TrainingResult"]

StopReason: TypeAlias = Literal["finished", "stopped", "interrupted"]


class _Curves(dict[str, "list[float]"]):
    """Numbers by epoch and name; it says so to whoever asks it for attributes."""

    def __getattr__(self, name: str) -> NoReturn:
        key = name if name in self else "loss"
        raise AttributeError(
            f"result.history is a dictionary, and has no attribute '{name}'; result.history[\"{key}\"]"
        )

    def __missing__(self, name: str) -> NoReturn:
        measured = name.removeprefix("val_")
        ours = {"acc": "accuracy"}.get(measured, measured)
        prefix = name[: len(name) - len(measured)]
        if f"{prefix}{ours}" in self:
            said = f'in loom that is "{prefix}{ours}"'
        elif prefix and not any(known.startswith(prefix) for known in self):
            said = "validation_data= or validation_split= of training makes what begins with val_"
        elif measured.endswith("_loss") and not prefix:
            output = measured.removesuffix("_loss")
            said = f'if "{output}" is an output, its loss is measured in validation, as val_{name}'
        else:
            said = f'metrics=["{ours}"] of training measures it, if it is a metric'
        raise KeyError(f"{name}: {said}; there is {', '.join(self)}")

    def __reduce__(self) -> tuple[type[dict[str, list[float]]], tuple[dict[str, list[float]]]]:
        return dict, (dict(self),)


@dataclass(frozen=True)
class TrainingResult:
    """The course of a training run.

    Args:
        loss_history: The sample-weighted mean loss of each epoch.
        epoch_times: The seconds that each epoch took, validation included.
        total_time: The seconds that the whole run took.
        throughput: Samples learned from per second, over the whole run.
        metrics: For each metric, its value at each epoch. Those of validation
            begin with "val_", the validation loss is "val_loss"; where
            `validation_frequency` left an epoch out, it holds nan.
        step_times: The seconds that each step took, with `track_perf`.
        step_parts: The seconds that parts of each step took in this process, with `track_perf` and
            `shards`: "forward" of all shards, with the backward passes of all but the last; its
            "backward" pass, or asking a device for it; "waiting" for what travels beyond that; and
            "updating". Meanwhile gradients travel: "fetching" from a device, "meeting" the other
            processes, of that "adding" up in common memory, and "sending" to a device; "bytes" is how
            many they were, padding counted in.
        skipped_steps: How many steps were left out because they were not finite, or exploded.
        explosions: How many steps exploded, in learning by targets and where it was observed.
        device: Where the run took place: "cpu", "gpu:0".
        stop_reason: Why it ended: "finished" after all epochs, "stopped" by a
            callback, "interrupted" by Ctrl-C.
        message: What the callback that stopped it said.
        receipt: What it was made of and came to, where that was asked for.
    """

    loss_history: list[float]
    epoch_times: list[float]
    total_time: float
    throughput: float
    metrics: dict[str, list[float]] = field(default_factory=dict)
    step_times: list[float] = field(default_factory=list)
    step_parts: dict[str, list[float]] = field(default_factory=dict)
    skipped_steps: int = 0
    explosions: int = 0
    device: str = "cpu"
    stop_reason: StopReason = "finished"
    message: str = ""
    receipt: Receipt | None = None

    @property
    def history(self) -> dict[str, list[float]]:
        """The loss and the metrics of each epoch, in one mapping, as in Keras's `history`."""
        return _Curves({"loss": self.loss_history, **self.metrics})

    @property
    def final_loss(self) -> float:
        """The last epoch's loss; nan where no epoch was completed."""
        return self.loss_history[-1] if self.loss_history else float("nan")

    @property
    def best_loss(self) -> float:
        """The lowest epoch loss; nan where no epoch was completed, or none had a loss."""
        return min((loss for loss in self.loss_history if not math.isnan(loss)), default=math.nan)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.stop_reason == "interrupted"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draws the loss and the metrics over the epochs.

        Args:
            path: Where to write the picture; its ending says the format.

        Returns:
            The matplotlib figure; notebooks show it.

        Raises:
            MissingExtraError: Matplotlib is not installed.
            DataError: No epoch was completed.
            FileError: The picture cannot be written.
        """
        return draw_curves(self.history, path)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            said = f"'TrainingResult' object has no attribute '{name}'"
            told = result_remark(name)
            raise AttributeError(said if told is None else f"{said}; instead there is {told}")

    def _repr_html_(self) -> str:
        """Returns the epochs as a table, for notebooks; of many the first and the last."""
        names = ("epoch", "loss", *self.metrics)
        rows = [
            (epoch + 1, *(f"{values[epoch]:.4g}" for values in (self.loss_history, *self.metrics.values())))
            for epoch in range(len(self.loss_history))
        ]
        if len(rows) > 20:
            rows = [*rows[:10], ("...",) * len(names), *rows[-10:]]
        return table("training", names, rows, repr(self))

    def __repr__(self) -> str:
        last = "".join(f", {name} {values[-1]:.4g}" for name, values in self.metrics.items() if values)
        return (
            f"TrainingResult({len(self.loss_history)} epochs, loss {self.final_loss:.4g}{last}, "
            f"{self.total_time:.2f} s on {self.device}, {self.stop_reason})"
        )
