"""The mean of the weights over the ends of late epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, real, whole
from loom.callbacks._averaging import lasting
from loom.callbacks.base import Callback, Logs

__all__ = ["StochasticWeightAveraging"]


class StochasticWeightAveraging(Callback):
    """Averages the weights over the ends of late epochs, and gives the mean to the network at the end (SWA).

    Izmailov et al. (2018): the mean of weights that a rather high, constant rate goes on moving lies in a
    flatter place than any of them, and generalises better. So it wants a schedule that does not fall to
    nothing: a constant one, or one with restarts, of which `every` is a cycle. All weights count the same,
    unlike in `ExponentialMovingAverage`.

    Running statistics of norms are averaged like the weights. Training goes on from the weights as they
    are; a resumed run, too.

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
        self.validates = flag(where, "validates", validates)
        self.keeps = flag(where, "keeps", keeps)
        self.weights: dict[str, NDArray[Any]] = {}
        """The mean by name, as `Network.state_dict` names it; empty before the first epoch that counts."""
        self.count = 0
        """Of how many epochs' weights it is the mean."""
        self._epoch = 0
        self._own: dict[str, NDArray[Any]] | None = None

    def __repr__(self) -> str:
        return f"StochasticWeightAveraging({self.start}, every={self.every})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the mean, and what training goes on from where the network has that."""
        state: dict[str, Any] = {"count": self.count, "weights": self.weights}
        return state if self._own is None else {**state, "own": self._own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self.count = state["count"]
        self.weights = {name: np.array(values) for name, values in state["weights"].items()}
        own = state.get("own")
        self._own = None if own is None else dict(own)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins anew, or goes on."""
        if not self._resumed:
            self.weights, self.count, self._own = {}, 0, None
        self._restore()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Takes note of where training is."""
        self._epoch = epoch
        self._measured = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Gives the network the mean to be measured, with the epoch's weights in it."""
        self._take()
        if self.validates:
            self._give()

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Gives the network its own weights back."""
        self._restore()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Takes the weights into the mean."""
        self._restore()
        self._take()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the network the mean."""
        if self.keeps:
            self._give()

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
        for name, values in lasting(self.network, self.network.state_dict()).items():
            if name in self.weights and self.weights[name].shape == values.shape:
                mean = self.weights[name]
                mean += (values - mean) / self.count
            else:
                self.weights[name] = values

    def _give(self) -> None:
        if self.weights:
            own = {name: np.array(values) for name, values in self.network.state_dict().items()}
            self.network.load_state_dict({**own, **self.weights})
            self._own = own

    def _restore(self) -> None:
        if self._own is not None:
            own, self._own = self._own, None
            self.network.load_state_dict(own)
