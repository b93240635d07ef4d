"""Where a run is kept: the settings of `loom.train(..., run=)`."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

from loom._settings.checks import choice, file_path, flag, real, whole

__all__ = ["RunFolder", "run_folder"]


@dataclass(frozen=True)
class RunFolder:
    """A folder that keeps a run, for `loom.train(..., run=)`: how often, and how much of it.

    `run="runs/a"` is `run=loom.RunFolder("runs/a")`. docs/runs.md says what is in the folder.

    A state is written at the ends of epochs, as often as that costs less than a twentieth of the time, and
    within epochs by `every_steps` and `every_seconds`. Where metrics are measured on what is learned from,
    states are of ends of epochs alone: what a metric has summed up is in none.

    Args:
        folder: The folder, which is made where there is none.
        every_steps: Also after so many steps, or soon after: steps run in slices of 50 ms.
        every_seconds: Also after so much time; None for never.
        keep: How many states stay, the newest ones. The one before the last is for a disk that has lost the
            last.
        monitor: The log by which an epoch's weights are the best so far, and go into best.loom: the
            validation's loss by default, or without validation the loss.
        mode: "min", "max", or "auto": max for accuracies, r2 and scikit-learn's scores, otherwise min.
        on_change: What becomes of a folder whose run began with other settings or data: "raise" says what
            differs; "continue" goes on with what is given now, for more epochs, say; "restart" deletes what
            loom keeps there and begins anew.
        background: Whether a thread writes while training goes on; otherwise that waits. Memory holds one
            state beside the network, which is about three times its weights with Adam, and the best weights
            at most twice.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> data = (np.eye(3), np.array([0, 1, 1]))
        >>> config = loom.TrainingConfig(epochs=4, loss="cross_entropy", verbose=False)
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> result = loom.train(net, data, config, run=loom.RunFolder(folder, keep=3))
        >>> again = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> loom.train(again, data, config, run=folder).loss_history == result.loss_history
        True
        >>> again.fingerprint() == net.fingerprint()
        True
    """

    folder: str | PathLike[str]
    every_steps: int | None = None
    every_seconds: float | None = 60.0
    keep: int = 2
    monitor: str | None = None
    mode: Literal["auto", "min", "max"] = "auto"
    on_change: Literal["raise", "continue", "restart"] = "raise"
    background: bool = True

    def __post_init__(self) -> None:
        where = "RunFolder"
        file_path(where, self.folder, "folder")
        if self.every_steps is not None:
            whole(where, "every_steps", self.every_steps, least=1)
        if self.every_seconds is not None:
            real(where, "every_seconds", self.every_seconds, least=0.0)
        whole(where, "keep", self.keep, least=1)
        choice(where, "mode", self.mode, ("auto", "min", "max"))
        choice(where, "on_change", self.on_change, ("raise", "continue", "restart"))
        flag(where, "background", self.background)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)


def run_folder(run: RunFolder | str | PathLike[str]) -> RunFolder:
    """Returns the settings of a run's folder, given as such or as its path."""
    return run if isinstance(run, RunFolder) else RunFolder(run)
