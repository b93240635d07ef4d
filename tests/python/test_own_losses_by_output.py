"""Losses of one's own by named output, against NumPy and finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.errors import ConfigError, DataError, DTypeError, InvalidValueError, ShapeError
from named_outputs import ROWS, samples, three_heads
from networks import Killed
from one_step import assert_one_step_follows

Array = NDArray[Any]


def margin(output: Array, target: Array) -> tuple[Any, Array]:
    """How far the wanted class is below the others, squared, for each row."""
    assert (target.dtype.kind, target.shape) == ("i", (len(output),))
    rows = np.arange(len(output))
    gap = 1.0 + output - output[rows, target][:, None]
    gap = np.where(gap > 0, gap, 0.0)
    gap[rows, target] = 0.0
    gradient = 2 * gap
    gradient[rows, target] = -gradient.sum(axis=1)
    return (gap**2).sum(axis=1), gradient


def cubed(output: Array, target: Array) -> tuple[Any, Array]:
    """The mean of |difference| ** 3 of the batch."""
    difference = output - target
    return (np.abs(difference) ** 3).mean(), 3 * difference * np.abs(difference) / difference.size


def cubed_rows(output: Array, target: Array) -> tuple[Any, Array]:
    """The same of each row, which takes weights."""
    difference = output - target
    width = difference.shape[1]
    return (np.abs(difference) ** 3).mean(axis=1), 3 * difference * np.abs(difference) / width


DISTANCE = loom.losses.Expr("sqrt(sum((y - t) ** 2, axis=-1) + 0.01)")
OWN = {"kind": margin, "age": cubed, "place": DISTANCE}
WEIGHTS = {"kind": 0.5, "place": 2.0}


def in_numpy(output: dict[str, Array], y: dict[str, Array], weights: dict[str, Array] | None = None) -> float:
    """The loss of OWN and WEIGHTS."""
    rows = {
        "kind": margin(output["kind"], y["kind"])[0],
        "age": np.abs(output["age"][:, 0] - y["age"]) ** 3,
        "place": np.sqrt(((output["place"] - y["place"]) ** 2).sum(axis=1) + 0.01),
    }
    factors = weights or {}
    return sum(WEIGHTS.get(n, 1.0) * float((each * factors.get(n, 1.0)).mean()) for n, each in rows.items())


def config(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "epochs": 1,
        "batch_size": ROWS,
        "shuffle": False,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "loss": OWN,
        "loss_weights": WEIGHTS,
        "verbose": False,
        "device": "cpu",
    }
    return loom.TrainingConfig(**{**usual, **settings})


def test_a_step_follows_the_gradient_of_the_sum() -> None:
    net, (x, y) = three_heads(), samples()
    found = net.evaluate((x, y), config())
    output: Any = net.predict(x)
    assert abs(found["loss"] - in_numpy(output, y)) < 1e-12
    assert abs(found["kind_loss"] - float(margin(output["kind"], y["kind"])[0].mean())) < 1e-12
    assert abs(found["age_loss"] - cubed(output["age"], y["age"][:, None])[0]) < 1e-12
    assert_one_step_follows(net, (x, y), config())


def test_metrics_of_ones_own_see_what_the_loss_sees() -> None:
    """Class indices where a loss of one's own takes them; the places of other outputs follow from that."""

    def farthest(output: Array, target: Array) -> float:
        return float(np.abs(output - target).max())

    def right(output: Array, target: Array) -> float:
        assert target.dtype.kind == "i"
        return float((output.argmax(axis=1) == target).mean())

    close = loom.metrics.Expr("abs(y - t) < 0.5", called="close")
    chosen = config(metrics={"age": ["mae", farthest, close], "kind": ["accuracy", right]})
    net, (x, y) = three_heads(), samples()
    result = loom.train(net, (x, y), chosen, validation=(x, y))
    output: Any = net.predict(x)
    difference = np.abs(output["age"][:, 0] - y["age"])
    wanted = {
        "age_mae": difference.mean(),
        "age_farthest": difference.max(),
        "age_close": (difference < 0.5).mean(),
        "kind_accuracy": (output["kind"].argmax(axis=1) == y["kind"]).mean(),
        "kind_right": (output["kind"].argmax(axis=1) == y["kind"]).mean(),
    }
    for name, value in wanted.items():
        assert abs(net.evaluate((x, y))[name] - value) < 1e-12
        assert abs(result.metrics[f"val_{name}"][-1] - value) < 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_own_losses_stand_beside_others(seed: int) -> None:
    """Any mixture of losses of one's own and loom's, soft targets and class indices, row weights and none."""
    rng = np.random.default_rng(seed)
    x, y = samples(seed)
    loss: dict[str, Any] = {
        "kind": [margin, "cross_entropy", loom.losses.Expr("(y - t) ** 4")][seed % 3],
        "age": [cubed_rows, "huber", loom.losses.Expr("abs(y - t) ** 1.5")][int(rng.integers(3))],
        "place": [cubed_rows, DISTANCE, "mse"][int(rng.integers(3))],
    }
    if seed % 3 == 2 or (seed % 3 == 1 and rng.random() < 0.5):
        shares = rng.random((ROWS, 3))
        y["kind"] = shares / shares.sum(axis=1, keepdims=True)
    data: Any = (x, y)
    if rng.random() < 0.5:
        data = (x, y, rng.uniform(0.2, 2, ROWS))
    elif rng.random() < 0.6:
        data = (x, y, {"age": rng.uniform(0.2, 2, ROWS), "kind": rng.uniform(0.2, 2, ROWS)})
    assert_one_step_follows(three_heads(seed=seed), data, config(loss=loss))


def test_batches_go_their_own_way_to_the_same_weights() -> None:
    arrays, batches, once, (x, y) = three_heads(), three_heads(), three_heads(), samples()
    loom.train(arrays, (x, y), config(batch_size=5))
    cut = [slice(start, start + 5) for start in range(0, ROWS, 5)]
    listed = [(x[rows], {name: each[rows] for name, each in y.items()}) for rows in cut]
    loom.train(batches, listed, config())
    # What a function takes is told by the first batch, which is learned from all the same.
    loom.train(once, (batch for batch in listed), config())
    assert arrays.fingerprint() == batches.fingerprint() == once.fingerprint()


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_other_precisions_and_shards_learn_the_same(precision: str) -> None:
    net, like, (x, y) = three_heads(precision), three_heads(), samples()
    for name, layer in zip([each.path for each in like.build().layers], net.build().layers, strict=True):
        assert layer.path == name
    loom.train(like, (x, y), config(epochs=3))
    loom.train(net, (x, y), config(epochs=3))
    error = 1e-5 if precision == "float32" else 0.03
    for name, output in like.predict(x).items():  # type: ignore[attr-defined]
        np.testing.assert_allclose(net.predict(x)[name], output, rtol=0, atol=error)  # type: ignore[index]
    one, four = three_heads(precision), three_heads(precision)
    loom.train(one, (x, y), config(epochs=2, shards=2))
    loom.train(four, (x, y), config(epochs=2, shards=2))
    assert one.fingerprint() == four.fingerprint()


def test_gpu_learns_the_same(gpu: str) -> None:
    here, there, (x, y) = three_heads("float32"), three_heads("float32"), samples()
    weights = {"kind": np.linspace(0.5, 2, ROWS)}
    loom.train(here, (x, y, weights), config(epochs=3))
    with pytest.warns(UserWarning, match="the frame of commands is cut"):
        loom.train(
            there, (x, y, weights), config(epochs=3, device="gpu", loss={**OWN, "kind": _renamed(margin)})
        )
    for name, output in here.predict(x).items():  # type: ignore[attr-defined]
        np.testing.assert_allclose(there.predict(x)[name], output, rtol=0, atol=2e-5)  # type: ignore[index]


def _renamed(function: Any) -> Any:
    """The same loss by another name, of which nothing has been said yet."""

    def another_margin(output: Array, target: Array) -> tuple[Any, Array]:
        return function(output, target)  # type: ignore[no-any-return]

    return another_margin


def test_class_indices_stay_such_beside_soft_targets() -> None:
    """A loss of one's own gets the labels that it was given, whatever other outputs are told."""
    net = loom.Network(3, grid=(1, 3), precision="float64", seed=2)
    net[0, 0].add(nn.Dense(4))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    net.output("kind", (0, 1)).output("shares", (0, 2))
    rng = np.random.default_rng(3)
    x, kind, shares = rng.normal(size=(ROWS, 3)), rng.integers(0, 3, ROWS), rng.dirichlet([1, 1], ROWS)
    both = config(loss={"kind": margin, "shares": "cross_entropy"}, loss_weights=None)
    assert_one_step_follows(net, (x, {"kind": kind, "shares": shares}), both)
    with pytest.raises(ShapeError, match='output "kind": its loss takes class indices'):
        net.evaluate((x, {"kind": np.eye(3)[kind], "shares": shares}))


def test_losses_that_loom_computes_by_output() -> None:
    """Triplets on an embedding, whose labels are any whole numbers, beside classes."""
    net = loom.Network(3, grid=(1, 3), precision="float64", seed=2)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    net.output("kind", (0, 1)).output("near", (0, 2))
    x, y = samples()
    near = np.array([7, 90000])[y["kind"] % 2]
    both = config(loss={"kind": "cross_entropy", "near": "triplet"}, loss_weights=None)
    assert_one_step_follows(net, (x, {"kind": y["kind"], "near": near}), both)
    output: Any = net.predict(x)
    alone = loom.losses.value_and_gradient("triplet", output["near"], near)[0]
    assert abs(net.evaluate((x, {"kind": y["kind"], "near": near}))["near_loss"] - alone) < 1e-12
    three = loom.Network(3, grid=(1, 1))
    three[0, 0].add(nn.Dense(2))
    three.output("near", (0, 0))
    with pytest.raises(InvalidValueError, match="beyond 16777216"):
        loom.train(three, (x, {"near": near * 1000}), config(loss={"near": "triplet"}, loss_weights=None))


def test_a_trainer_lbfgs_and_a_mesh_take_them(tmp_path: Path) -> None:
    whole, stepped, (x, y) = three_heads(), three_heads(), samples()
    loom.train(whole, (x, y), config())
    trainer = loom.Trainer(stepped, config())
    assert abs(trainer.step(x, y) - in_numpy(three_heads().predict(x), y)) < 1e-12  # type: ignore[arg-type]
    assert stepped.fingerprint() == whole.fingerprint()
    told = loom.LBFGS(whole, config()).fit(x, y, iterations=10)
    assert told[-1] < 0.8 * told[0]
    # A mesh compares what has arrived with targets by the same losses.
    net = loom.Network(3, grid=(1, 2), precision="float64", seed=4)
    net[0, 0].add(nn.Dense(3))
    net[0, 1].add(nn.Dense(2))
    net.output("kind", (0, 0)).output("place", (0, 1))
    loss = {"kind": margin, "place": DISTANCE}
    mesh = loom.Mesh(net, rows=ROWS, window=4)
    stepper = loom.Stepper(mesh, config(loss=loss, loss_weights=None), ticks=2, update_every=1)
    before: Any = net.predict(x)
    target = {"kind": y["kind"], "place": y["place"]}
    wanted = margin(before["kind"], y["kind"])[0].mean()
    wanted += np.sqrt(((before["place"] - y["place"]) ** 2).sum(axis=1) + 0.01).mean()
    found = stepper.step(x, target)
    assert found == pytest.approx(wanted, rel=0, abs=1e-12)
    assert stepper.step(x, target) < found  # type: ignore[operator]


def test_a_stream_minimises_ones_own_loss_of_a_single_output() -> None:
    x, y = samples()
    for loss, value in ((margin, None), (cubed, None), (loom.losses.Expr("(y - t) ** 4"), None)):
        net = loom.Network(3, grid=(1, 1), precision="float64", seed=4)
        classes = loss is margin
        net[0, 0].add(nn.Dense(3 if classes else 2))
        target = y["kind"] if classes else y["place"]
        output = net.predict(x)
        if isinstance(loss, loom.losses.Expr):
            value = float(((output - target) ** 4).mean())
        else:
            value = float(np.mean(loss(output, target)[0]))
        stepper = loom.Stepper(loom.Mesh(net, rows=ROWS, window=2), config(loss=loss, loss_weights=None))
        found = stepper.step(x, target)
        assert found == pytest.approx(value, rel=0, abs=1e-12)
        assert stepper.step(x, target) < found  # type: ignore[operator]


def test_files_know_losses_by_expression_again(tmp_path: Path) -> None:
    net, (x, y) = three_heads(), samples()
    by_text = {"kind": "cross_entropy", "age": loom.losses.Expr("abs(y - t) ** 1.5"), "place": DISTANCE}
    loom.train(net, (x, y), config(loss=by_text))
    net.save(tmp_path / "net.loom")
    assert loom.load(tmp_path / "net.loom").evaluate((x, y), loss=by_text) == net.evaluate(
        (x, y), loss=by_text
    )


def test_runs_go_on_with_them(tmp_path: Path) -> None:
    whole, again, (x, y) = three_heads(), three_heads(), samples()
    settings = config(epochs=4, batch_size=8, shuffle=True)
    loom.train(whole, (x, y), settings)
    with pytest.raises(RuntimeError, match="killed"):
        loom.train(three_heads(), (x, y), settings, callbacks=[Killed(5)], run=tmp_path / "run")
    loom.train(again, (x, y), settings, run=tmp_path / "run")
    assert again.fingerprint() == whole.fingerprint()


def test_other_ways_in_take_them() -> None:
    net, (x, y) = three_heads("float32"), samples(rows=200)
    before = net.fingerprint()
    assert loom.find_rate(net, (x, y), config(batch_size=10)).suggestion > 0
    loom.doctor(net, (x, y), config(batch_size=10))
    assert net.fingerprint() == before
    with pytest.warns(loom.BottleneckWarning):
        loom.train(net, (x, y), config(batch_size=10), observe=True)
    assert len(net.measures.layers) == 4


def no_gradient(output: Array, target: Array) -> float:
    return 0.0


def wrong_gradient(output: Array, target: Array) -> tuple[float, Array]:
    return 0.0, np.zeros(3)


def test_bad_losses_are_told_by_name() -> None:
    net, (x, y) = three_heads(), samples()
    with pytest.raises(ConfigError, match="no_gradient: expected"):
        loom.train(net, (x, y), config(loss={**OWN, "age": no_gradient}))
    with pytest.raises(ShapeError, match="wrong_gradient: the gradient must have the output's shape"):
        loom.train(net, (x, y), config(loss={**OWN, "age": wrong_gradient}))
    with pytest.raises(ConfigError, match='class_weight: output "kind" has the loss "margin"'):
        loom.train(net, (x, y), config(class_weight={"kind": {1: 2.0}}))


def test_weights_by_output_are_those_of_numpy() -> None:
    net, (x, y) = three_heads(), samples()
    rng = np.random.default_rng(5)
    weights = {"kind": rng.uniform(0, 3, ROWS), "place": rng.uniform(0, 3, ROWS)}
    assert abs(net.evaluate((x, y, weights), config())["loss"] - in_numpy(net.predict(x), y, weights)) < 1e-12  # type: ignore[arg-type]
    assert_one_step_follows(net, (x, y, weights), config())
    by_fit, by_train = three_heads(), three_heads()
    settings: Any = {"epochs": 2, "loss": OWN, "verbose": False, "device": "cpu"}
    loom.train(by_train, (x, y, weights), loom.TrainingConfig(**settings))
    by_fit.fit(x, y, sample_weight=weights, **settings)
    assert by_fit.fingerprint() == by_train.fingerprint()
    with pytest.raises(ConfigError, match=r'weight: output "kin".*kind'):
        loom.train(net, (x, y, {"kin": weights["kind"]}), config())
    with pytest.raises(DataError, match='weight of output "kind" must be'):
        loom.train(net, (x, y, {"kind": weights["kind"][:3]}), config())
    with pytest.raises(InvalidValueError, match="at least 0"):
        loom.train(net, (x, y, {"kind": -weights["kind"]}), config())
    single = loom.Sequential([nn.Dense(1)], input_shape=3)
    with pytest.raises(DTypeError, match="weight: expected real numbers, got dtype object from dict"):
        single.fit(x, y["age"], sample_weight=weights, verbose=False)
