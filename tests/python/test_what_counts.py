"""Weights of classes that leave out every sample there is: told, where a mean over nothing was NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
ONLY = np.zeros(32, np.int64)
FEW = (np.arange(32) >= 28).astype(np.int64)
CONFIG = loom.TrainingConfig(
    loss="cross_entropy",
    class_weight={0: 0.0},
    batch_size=4,
    shuffle=False,
    verbose=False,
    ignore_findings="all",
)


def _network() -> loom.Network:
    return loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=4, seed=1)


class _Batches:
    """The data four by four."""

    def __init__(self, *arrays: np.ndarray[Any, Any]) -> None:
        self._arrays = arrays

    def __iter__(self) -> Any:
        return (tuple(part[start : start + 4] for part in self._arrays) for start in range(0, 32, 4))


@pytest.mark.parametrize(
    ("learns", "where"),
    [
        (lambda net: loom.train(net, (X, ONLY), CONFIG), "data"),
        (lambda net: loom.train(net, (X, np.eye(3)[ONLY]), CONFIG), "data"),
        (lambda net: loom.train(net, _Batches(X, ONLY), CONFIG), "data"),
        (lambda net: loom.train(net, (X, FEW, FEW == 0), CONFIG), "data"),
        (lambda net: loom.train(net, (X, FEW), CONFIG, validation=(X, ONLY)), "validation"),
        (lambda net: loom.TweenTrainer(net, loom.TweenConfig()).fit((X, ONLY), CONFIG), "data"),
        (lambda net: loom.evaluate(net, (X, ONLY), CONFIG), "data"),
        (lambda net: loom.evaluate(net, _Batches(X, ONLY), CONFIG), "data"),
        (lambda net: loom.find_rate(net, (X, ONLY), CONFIG), "data"),
        (lambda net: loom.train_locally(net, (X, ONLY), CONFIG, workers=2), "data"),
    ],
)
def test_data_whose_classes_all_have_no_weight_is_refused(
    learns: Callable[[loom.Network], object], where: str
) -> None:
    net = _network().build()
    before = net.fingerprint()
    with pytest.raises(
        loom.DataError, match=rf"^{where}: no sample counts.* class_weight \(0, 1, 1, by clas"
    ):
        learns(net)
    assert net.fingerprint() == before


def test_batches_whose_weights_are_all_zero_are_refused_after_an_epoch() -> None:
    with pytest.raises(loom.DataError, match="weight of every sample is zero"):
        loom.train(_network(), _Batches(X, ONLY, np.zeros(32)), loom.TrainingConfig(verbose=False))


def test_one_sample_that_counts_is_enough() -> None:
    """It learns as if the others were not there."""
    some, alone = _network(), _network()
    result = loom.train(some, (X, FEW), CONFIG)
    assert result.skipped_steps == 7
    one = loom.train(alone, (X[28:], FEW[28:]), CONFIG)
    assert result.loss_history == one.loss_history
    assert some.fingerprint() == alone.fingerprint()
    assert loom.train(_network(), _Batches(X, FEW), CONFIG).loss_history == one.loss_history


def test_a_mesh_learns_nothing_of_samples_whose_class_has_no_weight() -> None:
    """They are as samples without targets."""
    courses = []
    for target in (ONLY[:4], None):
        mesh = loom.Mesh(_network(), rows=4, window=1)
        stepper = loom.Stepper(mesh, CONFIG)
        assert stepper.step(X[:4], FEW[28:]) is not None
        assert stepper.step(X[4:8], target) is None
        courses.append((stepper.step(X[8:12], FEW[28:]), mesh.network.fingerprint()))
    assert courses[0] == courses[1]


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("in_batches", [False, True])
def test_metrics_of_every_output_leave_out_samples_of_no_weight(shards: int | None, in_batches: bool) -> None:
    net = loom.Network(input_shape=4, grid=(1, 3), seed=3)
    net[0, 0].add(nn.Dense(3))
    for column, name in enumerate(("first", "second", "third")):
        if column:
            net.link((0, 0), (0, column), combine="replace")[0, column].add(nn.Dense(3))
        net.output(name, (0, column))
    random = np.random.default_rng(4)
    targets = {name: random.integers(0, 3, 32) for name in ("first", "second", "third")}
    weight = random.choice([0.0, 1.0, 3.0], 32)
    config = loom.TrainingConfig(
        loss=dict.fromkeys(targets, "cross_entropy"),
        metrics={name: ["accuracy"] for name in targets},
        learning_rate=0.0,
        batch_size=32,
        shards=shards,
        verbose=False,
        ignore_findings="all",
    )
    data: Any = (X, targets, weight)
    found = loom.train(net, [data] if in_batches else data, config).metrics
    for name, made in net.predict(X).items():
        right = made.argmax(axis=1) == targets[name]
        assert found[f"{name}_accuracy"] == [pytest.approx(right[weight > 0].mean())]
