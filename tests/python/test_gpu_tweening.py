"""Learning by targets on a GPU: the same measures and weights as on the CPU, explosions judged there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import Observe, TweenConfig, TweenTrainer, nn
from networks import blobs, quiet, stripes, weights

MODES = ("chain_rule", "layerwise", "difference", "difference_reconstruction")
FIGURES = ("gaps", "alignments", "gains", "link_budgets")


@pytest.fixture(autouse=True)
def without_bottleneck_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loom.BottleneckWarning)
        yield


def perceptron(seed: int = 0) -> loom.Network:
    layers = [nn.Dense(16, activation="tanh"), nn.Dense(12, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, seed=seed)


def convolutional(seed: int = 0) -> loom.Network:
    return loom.Sequential(
        [
            nn.Conv2D(4, kernel_size=3, padding=1, activation="tanh"),
            nn.Conv2D(6, kernel_size=3, activation="tanh"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(4),
        ],
        input_shape=(1, 8, 8),
        seed=seed,
    )


def assert_close(net: loom.Network, other: loom.Network, tolerance: float) -> None:
    """Compares all parameters, in units of each one's largest element."""
    for layer, twin in zip(net.layers, other.layers, strict=True):
        for name, values in layer.parameters.items():
            scale = tolerance * max(1.0, float(np.abs(values).max()))
            np.testing.assert_allclose(twin[name], values, rtol=0, atol=scale, err_msg=layer.path)


@pytest.mark.parametrize("make", [perceptron, convolutional])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", [TweenConfig.tween, TweenConfig.target_prop])
def test_a_run_is_that_of_the_cpu(gpu: str, preset: Any, mode: str, make: Any) -> None:
    data = blobs(96) if make is perceptron else stripes(96)
    config = preset(mode=mode, base_rate=0.02, local_steps=2, history=1)
    states = []
    for device in ("cpu", gpu):
        trainer = TweenTrainer(make(), config)
        trainer.fit(data, quiet(epochs=2, batch_size=32, device=device))
        assert trainer.network.device == device
        states.append(trainer.state)
    assert_close(states[0].network, states[1].network, 3e-5)
    for name in FIGURES:
        found, expected = (getattr(state.history, name) for state in states)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(states[1].loss_history, states[0].loss_history, rtol=1e-4)
    np.testing.assert_allclose(
        states[1].reconstruction_errors, states[0].reconstruction_errors, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("mode", MODES)
def test_call_by_call_is_that_of_the_cpu(gpu: str, mode: str) -> None:
    x, y = blobs(40)
    found = []
    for device in ("cpu", gpu):
        training = quiet(device=device)
        state = loom.TweenState(perceptron(), TweenConfig(mode=mode, base_rate=0.02), training)
        for _ in range(3):
            state.step(x, y)
        found.append(state)
    cpu, other = found
    for name in ("forward_acts", "backward_targets", *(["chain_gradients"] if mode == "chain_rule" else [])):
        for expected, values in zip(getattr(cpu, name), getattr(other, name), strict=True):
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-5, err_msg=name)
    for path, velocity in cpu.weight_velocity.items():
        np.testing.assert_allclose(other.weight_velocity[path], velocity, rtol=0, atol=1e-6)
    for name in (*FIGURES, "adaptive_rate", "prev_avg_gap", "gap_growth_rate"):
        np.testing.assert_allclose(getattr(other, name), getattr(cpu, name), rtol=1e-4, atol=1e-6)
    assert_close(cpu.network, other.network, 1e-5)


@pytest.mark.parametrize("mode", ["chain_rule", "difference"])
def test_steps_by_calls_and_in_frames_are_the_same(gpu: str, mode: str) -> None:
    x, y = blobs(64)
    config = TweenConfig(mode=mode, base_rate=0.02)
    training = quiet(epochs=3, batch_size=64, shuffle=False, device=gpu)
    trainer = TweenTrainer(perceptron(), config)
    trainer.fit((x, y), training)
    state = loom.TweenState(perceptron(), config, training)
    for _ in range(3):
        state.step(x, y)
    assert_close(trainer.network, state.network, 1e-6)


def test_feedback_maps_are_read_and_set(gpu: str) -> None:
    x, y = blobs(40)
    found = []
    for device in ("cpu", gpu):
        config = TweenConfig(mode="difference", base_rate=0.05, feedback_rate=0.02)
        state = loom.TweenState(perceptron(), config, quiet(device=device))
        state.step(x, y)
        feedback = state.feedback["0.0.0.1"]
        feedback["weight"] = feedback["weight"] * 3.0
        for _ in range(2):
            state.step(x, y)
        found.append((np.array(feedback["weight"]), np.array(state.backward_targets[0])))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=0, atol=1e-5)


def exploding() -> loom.Network:
    layers = [nn.Dense(48, activation="relu", weight_initializer="he_normal") for _ in range(15)]
    return loom.Sequential([*layers, nn.Dense(3)], input_shape=8)


@pytest.mark.parametrize("detect", [True, False])
def test_explosions_are_taken_back_in_the_middle_of_a_frame(gpu: str, detect: bool) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 8)).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[np.argmax(x[:, :3] + x[:, 3:6] ** 2, axis=1)]
    found = []
    for device in ("cpu", gpu):
        training = loom.TrainingConfig(
            epochs=4,
            batch_size=16,
            learning_rate=20.0,
            shuffle=False,
            verbose=False,
            device=device,
            on_nonfinite="skip",
            metrics=["accuracy"],
        )
        trainer = TweenTrainer(exploding(), TweenConfig(history=1, detect_explosions=detect))
        result = trainer.fit((x, y), training)
        found.append((result, trainer.state))
    (on_cpu, cpu), (on_gpu, other) = found
    assert on_gpu.explosions == on_cpu.explosions
    assert (on_gpu.explosions > 0) is detect
    np.testing.assert_allclose(on_gpu.metrics["accuracy"], on_cpu.metrics["accuracy"], rtol=1e-12)
    np.testing.assert_array_equal(cpu.history.explosions, other.history.explosions)
    assert other.adaptive_rate == pytest.approx(cpu.adaptive_rate, rel=1e-6)
    if detect:
        assert all(np.isfinite(values).all() for values in other.network.state_dict().values())
        assert other.steps == 16


@pytest.mark.parametrize("detect", [False, True])
def test_observed_backpropagation(gpu: str, detect: bool) -> None:
    config = quiet(epochs=2, batch_size=32, device=gpu)
    plain, observed, cpu = perceptron(), perceptron(), perceptron()
    loom.train(plain, blobs(96), config)
    loom.train(observed, blobs(96), config, observe=Observe(detect_explosions=detect, history=1))
    loom.train(cpu, blobs(96), quiet(epochs=2, batch_size=32, device="cpu"), observe=Observe(history=1))
    assert_close(plain, observed, 0.0)
    for name in FIGURES:
        found, expected = (getattr(net.measures.history, name) for net in (observed, cpu))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", ["chain_rule", "difference"])
def test_a_saved_training_goes_on_bit_for_bit(gpu: str, mode: str, tmp_path: Path) -> None:
    config = TweenConfig(mode=mode, base_rate=0.02)
    whole, halved = perceptron(), perceptron()
    TweenTrainer(whole, config).fit(blobs(90), quiet(epochs=4, device=gpu))
    TweenTrainer(halved, config).fit(blobs(90), quiet(epochs=2, device=gpu))
    halved.save(tmp_path / "half.loom", optimizer=True)
    loaded = loom.load(tmp_path / "half.loom")
    TweenTrainer(loaded, config).fit(blobs(90), quiet(epochs=4, device=gpu), resume=True)
    assert weights(whole) == weights(loaded)
    np.testing.assert_array_equal(whole.measures.gaps, loaded.measures.gaps)
    assert whole.measures.prev_avg_gap == loaded.measures.prev_avg_gap
