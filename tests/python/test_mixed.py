"""Networks in mixed precision: training, inference, saving, and the loss scale."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, quiet


def network(precision: str = "mixed") -> loom.Network:
    layers = [nn.Dense(24, activation="relu"), nn.Dense(16, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, precision=precision, seed=3)


def config(**settings: Any) -> loom.TrainingConfig:
    return quiet(**{"epochs": 4, "batch_size": 16, "learning_rate": 0.01, **settings})


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "gpu":
        found: str = request.getfixturevalue("gpu")
        return found
    return "cpu"


def test_numbers_are_single(device: str) -> None:
    net = network().to(device)
    assert net.precision == "mixed"
    assert 'precision="mixed"' in repr(net)
    out = net.predict(np.ones((5, 6)))
    assert out.dtype == np.float32
    assert net[0, 0, 0, 0].dtype == "float32"
    assert all(values.dtype == np.float32 for values in net.state_dict().values())


def test_it_is_close_to_single_and_not_the_same(device: str) -> None:
    x, _ = blobs()
    mixed, single = network().to(device).predict(x), network("float32").predict(x)
    assert not np.array_equal(mixed, single)
    np.testing.assert_allclose(mixed, single, atol=0.03)


def test_operands_are_rounded_to_bfloat16_on_the_cpu() -> None:
    layer = nn.Dense(1, bias=False)
    net = loom.Sequential([layer], input_shape=2, precision="mixed")
    net.build()
    # 1 + 2^-9 lies between two numbers of bfloat16, nearer to 1; the sum keeps what single holds.
    net[0, 0, 0, 0].parameters["weight"] = np.array([[1 + 2.0**-9, 2.0**-9]])
    assert net.predict(np.array([[1.0, 1.0]]))[0, 0] == np.float32(1 + 2.0**-9)


def test_training_learns_and_is_the_same_every_time(device: str) -> None:
    x, y = blobs()

    def trained() -> tuple[loom.Network, list[float]]:
        net = network()
        result = loom.train(net, (x, y), config(device=device))
        return net, list(result.loss_history)

    first, losses = trained()
    second, again = trained()
    assert losses[-1] < losses[0]
    assert losses == again
    for name, values in first.state_dict().items():
        np.testing.assert_array_equal(values, second.state_dict()[name])


def test_the_scale_is_known_on_a_gpu_alone(gpu: str) -> None:
    net = network()
    assert net.loss_scale is None
    assert net.to(gpu).loss_scale == 65536.0
    assert network("float32").to(gpu).loss_scale is None


def test_a_scale_that_is_too_large_is_halved(gpu: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 6))
    result = loom.train(net := network(), (x, 90 + x[:, :3]), config(loss="mse", device=gpu))
    assert result.skipped_steps > 0
    assert net.loss_scale == 65536.0 / 2**result.skipped_steps
    assert np.isfinite(result.loss_history).all()


def test_the_manual_loop_skips_what_overflows(gpu: str) -> None:
    net = network().to(gpu)
    x = np.ones((8, 6))
    net.forward(x)
    before = net.state_dict()
    net.backward(np.full((8, 3), 1e4))
    net.apply_gradients(0.1)
    assert net.loss_scale == 32768.0
    for name, values in net.state_dict().items():
        np.testing.assert_array_equal(values, before[name])
    net.forward(x)
    net.backward(np.full((8, 3), 1e-3))
    gradient = net[0, 0, 0, 2].gradients["bias"]
    np.testing.assert_allclose(gradient, 8e-3, rtol=1e-3)
    net.apply_gradients(0.1)
    assert any((values != before[name]).any() for name, values in net.state_dict().items())


def test_saving_and_pickling_keep_the_precision(device: str, tmp_path: Path) -> None:
    x, y = blobs()
    net = network()
    loom.train(net, (x, y), config(device=device))
    net.save(tmp_path / "net.loom")
    for other in (loom.load(tmp_path / "net.loom"), pickle.loads(pickle.dumps(net))):
        assert other.precision == "mixed"
        np.testing.assert_array_equal(other.to(device).predict(x), net.predict(x))


def test_low_bit_weights(device: str) -> None:
    x, y = blobs()
    net = network().morph("int8")
    result = loom.train(net, (x, y), config(device=device))
    assert result.loss_history[-1] < result.loss_history[0]
    assert net.morph("float32")[0, 0, 0, 0].dtype == "float32"


def test_thin_products_round_their_operands_as_others_do(gpu: str) -> None:
    # As an adapter's: 1,024 units to 16 and back, over so many rows that matrix units, where there are such,
    # are worth it.
    rows, wide, thin, rate = 2048, 1024, 16, 0.5
    rng = np.random.default_rng(1)
    x, target = rng.normal(size=(rows, wide)), rng.normal(size=(rows, wide))
    layers = [nn.Dense(thin, bias=False), nn.Dense(wide, bias=False)]
    net = loom.Sequential(layers, input_shape=wide, precision="mixed", seed=2).to(gpu)
    net.build()
    before = [net[0, 0, 0, i].parameters["weight"].astype(np.float64) for i in range(2)]
    settings = quiet(
        epochs=1,
        batch_size=rows,
        learning_rate=rate,
        optimizer=loom.optimizers.SGD(),
        loss="mse",
        shuffle=False,
    )
    loom.train(net, (x, target), settings)

    def half(values: Any) -> Any:
        return values.astype(np.float32).astype(np.float16).astype(np.float64)

    made = [x]
    for weight in before:
        made.append(half(made[-1]) @ half(weight).T)
    gradient = 2 * (made[-1] - target.astype(np.float32)) / target.size
    # Gradients are multiplied before they are rounded, and divided afterwards.
    scale = 2.0**16
    for i in (1, 0):
        expected = (half(gradient * scale).T @ half(made[i])) / scale
        found = (before[i] - net[0, 0, 0, i].parameters["weight"]) / rate
        assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max(), i
        gradient = half(gradient * scale) @ half(before[i]) / scale


def test_other_precisions_are_refused() -> None:
    with pytest.raises(loom.ConfigError, match="mixed"):
        loom.Network(4, precision="half")
