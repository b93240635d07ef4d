"""Networks of named inputs and outputs whose extents are open, and samples for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import loom
from loom import nn

ROWS = 40


def described(seed: int = 1, precision: Any = "float64") -> loom.Network:
    """Texts and sounds of lengths of their own, and a table of three numbers, told in two ways."""
    net = loom.Network(
        inputs={"text": loom.Categories(20, length=None), "sound": (None, 3), "table": 3},
        grid=(1, 5),
        precision=precision,
        seed=seed,
    )
    net[0, 0].add(nn.Embedding(20, 4), nn.GRU(5))
    net.enter("sound", (0, 1))[0, 1].add(nn.LSTM(4, return_sequences=True), nn.SequencePool("mean"))
    net.enter("table", (0, 2)).link((0, 0), (0, 2), combine="concat").link((0, 1), (0, 2), combine="concat")
    net[0, 2].add(nn.Dense(6, activation="tanh"))
    net[0, 3].add(nn.Dense(2))
    net.link((0, 2), (0, 4), combine="replace")[0, 4].add(nn.Dense(1))
    return net.output("kind", (0, 3)).output("score", (0, 4))


def samples(rows: int = ROWS, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    x = {
        "text": [rng.integers(0, 20, rng.integers(1, 12)) for _ in range(rows)],
        "sound": [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(rows)],
        "table": rng.normal(size=(rows, 3)),
    }
    kind = np.array([int(text[0] > 9) for text in x["text"]])
    return x, {"kind": kind, "score": np.array([sound.mean() for sound in x["sound"]])}


LOSS: Any = {"kind": "cross_entropy", "score": "huber"}


def config(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {"epochs": 2, "batch_size": 8, "loss": LOSS, "verbose": False, "device": "cpu"}
    return loom.TrainingConfig(**{**usual, **settings})


def tagger(seed: int = 1, precision: Any = "float64") -> loom.Network:
    """Of each step whether the sum so far is odd, and how large; of the whole how long it is."""
    net = loom.Network((None,), grid=(1, 4), precision=precision, seed=seed)
    net[0, 0].add(nn.Embedding(6, 5), nn.GRU(7, return_sequences=True))
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.SequencePool("last"), nn.Dense(1))
    return net.output("odd", (0, 1)).output("sum", (0, 2)).output("long", (0, 3))


def sentences(rows: int = ROWS, seed: int = 3) -> tuple[list[Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    x = [rng.integers(0, 6, rng.integers(1, 12)) for _ in range(rows)]
    sums = [np.cumsum(each) for each in x]
    return x, {
        "odd": [each % 2 for each in sums],
        "sum": [each[:, None] / 10 for each in sums],
        "long": np.array([len(each) / 10 for each in x]),
    }


TOLD: Any = {"odd": "cross_entropy", "sum": "mse", "long": "mse"}
