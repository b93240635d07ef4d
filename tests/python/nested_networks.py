"""Networks of layers inside others, and what a Dense layer makes in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]


def nested(seed: int = 0, precision: str = "float64") -> loom.Network:
    """Every composite layer, one in another."""
    filtering = nn.Parallel(
        [[nn.Dense(6, activation="relu")], [], [nn.Dense(3, activation="tanh"), nn.Dense(6)]],
        combine="filter",
    )
    layers = [
        nn.Dense(4, activation="tanh"),
        nn.Residual([nn.Dense(6, activation="gelu"), filtering, nn.Dense(4)]),
        nn.Sequential([nn.Residual([nn.Dense(3, activation="relu")]), nn.Activation("tanh")]),
    ]
    return loom.Sequential(layers, input_shape=5, precision=precision, seed=seed)


def sequences(precision: str = "float64", **attention: Any) -> loom.Network:
    """A block of a transformer that leaves out padding."""
    block = nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2, **attention)])
    return loom.Sequential(
        [nn.Masked([block, nn.Residual([nn.LayerNorm(), nn.SwiGLU(8)])]), nn.GlobalAvgPool1D(), nn.Dense(3)],
        input_shape=(6, 4),
        precision=precision,
        seed=3,
    )


def every(net: loom.Network) -> list[loom.handles.LayerHandle]:
    return [handle for layer in net.layers for handle in (layer, *layer.inner)]


def samples(shape: tuple[int, ...], rows: int = 7, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, *shape))


def dense(layer: Any, x: Array) -> Array:
    z = x @ layer.weight.T + (layer.bias if "bias" in layer.parameters else 0.0)
    functions: dict[str, Callable[[Array], Array]] = {
        "linear": lambda z: z,
        "relu": lambda z: np.maximum(z, 0),
        "tanh": np.tanh,
        "gelu": lambda z: z * 0.5 * (1 + np.vectorize(erf)(z / sqrt(2))),
    }
    return functions[layer.config.activation](z)
