"""Callbacks: code of the user's that runs while a network trains.

The hooks have Keras's names. `logs` holds the epoch's loss and metrics, those
of validation beginning with "val_"; batch hooks get the batch's loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._checks import choice, flag, real, whole
from loom._config import Plain
from loom._interrupts import Interrupts
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

    def save(self, path: str | Path, optimizer: bool = False) -> object:
        """Writes the network to a file."""
        ...


class Callback:
    """Base class: override the hooks that matter.

    In hooks, `self.network` is the network that trains and `self.params` says
    how: epochs, steps (per epoch, None where unknown), batch_size, metrics, device, and
    whether it is resumed: whether the run goes on where another one stopped. To
    end training, raise `StopTraining` or set `self.stop_training = True`.

    What a callback must remember over a resume it returns from `state_dict`: that is kept with
    the network's training state, in files saved with `optimizer=True`, too, and comes back
    through `load_state_dict`. Several callbacks of one `state_key` are told apart by their order.
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

    @property
    def state_key(self) -> str:
        """What its state is found by in a resumed run; the name of the class."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs of it; nothing, unless this is overridden.

        None, numbers, text, lists, dicts, and NumPy arrays of float32 or float64; tuples come
        back as lists.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes such a state back; called before `on_train_begin` of a run that is resumed.

        It is not called where there is none: then it is up to `on_train_begin` to begin anew, or
        to go on with what the callback itself remembers.
        """

    @property
    def _resumed(self) -> bool:
        return bool(self.params.get("resumed"))

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
        interrupts: Who holds Ctrl-C back; code that is not loom's may always be interrupted.
    """

    _BATCH_HOOKS: ClassVar = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")

    def __init__(
        self,
        callbacks: Iterable[Callback],
        network: TrainedNetwork,
        params: Mapping[str, Any],
        interrupts: Interrupts | None = None,
    ) -> None:
        self.callbacks = list(callbacks)
        self._open: AbstractContextManager[object] = nullcontext() if interrupts is None else interrupts.open
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
        return not all(map(_is_ours, self.callbacks))

    def states(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns the key and the state of every callback."""
        return [(callback.state_key, callback.state_dict()) for callback in self.callbacks]

    def load_states(self, states: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Gives every callback the state that another of its key has left.

        Args:
            states: What `states` has returned; those that nobody asks for are left.
        """
        left = list(states)
        for callback in self.callbacks:
            key = callback.state_key
            found = next((item for item in left if item[0] == key), None)
            if found is not None:
                left.remove(found)
                callback.load_state_dict(found[1])

    def run(self, hook: str, *arguments: object) -> bool:
        """Calls one hook of every callback.

        Args:
            hook: The hook's name.
            *arguments: What it is given.

        Returns:
            Whether training should stop.

        Raises:
            KeyboardInterrupt: Ctrl-C came while one of them ran; the others have run, too.
        """
        callbacks = self.callbacks
        if hook == "on_epoch_end":
            callbacks = self._checkpoints_last(*arguments)
        interrupted: KeyboardInterrupt | None = None
        for callback in callbacks:
            try:
                if _is_ours(callback):
                    getattr(callback, hook)(*arguments)
                else:
                    with self._open:
                        getattr(callback, hook)(*arguments)
            except StopTraining as stop:
                self._stop(str(stop) or f"{type(callback).__name__} stopped training")
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
            if callback.stop_training:
                self._stop(f"{type(callback).__name__} stopped training")
        if interrupted is not None:
            raise interrupted
        return self.stop_requested

    def _checkpoints_last(self, *arguments: Any) -> list[Callback]:  # noqa: ANN401 - a hook's arguments
        """Returns the callbacks in an order in which what one saves holds the newest state of all."""
        checkpoints = [callback for callback in self.callbacks if isinstance(callback, ModelCheckpoint)]
        if not checkpoints:
            return self.callbacks
        others = [callback for callback in self.callbacks if not isinstance(callback, ModelCheckpoint)]
        for checkpoint in checkpoints:
            checkpoint._judge(*arguments)
        return [*others, *checkpoints]

    def _stop(self, message: str) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            self.message = message


def _is_ours(callback: Callback) -> bool:
    return not isinstance(callback, LambdaCallback) and type(callback).__module__.partition(".")[0] == "loom"


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

    `epoch` lists the epochs, `history` holds a list for each log; in a resumed run those of the
    run that it goes on from come first.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Returns epochs and logs."""
        return {"epoch": self.epoch, "history": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes epochs and logs back."""
        self.epoch = list(state["epoch"])
        self.history = {name: list(series) for name, series in state["history"].items()}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it."""
        if not self._resumed:
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
            epoch back when training ends. Whoever resumes such a run then goes on from those.

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

    @property
    def state_key(self) -> str:
        """Its name, with what it watches."""
        return f"EarlyStopping({self.monitor}, {self.mode})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best so far, with its weights, and how long it has waited since."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "waited": self._waited,
            "best_weights": self._best_weights,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self.best = float(state["best"])
        self.best_epoch = int(state["best_epoch"])
        self._waited = int(state["waited"])
        self._best_weights = state["best_weights"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run; one that goes on where its patience has ended stops again."""
        if not self._resumed:
            self._forget()
        elif self._waited > 0:
            self._stop_if_exhausted()

    def _stop_if_exhausted(self) -> None:
        if self._waited >= self.patience:
            raise StopTraining(
                f"{self.monitor} has not improved since epoch {self.best_epoch + 1} ({self.best:.6g})"
            )

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
        else:
            self._stop_if_exhausted()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the best weights back, if asked; a resumed run may still need them."""
        if self.restore_best_weights and self._best_weights is not None:
            self.network.load_state_dict(self._best_weights)


class ModelCheckpoint(Callback):
    """Saves the network after epochs, once all other callbacks have seen the epoch.

    `loom.train(loom.load(path), ..., resume=True)` goes on from such a file as if the run had
    never stopped, the callbacks included.

    Args:
        filepath: Where to; may name the epoch (from 1) and logs:
            "run-{epoch:03d}-{val_loss:.3f}.loom".
        monitor: The log that is watched with `save_best_only`.
        save_best_only: Saves only when the watched log improves.
        mode: "min", "max", or "auto": max for accuracies and r2, otherwise min.
        optimizer: Whether the files hold what a resumed run goes on from, too: the optimizer's
            state, the place in the data, the state of the callbacks. Without it they are smaller
            (a third of the size, with Adam), and training can only start anew from them.

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
        optimizer: bool = True,
    ) -> None:
        self.filepath = str(filepath)
        self.monitor = monitor
        self.save_best_only = flag("ModelCheckpoint", "save_best_only", save_best_only)
        self.mode = choice("ModelCheckpoint", "mode", mode, ("auto", "min", "max"))
        self.optimizer = flag("ModelCheckpoint", "optimizer", optimizer)
        self.best = math.nan
        self.last_path: Path | None = None
        # The epoch that was judged last, and where it is to be saved.
        self._judged: int | None = None
        self._due: Path | None = None

    @property
    def state_key(self) -> str:
        """Its name, with what it watches."""
        watched = f"{self.monitor}, {self.mode}" if self.save_best_only else ""
        return f"ModelCheckpoint({watched})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best so far, and the newest file."""
        return {"best": self.best, "last_path": None if self.last_path is None else str(self.last_path)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self.best = float(state["best"])
        self.last_path = None if state["last_path"] is None else Path(state["last_path"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it."""
        self._judged = self._due = None
        if not self._resumed:
            self.best = math.nan

    def _judge(self, epoch: int, logs: Logs | None = None) -> None:
        """Finds out where the epoch is to be saved, if it is, before anything is saved."""
        self._judged, self._due = epoch, None
        if self.save_best_only:
            value = _monitored("ModelCheckpoint", self.monitor, logs)
            if not _improves(value, self.best, self.monitor, self.mode, 0.0):
                return
            self.best = value
        self._due = self.last_path = self._path(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves, if it is time to."""
        if self._judged != epoch:
            self._judge(epoch, logs)
        self._judged = None
        if self._due is not None:
            self.network.save(self._due, optimizer=self.optimizer)

    def _path(self, epoch: int, logs: Logs | None) -> Path:
        try:
            return Path(self.filepath.format(epoch=epoch + 1, **(logs or {})))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *(logs or {})])
            raise ConfigError(
                f'ModelCheckpoint: "{self.filepath}" cannot be filled in ({error!r}); known: {known}'
            ) from error


class CSVLogger(Callback):
    """Writes the logs of every epoch to a CSV file, line by line.

    A resumed run continues the file. Lines of epochs after the one that it goes on from, which
    are done again, are cut off first.

    Args:
        filename: Where to.
        append: Continues an existing file instead of replacing it.
    """

    def __init__(self, filename: str | Path, *, append: bool = False) -> None:
        self.path = Path(filename)
        self.append = flag("CSVLogger", "append", append)
        self._file: IO[str] | None = None
        self._names: list[str] = []
        # Lines of the file, the names aside; None before anything was written.
        self._lines: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns how many lines there are."""
        return {"lines": self._lines}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._lines = state["lines"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Opens the file."""
        self._names = []
        if not self._resumed:
            self._lines = None
        try:
            if (self.append or self._resumed) and self.path.exists():
                self._continue()
            self._file = self.path.open("a" if self._names else "w", encoding="utf-8")
        except OSError as error:
            raise FileError(
                error.errno, f"CSVLogger cannot write: {error.strerror}", str(self.path)
            ) from error

    def _continue(self) -> None:
        """Reads the names of the file that is there, and cuts off what the run has not come to yet."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        if self._resumed and lines and not lines[-1].endswith(b"\n"):
            # A process that was killed has left half a line.
            lines.pop()
        if lines:
            self._names = lines[0].decode("utf-8").strip().split(",")[1:]
        kept = lines if self._lines is None else lines[: 1 + self._lines]
        self._lines = max(len(kept) - 1, 0)
        with self.path.open("r+b") as file:
            file.truncate(sum(map(len, kept)))

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
        self._lines = (self._lines or 0) + 1

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
