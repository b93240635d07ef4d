"""A network of several outputs with names, and samples for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
ROWS = 20


def three_heads(precision: str = "float64", seed: int = 1) -> loom.Network:
    """One trunk; three classes, a number and two numbers."""
    net = loom.Network(3, grid=(1, 4), precision=precision, seed=seed)  # type: ignore[arg-type]
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.Dense(2))
    return net.output("kind", (0, 1)).output("age", (0, 2)).output("place", (0, 3))


def samples(seed: int = 0, rows: int = ROWS) -> tuple[Array, dict[str, Array]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = {"kind": rng.integers(0, 3, rows), "age": rng.normal(size=rows), "place": rng.normal(size=(rows, 2))}
    return x, y
