"""L-BFGS: PyTorch's losses and weights, classes, several outputs, devices, what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn

Array = NDArray[Any]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "lbfgs.json").read_text())
NAMES = ["0.0.0.0.weight", "0.0.0.0.bias", "0.0.0.1.weight", "0.0.0.1.bias"]


def array(shape: tuple[int, ...], offset: int, scale: float) -> Array:
    numbers = [((37 * i + 11 * offset) % 61 - 30) / 32 for i in range(int(np.prod(shape)))]
    return scale * np.array(numbers).reshape(shape)


X, Y = array((12, 6), 5, 1.0), array((12, 3), 9, 1.0)


def network(precision: Any = "float64") -> loom.Network:
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6, precision=precision)
    shapes = [(8, 6), (8,), (3, 8), (3,)]
    net.load_state_dict(
        {
            name: array(shape, place, 0.5)
            for place, (name, shape) in enumerate(zip(NAMES, shapes, strict=True))
        }
    )
    return net


def rule(net: loom.Network, settings: dict[str, Any]) -> loom.LBFGS:
    return loom.LBFGS(
        net,
        loom.TrainingConfig(loss="mse"),
        history=settings["history_size"],
        learning_rate=settings["lr"],
        line_search="wolfe" if settings["line_search_fn"] else None,
    )


@pytest.mark.parametrize("case", ["wolfe", "short_history", "plain"])
def test_losses_and_weights_are_pytorchs(case: str) -> None:
    told = GOLDEN[case]
    net = network()
    count = len(told["losses"]) - 1
    found = rule(net, told["settings"]).fit(
        X, Y, iterations=count, gradient_tolerance=0.0, change_tolerance=0.0
    )
    # Curvature makes much of rounding; the first iterations say that the rule is the same.
    np.testing.assert_allclose(found[:12], told["losses"][:12], rtol=1e-9)
    np.testing.assert_allclose(found, told["losses"], rtol=1e-4)
    for name, values in zip(NAMES, told["weights"], strict=True):
        np.testing.assert_allclose(net.state_dict()[name].ravel(), values, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_calls_go_on_where_the_last_one_ended(precision: str) -> None:
    whole, parts = network(precision), network(precision)
    settings = GOLDEN["wolfe"]["settings"]
    at_once = rule(whole, settings).fit(X, Y, iterations=12)
    by_parts = rule(parts, settings)
    found = [by_parts.fit(X, Y, iterations=3) for _ in range(4)]
    assert at_once == [found[0][0], *(loss for part in found for loss in part[1:])]


class Broken:
    """A loss that something befalls in one of its calls."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        loss, gradient = losses.mse(outputs, targets)
        return float(loss), gradient


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_search_that_is_broken_off_leaves_the_weights_of_the_last_iteration(error: Any) -> None:
    whole = network()
    told = loom.LBFGS(whole, loom.TrainingConfig(loss=Broken(0, error))).fit(X, Y, iterations=15)
    for at in range(2, 16):
        net = network()
        parts = loom.LBFGS(net, loom.TrainingConfig(loss=Broken(at, error)), learning_rate=1.0)
        with pytest.raises(error):
            parts.fit(X, Y, iterations=15)
        # What is known of the curvature is as it was, too.
        rest = parts.fit(X, Y, iterations=15)
        reached = told.index(rest[0])
        assert rest[: len(told) - reached] == told[reached:]


def test_what_learns_now_is_not_judged_by_what_did() -> None:
    net = network()
    net.freeze("0.0.0.0")
    rule_of_net = loom.LBFGS(net, loom.TrainingConfig(loss="mse"))
    first = rule_of_net.fit(X, Y, iterations=5)
    net.unfreeze()
    fresh = copy.deepcopy(net)
    then = rule_of_net.fit(X, Y, iterations=5)
    assert then[0] == first[-1]
    assert then == loom.LBFGS(fresh, loom.TrainingConfig(loss="mse")).fit(X, Y, iterations=5)
    state = network().state_dict()
    net.load_state_dict(state)
    assert rule_of_net.fit(X, Y, iterations=5) == loom.LBFGS(network(), loom.TrainingConfig(loss="mse")).fit(
        X, Y, iterations=5
    )


def only_small(outputs: Array, targets: Array) -> tuple[float, Array]:
    loss, gradient = losses.mse(outputs, targets)
    bad = float("nan") if np.abs(outputs).max() > 2.0 else 1.0
    return float(loss) * bad, gradient * bad


def test_steps_do_not_end_where_nothing_is_finite() -> None:
    net = network()
    told = loom.LBFGS(net, loom.TrainingConfig(loss=only_small), learning_rate=1e4).fit(X, Y)
    assert np.isfinite(told).all()
    assert told[-1] < 0.5 * told[0]
    net = network()
    before = losses.mse(net.predict(X), Y)[0]
    with pytest.raises(loom.NonFiniteError, match="Take a smaller learning_rate"):
        loom.LBFGS(net, loom.TrainingConfig(loss=only_small), learning_rate=1e4, line_search=None).fit(X, Y)
    assert losses.mse(net.predict(X), Y)[0] == before


def test_it_ends_where_nothing_changes_and_frozen_weights_stay() -> None:
    net = loom.Sequential([nn.Dense(1)], input_shape=3, precision="float64")
    x = np.random.default_rng(0).normal(size=(50, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3
    told = loom.LBFGS(net, loom.TrainingConfig(loss="mse")).fit(x, y, iterations=200)
    assert len(told) < 30
    np.testing.assert_allclose(net.state_dict()["0.0.0.0.weight"], [[1.0, -2.0, 0.5]], atol=1e-5)
    frozen = network()
    frozen.freeze("*.0.weight")
    before = np.array(frozen.state_dict()["0.0.0.0.weight"])
    told = loom.LBFGS(frozen, loom.TrainingConfig(loss="mse")).fit(X, Y)
    assert told[-1] < 0.5 * told[0]
    assert np.array_equal(frozen.state_dict()["0.0.0.0.weight"], before)


def test_of_adapters_those_in_use_learn() -> None:
    for used, own in ((("first",), False), ((), True), (("first", "second"), True)):
        net = network().add_adapter("first", rank=2).add_adapter("second", rank=1).use_adapters(*used)
        if own:
            net.unfreeze("0.0.0.0.bias")
        before = net.state_dict()
        told = loom.LBFGS(net, loom.TrainingConfig(loss="mse")).fit(X, Y)
        assert told[-1] < told[0]
        moved = {name for name, values in net.state_dict().items() if (values != before[name]).any()}
        of_adapters = {name for name in before if "lora" in name and name.split(".")[-2] in used}
        assert moved == of_adapters | ({"0.0.0.0.bias"} if own else set())


def test_classes_weights_and_several_outputs() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 4))
    kind, age = (x[:, 0] > 0).astype(int), x[:, 1]
    net = loom.Network(input_shape=4, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(8, activation="tanh"), nn.Dropout(0.5))
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(1))
    net.output("kind", (0, 1)).output("age", (0, 2))
    config = loom.TrainingConfig(
        loss={"kind": "cross_entropy", "age": "mse"},
        loss_weights={"age": 2.0},
        class_weight={"kind": {1: 3.0}},
    )
    told = loom.LBFGS(net, config).fit(x, {"kind": kind, "age": age}, iterations=60)
    assert told[-1] < 0.02 * told[0]
    assert net.evaluate((x, {"kind": kind, "age": age}), config)["loss"] == pytest.approx(
        told[-1], rel=1e-4, abs=1e-6
    )

    ended = loom.Sequential([nn.Dense(2), nn.Softmax()], input_shape=4, seed=0, precision="float64")
    plain = loom.Sequential([nn.Dense(2)], input_shape=4, seed=0, precision="float64")
    for loss in ("cross_entropy", losses.Focal(1.5)):
        chosen = loom.TrainingConfig(loss=loss)
        ours, theirs = (loom.LBFGS(each, chosen).fit(x, kind, iterations=5) for each in (ended, plain))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

    weighted = network()
    weight = rng.uniform(0.5, 2, 12)
    told = loom.LBFGS(weighted, loom.TrainingConfig(loss="mse")).fit(X, Y, weight, iterations=5)
    rows = ((weighted.predict(X) - Y) ** 2).mean(axis=1)
    assert told[-1] == pytest.approx(np.average(rows, weights=weight), rel=1e-9)


def _painter() -> loom.Network:
    """Classes of steps, and a number."""
    net = loom.Network((6, 2), grid=(1, 3), precision="float64", seed=3)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Flatten(), nn.Dense(1))
    return net.output("state", (0, 1)).output("sum", (0, 2))


@pytest.mark.parametrize("weights", ["places", "outputs", "rows", "matrix"])
def test_named_outputs_count_by_what_weights_there_are(weights: str) -> None:
    """Against NumPy, the evaluation of other optimizers, and slopes of both."""
    rng = np.random.default_rng(6)
    x, states = rng.normal(size=(8, 6, 2)), rng.integers(0, 3, (8, 6))
    y: dict[str, Any] = {"state": states, "sum": x.sum((1, 2))}
    of_steps, of_rows = rng.integers(0, 3, (8, 6)) * 0.5, rng.uniform(0, 2, 8)
    given: Any = {
        "places": {"state": of_steps, "sum": of_rows},
        "outputs": {"state": of_rows},
        "rows": of_rows,
        "matrix": np.stack([of_rows, of_rows[::-1]], axis=1),
    }[weights]
    config = loom.TrainingConfig(
        loss={"state": "cross_entropy", "sum": "mse"}, loss_weights={"state": 2.0}, verbose=False
    )
    net = _painter()
    told = loom.LBFGS(net, config).fit(x, y, given, iterations=6)
    assert told[-1] < told[0]
    made: Any = net.predict(x)
    shares = made["state"] - np.log(np.exp(made["state"]).sum(-1, keepdims=True))
    steps = -np.take_along_axis(shares, states[:, :, None], 2)[:, :, 0]
    squares = (made["sum"][:, 0] - y["sum"]) ** 2
    state, number = {
        "places": ((steps * of_steps).mean(), (squares * of_rows).mean()),
        "outputs": ((steps.mean(1) * of_rows).mean(), squares.mean()),
        "rows": (np.average(steps.mean(1), weights=of_rows), np.average(squares, weights=of_rows)),
        "matrix": ((steps.mean(1) * of_rows).mean(), (squares * of_rows[::-1]).mean()),
    }[weights]
    assert told[-1] == pytest.approx(2 * state + number, rel=1e-9)
    if weights != "matrix":
        assert net.evaluate((x, y, given), config)["loss"] == pytest.approx(told[-1], rel=1e-9)
    if weights == "places":
        odd = {**y, "state": np.where(of_steps == 0, 255, states)}
        assert loom.LBFGS(_painter(), config).fit(x, odd, given, iterations=6) == told


def test_weights_that_are_of_nothing_are_refused() -> None:
    net, x = _painter(), np.zeros((8, 6, 2))
    y: dict[str, Any] = {"state": np.zeros((8, 6), int), "sum": np.zeros(8)}
    config = loom.TrainingConfig(loss={"state": "cross_entropy", "sum": "mse"})
    for weight, message in (
        (np.ones((8, 6)), "by name"),
        (np.zeros(8), "zero"),
        ({"sate": np.ones(8)}, "sate"),
        ({"state": np.ones((8, 5))}, "state"),
    ):
        with pytest.raises(loom.LoomError, match=message):
            loom.LBFGS(net, config).fit(x, y, weight)
    with pytest.raises(loom.DataError, match="one output"):
        loom.LBFGS(network(), loom.TrainingConfig(loss="mse")).fit(X, Y, {"age": np.ones(12)})


def test_on_a_gpu_it_learns_as_well(gpu: str) -> None:
    net = network("float32")
    net.to(gpu)
    told = loom.LBFGS(net, loom.TrainingConfig(loss="mse")).fit(X, Y, iterations=30)
    assert told[-1] < 0.2 * told[0]


def test_what_cannot_be_is_refused() -> None:
    net = network()
    with pytest.raises(loom.ConfigError, match="say what is minimised"):
        loom.LBFGS(net)
    with pytest.raises(loom.ConfigError, match="of single steps"):
        loom.LBFGS(net, loom.TrainingConfig(loss="mse", gradient_noise=0.1))
    with pytest.raises(loom.ConfigError, match="history"):
        loom.LBFGS(net, loom.TrainingConfig(loss="mse"), history=0)
    net.freeze()
    with pytest.raises(loom.ConfigError, match="no parameter learns"):
        loom.LBFGS(net, loom.TrainingConfig(loss="mse")).fit(X, Y)
