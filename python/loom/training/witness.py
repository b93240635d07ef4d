"""Hashing weights while a network trains, for its receipt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loom._settings.checks import choice
from loom.callbacks import Callback, Logs
from loom.data import Data
from loom.device import devices
from loom.engine import engine_of
from loom.errors import DataError, StateError
from loom.training.identity import data_identity
from loom.training.receipt import Receipt
from loom.training.run_store import versions
from loom.training.trainable import TrainableNetwork

__all__ = ["Witness", "device_identity", "witness"]

_KEY = "Receipt"


def witness(
    receipt: bool | str, learning: Mapping[str, Any], data: Data, validation: Data | None
) -> Witness | None:
    """Returns what hashes weights, as often as `receipt` says; None where no receipt is wanted.

    Args:
        receipt: Whether there is to be one, or how often weights are hashed: "epochs", as for True, or
            "steps".
        learning: How the network learns.
        data: What it learns from.
        validation: What it is measured on.

    Raises:
        DataError: Data is iterated, and only who goes through it would know it.
    """
    if receipt is False:
        return None
    grain = "epochs" if receipt is True else choice("train", "receipt", receipt, ("epochs", "steps"))
    kind = StepWitness if grain == "steps" else Witness
    return kind(learning, _hashed(data, "data") or {}, _hashed(validation, "validation"))


def _hashed(data: Data | None, where: str) -> dict[str, Any] | None:
    """Returns what tells data from other data, every number of it."""
    found = data_identity(data, whole=True)
    if found is not None and "batches" in found and "content" not in found:
        raise DataError(
            f"{where}: a receipt is of data in arrays or in a list of batches; what {found['type']} gives "
            "cannot be hashed before it is there"
        )
    return found


def device_identity(name: str) -> dict[str, str]:
    """Returns what the bits depend on: nothing on a processor."""
    if name == "cpu":
        return {"kind": "cpu"}
    for device in devices():
        if device.name == name:
            return {"kind": "gpu", "hardware": device.hardware, "driver": device.driver}
    return {"kind": "gpu", "hardware": name, "driver": "unknown"}


class Witness(Callback):
    """Hashes the weights of a network while it trains; the last of its callbacks.

    Args:
        learning: How the network learns.
        data: What it learns from, hashed.
        validation: What it is measured on, hashed.
    """

    def __init__(
        self,
        learning: Mapping[str, Any],
        data: Mapping[str, Any],
        validation: Mapping[str, Any] | None,
    ) -> None:
        self._learning, self._data, self._validation = learning, data, validation
        self._initial: str | None = None
        self._went_before = False
        self._marks: list[tuple[int, int, str]] = []
        self._network_config: dict[str, Any] = {}

    @property
    def state_key(self) -> str:
        """What its state is found by."""
        return _KEY

    def state_dict(self) -> dict[str, Any]:
        """Returns what was hashed so far."""
        return {
            "initial": self._initial,
            "before": self._went_before,
            "marks": self._marks,
            "network": self._network_config,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another process was."""
        self._initial, self._went_before = state["initial"], bool(state["before"])
        self._marks = [(int(epoch), int(step), str(weights)) for epoch, step, weights in state["marks"]]
        self._network_config = dict(state.get("network", {}))

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Hashes the weights that training begins with."""
        begins = not self._resumed or self._initial is None
        if begins:
            self._initial, self._went_before, self._marks = self._hash(), self._resumed, []
        if begins or not self._network_config:
            # A training that goes on has settings which callbacks have changed meanwhile, such as rates.
            self._network_config = json.loads(engine_of(self.network).native.config())

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Hashes the weights after an epoch."""
        self._mark()

    def _mark(self) -> None:
        state = engine_of(self.network).native.training_state()
        place = (int(state["epoch"]), int(state["step"]))
        if not self._marks or self._marks[-1][1] != place[1]:
            self._marks.append((*place, self._hash()))

    def _hash(self) -> str:
        found: str = self.network.fingerprint()
        return found

    def receipt(self, network: TrainableNetwork, losses: list[float], stop_reason: str) -> Receipt:
        """Returns the receipt, once training has ended."""
        if self._initial is None:
            raise StateError("a receipt is of a training that has begun")
        return Receipt(
            network=self._network_config,
            initial_weights=self._initial,
            final_weights=network.fingerprint(),
            learning=json.loads(json.dumps(self._learning)),
            data=self._data,
            validation=self._validation,
            marks=tuple(self._marks),
            loss_history=tuple(losses),
            device=device_identity(str(self.params["device"])),
            versions=versions(),
            stop_reason=stop_reason,
            resumed=self._went_before,
        )


class StepWitness(Witness):
    """Hashes them after every step, too."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Hashes the weights after a step."""
        self._mark()
