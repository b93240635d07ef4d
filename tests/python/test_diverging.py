"""Training that diverges leaves a network that can be used, and files that can be loaded."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RATES = (1e6, 1e38)


def data(rows: int = 32, scale: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(rows, 6)) * scale).astype(np.float32)
    return x, rng.normal(size=(rows, 3)).astype(np.float32)


def perceptron() -> loom.Sequential:
    return loom.Sequential([nn.Dense(16, activation="relu"), nn.Dense(3)], input_shape=6)


def config(**settings: Any) -> loom.TrainingConfig:
    return loom.TrainingConfig(**{"epochs": 20, "batch_size": 8, "verbose": False, **settings})


def check_usable(net: loom.Network, good: Any) -> None:
    """It predicts, pickles, saves and loads, takes weights, and trains."""
    x, _ = data()
    output = net.predict(x)
    assert all(np.isfinite(array).all() for array in net.state_dict().values())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(x), output)
    net.load_state_dict(good)
    assert np.isfinite(loom.train(net, data(), config(epochs=1, learning_rate=1e-4)).final_loss)


@pytest.mark.parametrize("dtype", ["float16", "q4_0", "q8_0", "int8", "bfloat16"])
@pytest.mark.parametrize("optimizer", [loom.SGD(momentum=0.9), loom.Adam()], ids=["sgd", "adam"])
def test_a_packed_network_that_diverges_is_as_it_was(dtype: str, optimizer: Any) -> None:
    for rate in RATES:
        net = perceptron()
        net.morph(dtype)
        good = net.state_dict()
        settings = {"optimizer": optimizer, "learning_rate": rate}
        with contextlib.suppress(loom.NonFiniteError):
            loom.train(net, data(), config(**settings))
        check_usable(net, good)
        net = perceptron()
        net.morph(dtype)
        loom.train(net, data(), config(**settings, on_nonfinite="skip"))
        check_usable(net, good)


def test_running_statistics_that_overflow_stop_the_training(tmp_path: Path) -> None:
    layers = [nn.BatchNorm(), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=6)
    path = tmp_path / "best.loom"
    saver = loom.ModelCheckpoint(path)
    loom.train(net, data(), config(epochs=1), callbacks=[saver])
    file = path.read_bytes()
    good = net.state_dict()
    x, y = data(scale=1e25)
    with pytest.raises(loom.NonFiniteError, match=r"running_var|layer"):
        loom.train(net, (x, y), config(), callbacks=[saver])
    assert path.read_bytes() == file
    loom.load(path)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, good[name])
    check_usable(net, good)


def test_the_manual_loop_keeps_what_was_there() -> None:
    net = perceptron()
    net.morph("float16")
    net.set_optimizer(loom.Adam())
    x, y = data()
    output = net.forward(x)
    net.backward(output - y)
    before = net.state_dict()
    with pytest.raises(loom.NonFiniteError, match="gradients are still there"):
        net.apply_gradients(1e30)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    net.apply_gradients(1e-3)
    check_usable(net, before)


def test_the_largest_rate_leaves_a_network_that_can_be_saved() -> None:
    for optimizer in (loom.SGD(), loom.SGD(momentum=0.9), loom.AdamW(), loom.RMSprop()):
        net = perceptron()
        good = net.state_dict()
        with contextlib.suppress(loom.NonFiniteError):
            loom.train(net, data(), config(optimizer=optimizer, learning_rate=1e38))
        check_usable(net, good)
