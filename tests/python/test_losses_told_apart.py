"""What losses in Python cannot take: weights of samples, settings of other losses, names of loom's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn
from loom.errors import ConfigError, DataError, InvalidValueError
from networks import quiet

Array = NDArray[Any]

RNG = np.random.default_rng(5)
X, Y, LABELS = RNG.normal(size=(8, 3)), RNG.normal(size=(8, 2)), np.array([0, 0, 1, 1, 2, 2, 0, 1])
WEIGHTS = np.linspace(0.0, 2.0, 8)


def of_batch(output: Array, target: Array) -> tuple[Any, Array]:
    """The mean squared error, as one number."""
    return ((output - target) ** 2).mean(), 2 * (output - target) / output.size


def of_rows(output: Array, target: Array) -> tuple[Array, Array]:
    """The same of each row."""
    return ((output - target) ** 2).mean(axis=1), 2 * (output - target) / output.shape[1]


def net(units: int = 2) -> loom.Network:
    return loom.Sequential([nn.Dense(units)], input_shape=3, precision="float64", seed=1)


def config(loss: Any, **settings: Any) -> loom.TrainingConfig:
    return quiet(loss=loss, batch_size=8, device="cpu", shuffle=False, **settings)


@pytest.mark.parametrize(
    ("loss", "target"),
    [(of_batch, Y), (losses.Triplet(), LABELS), (losses.Contrastive(), LABELS)],
    ids=["own", "triplet", "contrastive"],
)
def test_one_number_of_a_batch_takes_no_weights(loss: Any, target: Array) -> None:
    """A gradient whose rows were weighted would be that of no function."""
    weighed = (X, target, WEIGHTS)
    ways: list[Callable[[], Any]] = [
        lambda: loom.train(net(), weighed, config(loss)),
        lambda: loom.train(net(), [weighed, weighed], config(loss)),
        lambda: loom.train(net(), (X, target), config(loss), validation=weighed),
        lambda: loom.Trainer(net(), config(loss)).step(*weighed),
        lambda: net().evaluate(weighed, config(loss)),
        lambda: loom.LBFGS(net(), config(loss)).fit(X, target, iterations=1, weight=WEIGHTS),
        lambda: losses.value_and_gradient(loss, net().predict(X), target, WEIGHTS),
    ]
    for way in ways:
        with pytest.raises(ConfigError, match=r"one number for all rows of a batch.*leave the weights out"):
            way()


def test_equal_weights_are_none_and_another_run_begins_without() -> None:
    settings = config(of_batch)
    plain = loom.train(net(), (X, Y), settings)
    with pytest.raises(ConfigError, match="one number"):
        loom.train(net(), (X, Y, WEIGHTS), settings)
    for data in ((X, Y, np.full(8, 2.0)), (X, Y)):
        assert loom.train(net(), data, settings).loss_history == plain.loss_history
    value, gradient = losses.value_and_gradient(of_batch, X[:, :2], Y, np.full(8, 0.5))
    assert value == pytest.approx(((X[:, :2] - Y) ** 2).mean())
    np.testing.assert_allclose(gradient, 2 * (X[:, :2] - Y) / 16)


@pytest.mark.parametrize(
    ("loss", "target"), [(losses.OwnLoss(of_batch), Y), (losses.Triplet(), LABELS)], ids=["own", "triplet"]
)
def test_runs_that_share_a_loss_know_nothing_of_each_others_weights(loss: Any, target: Array) -> None:
    """One is told that weights are nothing to such a loss, and the others go on as if it was not there."""
    settings = config(loss)
    alone, mixed = net(), net()
    first, second = loom.Trainer(alone, settings), loom.Trainer(mixed, settings)
    wanted = [first.step(X, target) for _ in range(4)]
    other = loom.Trainer(net(), settings)
    found = []
    for _ in range(4):
        with pytest.raises(ConfigError, match="one number"):
            other.step(X, target, WEIGHTS)
        found.append(second.step(X, target))
        with pytest.raises(ConfigError, match="one number"):
            mixed.evaluate((X, target, WEIGHTS), settings)
    assert found == wanted
    assert alone.fingerprint() == mixed.fingerprint()
    # A step without weights is one, whatever was refused before.
    assert other.step(X, target) == wanted[0]

    # A run that begins takes nothing back of what another knows of its weights.
    class Begins(loom.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any) -> None:
            loom.Trainer(net(), settings)

    with pytest.raises(ConfigError, match="one number"):
        loom.train(net(), (X, target, WEIGHTS), settings, callbacks=[Begins()])


def test_of_named_outputs_those_that_are_weighted_count() -> None:
    def towers() -> loom.Network:
        both = loom.Network(input_shape=3, grid=(1, 3), precision="float64", seed=2)
        both[0, 0].add(nn.Dense(4))
        both[0, 1].add(nn.Dense(2))
        both.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
        return both.output("a", (0, 1)).output("b", (0, 2))

    targets, settings = {"a": Y, "b": Y}, config({"a": of_batch, "b": of_rows})
    loom.train(towers(), (X, targets, {"b": WEIGHTS}), settings)
    for weight in (WEIGHTS, {"a": WEIGHTS}):
        with pytest.raises(ConfigError, match="loss of_batch: it is one number"):
            loom.train(towers(), (X, targets, weight), settings)


def test_a_loss_of_each_row_takes_weights() -> None:
    output = net().predict(X)
    value, gradient = losses.value_and_gradient(of_rows, output, Y, WEIGHTS)
    assert value == pytest.approx(np.average(((output - Y) ** 2).mean(axis=1), weights=WEIGHTS))
    np.testing.assert_allclose(gradient, (output - Y) * (WEIGHTS / WEIGHTS.sum())[:, None])
    assert net().evaluate((X, Y, WEIGHTS), config(of_rows))["loss"] == pytest.approx(value)


@pytest.mark.parametrize("name", ["focal", "nll", "cross_entropy", "binary_cross_entropy", "hinge"])
def test_a_function_is_not_the_loss_that_it_is_called_after(name: str) -> None:
    """Its targets may be any, and its outputs are on both sides of nothing."""

    def other(output: Array, target: Array) -> tuple[Array, Array]:
        return of_rows(output, target)

    def named(output: Array, target: Array) -> tuple[Array, Array]:
        return of_rows(output, target)

    named.__name__ = name
    y = (Y[:, 0] > 0).astype(np.float64)
    found = [
        loom.train(net(1), (X, y), config(loss, metrics=["accuracy"]), (X, y)).metrics
        for loss in (other, named)
    ]
    assert found[0] == found[1]
    assert not losses.is_classification(named)
    values = [losses.value_and_gradient(loss, Y[:, :1], y)[0] for loss in (other, named)]
    assert values[0] == values[1]
    with pytest.raises(ConfigError, match=rf"not with .*function {name}"):
        config(named, label_smoothing=0.1)
    # Those of loom's own functions are meant by them.
    assert losses.name_of(losses.cross_entropy) == "cross_entropy"


@pytest.mark.parametrize("weight", [[-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
@pytest.mark.parametrize("loss", ["mse", of_rows, losses.Dice()], ids=["mse", "own", "dice"])
def test_weights_of_the_manual_loop_are_those_of_training(loss: Any, weight: list[float]) -> None:
    """A negative one made a value of one sign and a gradient of zeros."""
    with pytest.raises(InvalidValueError, match="finite and at least 0, but that of row 0"):
        losses.value_and_gradient(loss, np.zeros((2, 2)), np.ones((2, 2)), weight)


def test_classes_that_count_nothing_leave_no_mean() -> None:
    scores = RNG.normal(size=(3, 2))
    for weight, of_classes in ((None, [0.0, 1.0]), ([0.0, 1.0, 1.0], [0.0, 1.0])):
        labels = [0, 0, 0] if weight is None else [1, 0, 0]
        with pytest.raises(DataError, match="by those of their classes"):
            losses.cross_entropy(scores, labels, weight=weight, class_weight=of_classes)
    counted, _ = losses.cross_entropy(scores, [0, 1, 0], class_weight=[0.0, 3.0])
    assert counted == pytest.approx(losses.cross_entropy(scores[1:2], [1])[0])


@pytest.mark.parametrize("settings", [{"label_smoothing": 0.1}, {"class_weight": [1.0, 2.0]}])
@pytest.mark.parametrize(
    ("loss", "target"),
    [(losses.Dice(by_class=True), LABELS % 2), (losses.Triplet(), LABELS), (of_rows, Y)],
    ids=["dice", "triplet", "own"],
)
def test_settings_that_say_nothing_to_a_loss_are_refused(
    loss: Any, target: Array, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValueError, match="are of the losses cross_entropy, focal and nll"):
        losses.value_and_gradient(loss, Y, target, **settings)
