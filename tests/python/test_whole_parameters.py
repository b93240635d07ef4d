"""Optimizers that look at whole parameters: LAMB, Adafactor, Muon.

Their formulas are proved against Optax's (`tests/golden/whole_parameters.py`), on the CPU in both precisions
and on a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn, optimizers
from networks import quiet, weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "whole_parameters.json").read_text())
SHAPES = [(6, 8), (8,), (8, 3), (3,)]
RULES = [optimizers.LAMB(weight_decay=0.1), optimizers.Adafactor(weight_decay=0.1), optimizers.Muon()]


def array(shape: tuple[int, ...], offset: int, scale: float) -> Any:
    count = int(np.prod(shape))
    return scale * np.reshape([((37 * i + 11 * offset) % 61 - 30) / 32 for i in range(count)], shape)


def data() -> tuple[Any, Any]:
    return array((12, 6), 5, 1.0), array((12, 3), 6, 0.5)


def network(precision: Any, device: str = "cpu") -> Any:
    layers = [nn.Dense(8, activation="tanh"), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=6, precision=precision).to(device)
    made = [array(shape, number, 0.5) for number, shape in enumerate(SHAPES)]
    for layer in range(2):
        net[0, 0, 0, layer].weight = made[2 * layer].T
        net[0, 0, 0, layer].bias = made[2 * layer + 1]
    return net


def reached(net: Any) -> list[Any]:
    layers = [net[0, 0, 0, layer] for layer in range(2)]
    return [one.ravel() for layer in layers for one in (np.asarray(layer.weight).T, np.asarray(layer.bias))]


def compare(precision: Any, device: str, tolerance: float) -> None:
    for case in GOLDEN["cases"]:
        for checkpoint, expected in zip(GOLDEN["checkpoints"], case["weights"], strict=True):
            if precision == "float32" and checkpoint > 10 and case["optimizer"]["type"] == "adafactor":
                # Without a first moment rounding is blown up where gradients come to nothing.
                continue
            net = network(precision, device)
            loom.train(
                net,
                data(),
                quiet(
                    epochs=checkpoint,
                    batch_size=12,
                    loss="mse",
                    shuffle=False,
                    learning_rate=case["rate"],
                    optimizer=case["optimizer"],
                ),
            )
            largest = max(np.abs(one).max() for one in expected)
            for found, wanted in zip(reached(net), expected, strict=True):
                error = np.abs(found - np.asarray(wanted)).max() / largest
                assert error <= tolerance, (case["optimizer"], checkpoint, error)


def test_formulas_in_double_precision() -> None:
    assert {case["optimizer"]["type"] for case in GOLDEN["cases"]} == {rule.kind for rule in RULES}
    compare("float64", "cpu", 1e-9)


def test_formulas_in_single_precision() -> None:
    compare("float32", "cpu", 2e-5)


def test_formulas_on_a_gpu(gpu: str) -> None:
    compare("float32", gpu, 5e-5)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_every_kind_of_layer_on_both_devices(rule: Any, gpu: str) -> None:
    """Kernels of convolutions, gates of recurrent layers, gains, embeddings; frozen ones.

    No bias whose gradient is nothing but rounding: of that every such rule makes whole steps.
    """
    images = np.random.default_rng(1).normal(size=(8, 2, 6, 6)).astype(np.float32)
    tokens = np.random.default_rng(2).integers(0, 9, (8, 5)).astype(np.int32)
    cases: list[tuple[list[Any], Any, Any]] = [
        (
            [nn.Conv2D(4, 3, bias=False, activation="relu"), nn.BatchNorm(), nn.Flatten(), nn.Dense(3)],
            (2, 6, 6),
            images,
        ),
        (
            [
                nn.Embedding(9, 6),
                nn.MultiHeadAttention(2, bias=False),
                nn.LayerNorm(),
                nn.LSTM(4),
                nn.Flatten(),
                nn.Dense(3),
            ],
            (5,),
            tokens,
        ),
    ]
    for layers, shape, x in cases:
        y = np.arange(8) % 3
        found = []
        for device in ("cpu", gpu):
            net = loom.Sequential(layers, input_shape=shape, seed=3).to(device)
            net[0, 0, 0, 0].trainable = rule.kind != "muon"
            loom.train(
                net,
                (x, y),
                quiet(epochs=3, batch_size=4, learning_rate=0.01, optimizer=rule, gradient_clip=1.0),
            )
            found.append(net.state_dict())
        for name, here in found[0].items():
            np.testing.assert_allclose(found[1][name], here, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_a_resumed_training_is_the_unbroken_one(rule: Any, tmp_path: Path) -> None:
    x, y = data()
    settings = {"batch_size": 5, "loss": "mse", "learning_rate": 0.02, "optimizer": rule}
    whole, parts = network("float32"), network("float32")
    loom.train(whole, (x, y), quiet(epochs=6, **settings))
    loom.train(parts, (x, y), quiet(epochs=2, **settings))
    parts.save(tmp_path / "net.loom", optimizer=True)
    again = loom.load(tmp_path / "net.loom")
    loom.train(again, (x, y), quiet(epochs=6, **settings), resume=True)
    assert weights(again) == weights(whole)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_a_step_that_would_be_infinite_changes_nothing(rule: Any, gpu: str) -> None:
    for device in ("cpu", gpu):
        net = network("float32", device)
        before = weights(net)
        x, y = data()
        y = y.copy()
        y[0, 0] = 1e30
        with pytest.raises(loom.NonFiniteError):
            loom.train(net, (x, y), quiet(epochs=1, batch_size=12, loss="mse", optimizer=rule))
        assert weights(net) == before


@pytest.mark.filterwarnings("ignore::loom.BottleneckWarning")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_learning_by_targets_takes_them_for_feedback(rule: Any) -> None:
    """Steps within a step make what the rule wants to know anew for each."""
    net = network("float32")
    settings = loom.TweenConfig(mode="difference", optimizer=rule, base_rate=0.005)
    first = loom.TweenTrainer(net, settings).fit(data(), quiet(epochs=1, loss="mse"))
    last = loom.TweenTrainer(net, settings).fit(data(), quiet(epochs=30, loss="mse"))
    assert last.history["loss"][-1] < first.history["loss"][0]


def test_settings_out_of_range_are_refused() -> None:
    for make, message in [
        (lambda: optimizers.LAMB(epsilon=0.0), "LAMB: epsilon"),
        (lambda: optimizers.Adafactor(decay_power=-1.0), "Adafactor: decay_power"),
        (lambda: optimizers.Muon(momentum=1.0), "Muon: momentum"),
        (lambda: optimizers.resolve("moun"), "muon"),
    ]:
        with pytest.raises(loom.ConfigError, match=message):
            make()
