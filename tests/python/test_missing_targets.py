"""Targets that are missing where the weight is 0: they leave no trace in losses, gradients, or metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(5)
ROWS = 24
X = RNG.normal(size=(ROWS, 4))
LABELS = RNG.integers(0, 3, ROWS)
NUMBERS = RNG.random((ROWS, 3))
MISSING = np.arange(ROWS) % 3 == 1
WEIGHT = np.where(MISSING, 0.0, RNG.random(ROWS) + 0.5)
THERE = ~MISSING
QUIET: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "shuffle": False,
    "verbose": False,
    "optimizer": "sgd",
    "ignore_findings": "all",
}


def network(outputs: int = 3, precision: Any = "float64") -> Any:
    layers: list[nn.Layer] = [nn.Dense(6, activation="tanh"), nn.Dense(outputs)]
    return loom.Sequential(layers, input_shape=4, seed=2, precision=precision)


def holed(target: Any, hole: Any) -> Any:
    """The target with holes where its weight is 0."""
    found = np.array(target)
    found[MISSING] = hole
    return found


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


CASES: list[tuple[Any, Any, Any]] = [
    ("mse", holed(NUMBERS, np.nan), lambda o: ((o - NUMBERS) ** 2).mean(1)),
    ("mae", holed(NUMBERS, np.inf), lambda o: np.abs(o - NUMBERS).mean(1)),
    ("binary_cross_entropy", holed(NUMBERS, -1.0), lambda o: (softplus(o) - o * NUMBERS).mean(1)),
    ("binary_cross_entropy", holed(NUMBERS, np.nan), lambda o: (softplus(o) - o * NUMBERS).mean(1)),
    ("hinge", holed(NUMBERS, 7.0), lambda o: np.maximum(0, 1 - o * NUMBERS).mean(1)),
    ("cross_entropy", holed(LABELS, -100), lambda o: entropy(o, np.eye(3)[LABELS])),
    ("cross_entropy", holed(LABELS, 255), lambda o: entropy(o, np.eye(3)[LABELS])),
    ("cross_entropy", holed(np.eye(3)[LABELS], np.nan), lambda o: entropy(o, np.eye(3)[LABELS])),
    (loom.losses.Expr("log(t) * y"), holed(NUMBERS, np.nan), lambda o: (np.log(NUMBERS) * o).mean(1)),
    (
        loom.losses.Expr("sqrt(sum((y - t) ** 2, axis=-1))"),
        holed(NUMBERS, np.nan),
        lambda o: np.sqrt(((o - NUMBERS) ** 2).sum(1)),
    ),
    ("cosine", holed(NUMBERS, np.nan), lambda o: 1 - cosines(o, NUMBERS)),
]


def entropy(scores: Any, shares: Any) -> Any:
    return np.log(np.exp(scores).sum(1)) - (scores * shares).sum(1)


def cosines(a: Any, b: Any) -> Any:
    return (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))


@pytest.mark.parametrize(("loss", "target", "formula"), CASES)
def test_missing_targets_count_for_nothing(loss: Any, target: Any, formula: Any) -> None:
    net = network()
    outputs = net.predict(X)
    expected = float((formula(outputs) * WEIGHT).sum() / WEIGHT.sum())
    assert net.evaluate((X, target, WEIGHT), loss=loss)["loss"] == pytest.approx(expected)
    value, gradient = loom.losses.value_and_gradient(loss, outputs, target, WEIGHT)
    some, of_some = loom.losses.value_and_gradient(loss, outputs[THERE], target[THERE], WEIGHT[THERE])
    assert value == pytest.approx(some) == pytest.approx(expected)
    assert not gradient[MISSING].any()
    np.testing.assert_allclose(gradient[THERE], of_some, atol=1e-15)
    config = loom.TrainingConfig(loss=loss)
    found = loom.LBFGS(network(), config).fit(X, target, WEIGHT, iterations=2)
    assert found[0] == pytest.approx(expected)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(("loss", "target", "formula"), CASES)
def test_a_training_goes_as_without_the_rows_that_are_missing(loss: Any, target: Any, formula: Any) -> None:
    whole, rest, batches = network(), network(), network()
    config: dict[str, Any] = {**QUIET, "loss": loss, "learning_rate": 0.1}
    data = X, target, WEIGHT
    result = whole.fit(X, target, sample_weight=WEIGHT, validation=data, **config)
    other = rest.fit(
        [(X[rows][THERE[rows]], target[rows][THERE[rows]], WEIGHT[rows][THERE[rows]]) for rows in PIECES],
        validation=(X[THERE], target[THERE], WEIGHT[THERE]),
        **config,
    )
    batches.fit([(X[rows], target[rows], WEIGHT[rows]) for rows in PIECES], **config)
    np.testing.assert_allclose(result.loss_history, other.loss_history, rtol=1e-12)
    np.testing.assert_allclose(result.metrics["val_loss"], other.metrics["val_loss"], rtol=1e-12)
    for mine, of_rest, of_batches in zip(
        whole.state_dict().values(), rest.state_dict().values(), batches.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(mine, of_rest, atol=1e-12)
        np.testing.assert_array_equal(mine, of_batches)


PIECES = [slice(start, start + 8) for start in range(0, ROWS, 8)]


def test_missing_targets_count_for_nothing_on_a_gpu(gpu: str) -> None:
    for loss, target, _ in CASES:
        on_cpu, on_gpu = network(precision="float32"), network(precision="float32")
        metrics = ["accuracy"] if loss == "cross_entropy" else ["mae"]
        config: dict[str, Any] = {**QUIET, "loss": loss, "learning_rate": 0.1, "metrics": metrics}
        results = [
            net.fit(X, target, sample_weight=WEIGHT, device=device, **config)
            for net, device in ((on_cpu, "cpu"), (on_gpu, gpu))
        ]
        np.testing.assert_allclose(results[0].loss_history, results[1].loss_history, rtol=1e-5)
        found = [result.metrics[metrics[0]] for result in results]
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
        for one, other in zip(on_cpu.state_dict().values(), on_gpu.state_dict().values(), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def squared(output: Any, target: Any) -> Any:
    """A loss in Python, one number for each row."""
    return ((output - target) ** 2).mean(1), 2 * (output - target) / output.shape[1]


def test_losses_in_python_see_numbers_where_targets_are_missing() -> None:
    target = holed(NUMBERS, np.nan)
    found = network().evaluate((X, target, WEIGHT), loss=squared)
    assert found == pytest.approx(network().evaluate((X, target, WEIGHT), loss="mse"))
    mine, other = network(), network()
    cases: list[Any] = [(mine, squared), (other, "mse")]
    for net, loss in cases:
        net.fit(X, target, sample_weight=WEIGHT, loss=loss, **QUIET)
    for one, two in zip(mine.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)


@pytest.mark.parametrize("shards", [1, 2])
def test_metrics_leave_out_rows_that_do_not_count(shards: int) -> None:
    def outside(outputs: Any, targets: Any) -> float:
        return float((outputs.argmax(1) == targets).sum()) + 1000 * len(targets)

    target = holed(LABELS, 255)
    net = network()
    outputs = net.predict(X)
    hits = (outputs.argmax(1) == LABELS)[THERE]
    expected = dict.fromkeys(("accuracy", "accuracy_score"), hits.mean())
    expected["outside"] = hits.sum() + 1000 * len(hits)
    config: dict[str, Any] = {**QUIET, "epochs": 1, "learning_rate": 0.0, "loss": "cross_entropy"}
    config["metrics"] = ["accuracy", "sklearn.accuracy_score", outside]
    found = net.evaluate((X, target, WEIGHT), loss="cross_entropy", metrics=config["metrics"], batch_size=5)
    result = net.fit(X, target, sample_weight=WEIGHT, validation=(X, target, WEIGHT), shards=shards, **config)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value)
        assert result.metrics[name] == pytest.approx([value])
        assert result.metrics[f"val_{name}"] == pytest.approx([value])


def test_what_counts_is_still_refused_where_it_is_missing() -> None:
    target = NUMBERS.copy()
    target[6] = np.nan
    for data in ((X, target), (X, target, WEIGHT)):
        with pytest.raises(loom.LoomError, match=r"row 6"):
            network().fit(data, loss="mse", **QUIET)
        with pytest.raises(loom.LoomError, match=r"row 6"):
            loom.losses.mse(network().predict(X), *data[1:2], weight=WEIGHT)
    wrong = np.where(np.arange(ROWS) == 5, 7, LABELS)
    with pytest.raises(loom.LoomError, match="7"):
        network().fit(X, wrong, sample_weight=WEIGHT, loss="cross_entropy", **QUIET)


def test_labels_that_are_text_may_be_missing() -> None:
    names = np.array(["cat", "dog", "emu"])[LABELS]
    names[MISSING] = "?"
    net = network()
    result = net.fit(X, names, sample_weight=WEIGHT, loss="cross_entropy", metrics=["accuracy"], **QUIET)
    assert np.isfinite(result.loss_history).all()
    assert list(net.card.labels) == ["cat", "dog", "emu"]
    other = network()
    other.fit(X, LABELS, sample_weight=WEIGHT, loss="cross_entropy", **QUIET)
    for one, two in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_steps_of_sequences_may_be_missing() -> None:
    def tagger(steps: int | None) -> Any:
        layers: list[nn.Layer] = [nn.GRU(4, return_sequences=True), nn.Dense(3)]
        return loom.Sequential(layers, input_shape=(steps, 2), seed=0, precision="float64")

    x, y = RNG.normal(size=(6, 5, 2)), RNG.integers(0, 3, (6, 5))
    weight = (RNG.random((6, 5)) > 0.4) * 1.0
    holes = np.where(weight > 0, y, -100)
    expected = tagger(5).evaluate((x, y, weight), loss="cross_entropy", metrics=["accuracy"])
    fixed = tagger(5).evaluate((x, holes, weight), loss="cross_entropy", metrics=["accuracy"])
    assert fixed == expected
    listed = list(x), list(holes), list(weight)
    found = tagger(None).evaluate(listed, loss="cross_entropy", metrics=["accuracy"])
    assert found == pytest.approx(expected)
    numbers = np.where(weight[..., None] > 0, RNG.random((6, 5, 3)), np.nan)
    filled = np.nan_to_num(numbers, nan=3.0)
    want = tagger(5).evaluate((x, filled, weight), loss="mse", metrics=["mae"])
    assert tagger(5).evaluate((x, numbers, weight), loss="mse", metrics=["mae"]) == pytest.approx(want)
    given = list(x), list(numbers), list(weight)
    assert tagger(None).evaluate(given, loss="mse", metrics=["mae"]) == pytest.approx(want)


def test_pixels_may_be_missing(gpu: str) -> None:
    """A segmentation in which 255 says that nobody knows, as a user would write it."""
    rng = np.random.default_rng(3)
    masks = rng.integers(0, 2, (32, 6, 6))
    x = (rng.normal(size=(32, 2, 6, 6)) * 0.3 + masks[:, None]).astype(np.float32)
    known = rng.random(masks.shape) > 0.3
    labels = np.where(known, masks, 255)
    found = []
    for device in ("cpu", gpu):
        layers: list[nn.Layer] = [nn.Conv2D(4, 1, activation="relu"), nn.Conv2D(2, 1)]
        net: Any = loom.Sequential(layers, input_shape=(2, 6, 6), seed=1)
        result = net.fit(
            x,
            labels,
            sample_weight=known,
            loss="cross_entropy",
            metrics=["accuracy", "iou"],
            epochs=40,
            batch_size=8,
            learning_rate=0.02,
            verbose=False,
            device=device,
            validation=(x, labels, known),
        )
        assert net.evaluate((x, masks), metrics=["accuracy"])["accuracy"] > 0.9
        found.append(result.metrics["val_accuracy"][0])
    assert found[0] == pytest.approx(found[1], abs=0.01)


def heads() -> Any:
    net = loom.Network(input_shape=4, grid=(1, 3), seed=2, precision="float64")
    net[0, 0].add(nn.Dense(8, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    return net.output("kind", (0, 1)).output("age", (0, 2))


def test_heads_with_masks_learn_and_measure_by_what_is_there() -> None:
    """Each row has one answer or both, as data of several sources do."""
    kind, age = LABELS.copy(), RNG.random(ROWS)
    no_kind, no_age = np.arange(ROWS) % 4 == 0, np.arange(ROWS) % 4 == 1
    weight = {"kind": np.where(no_kind, 0.0, 1.0), "age": np.where(no_age, 0.0, 2.0)}
    targets = {"kind": np.where(no_kind, -1, kind), "age": np.where(no_age, np.nan, age)}
    loss: dict[str, Any] = {"kind": "cross_entropy", "age": "mse"}

    def count(outputs: Any, targets: Any) -> float:
        return float(len(targets))

    metrics: Any = {"kind": ["accuracy", count], "age": ["mae", "r2", count]}
    net = heads()
    outputs = net.predict(X)
    scores, ages = outputs["kind"], outputs["age"][:, 0]
    costs = entropy(scores, np.eye(3)[kind]) * weight["kind"]
    squares = (ages - age) ** 2 * weight["age"]
    there = age[~no_age]
    expected = {
        "kind_loss": costs.mean(),
        "age_loss": squares.mean(),
        "loss": costs.mean() + squares.mean(),
        "kind_accuracy": (scores.argmax(1) == kind)[~no_kind].mean(),
        "kind_count": float((~no_kind).sum()),
        "age_count": float((~no_age).sum()),
        "age_mae": np.abs(ages - age)[~no_age].mean(),
        "age_r2": 1 - ((ages[~no_age] - there) ** 2).sum() / ((there - there.mean()) ** 2).sum(),
    }
    found = net.evaluate((X, targets, weight), loss=loss, metrics=metrics, batch_size=7)
    assert found == pytest.approx(expected)
    for shards in (1, 2):
        config: dict[str, Any] = {**QUIET, "epochs": 1, "learning_rate": 0.0, "shards": shards}
        config |= {"loss": loss, "metrics": metrics}
        for data in ((X, targets, weight), pieces(targets, weight)):
            result = net.fit(data, validation=(X, targets, weight), **config)
            assert result.loss_history == pytest.approx([expected["loss"]])
            for name, value in expected.items():
                assert result.metrics[f"val_{name}"] == pytest.approx([value])
                if not name.endswith("loss"):
                    assert result.metrics[name] == pytest.approx([value])
    # A weight a row leaves it out of all heads.
    found = net.evaluate((X, {"kind": kind, "age": holed(age, np.nan)}, WEIGHT), loss=loss, metrics=metrics)
    assert found["kind_accuracy"] == pytest.approx((scores.argmax(1) == kind)[THERE].mean())
    assert found["age_mae"] == pytest.approx(np.abs(ages - age)[THERE].mean())
    assert found["age_count"] == THERE.sum()
    learned = heads().fit(X, targets, sample_weight=weight, loss=loss, **{**QUIET, "epochs": 30})
    assert learned.loss_history[-1] < learned.loss_history[0]


def pieces(targets: Any, weight: Any) -> list[Any]:
    def part(of: Any, rows: slice) -> Any:
        return {name: array[rows] for name, array in of.items()}

    return [(X[rows], part(targets, rows), part(weight, rows)) for rows in PIECES]


def test_a_head_that_nothing_counts_in_has_no_figures() -> None:
    net = heads()
    targets = {"kind": np.full(ROWS, -1), "age": NUMBERS[:, 0]}
    weight = {"kind": np.zeros(ROWS)}
    found = net.evaluate(
        (X, targets, weight), loss={"kind": "cross_entropy", "age": "mse"}, metrics={"kind": ["accuracy"]}
    )
    assert found["kind_loss"] == 0.0
    assert np.isnan(found["kind_accuracy"])
    assert found["loss"] == pytest.approx(found["age_loss"])
