"""Callbacks that average weights: over late epochs, and slow ones beside fast ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import quiet

RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 4))
Y = np.argmax(X[:, :3], axis=1)


def network() -> loom.Network:
    layers = [nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=4, seed=1)


def test_the_mean_is_that_of_the_epochs() -> None:
    for start, every, epochs in [(2, 1, [2, 3, 4, 5]), (0.5, 2, [3, 5]), (0, 3, [0, 3])]:
        net, seen = network(), []
        averaging = loom.StochasticWeightAveraging(start, every=every)
        watcher = loom.LambdaCallback(
            on_epoch_end=lambda epoch, logs, net=net, seen=seen: seen.append(net.state_dict())
        )
        loom.train(net, (X, Y), quiet(epochs=6), callbacks=[averaging, watcher])
        assert averaging.count == len(epochs)
        for name, values in net.state_dict().items():
            expected = np.mean([seen[epoch][name] for epoch in epochs], axis=0)
            np.testing.assert_allclose(averaging.weights[name], expected, rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(values, averaging.weights[name])


def test_validation_measures_the_mean_and_training_goes_on_without() -> None:
    plain, averaged, kept = network(), network(), network()
    measured: list[float] = []
    averaging = loom.StochasticWeightAveraging(1)
    watcher = loom.LambdaCallback(
        on_test_begin=lambda logs: measured.append(averaged.evaluate((X, Y), loss="cross_entropy")["loss"])
    )
    one = loom.train(plain, (X, Y), quiet(epochs=4), validation=(X, Y))
    two = loom.train(averaged, (X, Y), quiet(epochs=4), validation=(X, Y), callbacks=[averaging, watcher])
    assert averaging.count == 3
    assert two.loss_history == one.loss_history
    assert two.metrics["val_loss"] == pytest.approx(measured, rel=1e-6)
    # The first two are those of the weights, since a mean of one is.
    assert two.metrics["val_loss"][:2] == pytest.approx(one.metrics["val_loss"][:2], rel=1e-6)
    assert two.metrics["val_loss"][2:] != one.metrics["val_loss"][2:]
    last = averaged.evaluate((X, Y), loss="cross_entropy")["loss"]
    assert last == pytest.approx(measured[-1], rel=1e-6)
    callbacks = [loom.StochasticWeightAveraging(1, validates=False, keeps=False)]
    loom.train(kept, (X, Y), quiet(epochs=4), validation=(X, Y), callbacks=callbacks)
    assert kept.fingerprint() == plain.fingerprint() != averaged.fingerprint()


def reference(steps: int, share: float, batches: int) -> dict[str, Any]:
    """Lookahead by hand around the manual loop."""
    net = network()
    net.set_optimizer("adam")
    slow = net.state_dict()
    for number in range(batches):
        rows = slice(number % 3 * 32, number % 3 * 32 + 32)
        output = net.forward(X[rows], training=True)
        _, gradient = loom.losses.cross_entropy(output, Y[rows])
        net.backward(gradient)
        net.apply_gradients(0.01)
        if (number + 1) % steps == 0:
            state = net.state_dict()
            slow = {name: slow[name] + np.float32(share) * (state[name] - slow[name]) for name in slow}
            net.load_state_dict(slow)
    return net.state_dict()


@pytest.mark.parametrize(("steps", "share"), [(2, 0.5), (5, 0.8), (3, 1.0)])
def test_slow_weights_are_those_of_the_paper(steps: int, share: float) -> None:
    net = network()
    settings = quiet(epochs=4, batch_size=32, shuffle=False, optimizer="adam", learning_rate=0.01)
    loom.train(net, (X, Y), settings, callbacks=[loom.Lookahead(steps, share)])
    for name, expected in reference(steps, share, 12).items():
        np.testing.assert_allclose(net.state_dict()[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("through_file", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: loom.StochasticWeightAveraging(1), lambda: loom.Lookahead(5)], ids=["swa", "lookahead"]
)
def test_a_resumed_run_is_the_unbroken_one(make: Any, through_file: bool, tmp_path: Path) -> None:
    whole, parts = network(), network()
    settings = {"learning_rate": 0.01, "batch_size": 32}
    first, second, unbroken = make(), make(), make()
    loom.train(whole, (X, Y), quiet(epochs=5, **settings), callbacks=[unbroken])
    loom.train(parts, (X, Y), quiet(epochs=2, **settings), callbacks=[first])
    if through_file:
        parts.save(tmp_path / "net.loom", optimizer=True)
        parts = loom.load(tmp_path / "net.loom")
    loom.train(parts, (X, Y), quiet(epochs=5, **settings), callbacks=[second], resume=True)
    assert parts.fingerprint() == whole.fingerprint()
    for name, values in unbroken.weights.items():
        np.testing.assert_array_equal(second.weights[name], values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: loom.ExponentialMovingAverage(0.9),
        lambda: loom.StochasticWeightAveraging(0),
        lambda: loom.Lookahead(2),
    ],
    ids=["ema", "swa", "lookahead"],
)
def test_what_layers_carry_is_not_averaged(make: Any) -> None:
    net = loom.Sequential([nn.GRU(3, stateful=True), nn.Dense(1)], input_shape=(5, 2), seed=1)
    x = RNG.normal(size=(16, 5, 2))
    average = make()
    loom.train(
        net,
        (x, x.sum(axis=(1, 2))[:, None]),
        quiet(loss="mse", epochs=2, batch_size=8, shuffle=False),
        callbacks=[average],
    )
    assert set(average.weights) == {name for name in net.state_dict() if "state_l0" not in name}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: loom.StochasticWeightAveraging(1.0), "below 1"),
        (lambda: loom.StochasticWeightAveraging(-1), "start"),
        (lambda: loom.StochasticWeightAveraging(every=0), "every"),
        (lambda: loom.Lookahead(0), "steps"),
        (lambda: loom.Lookahead(share=0.0), "share"),
        (lambda: loom.Lookahead(share=1.5), "share"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        make()
