"""Weights that are kept from growing beyond a norm."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from loom._settings.checks import real
from loom._settings.suggestions import shown
from loom.callbacks.base import Callback, Logs
from loom.errors import ConfigError

__all__ = ["MaxNorm"]


class MaxNorm(Callback):
    """Scales rows of weights back to a norm that they are not to exceed, after every step.

    Srebro and Shraibman (2005); a unit's incoming weights are a row: all but the first axis of a parameter as
    the outside sees it, (units, features) or (filters, channels, ...). Biases and gains, of one axis, stay,
    and so does what is frozen as an epoch begins.
    Python is called after every step, and where a row was too long its parameter is written anew; on a GPU
    the frame of commands is cut there.

    Args:
        largest: The largest Euclidean norm of a row.
        where: Whose weights: a pattern of the paths or kinds of layers, or of parameters' names, such as
            "dense" or "*.weight".

    Raises:
        ConfigError: The norm is not above 0; when training begins, the pattern names nothing of two axes.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2)
        >>> config = loom.TrainingConfig(epochs=9, learning_rate=1.0, optimizer="sgd", verbose=False)
        >>> _ = loom.train(net, (np.eye(2), np.ones((2, 3))), config, callbacks=[loom.MaxNorm(0.5)])
        >>> bool((np.linalg.norm(net.layers[0].parameters["weight"], axis=1) < 0.5001).all())
        True
    """

    def __init__(self, largest: float, where: str = "*") -> None:
        self.largest = real("MaxNorm", "largest", largest, above=0.0)
        if not isinstance(where, str):
            raise ConfigError(f'MaxNorm: where must be a pattern such as "*.weight", got {shown(where)}')
        self.where = where
        self._meant: list[tuple[Any, str]] = []
        self._held: list[tuple[Any, str]] = []

    def __repr__(self) -> str:
        return f"MaxNorm({self.largest})"

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Finds the weights."""
        self._meant = [
            (layer, name)
            for layer in self.network.layers
            for name, values in layer.parameters.items()
            if values.ndim > 1 and self._means(layer.path, layer.kind, f"{layer.path}.{name}")
        ]
        if not self._meant:
            raise ConfigError(f'MaxNorm: "{self.where}" means no parameter of two axes or more')
        self._find_trained()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Finds those that are trained now."""
        self._find_trained()

    def _find_trained(self) -> None:
        learning = {
            f"{layer.path}.{entry.name}"
            for layer, _ in self.network.blueprint().walk()
            for entry in layer.parameters
            if entry.trainable
        }
        self._held = [(layer, name) for layer, name in self._meant if f"{layer.path}.{name}" in learning]

    def _means(self, *names: str) -> bool:
        return any(fnmatchcase(name, self.where) for name in names)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Scales back what has grown too long."""
        for layer, name in self._held:
            weights = np.asarray(layer.parameters[name])
            rows = weights.reshape(len(weights), -1).astype(np.float64)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            if (norms > self.largest).any():
                kept = rows * np.minimum(1.0, self.largest / np.maximum(norms, self.largest))
                layer.parameters[name] = kept.reshape(weights.shape).astype(weights.dtype)
