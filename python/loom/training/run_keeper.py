"""Keeping a training run in its folder, and going on from it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from loom import _native
from loom.callbacks import Callback, Logs, RunRecorder
from loom.callbacks._monitoring import improves, monitored
from loom.engine import engine_of
from loom.errors import ConfigError, SerializationError
from loom.training.course import Course
from loom.training.notes import read_notes
from loom.training.receipt import Receipt
from loom.training.result import TrainingResult
from loom.training.run_store import RunStore, versions
from loom.training.streams import Streams, as_plain, from_plain, set_streams, streams_here
from loom.training.trainable import TrainableNetwork

__all__ = ["RunKeeper"]

_KEY = "RunFolder"


class RunKeeper(Callback):
    """Keeps one run in its folder; it is one of the run's callbacks.

    Args:
        store: The folder.
        network: What is trained; it becomes what the newest state holds, where there is one.
        identity: What makes the run the one that it is, the network aside.
    """

    def __init__(self, store: RunStore, network: TrainableNetwork, identity: Mapping[str, Any]) -> None:
        self.course = Course()
        """What the run has come to; it is kept with each state."""
        self.ended: Mapping[str, Any] | None = None
        """How the run has ended, where it did: its stop reason and message."""
        self.result: TrainingResult | None = None
        """What the run gave back, where the folder has that."""
        self.position: Any = None
        """Where data is that says so itself."""
        self.resumes = False
        """Whether there is a state to go on from."""
        self._store = store
        self._whole = False
        self._best = float("nan")
        self._best_weights: bytes | None = None
        # What the folder's state says of the moment that it was taken in.
        self._moment: Mapping[str, Any] | None = None
        # Where shared generators stood: when the epoch's data was begun, now, after the first look at data.
        self._epoch_streams = self._streams = streams_here()
        self._peeked: Streams | None = None
        changed = store.open(network, identity)
        self.result = None if changed else store.result(_result)
        found = None if self.result is None else store.final(_native.Network.from_bytes)
        if found is None:
            self.result = None
        if found is None and (state := store.newest(_read_state)) is not None:
            found, self._moment = state
            self.course.restore(self._moment["counts"], self._moment["times"])
            self.ended = None if changed else self._moment["ended"]
            self.position = self._moment["position"]
        if found is not None:
            engine_of(network).replace(found)
            self.resumes = True

    def callbacks(self, given: Iterable[Callback | None]) -> list[Callback]:
        """Returns what keeps the run beside the user's callbacks: this, and the recorder of its events."""
        if not self._store.leads:
            return [self]
        recorded = any(
            isinstance(callback, RunRecorder) and callback.directory.resolve() == self._store.folder.resolve()
            for callback in given
        )
        return [self] if recorded else [RunRecorder(self._store.folder), self]

    @property
    def state_key(self) -> str:
        """What its state is found by."""
        return _KEY

    def state_dict(self) -> dict[str, Any]:
        """Returns the run's course, and in its own files what is of this moment alone."""
        state: dict[str, Any] = {"counts": self.course.counts(), "best": self._best}
        if self._whole:
            state["here"] = {
                "times": self.course.times(time.perf_counter() - self._store.began),
                "streams": as_plain(self._streams),
                "epoch_streams": as_plain(self._epoch_streams),
                "position": self.position,
                "ended": self.ended,
                "device": self.params["device"],
                "versions": versions(),
                "time": time.time(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the best so far back, if it is of this folder; the rest was needed earlier."""
        if self.resumes:
            self._best = float(state["best"])

    def check_device(self, device: str) -> None:
        """Refuses to go on on another kind of device, which has other bits."""
        before = device if self._moment is None else str(self._moment["device"])
        settings = self._store.settings
        if before.partition(":")[0] != device.partition(":")[0] and settings.on_change == "raise":
            raise ConfigError(
                f"the run in {settings.path} was on {before}, and would be on {device} now, whose bits are "
                f"others; name the device in the config, or loom.RunFolder({str(settings.path)!r}, "
                'on_change="continue") goes on here'
            )

    def before_data(self) -> None:
        """Draws what the data draws from NumPy's and Python's own generators as it was drawn before."""
        if self._moment is not None:
            self._epoch_streams = from_plain(self._moment["epoch_streams"])
            set_streams(self._epoch_streams)

    def after_data(self) -> None:
        """Notes what the first look at the data has drawn."""
        self._peeked = streams_here()

    def before_epochs(self) -> None:
        """Takes back what callbacks have drawn that begin once more."""
        if self._moment is not None and self._peeked is not None:
            set_streams(self._peeked)

    def before_epoch(self) -> None:
        """Notes where the generators stand before an epoch's data is begun."""
        if self._peeked is None:
            self._epoch_streams = streams_here()
        # The first epoch's data has begun already.
        self._peeked = None

    def within_data(self, done: int) -> None:
        """Has the generators stand where they did after so many steps of the epoch."""
        moment, self._moment = self._moment, None
        if moment is not None and done:
            set_streams(from_plain(moment["streams"]))

    def note_place(self, position: object) -> None:
        """Notes where data and generators stand, before another batch moves them on."""
        self.position, self._streams = position, streams_here()

    def is_due(self, steps: int) -> bool:
        """Counts steps; whether a state is to be written within the epoch."""
        return self._store.is_due(steps)

    def end_epoch(self, epoch: int, logs: Logs) -> None:
        """Judges an epoch that is done, once all callbacks have seen it."""
        settings = self._store.settings
        monitor = settings.monitor or ("val_loss" if "val_loss" in logs else "loss")
        value = monitored("RunFolder", monitor, logs)
        if improves(value, self._best, monitor, settings.mode, 0.0):
            self._best = value
            # It goes into its file with the state that knows of it, so that both are of one moment.
            if self._store.leads:
                with self._as_measured(monitor):
                    self._best_weights = self.network.to_bytes()

    def may_save(self) -> None:
        """Writes a state between two epochs, if that costs little or it is time to."""
        if self._store.is_due(0, between=True):
            self.save()

    def save(self) -> None:
        """Writes a state, and with it the best weights, where they are new."""
        place = engine_of(self.network).native.training_state()
        if place["batch"] == 0:
            self._epoch_streams = self._streams
        best, self._best_weights = self._best_weights, None
        self._store.save(f"epoch-{place['epoch']:07d}-batch-{place['batch']:09d}.loom", self._state, best)

    def _state(self) -> bytes:
        self._whole = True
        try:
            data: bytes = self.network.to_bytes(optimizer=True)
            return data
        finally:
            self._whole = False

    def finish(self, result: TrainingResult) -> None:
        """Writes what the run gives back, once nothing can change it any more."""
        self._store.finish(self.network.to_bytes(optimizer=True), asdict(result))


def _result(*, receipt: Mapping[str, Any] | None = None, **told: Any) -> TrainingResult:  # noqa: ANN401 - JSON
    made = None if receipt is None else Receipt.from_config(receipt)
    return TrainingResult(**told, receipt=made)


def _read_state(data: bytes) -> tuple[_native.Network, Mapping[str, Any]]:
    native = _native.Network.from_bytes(data)
    own = dict(read_notes(native)).get(_KEY, {})
    moment = {"counts": own.get("counts"), **own.get("here", {})}
    if not moment.keys() >= {"times", "streams", "epoch_streams", "position", "ended", "device"}:
        raise SerializationError("it holds no state of a run")
    return native, moment
