"""Class indices of an output with as many channels as places are refused on every way of learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(5)
SERIES = RNG.normal(size=(12, 2, 5)).astype("float32")
STATES = RNG.integers(0, 5, (12, 5))
NUMBERS = SERIES[:, 0, 0]
LOSS = {"states": "cross_entropy", "number": "mse"}
MESSAGE = r"do not tell which is meant.*nn\.Permute\(\(1, 0\)\).*nn\.Reshape\(\(5, 5\)\)"
ALONG_CHANNELS = r"along the channels of \(rows, 5, 5\)"


def single(*more: nn.Layer) -> loom.Network:
    layers = [nn.Conv1D(5, 3, padding="same"), nn.BatchNorm(), *more]
    return loom.Sequential(layers, input_shape=(2, 5), seed=1)


def several(*more: nn.Layer) -> loom.Network:
    """Two outputs, of which the one that leads with channels does not lie last."""
    net = loom.Network(input_shape=(2, 5), grid=(1, 3), seed=1)
    net[0, 0].add(nn.Conv1D(4, 3, padding="same"))
    net[0, 1].add(nn.Conv1D(5, 3, padding="same")).add(nn.Dropout(0.1))
    for layer in more:
        net[0, 1].add(layer)
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Flatten()).add(nn.Dense(1))
    return net.output("states", (0, 1)).output("number", (0, 2))


def by_hand(net: loom.Network, y: Any) -> None:
    _, gradient = loom.losses.cross_entropy(net.forward(SERIES), y)
    net.backward(gradient)
    net.apply_gradients(1e-3)


def by_mesh(net: loom.Network, y: Any) -> None:
    mesh = loom.Mesh(net, rows=len(SERIES), window=4)
    mesh.set_input(SERIES)
    mesh.tick(4)
    _, gradient = loom.losses.focal(mesh.output(), y)
    mesh.backward(gradient)
    mesh.apply_gradients(1e-3)


def by_tweening(net: loom.Network, y: Any) -> None:
    loom.TweenState(net, loss="cross_entropy").step(SERIES, y)


def stepped(net: loom.Network, y: Any, **settings: Any) -> None:
    loom.Stepper(loom.Mesh(net, rows=len(SERIES), window=4), loom.TrainingConfig(**settings)).step(SERIES, y)


ONE: dict[str, Callable[[loom.Network, Any], object]] = {
    "loop by hand": by_hand,
    "loop with a mesh": by_mesh,
    "tweening": by_tweening,
    "lbfgs": lambda net, y: loom.LBFGS(net, loom.TrainingConfig(loss="cross_entropy")).fit(SERIES, y),
    "focal lbfgs": lambda net, y: loom.LBFGS(net, loom.TrainingConfig(loss="focal")).fit(SERIES, y),
    "stepper": lambda net, y: stepped(net, y, loss="cross_entropy"),
    "stepper of a cell": lambda net, y: loom.Stepper(
        loom.Mesh(net, rows=len(SERIES), window=4),
        loom.TrainingConfig(loss="cross_entropy"),
        output=(0, 0, 0),
    ).step(SERIES, y),
}


@pytest.mark.parametrize(
    ("way", "end"), [*((way, []) for way in ONE), ("lbfgs", [nn.Softmax()]), ("focal lbfgs", [nn.Softmax()])]
)
def test_a_single_output(way: str, end: list[nn.Layer]) -> None:
    net = single(*end)
    with pytest.raises(loom.ShapeError, match=MESSAGE):
        ONE[way](net, STATES)
    shares = np.eye(5)[STATES]
    with pytest.raises(loom.ShapeError, match=ALONG_CHANNELS):
        ONE[way](single(*end), shares.transpose(0, 2, 1))
    # As the messages say.
    ONE[way](single(nn.Permute((1, 0)), *end), STATES)
    ONE[way](single(nn.Reshape((5, 5)), *end), STATES)


def targets(states: Any) -> dict[str, Any]:
    return {"states": states, "number": NUMBERS}


SEVERAL: dict[str, Callable[[loom.Network, Any], object]] = {
    "fit": lambda net, y: net.fit(SERIES, targets(y), loss=LOSS, verbose=False, ignore_findings="all"),
    "batches": lambda net, y: net.fit(
        [(SERIES, targets(y))], loom.TrainingConfig(loss=LOSS, verbose=False, ignore_findings="all")
    ),
    "step": lambda net, y: loom.Trainer(net, loom.TrainingConfig(loss=LOSS)).step(SERIES, targets(y)),
    "evaluate": lambda net, y: net.evaluate((SERIES, targets(y)), loss=LOSS),
    "lbfgs": lambda net, y: loom.LBFGS(net, loom.TrainingConfig(loss=LOSS)).fit(SERIES, targets(y)),
    "stepper": lambda net, y: stepped(net, targets(y), loss=LOSS),
    "loop by hand": lambda net, y: loom.losses.cross_entropy(_named(net.forward(SERIES)), y),
}


def _named(outputs: Any) -> Any:
    return outputs["states"]


@pytest.mark.parametrize("way", SEVERAL)
def test_named_outputs(way: str) -> None:
    with pytest.raises(loom.ShapeError, match=MESSAGE):
        SEVERAL[way](several(), STATES)
    shares = np.eye(5)[STATES]
    with pytest.raises(loom.ShapeError, match=ALONG_CHANNELS):
        SEVERAL[way](several(), shares.transpose(0, 2, 1))
    SEVERAL[way](several(nn.Permute((1, 0))), STATES)
    SEVERAL[way](several(nn.Reshape((5, 5))), STATES)


def test_what_a_loop_by_hand_has_turned_is_taken_as_it_is() -> None:
    net = single()
    output = net.forward(SERIES)
    loss, gradient = loom.losses.cross_entropy(output.transpose(0, 2, 1), STATES)
    net.backward(gradient.transpose(0, 2, 1))
    logits = output - np.log(np.exp(output).sum(axis=1, keepdims=True))
    rows, places = np.indices(STATES.shape)
    np.testing.assert_allclose(loss, -logits[rows, STATES, places].mean(), rtol=1e-5)
    # Losses of numbers ask for no axis of classes.
    loom.losses.mse(output, np.zeros_like(output))


def test_dense_layers_have_classes_last() -> None:
    net = loom.Sequential([nn.Dense(5)], input_shape=(5, 2), seed=1)
    x = SERIES.transpose(0, 2, 1)
    loom.losses.cross_entropy(net.forward(x), STATES)
    assert loom.LBFGS(net, loom.TrainingConfig(loss="cross_entropy")).fit(x, STATES, iterations=2)
