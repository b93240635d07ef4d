"""The mean of the weights over the ends of late epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loom._settings.checks import real, whole
from loom.callbacks._averaging import Averaging
from loom.callbacks._states import lasting, moving
from loom.callbacks.base import Logs

__all__ = ["StochasticWeightAveraging"]


class StochasticWeightAveraging(Averaging):
    """Averages the weights over the ends of late epochs, and gives the mean to the network at the end (SWA).

    Izmailov et al. (2018): the mean of weights that a rather high, constant rate goes on moving lies in a
    flatter place than any of them, and generalises better. So it wants a schedule that does not fall to
    nothing: a constant one, or one with restarts, of which `every` is a cycle. All weights count the same,
    unlike in `ExponentialMovingAverage`.

    Running statistics of norms are averaged like the weights. Validation measures the mean, and
    `EarlyStopping`, `ModelCheckpoint` and run folders keep that of the epoch that was best by it. Training
    goes on from the weights as they are; a resumed run, too.

    Args:
        start: From which epoch on, as a whole number, or after which share of all epochs, from 0 to below 1.
        every: After how many epochs the weights are taken, which copies all of them.
        validates: Whether validation measures the mean, once there is one.
        keeps: Whether the network has the mean when training ends.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=2)
        >>> averaging = loom.StochasticWeightAveraging(start=3)
        >>> config = loom.TrainingConfig(epochs=5, verbose=False)
        >>> _ = loom.train(net, (np.eye(2), np.ones(2)), config, callbacks=[averaging])
        >>> averaging.count, bool(np.all(net[0, 0, 0, 0].bias == averaging.weights["0.0.0.0.bias"]))
        (2, True)
    """

    def __init__(
        self, start: float = 0.75, *, every: int = 1, validates: bool = True, keeps: bool = True
    ) -> None:
        where = "StochasticWeightAveraging"
        counted = isinstance(start, (int, np.integer))
        checked = whole(where, "start", start, least=0) if counted else None
        self.start: float = real(where, "start", start, least=0.0, below=1.0) if checked is None else checked
        self.every = whole(where, "every", every, least=1)
        super().__init__(where, validates=validates, keeps=keeps)
        self.count = 0
        """Of how many epochs' weights it is the mean."""
        self._epoch = 0

    def __repr__(self) -> str:
        return f"StochasticWeightAveraging({self.start}, every={self.every})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the mean, and what training goes on from where the network has that."""
        state: dict[str, Any] = {"count": self.count, "weights": self.weights}
        return {**state, **self.lent_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self.count = state["count"]
        self.weights = {name: np.array(values) for name, values in state["weights"].items()}
        self.load_lent_state(state)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins anew, or goes on."""
        if not self._resumed:
            self.weights, self.count, self._own = {}, 0, None
        self.take_back(self.weights)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Takes note of where training is."""
        self._epoch = epoch
        self._measured = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Gives the network the mean to be measured, with the epoch's weights in it."""
        if self.validates:
            self._take()
            self.give()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Takes the weights into the mean."""
        self._take()

    _measured = False

    def _take(self) -> None:
        if self._measured:
            return
        self._measured = True
        first = self.start
        if isinstance(first, float):
            first = int(first * self.params["epochs"])
        if self._epoch < first or (self._epoch - int(first)) % self.every:
            return
        self.count += 1
        for name, values in lasting(self.network, moving(self.network)).items():
            if name in self.weights and self.weights[name].shape == values.shape:
                mean = self.weights[name]
                mean += (values - mean) / self.count
            else:
                self.weights[name] = values
