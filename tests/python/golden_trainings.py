"""Ten trainings whose weights have the same hash on every processor; run to print their hashes as JSON.

`python tests/python/golden_trainings.py > tests/golden/trainings.json` writes the file anew, where what is
computed has changed on purpose.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable

import numpy as np

import loom
from loom import nn


def digest(net: loom.Network, losses: list[float]) -> str:
    """The hash of all weights and losses; not of the file, whose form may change."""
    found = hashlib.sha256(json.dumps(losses).encode())
    for name, values in sorted(net.state_dict().items()):
        found.update(name.encode() + values.tobytes())
    return found.hexdigest()


def trained(net: loom.Network, kind: str = "classes", **settings: object) -> str:
    random = np.random.default_rng(7)
    if kind == "tokens":
        x = random.integers(0, 30, (40, *net.input_shape))
        y = np.roll(x, -1, axis=1)
    else:
        x = random.normal(size=(40, *net.input_shape)).astype(np.float32)
        y = random.integers(0, 4, 40) if kind == "classes" else random.normal(size=(40, *net.output_shape))
    given = {
        "loss": "mse" if kind == "numbers" else "cross_entropy",
        "epochs": 2,
        "batch_size": 16,
        **settings,
    }
    config = loom.TrainingConfig(device="cpu", verbose=False, **given)  # type: ignore[arg-type]
    return digest(net, loom.train(net, (x, y), config).loss_history)


def perceptron() -> str:
    layers = [nn.Dense(33, activation="gelu"), nn.Dropout(0.2), nn.Dense(17, activation="elu"), nn.Dense(4)]
    return trained(loom.Sequential(layers, 11), optimizer="adamw", gradient_clip=0.5, label_smoothing=0.1)


def convolutions() -> str:
    layers = [
        nn.Conv2D(7, 3, padding="same", activation="silu"),
        nn.BatchNorm(),
        nn.MaxPool2D(2),
        nn.Residual([nn.Conv2D(7, 3, padding="same", activation="relu")]),
        nn.GlobalAvgPool2D(),
        nn.Dense(4),
    ]
    return trained(loom.Sequential(layers, (3, 9, 8)), optimizer="sgd")


def recurrent() -> str:
    layers = [nn.LSTM(9, return_sequences=True), nn.GRU(6), nn.Dense(4)]
    return trained(loom.Sequential(layers, (7, 5)), optimizer="rmsprop")


def transformer() -> str:
    block = nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(2, causal=True)])
    feed = nn.Residual([nn.LayerNorm(), nn.SwiGLU(24)])
    net = loom.Sequential([nn.Embedding(30, 16), block, feed, nn.Dense(30)], 12)
    return trained(net, "tokens", optimizer="adam", schedule="cosine")


def low_bits() -> str:
    net = loom.Sequential([nn.Dense(32, activation="tanh"), nn.Dense(4)], 16)
    net.morph("int8")
    return trained(net)


def mixed_precision() -> str:
    return trained(loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(4)], 16, precision="mixed"))


def double_precision() -> str:
    net = loom.Sequential([nn.Dense(12, activation="softplus"), nn.Dense(2)], 5, precision="float64")
    return trained(net, "numbers", optimizer="lion")


def grid() -> str:
    net = loom.Network(6, grid=(1, 2, 2), seed=3)
    for place in ((0, 0, 0), (0, 0, 1), (0, 1, 0)):
        net[place].add(nn.Dense(8, activation="tanh"), nn.GroupNorm(2))
    net[0, 1, 1].add(nn.Dense(4))
    return trained(net)


def tweening() -> str:
    net = loom.Sequential([nn.Dense(20, activation="tanh"), nn.Dense(10, activation="tanh"), nn.Dense(4)], 8)
    random = np.random.default_rng(7)
    x, y = random.normal(size=(40, 8)).astype(np.float32), random.integers(0, 4, 40)
    config = loom.TrainingConfig(epochs=2, batch_size=16, loss="cross_entropy", device="cpu", verbose=False)
    result = loom.TweenTrainer(net).fit((x, y), config)
    return digest(net, result.loss_history)


def clock_mode() -> str:
    net = loom.Network(4, grid=(1, 1, 2))
    net[0, 0, 0].add(nn.Dense(8, activation="tanh"))
    net[0, 0, 1].add(nn.Dense(3))
    random = np.random.default_rng(7)
    stream = [(random.normal(size=(1, 4)), random.normal(size=(1, 3))) for _ in range(30)]
    result = loom.train_stepping(loom.Mesh(net, window=6), stream, ticks=2, update_every=3)
    return digest(net, list(result.losses))


TRAININGS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        perceptron,
        convolutions,
        recurrent,
        transformer,
        low_bits,
        mixed_precision,
        double_precision,
        grid,
        tweening,
        clock_mode,
    )
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: make() for name, make in TRAININGS.items()}, indent=1) + "\n")
