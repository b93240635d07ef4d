"""A network that has been trained, and samples for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn
from loom.handles import LayerHandle
from networks import blobs, quiet


def deep(seed: int = 0, precision: str = "float64") -> loom.Network:
    """Layers with weights, states, and none, two of them of one width."""
    layers = [
        nn.Dense(8, activation="tanh"),
        nn.BatchNorm(),
        nn.Dense(8, activation="tanh"),
        nn.Dropout(0.2),
        nn.Dense(3),
    ]
    return loom.Sequential(layers, input_shape=6, precision=precision, seed=seed)


def trained(precision: str = "float64") -> loom.Network:
    """The same, trained for a while, so that everything has moved."""
    net = deep(precision=precision)
    net.fit(blobs(60), quiet(epochs=2, batch_size=16, device="cpu"))
    return net


def samples(rows: int = 7, width: int = 6, dtype: str = "float64") -> NDArray[Any]:
    return np.random.default_rng(3).normal(size=(rows, width)).astype(dtype)


def dense(x: NDArray[Any], layer: LayerHandle) -> NDArray[Any]:
    return x @ layer.weight.T + layer.bias
