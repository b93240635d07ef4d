"""Samples of any length step by step, and who looks at what layers make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from open_lengths import STEPPED, network, sequences

POOLED: dict[str, list[Any]] = {
    "lstm": [nn.LSTM(6), nn.Dense(3)],
    "mean": [nn.MultiHeadAttention(2), nn.SequencePool("mean"), nn.Dense(3)],
}

# What looks at samples


@pytest.mark.parametrize("name", STEPPED)
def test_who_looks_at_sequences_of_one_length_sees_no_padding(name: str) -> None:
    x = np.stack(sequences([5, 5, 5]))
    net, fixed = network(STEPPED[name], (None, 4)), network(STEPPED[name], (5, 4))
    found, expected = (each.activations(x, attention=True) for each in (net, fixed))
    for mine, other in ((found, expected), (found.attention, expected.attention)):
        assert list(mine) == list(other)
        for path, values in other.items():
            np.testing.assert_array_equal(mine[path], values)
    for each in (net, fixed):
        each.calibrate(x)
    for layer, alone in zip(net.layers, fixed.layers, strict=True):
        assert repr(layer.input_range) == repr(alone.input_range)


@pytest.mark.parametrize("name", STEPPED)
def test_an_observer_changes_nothing_and_sees_no_padding(name: str) -> None:
    samples = sequences([3, 7, 3])
    net = network(STEPPED[name], (None, 4))
    expected = net.predict(samples)
    recorder = loom.observers.Recorder()
    observed: Any = net.observe(recorder).predict(samples)
    assert type(observed) is list
    for output, alone in zip(observed, expected, strict=True):
        np.testing.assert_array_equal(output, alone)
    assert [record[-1].shape for record in recorder.records] == [(2, 3, 3), (1, 7, 3)]
    assert recorder.records[1][-1].mean == pytest.approx(float(expected[1].mean()), rel=1e-4)


# Step by step


def batches_of(name: str) -> list[Any]:
    """Batches of samples of any length, with weights in some; targets of steps, or of what they become."""
    random = np.random.default_rng(6)
    found: list[Any] = []
    for number in range(3):
        samples = sequences(random.integers(1, 9, 4).tolist())
        steps = [random.integers(0, 3, len(x)) for x in samples]
        targets: Any = steps if name in STEPPED else random.integers(0, 3, 4)
        found.append((samples, targets, random.uniform(0.2, 2.0, 4)) if number else (samples, targets))
    return found


@pytest.mark.parametrize("name", ["tagger", "causal", *POOLED])
def test_a_trainer_takes_steps_as_training_does(name: str) -> None:
    layers = {**POOLED, **STEPPED}[name]
    config = loom.TrainingConfig(loss="cross_entropy", learning_rate=0.05, verbose=False, device="cpu")
    whole, stepped = network(layers, (None, 4)), network(layers, (None, 4))
    losses: list[float] = []
    watch = loom.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    loom.train(whole, batches_of(name), config, callbacks=[watch])
    trainer = loom.Trainer(stepped, config)
    assert [trainer.step(*batch) for batch in batches_of(name)] == losses
    assert stepped.fingerprint() == whole.fingerprint()
