"""The mean of the weights over the newest steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loom._settings.checks import real, whole
from loom.callbacks._averaging import Averaging
from loom.callbacks._states import lasting, moving
from loom.callbacks.base import Logs

__all__ = ["ExponentialMovingAverage"]


class ExponentialMovingAverage(Averaging):
    """Keeps an exponential moving average of the weights, and gives it to the network at the end.

    As Polyak and Juditsky (1992) showed for means over steps, they are often better than the last weights,
    and less noisy. The average begins as the mean of all steps and becomes `decay * average + (1 - decay) *
    weights`: the factor in step t, from 0, is min(decay, t / (t + 1)).

    Validation measures the average, so that `val_loss` and what goes by it are about what the network will
    have at the end: `EarlyStopping`, `ModelCheckpoint` and run folders keep the average of the epoch that was
    best by it. Training itself goes on from the weights as they are; a resumed run, too.

    Args:
        decay: How much of the average stays from one time to the next; below 1.
        every: After how many steps it is taken, which copies all weights. Python is called after every one.
        validates: Whether validation measures the average.
        keeps: Whether the network has the average when training ends.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=2)
        >>> average = loom.ExponentialMovingAverage(decay=0.9)
        >>> config = loom.TrainingConfig(epochs=5, verbose=False)
        >>> _ = loom.train(net, (np.eye(2), np.ones(2)), config, callbacks=[average])
        >>> bool((net.state_dict()["0.0.0.0.weight"] == average.weights["0.0.0.0.weight"]).all())
        True
    """

    def __init__(
        self, decay: float = 0.999, *, every: int = 1, validates: bool = True, keeps: bool = True
    ) -> None:
        where = "ExponentialMovingAverage"
        self.decay = real(where, "decay", decay, least=0.0, below=1.0)
        self.every = whole(where, "every", every, least=1)
        super().__init__(where, validates=validates, keeps=keeps)
        self._taken = 0
        self._steps = 0

    def __repr__(self) -> str:
        return f"ExponentialMovingAverage({self.decay}, every={self.every})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the average, and what training goes on from where the network has that."""
        state: dict[str, Any] = {"taken": self._taken, "steps": self._steps, "weights": self.weights}
        return {**state, **self.lent_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._taken, self._steps = state["taken"], state["steps"]
        self.weights = {name: np.array(values) for name, values in state["weights"].items()}
        self.load_lent_state(state)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins anew, or goes on."""
        if not self._resumed:
            self.weights, self._taken, self._steps, self._own = {}, 0, 0, None
        self.take_back(self.weights)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Takes the weights into the average."""
        self._steps += 1
        if self._steps % self.every:
            return
        factor = min(self.decay, self._taken / (self._taken + 1))
        self._taken += 1
        for name, values in lasting(self.network, moving(self.network)).items():
            if name in self.weights and self.weights[name].shape == values.shape:
                average = self.weights[name]
                average += (1 - factor) * (values - average)
            else:
                self.weights[name] = values
