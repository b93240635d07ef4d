"""Activations that wait for the backward pass in 16 bits: what gradients are made of, and what not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from networks import cnn, quiet, stripes, weights

Array = NDArray[Any]
Kept = Literal["float16", "bfloat16"]
RNG = np.random.default_rng(5)
WIDTH = 40
X = RNG.normal(size=(24, WIDTH))
Y = RNG.normal(size=(24, 3))


def short(x: Array, kept: Kept) -> Array:
    """The nearest number of 16 bits of each."""
    if kept == "float16":
        return x.astype(np.float16).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    return (
        ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000)
        .astype(np.uint32)
        .view(np.float32)
        .astype(np.float64)
    )


def step(**more: Any) -> loom.TrainingConfig:
    return quiet(
        epochs=1,
        batch_size=24,
        shuffle=False,
        loss="mse",
        optimizer="sgd",
        learning_rate=0.1,
        device="cpu",
        **more,
    )


@pytest.mark.parametrize("kept", ["float16", "bfloat16"])
def test_gradients_are_those_at_rounded_activations(kept: Kept) -> None:
    net = loom.Sequential(
        [nn.Dense(WIDTH, activation="tanh"), nn.Dense(WIDTH, activation="sigmoid"), nn.Dense(3)],
        input_shape=WIDTH,
        seed=2,
        precision="float64",
    )
    w = {name: np.array(values) for name, values in net.state_dict().items()}
    first = np.tanh(X @ w["0.0.0.0.weight"].T + w["0.0.0.0.bias"])
    second = 1 / (1 + np.exp(-(first @ w["0.0.0.1.weight"].T + w["0.0.0.1.bias"])))
    y = second @ w["0.0.0.2.weight"].T + w["0.0.0.2.bias"]
    dy = 2 * (y - Y) / Y.size
    # Samples are the caller's, and as they were given.
    h1, h2 = short(first, kept), short(second, kept)
    d2 = dy @ w["0.0.0.2.weight"] * h2 * (1 - h2)
    d1 = d2 @ w["0.0.0.1.weight"] * (1 - h1 * h1)
    gradients = {
        "0.0.0.0.weight": d1.T @ X,
        "0.0.0.0.bias": d1.sum(0),
        "0.0.0.1.weight": d2.T @ h1,
        "0.0.0.1.bias": d2.sum(0),
        "0.0.0.2.weight": dy.T @ h2,
        "0.0.0.2.bias": dy.sum(0),
    }
    result = loom.train(net, (X, Y), step(saved_activations=kept))
    # Nothing before the gradients is rounded.
    assert result.loss_history[0] == pytest.approx(((y - Y) ** 2).mean(), rel=1e-13)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(net.state_dict()[name], w[name] - 0.1 * gradient, rtol=0, atol=1e-13)
    assert not np.array_equal(h1, first)


def decoder(precision: Any = "float32") -> loom.Network:
    heads = nn.MultiHeadAttention(4, key_value_heads=2, causal=True, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), heads, nn.Dropout(0.1)]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(64)])]
    return loom.Sequential(
        [nn.Embedding(50, 32), *block, nn.Checkpoint(block), nn.LayerNorm(), nn.Dense(50)],
        input_shape=12,
        seed=3,
        precision=precision,
    )


def recurrent(precision: Any = "float32") -> loom.Network:
    return loom.Sequential(
        [
            nn.Embedding(50, 16),
            nn.LSTM(24, bidirectional=True, return_sequences=True),
            nn.GRU(16, return_sequences=True),
            nn.RNN(16, return_sequences=True),
            nn.Dense(50),
        ],
        input_shape=12,
        seed=3,
        precision=precision,
    )


def images(precision: Any = "float32") -> loom.Network:
    return cnn(1, precision)


TOKENS = RNG.integers(0, 50, (20, 12))
BATCHES: dict[str, Any] = {"decoder": (TOKENS, TOKENS), "recurrent": (TOKENS, TOKENS), "images": stripes(40)}
NETWORKS = {"decoder": decoder, "recurrent": recurrent, "images": images}


def trained(
    name: str, device: str, kept: Kept | None, precision: Any = "float32", **more: Any
) -> loom.Network:
    net = NETWORKS[name](precision)
    settings = {"epochs": 3, "batch_size": 8, "loss": "cross_entropy", "learning_rate": 3e-3, **more}
    loom.train(net, BATCHES[name], quiet(device=device, saved_activations=kept, **settings))
    return net


def apart(one: loom.Network, other: loom.Network) -> float:
    """How far two networks' weights are from each other, of how far training has moved them or so."""
    pairs = [(one.state_dict()[name], other.state_dict()[name]) for name in one.state_dict()]
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kept", ["float16", "bfloat16"])
def test_training_goes_where_it_went(name: str, kept: Kept) -> None:
    """Momentum moves weights by their gradients: these are close to what they were, and not the same."""
    sgd = loom.SGD(momentum=0.9)
    whole, saved = (trained(name, "cpu", how, optimizer=sgd, learning_rate=0.02) for how in (None, kept))
    moved = apart(NETWORKS[name](), whole)
    distance = apart(whole, saved)
    assert 0 < distance < {"float16": 0.005, "bfloat16": 0.04}[kept] * moved


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kept", ["float16", "bfloat16"])
def test_a_gpu_makes_what_the_cpu_makes(gpu: str, name: str, kept: Kept) -> None:
    sgd = loom.SGD(momentum=0.9)
    made = [
        trained(name, device, kept, optimizer=sgd, learning_rate=0.02, epochs=2) for device in ("cpu", gpu)
    ]
    # What is half way between two codes may go either way.
    assert apart(*made) < {"float16": 2e-4, "bfloat16": 1e-3}[kept]


def test_products_of_mixed_precision_on_a_gpu_round_to_float16_anyway(gpu: str) -> None:
    """ReLU's gradient asks for signs alone, and products read what they would have rounded."""
    made = []
    for kept in (None, "float16"):
        layers = [nn.Dense(48, activation="relu"), nn.Dense(48, activation="relu"), nn.Dense(3)]
        net = loom.Sequential(layers, input_shape=WIDTH, seed=2, precision="mixed")
        config = quiet(epochs=3, batch_size=8, loss="mse", device=gpu, saved_activations=kept)
        loom.train(net, (X, Y), config)
        made.append(weights(net))
    assert made[0] == made[1]


def test_whole_numbers_and_masks_stay_as_they_are() -> None:
    """Tokens beyond what 16 bits hold go through layers before an embedding reads them, and its gradient."""
    words = 70_000
    tokens = RNG.integers(words - 3000, words, (6, 40))
    made = []
    for kept in (None, "bfloat16"):
        net = loom.Sequential(
            [nn.Reshape((1, 40)), nn.Permute((1, 0)), nn.Flatten(), nn.Embedding(words, 2)],
            input_shape=40,
            seed=1,
        )
        config = quiet(
            epochs=1, batch_size=6, loss="mse", optimizer="sgd", device="cpu", saved_activations=kept
        )
        loom.train(net, (tokens, np.ones((6, 40, 2))), config)
        made.append(weights(net))
    assert made[0] == made[1]


def test_a_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = trained("decoder", "cpu", "float16", epochs=4)
    part = trained("decoder", "cpu", "float16", epochs=2)
    part.save(tmp_path / "part.loom", optimizer=True)
    again = loom.load(tmp_path / "part.loom")
    config = quiet(epochs=4, batch_size=8, learning_rate=3e-3, device="cpu", saved_activations="float16")
    loom.train(again, BATCHES["decoder"], config, resume=True)
    assert weights(again) == weights(whole)


def test_what_is_too_large_for_a_float16_is_noticed() -> None:
    x = np.full((4, WIDTH), 1e5)
    for kept in ("float16", "bfloat16"):
        net = loom.Sequential([nn.Activation("softplus"), nn.Dense(3)], input_shape=WIDTH, seed=1)
        config = quiet(
            epochs=1,
            batch_size=4,
            loss="mse",
            optimizer="sgd",
            learning_rate=1e-13,
            device="cpu",
            saved_activations=kept,
            ignore_findings="all",
        )
        if kept == "bfloat16":
            loom.train(net, (x, np.zeros((4, 3))), config)
        else:
            with pytest.raises(loom.NonFiniteError):
                loom.train(net, (x, np.zeros((4, 3))), config)


def test_settings_go_through_files_and_mistakes_are_told() -> None:
    config = loom.TrainingConfig(saved_activations="bfloat16")
    assert loom.TrainingConfig.from_config(config.to_config()) == config
    assert "saved_activations" not in loom.TrainingConfig().to_config()
    with pytest.raises(loom.ConfigError, match=r'saved_activations.*"float16"'):
        loom.TrainingConfig(saved_activations="float8")  # type: ignore[arg-type]
    net = loom.Sequential([nn.Dense(3)], input_shape=WIDTH)
    with pytest.raises(loom.ConfigError, match="saved_activations"):
        loom.LBFGS(net, step(saved_activations="float16"))
    with pytest.raises(loom.ConfigError, match="saved_activations"):
        loom.Stepper(loom.Mesh(net), step(saved_activations="float16"))
    with pytest.raises(loom.LoomError, match="saved_activations has no meaning in learning by targets"):
        loom.TweenTrainer(net).fit((X, Y), step(saved_activations="float16"))


PROGRAM = """
import sys

import numpy as np

import loom
from loom import nn
from loom.callbacks import LambdaCallback

kept, device, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
heads = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
block = [nn.Residual([nn.RMSNorm(), heads]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(128)])]
net = loom.Sequential([nn.Embedding(64, 64), *(12 * block), nn.Dense(64)], input_shape=64, seed=1)
net.to(device)
x = np.random.default_rng(0).integers(0, 64, (rows, 64))
before = loom.frame_statistics(device).memory
held = []
looking = LambdaCallback(on_epoch_end=lambda *_: held.append(loom.frame_statistics(device).memory))
config = loom.TrainingConfig(
    epochs=1,
    batch_size=rows,
    loss="cross_entropy",
    device=device,
    verbose=False,
    saved_activations=None if kept == "whole" else kept,
)
loom.train(net, (x, x), config, callbacks=[looking])
print(held[0] - before)
"""


def test_a_gpu_holds_little_more_than_half(gpu: str) -> None:
    held = {}
    rows = 16 if loom.init_gpu(gpu).software else 1024
    for kept in ("whole", "float16"):
        command = [sys.executable, "-c", PROGRAM, kept, gpu, str(rows)]
        held[kept] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert held["float16"] < 0.68 * held["whole"]
