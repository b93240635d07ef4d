"""The base of callbacks: hooks that run while a network trains.

The hooks have Keras's names. `logs` holds the epoch's loss and metrics, those
of validation beginning with "val_"; batch hooks get the batch's loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from numpy.typing import NDArray

from loom._settings.arguments import check_arguments
from loom.errors import StateError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Callback", "Logs", "StopTraining", "TrainedNetwork"]

Logs: TypeAlias = "Mapping[str, float]"


class StopTraining(Exception):  # noqa: N818 - a signal like StopIteration, not an error
    """Raised in a hook to end training in good order.

    Training stops after the current step, `on_train_end` still runs, and
    `loom.train` returns its result as usual.
    """


class Average(Protocol):
    """What callbacks ask of the one that averages weights."""

    def give(self) -> None:
        """Gives the network the average."""
        ...

    def restore(self) -> None:
        """Gives the network its own weights back."""
        ...


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
    how: epochs, steps (per epoch, None where unknown), batch_size, metrics, device, config (the
    `TrainingConfig`), validation_data (None where there is none), learning_rate (of the newest
    step, None before any), samples (that the run has learned from so far), and whether it is resumed:
    whether the run goes on where another one stopped. To end training, raise `StopTraining` or set
    `self.stop_training = True`.

    What a callback must remember over a resume it returns from `state_dict`: that is kept with
    the network's training state, in files saved with `optimizer=True`, too, and comes back
    through `load_state_dict`. Several callbacks of one `state_key` are told apart by their order.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: object, **settings: object) -> Self:
            """Refuses unknown settings with the spelling that is right."""
            # Those of other modules say themselves what they take.
            if cls.__module__.startswith("loom."):
                check_arguments(cls, args, settings)
            return super().__new__(cls)

    _network: TrainedNetwork | None = None
    _measured_average: Average | None = None
    params: Mapping[str, Any] = {}
    stop_training: bool = False
    # Whether Ctrl-C is heard in the hooks of a callback of loom's, too; in those of users' it always is.
    interruptible: ClassVar[bool] = False

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

    def set_average(self, average: Average | None) -> None:
        """Receives the callback whose average validation measures; None where it measures the weights."""
        self._measured_average = average

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

    @contextmanager
    def _as_measured(self, log: str) -> Iterator[None]:
        """Has the network the weights that a log of this epoch was measured with.

        Logs of validation are of the average where a callback averages weights, and that is what goes with
        them; all others are of the network's own.
        """
        average = self._measured_average if log.startswith("val_") else None
        if average is None:
            yield
            return
        average.give()
        try:
            yield
        finally:
            average.restore()

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
