"""A softmax that makes one of several outputs is a part of the loss, as that of a single output is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn
from named_outputs import samples

Array = NDArray[Any]
LOSSES: list[Any] = ["cross_entropy", "nll", losses.Focal(1.5), "kl_divergence"]
X, Y = samples(rows=24)


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", loom.DoctorWarning)
        yield


def heads(*ends: nn.Layer, precision: str = "float64", classes: int = 3) -> Any:
    """One trunk; classes, behind whose layers these come, and a number."""
    net = loom.Network(3, grid=(1, 3), precision=precision, seed=1)  # type: ignore[arg-type]
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net[0, 1].add(nn.Dense(classes), *ends)
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    return net.output("kind", (0, 1)).output("age", (0, 2))


def passed_on(temperature: float = 1.0, precision: str = "float64") -> Any:
    """A trunk; its classes' probabilities are an output, twice, and what the number is made of."""
    net = loom.Network(3, grid=(1, 4), precision=precision, seed=2)  # type: ignore[arg-type]
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net[0, 1].add(nn.Dense(3), nn.Softmax(temperature))
    net[0, 3].add(nn.Dense(1))
    return net.output("kind", (0, 1)).output("again", (0, 2)).output("age", (0, 3))


def quiet(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "loss": {"kind": "cross_entropy", "age": "mse"},
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.1,
        "optimizer": "sgd",
        "device": "cpu",
        "verbose": False,
    }
    return loom.TrainingConfig(**{**usual, **settings})


def targets(of: Any = "cross_entropy") -> dict[str, Array]:
    """The targets of two heads; of losses of shares one for each class."""
    kind = np.random.default_rng(4).dirichlet(np.ones(3), 24) if of == "kl_divergence" else Y["kind"]
    return {"kind": kind, "age": Y["age"]}


def softmax(scores: Array, temperature: float = 1.0) -> Array:
    scaled = np.exp((scores - scores.max(-1, keepdims=True)) / temperature)
    shares: Array = scaled / scaled.sum(-1, keepdims=True)
    return shares


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("extra", [{}, {"accumulate": 2}, {"shards": 2}, {"optimizer": "adamw"}], ids=str)
def test_it_learns_the_bits_that_scores_learn(loss: Any, extra: dict[str, Any]) -> None:
    y, made = targets(loss), []
    for ends in ((), (nn.Softmax(),)):
        net = heads(*ends)
        # What takes probabilities takes no scores.
        of = "cross_entropy" if loss == "nll" and not ends else loss
        config = quiet(loss={"kind": of, "age": "mse"}, **extra)
        result = loom.train(net, (X, y), config)
        seen = loom.evaluate(net, (X, y), config)
        made.append((result.loss_history, net.state_dict(), seen, net.predict(X)["kind"]))
    (history, states, seen, scores), (again, states_again, seen_again, shares) = made
    assert again == history
    for name, values in states.items():
        np.testing.assert_array_equal(states_again[name], values)
    assert seen_again["loss"] == seen["loss"]
    assert seen_again["kind_loss"] == pytest.approx(seen["kind_loss"], rel=1e-9)
    np.testing.assert_allclose(shares, softmax(scores), rtol=1e-12)


def slopes(net: loom.Network, loss: Any) -> dict[str, Array]:
    """The gradient of a loss of what the network predicts, by differences."""
    found = {}
    for layer in net.layers:
        for name, values in layer.parameters.items():
            slope = np.zeros_like(values)
            for place in np.ndindex(values.shape):
                ends = []
                for way in (1e-5, -1e-5):
                    moved = values.copy()
                    moved[place] += way
                    layer.parameters[name] = moved
                    ends.append(loss(net.predict(X)))
                slope[place] = (ends[0] - ends[1]) / 2e-5
            layer.parameters[name] = values
            found[f"{layer.path}.{name}"] = slope
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["weights", "smoothing"])
def test_its_output_may_go_on_to_other_layers(temperature: float, kind: str) -> None:
    """Against numbers of NumPy: the loss is of probabilities, whoever else reads these."""
    rng, rows = np.random.default_rng(8), np.arange(24)
    labels = {"kind": Y["kind"], "again": rng.integers(0, 3, 24)}
    y = {**labels, "age": Y["age"]}
    counts = {name: rng.uniform(0.0, 2.0, 24) for name in y} if kind == "weights" else None
    smoothing = 0.3 if kind == "smoothing" else 0.0

    def wanted(made: Any) -> float:
        total = 0.0
        for name, factor in (("kind", 2.0), ("again", 1.0), ("age", 0.5)):
            if name == "age":
                each = (made["age"][:, 0] - y["age"]) ** 2
            else:
                shares = -np.log(made[name])
                each = (1 - smoothing) * shares[rows, labels[name]] + smoothing * shares.mean(1)
            total += factor * float((each * (1.0 if counts is None else counts[name])).mean())
        return total

    net = passed_on(temperature)
    net.build()
    config = quiet(
        loss={"kind": "cross_entropy", "again": "nll", "age": "mse"},
        loss_weights={"kind": 2.0, "age": 0.5},
        label_smoothing=smoothing,
        batch_size=24,
        epochs=1,
        learning_rate=1e-3,
    )
    data = (X, y) if counts is None else (X, y, counts)
    expected, before = slopes(net, wanted), {name: np.array(v) for name, v in net.state_dict().items()}
    assert loom.evaluate(net, data, config)["loss"] == pytest.approx(wanted(net.predict(X)), rel=1e-12)
    loom.train(net, data, config)
    for name, values in net.state_dict().items():
        np.testing.assert_allclose((before[name] - values) / 1e-3, expected[name], atol=1e-8, err_msg=name)


@pytest.mark.filterwarnings("ignore:little gets through")
@pytest.mark.parametrize("observe", [False, True])
def test_devices_agree(gpu: str, observe: bool) -> None:
    made = []
    for device in ("cpu", gpu):
        net = passed_on(precision="float32")
        config = quiet(
            loss={"kind": "cross_entropy", "again": "nll", "age": "mse"}, device=device, shuffle=False
        )
        y = {**Y, "again": Y["kind"]}
        y = {name: y[name] for name in ("kind", "again", "age")}
        result = loom.train(net, (X, y), config, observe=observe)
        made.append((result.loss_history, net.state_dict()))
    np.testing.assert_allclose(made[1][0], made[0][0], rtol=1e-5)
    for name, values in made[0][1].items():
        np.testing.assert_allclose(made[1][1][name], values, atol=1e-5, err_msg=name)


@pytest.mark.filterwarnings("ignore:little gets through")
@pytest.mark.parametrize("rule", ["observe", "explosions", "tween"])
def test_figures_are_those_without_it(rule: str) -> None:
    """Its own are of what it means: its target is the real one."""
    told: list[Any] = []
    for ends in ((), (nn.Softmax(),)):
        net = heads(*ends)
        data: Any = (X, targets())
        if rule == "tween":
            tween = loom.TweenConfig(mode="chain_rule", local_steps=2, base_rate=0.05, depth_scale="none")
            result: Any = loom.TweenTrainer(net, tween).fit(data, quiet(learning_rate=None))
        else:
            observe = loom.Observe(detect_explosions=rule == "explosions")
            result = loom.train(net, data, quiet(), observe=observe)
            assert result.explosions == 0
        told.append((result.loss_history, net.state_dict(), net.measures))
    (history, states, plain), (again, states_again, ended) = told
    assert again == history
    for name, values in states.items():
        np.testing.assert_array_equal(states_again[name], values)
    assert ended.layers == ("0.0.0.0", "0.0.1.0", "0.0.1.1", "0.0.2.0")
    kept = [0, 1, 3]
    np.testing.assert_array_equal(ended.gaps[kept], plain.gaps)
    np.testing.assert_array_equal(ended.alignments[kept], plain.alignments)
    np.testing.assert_array_equal(ended.gains[kept], plain.gains)
    assert np.isfinite(ended.mean_gap)


@pytest.mark.filterwarnings("ignore:little gets through")
def test_its_gap_is_from_the_classes_to_its_shares() -> None:
    net = heads(nn.Softmax())
    loom.train(net, (X, targets()), quiet(learning_rate=0.0, batch_size=24, epochs=1), observe=True)
    apart = net.predict(X)["kind"] - np.eye(3)[Y["kind"]]
    assert net.measures.gaps[2] == pytest.approx(np.sqrt((apart**2).mean()), rel=1e-12)


def test_steps_of_an_output_learn_the_same() -> None:
    rng = np.random.default_rng(3)
    x, states = rng.normal(size=(8, 6, 2)), rng.integers(0, 3, (8, 6))
    y, weight = {"state": states, "sum": x.sum((1, 2))}, {"state": rng.integers(0, 2, (8, 6)) * 1.5}
    made = []
    for ends in ((), (nn.Softmax(),)):
        net = loom.Network((6, 2), grid=(1, 3), precision="float64", seed=3)
        net[0, 0].add(nn.GRU(4, return_sequences=True))
        net[0, 1].add(nn.Dense(3), *ends)
        net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Flatten(), nn.Dense(1))
        net.output("state", (0, 1)).output("sum", (0, 2))
        config = quiet(loss={"state": "cross_entropy", "sum": "mse"}, metrics={"state": ["accuracy"]})
        result = loom.train(net, (x, y, weight), config)
        made.append((result.loss_history, net.state_dict(), loom.evaluate(net, (x, y, weight), config)))
    assert made[0][0] == made[1][0]
    assert made[1][2] == pytest.approx(made[0][2], rel=1e-9)
    for name, values in made[0][1].items():
        np.testing.assert_array_equal(made[1][1][name], values)


def test_loops_of_ones_own_see_the_same_loss() -> None:
    of: Any = {"kind": losses.Focal(1.5), "age": "mse"}
    config = quiet(loss=of)
    told, gradients = [], []
    for ends in ((), (nn.Softmax(),)):
        net = heads(*ends)
        told.append(loom.LBFGS(net, config).fit(X, targets(), iterations=4))
        gradients.append(net.input_gradients(X, y=targets(), loss=of))
    np.testing.assert_allclose(told[1], told[0], rtol=1e-9)
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-6, atol=1e-12)


def test_a_single_output_has_the_input_gradients_of_its_loss() -> None:
    net = loom.Sequential([nn.Dense(3), nn.Softmax()], input_shape=3, precision="float64", seed=4)
    found = net.input_gradients(X, y=Y["kind"], loss="cross_entropy")
    rows, moved = np.arange(24), np.zeros_like(X)
    for column in range(3):
        step = 1e-6 * np.eye(3)[column]
        ends = [-np.log(net.predict(X + way * step)[rows, Y["kind"]]) for way in (1, -1)]
        moved[:, column] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(found, moved, atol=1e-8)


@pytest.mark.parametrize("ends", [(nn.Softmax(), nn.Flatten()), (nn.MixtureSoftmax(1),)], ids=str)
def test_other_softmaxes_are_warned_of(ends: Any) -> None:
    net = heads(*ends, classes=3 if len(ends) == 2 else 4)
    with pytest.warns(loom.DoctorWarning, match=r'softmax-before-loss.*"kind"'):
        loom.train(net, (X, targets()), quiet())
    assert "softmax-before-loss" in loom.doctor(net, (X, targets()), quiet()).names


def test_the_doctor_finds_nothing() -> None:
    net = heads(nn.Softmax(), precision="float32")
    assert "softmax-before-loss" not in loom.doctor(net, (X, targets()), quiet()).names
