"""Callbacks: code of the user's that runs while a network trains.

The hooks have Keras's names. `logs` holds the epoch's loss and metrics, those
of validation beginning with "val_"; batch hooks get the batch's loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._checks import choice, flag, real, whole
from loom._config import Plain
from loom.errors import ConfigError, FileError, StateError

__all__ = [
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "Logs",
    "ModelCheckpoint",
    "StopTraining",
]

Logs: TypeAlias = "Mapping[str, float]"


class StopTraining(Exception):  # noqa: N818 - a signal like StopIteration, not an error
    """Raised in a hook to end training in good order.

    Training stops after the current step, `on_train_end` still runs, and
    `loom.train` returns its result as usual.
    """


class TrainedNetwork(Protocol):
    """What callbacks ask of the network."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Returns every parameter by name."""
        ...

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> object:
        """Sets every parameter."""
        ...

    def save(self, path: str | Path) -> object:
        """Writes the network to a file."""
        ...


class Callback:
    """Base class: override the hooks that matter.

    In hooks, `self.network` is the network that trains and `self.params` says
    how: epochs, steps (per epoch, None where unknown), batch_size, metrics, device. To
    end training, raise `StopTraining` or set `self.stop_training = True`.
    """

    _network: TrainedNetwork | None = None
    params: Mapping[str, Any] = {}
    stop_training: bool = False

    @property
    def network(self) -> Any:  # noqa: ANN401 - the network's own class would be a circular import
        """The network that is being trained."""
        if self._network is None:
            raise StateError("a callback has a network only while training")
        return self._network

    @property
    def model(self) -> Any:  # noqa: ANN401 - as above
        """The network, under Keras's name."""
        return self.network

    def set_model(self, model: TrainedNetwork) -> None:
        """Receives the network before training."""
        self._network = model

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Receives how the training goes."""
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Runs before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Runs after the last epoch, also when training was stopped."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Runs before each epoch, counted from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Runs after each epoch and its validation."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Runs before each batch, counted from 0 in each epoch."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Runs after each batch."""
        self.on_batch_end(batch, logs)

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """The same as `on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """The same as `on_train_batch_end`."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Runs before each validation."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Runs after each validation."""


class CallbackList:
    """Runs several callbacks as one, in order.

    Args:
        callbacks: The callbacks.
        network: What is being trained.
        params: How the training goes.
    """

    _BATCH_HOOKS: ClassVar = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")

    def __init__(
        self, callbacks: Iterable[Callback], network: TrainedNetwork, params: Mapping[str, Any]
    ) -> None:
        self.callbacks = list(callbacks)
        self.stop_requested = False
        self.message = ""
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise ConfigError(f"callbacks must derive from loom.Callback, got {callback!r}")
            callback.stop_training = False
            callback.set_params(params)
            callback.set_model(network)

    @property
    def wants_batches(self) -> bool:
        """Whether any callback has a batch hook; if none has, none need be called."""
        return any(
            getattr(getattr(callback, hook), "__func__", None) is not getattr(Callback, hook)
            for callback in self.callbacks
            for hook in self._BATCH_HOOKS
        )

    @property
    def may_change_data(self) -> bool:
        """Whether any callback runs code that is not loom's, and could change arrays in place."""
        return any(
            isinstance(callback, LambdaCallback) or type(callback).__module__.partition(".")[0] != "loom"
            for callback in self.callbacks
        )

    def run(self, hook: str, *arguments: object) -> bool:
        """Calls one hook of every callback.

        Args:
            hook: The hook's name.
            *arguments: What it is given.

        Returns:
            Whether training should stop.
        """
        for callback in self.callbacks:
            try:
                getattr(callback, hook)(*arguments)
            except StopTraining as stop:
                self._stop(str(stop) or f"{type(callback).__name__} stopped training")
            if callback.stop_training:
                self._stop(f"{type(callback).__name__} stopped training")
        return self.stop_requested

    def _stop(self, message: str) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            self.message = message


class LambdaCallback(Callback):
    """Runs functions as hooks: `LambdaCallback(on_epoch_end=lambda epoch, logs: ...)`.

    Args:
        **hooks: Functions by the name of the hook that they stand for.

    Raises:
        ConfigError: A hook is unknown.
    """

    _HOOKS: ClassVar = tuple(name for name in vars(Callback) if name.startswith("on_"))

    def __init__(self, **hooks: Callable[..., object]) -> None:
        for name, function in hooks.items():
            setattr(self, choice("LambdaCallback", "hook", name, self._HOOKS), function)


class History(Callback):
    """Keeps the logs of every epoch.

    `epoch` lists the epochs, `history` holds a list for each log.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run."""
        self.epoch = []
        self.history = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Appends the epoch's logs; nan stands where a log is missing."""
        missing = [math.nan] * len(self.epoch)
        self.epoch.append(epoch)
        values = dict(logs or {})
        for name in values:
            self.history.setdefault(name, list(missing))
        for name, series in self.history.items():
            series.append(values.get(name, math.nan))


@dataclass
class EarlyStopping(Callback, Plain):
    """Stops when a log has not improved for some epochs.

    Args:
        monitor: The log that is watched.
        patience: After how many epochs without improvement it stops; epochs
            without validation do not count.
        min_delta: A smaller change than this is no improvement.
        mode: "min", "max", or "auto": max for accuracies and r2, otherwise min.
        restore_best_weights: Whether the network gets the weights of the best
            epoch back when training ends.

    Raises:
        ConfigError: A setting is out of range.
    """

    monitor: str = "val_loss"
    patience: int = 0
    min_delta: float = 0.0
    mode: str = "auto"
    restore_best_weights: bool = False

    def __post_init__(self) -> None:
        self.patience = whole("EarlyStopping", "patience", self.patience, least=0)
        self.min_delta = real("EarlyStopping", "min_delta", self.min_delta, least=0.0)
        self.mode = choice("EarlyStopping", "mode", self.mode, ("auto", "min", "max"))
        flag("EarlyStopping", "restore_best_weights", self.restore_best_weights)
        self._forget()

    def _forget(self) -> None:
        self.best = math.nan
        self.best_epoch = -1
        self._waited = 0
        self._best_weights: dict[str, NDArray[Any]] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run."""
        self._forget()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the watched log with the best so far."""
        value = _monitored("EarlyStopping", self.monitor, logs)
        if math.isnan(value):
            return
        self._waited += 1
        if _improves(value, self.best, self.monitor, self.mode, self.min_delta):
            self.best = value
            self.best_epoch = epoch
            self._waited = 0
            if self.restore_best_weights:
                self._best_weights = {
                    name: np.array(values) for name, values in self.network.state_dict().items()
                }
        elif self._waited >= self.patience:
            raise StopTraining(
                f"{self.monitor} has not improved since epoch {self.best_epoch + 1} ({self.best:.6g})"
            )

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the best weights back, if asked."""
        if self._best_weights is not None:
            self.network.load_state_dict(self._best_weights)
            self._best_weights = None


class ModelCheckpoint(Callback):
    """Saves the network after epochs.

    Args:
        filepath: Where to; may name the epoch (from 1) and logs:
            "run-{epoch:03d}-{val_loss:.3f}.loom".
        monitor: The log that is watched with `save_best_only`.
        save_best_only: Saves only when the watched log improves.
        mode: "min", "max", or "auto": max for accuracies and r2, otherwise min.

    Raises:
        ConfigError: The mode is unknown.
    """

    def __init__(
        self,
        filepath: str | Path,
        monitor: str = "val_loss",
        *,
        save_best_only: bool = False,
        mode: str = "auto",
    ) -> None:
        self.filepath = str(filepath)
        self.monitor = monitor
        self.save_best_only = flag("ModelCheckpoint", "save_best_only", save_best_only)
        self.mode = choice("ModelCheckpoint", "mode", mode, ("auto", "min", "max"))
        self.best = math.nan
        self.last_path: Path | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run."""
        self.best = math.nan

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves, if it is time to."""
        if self.save_best_only:
            value = _monitored("ModelCheckpoint", self.monitor, logs)
            if not _improves(value, self.best, self.monitor, self.mode, 0.0):
                return
            self.best = value
        try:
            path = Path(self.filepath.format(epoch=epoch + 1, **(logs or {})))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *(logs or {})])
            raise ConfigError(
                f'ModelCheckpoint: "{self.filepath}" cannot be filled in ({error!r}); known: {known}'
            ) from error
        self.network.save(path)
        self.last_path = path


class CSVLogger(Callback):
    """Writes the logs of every epoch to a CSV file, line by line.

    Args:
        filename: Where to.
        append: Continues an existing file instead of replacing it.
    """

    def __init__(self, filename: str | Path, *, append: bool = False) -> None:
        self.path = Path(filename)
        self.append = flag("CSVLogger", "append", append)
        self._file: IO[str] | None = None
        self._names: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Opens the file."""
        self._names = []
        try:
            if self.append and self.path.exists():
                with self.path.open(encoding="utf-8") as earlier:
                    self._names = earlier.readline().strip().split(",")[1:]
            self._file = self.path.open("a" if self._names else "w", encoding="utf-8")
        except OSError as error:
            raise FileError(
                error.errno, f"CSVLogger cannot write: {error.strerror}", str(self.path)
            ) from error

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes one line, and before the first one the names."""
        if self._file is None:
            return
        values = dict(logs or {})
        if not self._names:
            self._names = list(values)
            self._file.write(",".join(["epoch", *self._names]) + "\n")
        cells = [repr(float(values[name])) if name in values else "" for name in self._names]
        self._file.write(",".join([str(epoch), *cells]) + "\n")
        self._file.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _monitored(where: str, monitor: str, logs: Logs | None) -> float:
    values = dict(logs or {})
    if monitor in values:
        return values[monitor]
    hint = "; give validation data or monitor the loss" if monitor.startswith("val_") else ""
    raise ConfigError(f'{where}: there is no log "{monitor}"{hint}. Logs: {", ".join(values) or "none"}')


def _improves(value: float, best: float, monitor: str, mode: str, min_delta: float) -> bool:
    if math.isnan(best):
        return not math.isnan(value)
    rising = mode == "max" or (mode == "auto" and monitor.endswith(("accuracy", "acc", "r2")))
    return value > best + min_delta if rising else value < best - min_delta
