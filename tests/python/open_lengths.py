"""Networks of open extents, and samples of any length for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
LENGTHS = [5, 1, 16, 7, 2, 33]
VOCABULARY = 30
STEPPED: dict[str, list[Any]] = {
    "tagger": [nn.LSTM(6, bidirectional=True, return_sequences=True), nn.Dense(3)],
    "causal": [nn.PositionalEmbedding(40), nn.MultiHeadAttention(2, causal=True, window=4), nn.Dense(3)],
    "expression": [nn.Expr("tanh(x) * x"), nn.Dense(3, activation="tanh")],
}


def network(layers: Sequence[Any], shape: Any, precision: Any = "float32") -> loom.Network:
    return loom.Sequential(layers, input_shape=shape, precision=precision, seed=4)


def sequences(lengths: Sequence[int] = LENGTHS, dtype: str = "float32", width: int = 4) -> list[Array]:
    random = np.random.default_rng(3)
    return [random.normal(size=(length, width)).astype(dtype) for length in lengths]


def each_alone(layers: Sequence[Any], samples: Sequence[Array], precision: Any = "float32") -> list[Array]:
    return [network(layers, x.shape, precision).predict(x[None])[0] for x in samples]


def words(rows: int, seed: int = 1) -> tuple[list[Array], Array]:
    """Texts of numbers, of which one word decides, wherever it stands."""
    random = np.random.default_rng(seed)
    texts = [random.integers(2, VOCABULARY, random.integers(1, 25)) for _ in range(rows)]
    labels = random.integers(0, 2, rows)
    for text, label in zip(texts, labels, strict=True):
        text[random.integers(len(text))] = label
    return texts, labels


def classifier(seed: int = 2) -> loom.Network:
    layers = [
        nn.Embedding(VOCABULARY, 8),
        nn.GRU(12, return_sequences=True),
        nn.SequencePool("mean"),
        nn.Dense(2),
    ]
    return loom.Sequential(layers, input_shape=(None,), seed=seed)


SETTINGS: dict[str, Any] = {
    "batch_size": 16,
    "learning_rate": 0.02,
    "loss": "cross_entropy",
    "metrics": ["accuracy"],
    "verbose": False,
}
