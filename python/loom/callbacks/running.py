"""Running several callbacks as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from loom._interrupts import Interrupts
from loom._settings.objects import hook_remark
from loom._settings.suggestions import shown
from loom.callbacks._averaging import Averaging
from loom.callbacks.base import Callback, StopTraining, TrainedNetwork
from loom.callbacks.checkpoint import ModelCheckpoint
from loom.callbacks.early_stopping import EarlyStopping
from loom.callbacks.functions import LambdaCallback
from loom.errors import ConfigError

__all__ = ["CallbackList"]


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
        self._interrupts = interrupts
        self._open: AbstractContextManager[object] = nullcontext() if interrupts is None else interrupts.open
        self.stop_requested = False
        self.message = ""
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise _no_callback(callback)
            _check_hooks(callback)
            callback.stop_training = False
            callback.set_params(params)
            callback.set_model(network)
        self._averages = [callback for callback in self.callbacks if isinstance(callback, Averaging)]
        stoppings = [callback for callback in self.callbacks if isinstance(callback, EarlyStopping)]
        # What early stopping has kept comes after the average.
        self._lenders: list[Callback] = [*self._averages, *stoppings]
        measured = _one_average(self._averages)
        for callback in self.callbacks:
            callback.set_average(measured)

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
        elif hook == "on_train_end":
            # What others look at comes after what the network is left with.
            callbacks = [*self._lenders, *self._others()]
        elif hook == "on_train_begin":
            # The last who has lent takes back first, and others find what training goes on from.
            callbacks = [*reversed(self._lenders), *self._others()]
        interrupted: KeyboardInterrupt | None = None
        for callback in callbacks:
            try:
                if _is_ours(callback) and not callback.interruptible:
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
        # Processes that share a training end after the same step.
        if interrupted is not None and not (self._interrupts is not None and self._interrupts.put_off()):
            raise interrupted
        return self.stop_requested

    def end_measuring(self) -> None:
        """Gives the network its own weights back, where validation was broken off while it had an average."""
        for average in self._averages:
            average.restore()

    def _others(self) -> list[Callback]:
        """Returns those that lend no weights."""
        # Early stoppings of equal settings are equal.
        lenders = set(map(id, self._lenders))
        return [callback for callback in self.callbacks if id(callback) not in lenders]

    def _checkpoints_last(self, *arguments: Any) -> list[Callback]:  # noqa: ANN401 - a hook's arguments
        """Returns the callbacks in an order in which what one saves holds the newest state of all."""
        checkpoints = [callback for callback in self.callbacks if isinstance(callback, ModelCheckpoint)]
        if not checkpoints:
            return self.callbacks
        others = [callback for callback in self.callbacks if not isinstance(callback, ModelCheckpoint)]
        for checkpoint in checkpoints:
            checkpoint.judge(*arguments)
        return [*others, *checkpoints]

    def _stop(self, message: str) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            self.message = message


def _one_average(averages: list[Averaging]) -> Averaging | None:
    """Returns the callback whose average is measured, if there is one; refuses two that want the same."""
    for setting, what in (("validates", "validation measures"), ("keeps", "the network has in the end")):
        found = [type(average).__name__ for average in averages if getattr(average, setting)]
        if len(found) > 1:
            raise ConfigError(
                f"callbacks: {what} one average, and {' and '.join(found)} each give theirs; set "
                f"{setting}=False in all but one"
            )
    return next((average for average in averages if average.validates), None)


def _is_ours(callback: Callback) -> bool:
    return not isinstance(callback, LambdaCallback) and type(callback).__module__.partition(".")[0] == "loom"


def _check_hooks(callback: Callback) -> None:
    """Refuses a hook under a name that it has elsewhere: nothing would call it, and nobody would notice."""
    if _is_ours(callback):
        return
    kind = type(callback)
    own = [name for base in kind.__mro__ if base is not Callback for name in vars(base)]
    known = [name for name in vars(Callback) if name.startswith("on_")]
    told = hook_remark(own, known)
    if told is not None:
        raise ConfigError(f"{kind.__name__}: {told}")


_BY_NAME = {
    "earlystopping": "loom.EarlyStopping(patience=3)",
    "checkpoint": 'loom.ModelCheckpoint("best.loom")',
    "modelcheckpoint": 'loom.ModelCheckpoint("best.loom")',
    "tensorboard": 'loom.TensorBoard("logs")',
    "csv": 'loom.CSVLogger("run.csv")',
    "csvlogger": 'loom.CSVLogger("run.csv")',
}


def _no_callback(given: object) -> ConfigError:
    remedy = f"; give {given.__name__}()" if isinstance(given, type) else ""
    if isinstance(given, str):
        named = _BY_NAME.get(given.lower().replace("_", ""))
        remedy = "" if named is None else f"; callbacks are objects: {named}"
    elif callable(given) and not remedy:
        remedy = "; of a function loom.LambdaCallback(on_epoch_end=function) makes one"
    elif not remedy and any(name.startswith("on_") for name in dir(given)):
        remedy = "; it has hooks already: let its class be class Name(loom.Callback)"
    return ConfigError(f"callbacks must derive from loom.Callback, got {shown(given)}{remedy}")
