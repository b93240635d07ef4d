"""Slow weights, which fast ones explore for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom.callbacks._states import give_back, lasting, moving
from loom.callbacks.base import Callback, Logs

__all__ = ["Lookahead"]


class Lookahead(Callback):
    """Moves slow weights toward where any optimizer has come after some steps, and begins anew from them.

    Zhang et al. (2019): after every `steps` steps, slow += share (weights - slow), and the weights are then
    the slow ones. The optimizer's moments go on as they are, running statistics of norms go along with the
    weights. When training ends between two such moves, the network has the weights as they are then.

    It is a callback, so that it goes with every optimizer and both ways to learn, and its slow weights are
    kept for resumed runs. Python is called after every step, and every `steps` steps all weights are copied.

    Args:
        steps: After how many steps; at least 1.
        share: How far the slow weights go, of the way; above 0 and at most 1.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=2)
        >>> config = loom.TrainingConfig(epochs=12, verbose=False, optimizer="sgd")
        >>> _ = loom.train(net, (np.eye(2), np.ones(2)), config, callbacks=[loom.Lookahead(steps=6)])
    """

    def __init__(self, steps: int = 5, share: float = 0.5) -> None:
        self.steps = whole("Lookahead", "steps", steps, least=1)
        self.share = real("Lookahead", "share", share, above=0.0, most=1.0)
        self.weights: dict[str, NDArray[Any]] = {}
        """The slow weights by name, as `Network.state_dict` names them."""
        self._steps = 0

    def __repr__(self) -> str:
        return f"Lookahead({self.steps}, share={self.share})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the slow weights, and how many steps have gone."""
        return {"steps": self._steps, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self._steps = state["steps"]
        self.weights = {name: np.array(values) for name, values in state["weights"].items()}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begins from the weights as they are, or goes on."""
        if not self._resumed or not self.weights:
            self._steps = 0
            self.weights = lasting(self.network, moving(self.network))

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Moves the slow weights when it is time."""
        self._steps += 1
        if self._steps % self.steps == 0:
            self._move()

    def _move(self) -> None:
        state = moving(self.network)
        for name, values in lasting(self.network, state).items():
            slow = self.weights.get(name)
            if slow is not None and slow.shape == values.shape:
                slow += self.share * (values - slow)
            else:
                self.weights[name] = values
        # What layers carry stays.
        give_back(self.network, {**state, **self.weights})
