"""What is measured of sequences of open length: padding counts in no figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore:little gets through")
RNG = np.random.default_rng(5)
LENGTHS = [5, 3, 9, 1, 6, 5]
SAMPLES = [RNG.normal(size=(length, 2)) for length in LENGTHS]
TARGETS = [RNG.normal(size=(length, 3)) for length in LENGTHS]
SCALE = 0.1


def quiet(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "loss": "mse",
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 0.0,
        "optimizer": "sgd",
        "device": "cpu",
        "shuffle": False,
        "verbose": False,
    }
    return loom.TrainingConfig(**{**usual, **settings})


def plain(*input_shape: Any, precision: str = "float64") -> Any:
    layers = [nn.Dense(4, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=input_shape, precision=precision, seed=2)  # type: ignore[arg-type]


def deep(*input_shape: Any, precision: str = "float64") -> Any:
    layers = [
        nn.Residual([nn.Dense(4, activation="tanh"), nn.Dense(2)]),
        nn.LSTM(4, return_sequences=True),
        nn.MultiHeadAttention(2),
        nn.LayerNorm(),
        nn.SequencePool("mean"),
        nn.Dense(3),
    ]
    return loom.Sequential(layers, input_shape=input_shape, precision=precision, seed=2)  # type: ignore[arg-type]


def through(net: loom.Network) -> tuple[Array, Array, Array, Array]:
    """What NumPy makes of all real steps: inputs, what is between, outputs, and the last layer's weights."""
    held = net.state_dict()
    first, second = held["0.0.0.0.weight"], held["0.0.0.1.weight"]
    x = np.concatenate(SAMPLES)
    if first.shape == (4, 2):
        first, second = first.T, second.T
    between = np.tanh(x @ first + held["0.0.0.0.bias"])
    return x, between, between @ second + held["0.0.0.1.bias"], second


def test_calibration_is_over_real_steps() -> None:
    net = plain(None, 2)
    net.calibrate(SAMPLES, percentile=100.0)
    for layer, values in zip(net.layers, through(net)[:2], strict=True):
        found = layer.input_range
        assert found is not None
        assert found.absmax == pytest.approx(np.abs(values).max(), rel=1e-12)
        np.testing.assert_allclose(found.mean_squares, (values**2).mean(0), rtol=1e-12)


def test_calibration_of_one_length_is_that_of_a_fixed_network() -> None:
    x = RNG.normal(size=(7, 5, 2))
    made = []
    for net in (deep(5, 2, precision="float32"), deep(None, 2, precision="float32")):
        net.calibrate(x, percentile=90.0, batch_size=3)
        net.morph("int4", calibration="mse")
        made.append(([layer.input_range for layer in net.layers], net.predict(x)))
    for one, other in zip(made[0][0], made[1][0], strict=True):
        np.testing.assert_array_equal(one.mean_squares, other.mean_squares)
        assert (one.absmax, one.percentile) == (other.absmax, other.percentile)
    np.testing.assert_array_equal(made[0][1], made[1][1])


def test_calibration_takes_images_of_any_size_and_words() -> None:
    images = [RNG.normal(size=(2, *size)) for size in [(4, 5), (3, 3), (4, 5)]]
    conv = loom.Sequential([nn.Conv2D(3, 3, padding=1)], input_shape=(2, None, None), precision="float64")
    found: Any = conv.calibrate(images).layers[0].input_range
    pixels = np.concatenate([image.reshape(2, -1) for image in images], axis=1)
    np.testing.assert_allclose(found.mean_squares, (pixels**2).mean(1), rtol=1e-12)
    words = [RNG.integers(1, 9, length) for length in LENGTHS]
    layers = [nn.Embedding(9, 3), nn.Dense(2)]
    net: Any = loom.Sequential(layers, input_shape=(None,), precision="float64")
    net.calibrate(words)
    ids = net.layers[0].input_range.mean_squares
    expected = [np.mean([w[place] ** 2 for w in words if len(w) > place]) for place in range(9)]
    np.testing.assert_allclose(ids, expected, rtol=1e-12)
    rows = net.state_dict()["0.0.0.0.weight"][np.concatenate(words)]
    np.testing.assert_allclose(net.layers[1].input_range.mean_squares, (rows**2).mean(0), rtol=1e-12)


def test_what_ends_a_calibration_changes_nothing() -> None:
    net = plain(None, 2)
    net.calibrate(SAMPLES)
    before = net.layers[0].input_range.mean_squares.copy()
    wild = [2 * SAMPLES[0], np.full((2, 2), np.nan)]
    with pytest.raises(loom.NonFiniteError):
        net.calibrate(wild)
    np.testing.assert_array_equal(net.layers[0].input_range.mean_squares, before)
    with pytest.raises(loom.ConfigError):
        net.calibrate(SAMPLES, percentile=0.0)


@pytest.mark.parametrize("metric", ["rms", "mse"])
@pytest.mark.parametrize("extra", [{}, {"batch_size": 3, "accumulate": 2}], ids=str)
def test_measures_of_training_are_over_real_steps(metric: Any, extra: dict[str, Any]) -> None:
    net = plain(None, 2)
    observe = loom.Observe(gradient_scale=SCALE, gap_metric=metric)
    loom.train(net, (SAMPLES, TARGETS), quiet(**extra), observe=observe)
    x, between, made, weight = through(net)
    wanted = np.concatenate(TARGETS)
    slope = 2 * (made - wanted) / made.size
    inside = (slope @ weight.T) if weight.shape[0] == 4 else slope @ weight
    moved = between - SCALE * len(SAMPLES) * inside
    told = net.measures
    if extra:
        # Which batch's rows gradients are multiplied by is the step's.
        moved = None
    for number, (before, after, target) in enumerate([(x, between, moved), (between, made, wanted)]):
        assert told.gains[number] == pytest.approx(np.linalg.norm(after) / np.linalg.norm(before), rel=1e-10)
        if target is None:
            continue
        square = ((after - target) ** 2).mean()
        assert told.gaps[number] == pytest.approx(square if metric == "mse" else square**0.5, rel=1e-9)
        cosine = (after * target).sum() / np.linalg.norm(after) / np.linalg.norm(target)
        assert told.alignments[number] == pytest.approx(0.5 + 0.5 * cosine, rel=1e-9)


def figures(net: loom.Network, x: Any, y: Any, **settings: Any) -> list[Array]:
    observe = loom.Observe(gradient_scale=SCALE, depth=2)
    loom.train(net, (x, y), quiet(**settings), observe=observe)
    told = net.measures
    return [told.gaps, told.alignments, told.gains, told.cell_gaps]


def test_measures_of_one_length_are_those_of_a_fixed_network() -> None:
    """Five steps are put into room for eight."""
    x, y = RNG.normal(size=(4, 5, 2)), RNG.normal(size=(4, 3))
    fixed, opened = figures(deep(5, 2), x, y), figures(deep(None, 2), x, y)
    assert np.isfinite(fixed[3]).any()
    for one, other in zip(fixed, opened, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)


def test_devices_measure_the_same(gpu: str) -> None:
    x, y = [np.float32(each) for each in SAMPLES], RNG.normal(size=(6, 3)).astype(np.float32)
    found = [figures(deep(None, 2, precision="float32"), x, y, device=device) for device in ("cpu", gpu)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-4)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_observers_of_training_see_real_steps(device: str, request: Any) -> None:
    chosen = "cpu" if device == "cpu" else request.getfixturevalue("gpu")
    net = plain(None, 2, precision="float64" if device == "cpu" else "float32")
    recorder = loom.observers.Recorder()
    net.observe(recorder)
    loom.train(net, (SAMPLES, TARGETS), quiet(device=chosen))
    seen = recorder.records[0]
    for figure, values in zip(seen, through(net)[1:3], strict=True):
        assert figure.mean == pytest.approx(values.mean(), rel=1e-4)
        assert figure.norm == pytest.approx(np.linalg.norm(values), rel=1e-4)
        assert figure.max == pytest.approx(values.max(), rel=1e-4)
        assert figure.zeros == 0.0


def test_steps_that_a_layer_hides_are_measured() -> None:
    """`Masked` finds steps that layers inside it are to leave out; they belong to the samples."""
    x = RNG.normal(size=(4, 6, 2))
    x[1:, 3:] = 0.0
    net: Any = loom.Sequential([nn.Masked([nn.Dense(3)])], input_shape=(6, 2), precision="float64", seed=2)
    recorder = loom.observers.Recorder()
    net.observe(recorder, depth=2)
    made = net.predict(x)
    for layer in recorder.records[0]:
        assert layer.mean == pytest.approx(made.mean(), rel=1e-12)
    observe = loom.Observe(depth=2)
    loom.train(net, (x, RNG.normal(size=(4, 6, 3))), quiet(), observe=observe)
    np.testing.assert_allclose(net.measures.gains, np.linalg.norm(made) / np.linalg.norm(x), rtol=1e-9)
