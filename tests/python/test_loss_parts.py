"""The loss of networks with named outputs is the sum of its parts, whatever weighs samples and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(5)
ROWS = 23
X = RNG.normal(size=(ROWS, 4))
Y = {"kind": RNG.integers(0, 3, ROWS), "age": RNG.normal(size=(ROWS, 2))}
SHARES = {"kind": 0.7, "age": 1.6}
ONE, OTHER = RNG.uniform(0.1, 3.0, (2, ROWS))
WEIGHTS: dict[str, Any] = {
    "none": None,
    "rows": ONE,
    "some are zero": np.where(ONE < 1.0, 0.0, ONE),
    "by name": {"kind": ONE, "age": OTHER},
    "one name": {"age": OTHER},
    "nothing of one": {"kind": np.zeros(ROWS)},
}


def by_row(output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    difference = output - target
    return (difference**4).mean(axis=1), 4 * difference**3 / difference.shape[1]


def network() -> loom.Network:
    net = loom.Network(input_shape=4, grid=(1, 3), precision="float64", seed=2)
    net[0, 0].add(nn.Dense(6, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    return net.output("kind", (0, 1)).output("age", (0, 2))


def expected(net: loom.Network, weight: Any, classes: Any, age: Any) -> dict[str, float]:
    """The losses by hand."""
    out: Any = net.predict(X)
    scores = out["kind"] - out["kind"].max(axis=1, keepdims=True)
    logarithms = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = {"kind": -logarithms[np.arange(ROWS), Y["kind"]]}
    if classes is not None:
        rows["kind"] = rows["kind"] * np.asarray(classes)[Y["kind"]]
    rows["age"] = by_row(out["age"], Y["age"])[0] if callable(age) else ((out["age"] - Y["age"]) ** 2).mean(1)
    whole = ROWS if weight is None or isinstance(weight, dict) else weight.sum()
    found = {}
    for name, each in rows.items():
        mine = weight.get(name, np.ones(ROWS)) if isinstance(weight, dict) else weight
        found[f"{name}_loss"] = float((each if mine is None else each * mine).sum() / whole)
    return {"loss": sum(SHARES[name] * found[f"{name}_loss"] for name in rows), **found}


@pytest.mark.parametrize("size", [1, 5, 64])
@pytest.mark.parametrize("age", ["mse", by_row])
@pytest.mark.parametrize("classes", [None, [0.2, 1.0, 4.0]])
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_whole_is_the_sum_of_its_parts(name: str, classes: Any, age: Any, size: int) -> None:
    net, weight = network(), WEIGHTS[name]
    config = loom.TrainingConfig(
        loss={"kind": "cross_entropy", "age": age},
        loss_weights=SHARES,
        class_weight=None if classes is None else {"kind": classes},
        validation_batch_size=size,
        learning_rate=0.0,
        verbose=False,
        ignore_findings="all",
    )
    data: Any = (X, Y) if weight is None else (X, Y, weight)
    found = loom.evaluate(net, data, config)
    wanted = expected(net, weight, classes, age)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-12, abs=1e-15), key
    history = loom.train(net, data, config, data).history
    for key, value in wanted.items():
        assert history[f"val_{key}"] == [pytest.approx(value, rel=1e-9, abs=1e-15)], key
