"""Connectionist temporal classification of sequences of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import losses, nn

RNG = np.random.default_rng(0)
LENGTHS = (9, 6, 8)
SEQUENCES = [RNG.normal(size=(length, 3)) for length in LENGTHS]
LABELS = [[1, 1, 2], [3], [2, 4]]
CTC = losses.CTC()


def made() -> loom.Network:
    layers = [nn.GRU(5, return_sequences=True), nn.Dense(5)]
    return loom.Sequential(layers, input_shape=(None, 3), seed=1, precision="float64")


def gradients(net: loom.Network) -> dict[str, Any]:
    return {f"{layer.path}.{name}": g for layer in net.layers for name, g in layer.gradients.items()}


def test_a_loop_by_hand_gives_the_sums_of_each_sequence_alone() -> None:
    net = made()
    total, slopes = 0.0, []
    for scores, labels in zip(net.forward(SEQUENCES), LABELS, strict=True):
        target = losses.padded_labels([labels], len(scores))
        value, slope = losses.value_and_gradient(CTC, scores[None], target)
        total += value
        slopes.append(slope[0])
    back: list[Any] = net.backward(slopes)  # type: ignore[arg-type, assignment]
    expected: dict[str, Any] = {}
    for number, sequence in enumerate(SEQUENCES):
        alone = net.resized(sequence.shape)
        target = losses.padded_labels([LABELS[number]], len(sequence))
        value, slope = losses.value_and_gradient(CTC, alone.forward(sequence[None]), target)
        total -= value
        np.testing.assert_allclose(back[number], alone.backward(slope)[0], rtol=1e-12, atol=1e-15)
        for name, gradient in gradients(alone).items():
            expected[name] = expected.get(name, 0.0) + gradient
    assert abs(total) < 1e-12
    for name, gradient in gradients(net).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-12, atol=1e-15)


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "fit": lambda x, y: made().fit(x, y, loss=CTC, verbose=False),
    "batches": lambda x, y: made().fit([(x, y)], loss=CTC, verbose=False),
    "evaluate": lambda x, y: made().evaluate((x, y), loss=CTC),
    "step": lambda x, y: loom.Trainer(made(), loom.TrainingConfig(loss="ctc")).step(x, y),
}


@pytest.mark.parametrize("call", CALLS)
def test_padding_is_refused_with_what_to_do(call: str) -> None:
    padded = [losses.padded_labels([each], n)[0] for each, n in zip(LABELS, LENGTHS, strict=True)]
    for target in (LABELS, padded):
        with pytest.raises(loom.ConfigError, match=r"padding .* would count as steps.*any-length"):
            CALLS[call](SEQUENCES, target)


@pytest.mark.parametrize("call", CALLS)
def test_labels_without_padding_are_told_how_they_are_written(call: str) -> None:
    """Sequences of as many steps as a program is made for have no padding."""
    sequences = RNG.normal(size=(3, 8, 3))
    with pytest.raises(loom.ShapeError, match=r"losses\.padded_labels\(labels, 8\)"):
        CALLS[call](list(sequences), LABELS)
    CALLS[call](list(sequences), losses.padded_labels(LABELS, 8))
