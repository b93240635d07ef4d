"""What somebody with bad habits does is answered with what to do instead, and never wrong in silence."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype("float32")
Y = RNG.integers(0, 3, 40)


def net(units: int = 3) -> loom.Network:
    return loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(units)], input_shape=4, seed=0)


def fit(**settings: Any) -> Any:
    return net().fit(X, Y, verbose=False, **settings)


def named() -> Any:
    two = loom.Network(input_shape=4, grid=(1, 3), seed=0)
    two[0, 0].add(nn.Dense(8, activation="tanh"))
    two[0, 1].add(nn.Dense(3))
    two.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(1))
    two.output("kind", (0, 1)).output("age", (0, 2))
    return two.fit(
        X,
        {"kind": Y, "age": X[:, 0]},
        loss={"kind": "cross_entropy", "age": "mse"},
        metrics={"kind": ["accuracy"]},
        validation_split=0.2,
        callbacks=[loom.EarlyStopping("val_accuracy")],
        verbose=False,
    )


def words() -> loom.Network:
    return loom.Sequential([nn.Embedding(5, 4), nn.GRU(4, return_sequences=True)], input_shape=6)


anything: Any = loom
WEIGHTS = np.zeros(40)

HABITS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "nobody counts": (lambda: fit(sample_weight=WEIGHTS), loom.DataError, "weight of every sample is zero"),
    "nobody is measured": (
        lambda: net().evaluate((X, Y, WEIGHTS), loss="cross_entropy"),
        loom.DataError,
        "at least one must count",
    ),
    "a held-out set that does not count": (
        lambda: fit(validation_data=(X, Y, WEIGHTS)),
        loom.DataError,
        "at least one must count",
    ),
    "too large for float32": (
        lambda: net().predict(np.array([[0.0, 1e300, 1.0, 2.0]])),
        loom.NonFiniteError,
        r"input holds 1e\+300 in row 0, which is beyond float32: scale the data, .*float64",
    ),
    "a target too large": (
        lambda: net(1).fit(X, np.full(40, 1e39), verbose=False),
        loom.NonFiniteError,
        r"target holds 1e\+39 in row 0",
    ),
    "all is held out": (lambda: fit(validation_split=1.0), loom.ConfigError, r"a share of all samples, such"),
    "a count for a share": (lambda: fit(validation_split=20), loom.ConfigError, r"such as 0\.2"),
    "a percentage": (lambda: loom.data.split((X, Y), 80), loom.ConfigError, r"such as 0\.2"),
    "a batch of none": (lambda: net().predict(X, batch_size=0), loom.ConfigError, "for the usual size"),
    "what is watched has its output's name": (named, loom.ConfigError, "there is 'val_kind_accuracy'"),
    "no tokenizer": (
        lambda: loom.text.LanguageModel(words(), None),  # type: ignore[arg-type]
        loom.ConfigError,
        r"tokenizers\.Tokenizer, .* got None",
    ),
    "an optimizer and a rate": (
        lambda: net().apply_gradients(loom.Adam(), 1e-3),  # type: ignore[call-arg, arg-type]
        TypeError,
        r'net\.set_optimizer\("adam"\) before',
    ),
    "a pickled mesh": (lambda: pickle.dumps(loom.Mesh(net())), TypeError, r"mesh\.save\(path\) keeps it"),
    "a copied mesh": (lambda: copy.deepcopy(loom.Mesh(net())), TypeError, r"loom\.Mesh\.load"),
    "a pickled session": (lambda: pickle.dumps(words().session(9)), TypeError, "pickle the network"),
    "numbers as texts": (lambda: net().predict(X.astype(str)), loom.DTypeError, r"x\.astype\(float\) makes"),
    "labels as bytes": (
        lambda: net().fit(X, np.array([b"a", b"b", b"c"])[Y], verbose=False),
        loom.DTypeError,
        r"y\.astype\(str\)",
    ),
    "a label that is missing": (
        lambda: net().fit(X, np.where(np.arange(40) == 7, np.nan, Y), verbose=False),
        loom.ShapeError,
        "that of row 7 is missing",
    ),
    "an iterator": (lambda: net().predict(row for row in X), loom.DTypeError, r"numpy\.stack\(list\(x\)\)"),
    "a dictionary of two": (
        lambda: net().fit({"x": X, "y": Y}, verbose=False),
        loom.DataError,
        r'\(data\["x"\], data\["y"\]\)',
    ),
    "no target": (lambda: anything.data.columns({"a": [1.0]}), TypeError, r'target="price"'),
    "no data": (lambda: anything.train(net()), TypeError, r"loom\.train\(net, \(x, y\), config\)"),
    "a receipt alone": (lambda: anything.reproduce("receipt.json"), TypeError, r"holds no data"),
}


@pytest.mark.parametrize("name", HABITS)
def test_a_bad_habit_is_answered(name: str) -> None:
    habit, kind, told = HABITS[name]
    with warnings.catch_warnings():
        # What is told is told once, by the error.
        warnings.simplefilter("error")
        with pytest.raises(kind, match=told):
            habit()


def test_what_is_in_order_is_taken_as_before() -> None:
    some = np.where(np.arange(40) == 3, 1.0, 0.0)
    assert np.isfinite(fit(sample_weight=some, validation_data=(X, Y, some)).final_loss)
    # One batch of several may count for nothing.
    batches = [(X[:20], Y[:20], WEIGHTS[:20]), (X[20:], Y[20:], some[:20])]
    assert np.isfinite(net().fit(batches, loss="cross_entropy", verbose=False).final_loss)
    wide = loom.Sequential([nn.Dense(1)], input_shape=4, precision="float64")
    assert np.isfinite(wide.predict(np.full((2, 4), 1e300))).all()
    with pytest.raises(loom.NonFiniteError, match="holds NaN or infinity"):
        net().predict(np.array([[np.inf, 0, 0, 0]]))
    with pytest.raises(loom.ConfigError, match="as a whole number: 2"):
        fit(epochs=2.0)


def test_a_metric_of_ones_own_takes_classes_of_narrow_images() -> None:
    outputs, classes = RNG.normal(size=(5, 3, 4, 1)), RNG.integers(0, 3, (5, 4, 1))
    rows = np.eye(3)[classes].transpose(0, 3, 1, 2)
    metric = loom.metrics.Expr("(y - t) ** 2")
    assert metric(outputs, classes) == pytest.approx(((outputs - rows) ** 2).mean(), rel=1e-12)
