"""Ranges of an axis, against NumPy's own slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn


@pytest.mark.parametrize("seed", range(40))
def test_values_and_gradients_are_those_of_numpys_slices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 7, rng.integers(1, 5)))
    axis = int(rng.integers(-len(shape), len(shape)))
    extent = shape[axis]
    start = int(rng.integers(-extent - 1, extent))
    stop = None if rng.random() < 0.4 else int(rng.integers(-extent, extent + 3))
    step = int(rng.integers(1, 4))
    taken: list[Any] = [slice(None)] * (len(shape) + 1)
    taken[axis % len(shape) + 1] = slice(start, stop, step)
    x = rng.normal(size=(3, *shape))
    wanted = x[tuple(taken)]
    net = loom.Sequential([nn.Slice(start, stop, step, axis)], input_shape=shape, precision="float64")
    if wanted.size == 0:
        with pytest.raises(loom.ShapeError, match="has none"):
            net.build()
        return
    assert net.output_shape == wanted.shape[1:]
    np.testing.assert_array_equal(net.predict(x), wanted)
    net.forward(x)
    gradient, expected = rng.normal(size=wanted.shape), np.zeros_like(x)
    expected[tuple(taken)] = gradient
    np.testing.assert_array_equal(net.backward(gradient), expected)
    again = loom.Network.from_json(net.to_json())
    np.testing.assert_array_equal(again.predict(x), wanted)


def halves(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether every other number of the first half adds up to more than that of the second."""
    first, second = x[:, 0:6:2].sum(axis=1), x[:, 6::2].sum(axis=1)
    return (first > second).astype(int)


def test_branches_read_ranges_of_their_own(tmp_path: Path, gpu: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 12)).astype("float32")
    layers = [
        nn.Parallel(
            [[nn.Slice(0, 6, 2), nn.Dense(1)], [nn.Slice(-6, None, 2), nn.Dense(1)]], combine="concat"
        ),
        nn.Dense(8, activation="tanh"),
        nn.Dense(2),
    ]
    here, there = (loom.Sequential(layers, input_shape=12, seed=1) for _ in range(2))
    settings: Any = {"loss": "cross_entropy", "epochs": 20, "learning_rate": 0.02, "verbose": False}
    here.fit(x, halves(x), device="cpu", **settings)
    there.fit(x, halves(x), device=gpu, **settings)
    assert here.evaluate((x, halves(x)), metrics=["accuracy"])["accuracy"] > 0.97
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=0, atol=2e-3)
    here.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(x), here.predict(x))
    loom.save_onnx(here, tmp_path / "net.onnx")
    read = loom.models.onnx.load(tmp_path / "net.onnx")
    np.testing.assert_allclose(read.predict(x), here.predict(x), rtol=0, atol=1e-5)


def test_features_of_steps_go_with_any_length() -> None:
    layers = [nn.Slice(1, axis=1), nn.GRU(4)]
    net = loom.Sequential(layers, input_shape=(None, 3), seed=1)
    rng = np.random.default_rng(1)
    x = [rng.normal(size=(length, 3)).astype("float32") for length in (4, 1, 7)]
    plain = loom.Sequential([nn.GRU(4)], input_shape=(None, 2), seed=1)
    plain.load_state_dict(weights(net))
    np.testing.assert_array_equal(net.predict(x), plain.predict([each[:, 1:] for each in x]))


def weights(net: loom.Network) -> dict[str, Any]:
    """Those of the second layer, as if it were the first."""
    return {name.replace("0.0.0.1", "0.0.0.0"): each for name, each in net.state_dict().items()}


@pytest.mark.parametrize(
    ("layer", "shape", "error", "message"),
    [
        (lambda: nn.Slice(step=0), (3,), loom.ConfigError, "step must be a positive whole number"),
        (lambda: nn.Slice(1.5), (3,), loom.ConfigError, "start must be a whole number"),  # type: ignore[arg-type]
        (lambda: nn.Slice(axis=2), (3, 4), loom.ShapeError, "an axis 2"),
        (lambda: nn.Slice(axis=-3), (3, 4), loom.ShapeError, "an axis -3"),
        (lambda: nn.Slice(2, 1), (3, 4), loom.ShapeError, "elements 2:1 of axis 1"),
    ],
)
def test_mistakes_are_told(layer: Any, shape: tuple[int, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        loom.Sequential([layer()], input_shape=shape).build()
