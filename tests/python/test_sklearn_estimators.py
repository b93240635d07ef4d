"""What estimators learn and predict, beside scikit-learn's own and NumPy; and with its tools."""

from __future__ import annotations

import copy
import io
import os
import pickle
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import loom
from loom import nn
from loom.sklearn import LoomClassifier, LoomRegressor, LoomTransformer

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 40, "learning_rate": 0.02, "random_state": 0}
# A linear model in the whole batch, with a method that reaches the minimum.
LINEAR: dict[str, Any] = {
    "hidden": (),
    "optimizer": "adam",
    "learning_rate": 0.1,
    "schedule": "cosine",
    "epochs": 300,
    "n_iter_no_change": None,
    "batch_size": 1000,
    "precision": "float64",
    "random_state": 0,
}
RANDOM = np.random.default_rng(0)
IRIS = StandardScaler().fit_transform(load_iris().data), load_iris().target_names[load_iris().target]
NOISE = RANDOM.normal(size=(60, 4))
MIXED = NOISE @ RANDOM.normal(size=(4, 2)) + 0.1 * RANDOM.normal(size=(60, 2))
BLURRED = NOISE[:, 0] - NOISE[:, 1] + 2 * RANDOM.normal(size=60)
WEIGHTS = RANDOM.integers(0, 4, 60)


def same(left: LoomClassifier, right: LoomClassifier) -> bool:
    found = [left.network_.state_dict(), right.network_.state_dict()]
    return all(np.array_equal(values, found[1][name]) for name, values in found[0].items())


# What is learned


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [3, -7], ["a", "b", "c"]])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_hidden_layers_it_is_logistic_regression(labels: list[Any], weighted: bool) -> None:
    y = np.digitize(BLURRED, [-0.5, 0.5] if len(labels) > 2 else [0])
    x, names = NOISE, np.array(labels)[y]
    weight = WEIGHTS if weighted else None
    mine = LoomClassifier(**LINEAR).fit(x, names, weight)
    theirs = LogisticRegression(C=1e8, tol=1e-10, max_iter=5000).fit(x, names, weight)
    assert mine.classes_.tolist() == theirs.classes_.tolist()
    np.testing.assert_allclose(mine.predict_proba(x), theirs.predict_proba(x), atol=2e-3)


def test_class_weights_are_scikit_learn_s() -> None:
    y = np.digitize(BLURRED, [0.5, 1.5])
    for given in ("balanced", {0: 0.1, 2: 5.0}):
        mine = LoomClassifier(**LINEAR, class_weight=given).fit(NOISE, y)
        theirs = LogisticRegression(C=1e8, tol=1e-10, max_iter=5000, class_weight=given).fit(NOISE, y)
        np.testing.assert_allclose(mine.predict_proba(NOISE), theirs.predict_proba(NOISE), atol=2e-3)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_without_hidden_layers_it_is_linear_regression(outputs: int, scaled: bool) -> None:
    y = MIXED[:, 0] if outputs == 1 else MIXED
    y = 1000 + 50 * y if scaled else y
    weight = WEIGHTS
    mine = LoomRegressor(**LINEAR, scale_target=scaled).fit(NOISE, y, weight)
    theirs = LinearRegression().fit(NOISE, y, weight)
    assert mine.predict(NOISE).shape == y.shape
    np.testing.assert_allclose(mine.predict(NOISE), theirs.predict(NOISE), atol=1e-3 * y.std())


def test_probabilities_are_those_of_the_network_s_outputs() -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK).fit(x, names)
    logits = model.network_.predict(x).astype(np.float64)
    np.testing.assert_array_equal(model.decision_function(x), logits)
    np.testing.assert_allclose(model.predict_proba(x), softmax(logits, axis=1), rtol=1e-9)
    np.testing.assert_allclose(model.predict_log_proba(x), log_softmax(logits, axis=1), rtol=1e-9, atol=1e-12)
    assert model.score(x, names) > 0.93
    two = LoomClassifier(**QUICK).fit(x[:100], names[:100])
    np.testing.assert_allclose(two.predict_proba(x)[:, 1], expit(two.decision_function(x)), rtol=1e-9)


def test_samples_may_have_several_labels() -> None:
    x, names = IRIS
    y = np.column_stack([names == "setosa", names != "virginica"]).astype(int)
    model = LoomClassifier(**QUICK).fit(x, y)
    assert model.score(x, y) > 0.9
    logits = model.network_.predict(x).astype(np.float64)
    np.testing.assert_allclose(model.predict_proba(x), expit(logits), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(x), logits > 0)
    stopped = LoomClassifier(**QUICK, early_stopping=True).fit(x, y)
    assert 0 < stopped.best_validation_score_ <= 1


# The course of training


@pytest.mark.parametrize("kind", [LoomClassifier, LoomRegressor])
def test_early_stopping_keeps_the_best_epoch_s_weights(kind: type[Any]) -> None:
    x, names = IRIS
    y = names if kind is LoomClassifier else x[:, 0] * x[:, 1]
    model = kind(**QUICK, early_stopping=True, n_iter_no_change=5, validation_fraction=0.2).fit(x, y)
    assert len(model.validation_scores_) == model.n_iter_ == len(model.loss_curve_) <= 40
    assert model.best_loss_ == min(model.loss_curve_)
    # What was held out was drawn as here.
    held = train_test_split(
        *(x, y), test_size=0.2, random_state=model._seed, stratify=y if kind is LoomClassifier else None
    )
    assert model.score(held[1], held[3]) == pytest.approx(model.best_validation_score_)
    assert model.best_validation_score_ in model.validation_scores_
    best = int(np.argmin(model.validation_loss_curve_))
    assert model.validation_loss_curve_[best] > min(model.validation_loss_curve_) - 1e-4


def test_the_score_of_several_outputs_is_score_s() -> None:
    # The means lie far apart, and one output does not vary in what is held out.
    x = IRIS[0]
    y = np.column_stack([100 + x[:, 0], 10 * x[:, 1] * x[:, 2], np.where(np.arange(len(x)) < 3, 1.0, 0.0)])
    model = LoomRegressor(**QUICK, early_stopping=True, validation_fraction=0.2).fit(x, y)
    held = train_test_split(x, y, test_size=0.2, random_state=model._seed)
    assert len(np.unique(held[3][:, 2])) == 1
    assert model.score(held[1], held[3]) == pytest.approx(model.best_validation_score_, rel=1e-4)


def test_it_stops_where_the_loss_no_longer_falls() -> None:
    options = QUICK | {"epochs": 2000}
    model = LoomClassifier(**options, tol=1e-2, n_iter_no_change=3).fit(*IRIS)
    assert model.n_iter_ < 200
    best = np.argmin(model.loss_curve_[:-3])
    assert min(model.loss_curve_[-3:]) > model.loss_curve_[best] - 1e-2
    assert LoomClassifier(**QUICK, tol=10.0, n_iter_no_change=None).fit(*IRIS).n_iter_ == 40


def test_the_same_number_gives_the_same_bits() -> None:
    options = QUICK | {"dropout": 0.2}
    first, second = (LoomClassifier(**options).fit(*IRIS) for _ in range(2))
    assert same(first, second)
    assert not same(first, LoomClassifier(**options | {"random_state": 1}).fit(*IRIS))
    drawn = [np.random.RandomState(3) for _ in range(2)]
    third, fourth = (LoomClassifier(**options | {"random_state": it}).fit(*IRIS) for it in drawn)
    assert same(third, fourth)


def test_parts_are_learned_one_after_the_other() -> None:
    x, names = IRIS
    order = RANDOM.permutation(len(x))
    model = LoomClassifier(**QUICK)
    for epoch in range(30):
        for part in np.array_split(order, 3):
            model.partial_fit(x[part], names[part], classes=None if epoch else sorted(set(names)))
        if epoch == 15:
            # The optimizer's state goes along.
            model = pickle.loads(pickle.dumps(model))
    assert model.score(x, names) > 0.93
    assert model.n_iter_ == len(model.loss_curve_) == 90
    assert model.loss_curve_[-1] < 0.3 * model.loss_curve_[0]
    with pytest.raises(loom.DataError, match="not among the classes"):
        model.partial_fit(x[:2], ["setosa", "rose"])
    with pytest.raises(loom.DataError, match="classes="):
        LoomClassifier().partial_fit(x, names)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(x[:, :2], names)


def test_a_pickled_part_goes_on_to_the_same_bits() -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK).partial_fit(x, names, classes=np.unique(names))
    other = pickle.loads(pickle.dumps(model))
    assert same(model.partial_fit(x, names), other.partial_fit(x, names))


def test_batches_of_weight_zero_teach_nothing() -> None:
    x, names = IRIS
    options = QUICK | {"batch_size": 2, "shuffle": False, "epochs": 1}
    model = LoomClassifier(**options, class_weight={"setosa": 0.0}).partial_fit(x, names, np.unique(names))
    assert np.isfinite(model.loss_curve_).all()
    part = names != "setosa"
    other = LoomClassifier(**options).partial_fit(x[part], names[part], np.unique(names))
    assert same(model, other)


def test_targets_stay_scaled_as_at_first() -> None:
    model = LoomRegressor(**QUICK).partial_fit(NOISE, MIXED)
    mean = model.target_mean_
    for _ in range(100):
        model.partial_fit(NOISE, MIXED)
    assert model.target_mean_ is mean
    assert model.score(NOISE, MIXED) > 0.9
    with pytest.raises(loom.ShapeError, match="before it had 2"):
        model.partial_fit(NOISE, MIXED[:, 0])


def test_targets_that_do_not_vary_at_first_are_learned_as_they_are() -> None:
    """The mean of twelve times 0.3 is a rounding off, by which later targets were divided."""
    model = LoomRegressor((), learning_rate=0.05, random_state=0)
    x = np.random.default_rng(0).normal(size=(12, 3))
    model.partial_fit(x, np.full(12, 0.3))
    for _ in range(200):
        model.partial_fit(x, x[:, 0])
    assert model.target_scale_.tolist() == [1.0]
    assert model.score(x, x[:, 0]) > 0.99


def test_a_warm_start_goes_on_from_the_weights() -> None:
    cold = LoomClassifier(**QUICK).fit(*IRIS)
    warm = LoomClassifier(**QUICK, warm_start=True).fit(*IRIS)
    assert same(cold, warm)
    loss = warm.loss_curve_[-1]
    warm.fit(*IRIS)
    assert warm.n_iter_ == len(warm.loss_curve_) > cold.n_iter_
    assert warm.loss_curve_[cold.n_iter_] < 2 * loss
    assert same(cold, cold.fit(*IRIS))


def test_callbacks_and_runs_are_loom_s(tmp_path: Path) -> None:
    history = loom.History()
    options = QUICK | {"epochs": 3, "run": tmp_path / "run"}
    model = LoomClassifier(**options, callbacks=[history]).fit(*IRIS)
    assert history.history["loss"] == model.loss_curve_
    # The run has ended: its result is there at once.
    assert same(model, LoomClassifier(**options, callbacks=[loom.History()]).fit(*IRIS))


class _Impatient(loom.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


def test_ctrl_c_keeps_what_was_learned() -> None:
    with pytest.warns(UserWarning, match="Ctrl-C"):
        model = LoomClassifier(**QUICK, callbacks=[_Impatient()]).fit(*IRIS)
    assert model.n_iter_ == 3
    assert model.predict(IRIS[0]).shape == (150,)


# Networks of one's own


def layers_of(features: int, outputs: int) -> list[nn.Layer]:
    return [nn.Dense(2 * features, activation="tanh"), nn.Dense(outputs)]


@pytest.mark.parametrize(
    "network",
    [
        layers_of,
        [nn.Dense(8, activation="tanh"), {"type": "dropout", "rate": 0.1}],
        lambda features, outputs: loom.Sequential(layers_of(features, outputs), features, seed=5),
        loom.Sequential(layers_of(4, 3), 4, precision="float64"),
    ],
)
def test_networks_are_made_of_what_is_given(network: Any) -> None:
    model = LoomClassifier(network=network, epochs=60, learning_rate=0.03, random_state=0)
    assert clone(model).fit(*IRIS).score(*IRIS) > 0.93


def test_images_reach_the_network_as_it_reads_them() -> None:
    x, y = load_digits(n_class=3, return_X_y=True)
    net = loom.Network((1, 8, 8))
    net[0, 0, 0].add(nn.Conv2D(4, kernel_size=3, activation="relu"), nn.Flatten(), nn.Dense(3))
    before = net.state_dict()
    x = x / 16
    model = LoomClassifier(network=net, epochs=5, learning_rate=0.02, batch_size=50, random_state=0)
    assert model.fit(x[:200], y[:200]).score(x[200:], y[200:]) > 0.9
    # It is a copy that learns, and begins with the weights.
    assert all(np.array_equal(values, before[name]) for name, values in net.state_dict().items())


def test_categories_reach_embeddings_as_whole_numbers() -> None:
    x = np.random.default_rng(0).integers(0, 6, (200, 3))
    y = (x == 2).any(axis=1)
    layers = [nn.Embedding(6, 4), nn.Flatten(), nn.Dense(8, activation="relu")]
    model = LoomClassifier(network=layers, epochs=100, learning_rate=0.05, random_state=0).fit(x, y)
    assert model.score(x.astype(float), y) > 0.95
    with pytest.raises(loom.DTypeError, match="whole numbers"):
        model.predict(x + 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": layers_of(4, 2)[1:], "hidden": ()}, None),
        ({"network": lambda features, outputs: [nn.Dense(7)]}, r"end it with nn.Dense\(3\)"),
        ({"network": loom.Sequential([nn.Dense(3)], 5)}, "X has 4 features"),
        ({"network": "resnet"}, "a list of hidden layers"),
        ({"network": 3}, "a list of hidden layers"),
        ({"hidden": 64}, r"such as \(64, 64\)"),
        ({"hidden": (0,)}, "width"),
        ({"options": {"epochs": 3}}, "for the estimator to decide"),
        ({"options": {"gradient_klip": 3}}, "gradient_klip"),
        ({"optimizer": "adamm"}, "adamm"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_what_cannot_be_is_said_in_fit(options: dict[str, Any], message: str | None) -> None:
    model = LoomClassifier(**QUICK | {"epochs": 1} | options)
    if message is None:
        model.fit(*IRIS)
        return
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*IRIS)


def test_further_settings_reach_the_training() -> None:
    plain, clipped = (
        LoomClassifier(**QUICK, options=options).fit(*IRIS) for options in (None, {"gradient_clip": 1e-3})
    )
    assert not same(plain, clipped)


# Keeping


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_predict_the_same_bits(way: str) -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK).fit(pd.DataFrame(x, columns=list("abcd")), names)

    def by_joblib(model: LoomClassifier) -> LoomClassifier:
        file = io.BytesIO()
        joblib.dump(model, file)
        file.seek(0)
        copied: LoomClassifier = joblib.load(file)
        return copied

    ways: dict[str, Callable[[LoomClassifier], LoomClassifier]] = {
        "pickle": lambda model: pickle.loads(pickle.dumps(model)),
        "joblib": by_joblib,
        "deepcopy": copy.deepcopy,
    }
    other = ways[way](model)
    frame = pd.DataFrame(x, columns=list("abcd"))
    np.testing.assert_array_equal(other.predict_proba(frame), model.predict_proba(frame))
    assert other.feature_names_in_.tolist() == list("abcd")


def test_the_network_s_file_knows_the_classes(tmp_path: Path) -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK).fit(x, names)
    model.network_.save(tmp_path / "iris.loom")
    loaded = loom.load(tmp_path / "iris.loom")
    assert loaded.card.labels == ("setosa", "versicolor", "virginica")
    chosen = np.array(loaded.card.labels)[loaded.predict(x).argmax(axis=1)]
    np.testing.assert_array_equal(chosen, model.predict(x))
    regressor = LoomRegressor(**QUICK).fit(NOISE, MIXED)
    scaling = regressor.network_.card.metadata["target"]
    outputs = regressor.network_.predict(NOISE) * scaling["scale"] + scaling["mean"]
    np.testing.assert_allclose(outputs, regressor.predict(NOISE), rtol=1e-12)


# Features


def test_an_autoencoder_finds_what_there_is() -> None:
    hidden = RANDOM.normal(size=(200, 2))
    x = hidden @ RANDOM.normal(size=(2, 6))
    model = LoomTransformer(2, hidden=(), epochs=300, learning_rate=0.03, random_state=0)
    codes = model.fit_transform(x)
    assert codes.shape == (200, 2)
    assert np.mean((model.inverse_transform(codes) - x) ** 2) < 0.01 * x.var()
    assert model.get_feature_names_out().tolist() == ["loomtransformer0", "loomtransformer1"]
    # As linear as the two numbers that made it.
    assert LinearRegression().fit(codes, hidden).score(codes, hidden) > 0.98


def test_features_of_networks_and_estimators() -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK).fit(x, names)
    first = model.network_.layers[0]
    expected = model.network_.activations(x, [first])[first.path]
    for source in (model.network_, LoomClassifier(**QUICK)):
        for layer in (None, 0, "0.0.0.0", (0, 0, 0, 0)):
            found = clone(LoomTransformer(source=source, layer=layer)).fit_transform(x, names)
            np.testing.assert_array_equal(found, expected)
    narrow = LoomTransformer(
        source=lambda features, outputs: [nn.Dense(5), nn.Dense(2), nn.Dense(outputs)], epochs=2
    ).fit(x)
    assert narrow.layer_ == "0.0.0.1"
    assert narrow.inverse_transform(narrow.transform(x)).shape == x.shape
    assert not hasattr(LoomTransformer(source=model.network_), "inverse_transform")
    pipeline = make_pipeline(LoomTransformer(source=LoomClassifier(**QUICK)), LogisticRegression())
    assert pipeline.fit(x, names).score(x, names) > 0.93


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": 3}, "source must be"),
        ({"source": loom.Sequential([nn.Dense(3)], 4)}, "one layer alone"),
        ({"source": loom.Sequential([nn.Dense(3), nn.Dense(3)], 5)}, "X has 4 features"),
        ({"layer": 9}, "has 4 layers"),
        ({"layer": "0.0.0.9"}, "0.0.0.9|layer 9"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_layers_that_are_not_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        LoomTransformer(**QUICK | {"epochs": 1} | options).fit(IRIS[0])


# With scikit-learn's tools


def test_a_table_with_gaps_and_categories() -> None:
    rows = 200
    table = pd.DataFrame({"width": RANDOM.normal(5, 2, rows), "kind": RANDOM.choice(["oak", "fir"], rows)})
    y = np.where((table["width"] > 5) == (table["kind"] == "oak"), "tall", "short")
    table.loc[RANDOM.random(rows) < 0.1, "width"] = np.nan
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    kinds = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("kinds", kinds, make_column_selector(dtype_exclude="number")),
        ]
    )
    options = QUICK | {"epochs": 200}
    model = make_pipeline(columns, LoomClassifier(**options)).fit(table, y)
    assert model.score(table, y) > 0.88


def test_searches_run_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_NUM_THREADS", raising=False)
    grid = {"learning_rate": [1e-5, 0.02]}
    alone = GridSearchCV(LoomClassifier(**QUICK), grid, cv=2).fit(*IRIS)
    with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads=3):
        search = GridSearchCV(LoomClassifier(**QUICK), grid, cv=2).fit(*IRIS)
        # The workers share the processors. What is a lambda does not import this module.
        threads = joblib.delayed(
            lambda: import_module("loom.sklearn.estimator") and os.getenv("LOOM_NUM_THREADS")
        )
        assert joblib.Parallel()(threads() for _ in range(2)) == ["3", "3"]
    assert search.best_params_["learning_rate"] == 0.02
    # Other processes give the same bits.
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert same(search.best_estimator_, alone.best_estimator_)


def test_estimators_in_threads_do_not_disturb_each_other() -> None:
    alone = LoomClassifier(**QUICK).fit(*IRIS)
    with joblib.parallel_config("threading"):
        found = joblib.Parallel(n_jobs=4)(
            joblib.delayed(LoomClassifier(**QUICK).fit)(*IRIS) for _ in range(4)
        )
    assert all(same(alone, other) for other in found)


def test_tools_that_wrap_estimators() -> None:
    x, names = IRIS
    model = LoomClassifier(**QUICK)
    assert cross_val_score(model, x, names, cv=3).min() > 0.85
    calibrated = CalibratedClassifierCV(model, cv=2).fit(x, names)
    assert calibrated.score(x, names) > 0.9
    voting = VotingClassifier([("loom", model), ("linear", LogisticRegression())], voting="soft")
    assert voting.fit(x, names).score(x, names) > 0.93
    found = permutation_importance(model.fit(x, names), x, names, n_repeats=3, random_state=0)
    # Petals tell irises apart, sepals hardly.
    assert found.importances_mean[2:].min() > found.importances_mean[:2].max()


def test_what_cannot_be_learned_from_is_refused() -> None:
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="dense"):
        LoomClassifier().fit(csr_array(IRIS[0]), IRIS[1])
    with pytest.raises(loom.ConfigError, match="is for classes"):
        LoomRegressor(loss="cross_entropy").fit(NOISE, MIXED)
    with pytest.raises(ValueError, match="negative"):
        LoomRegressor().fit(NOISE, MIXED, np.full(60, -1.0))
    with pytest.raises(loom.StateError, match="early_stopping"):
        LoomRegressor(early_stopping=True).partial_fit(NOISE, MIXED)


@pytest.mark.parametrize("make", [LoomClassifier, LoomRegressor, LoomTransformer])
def test_numbers_beyond_float32_are_values_that_cannot_be_used(make: type[Any]) -> None:
    x = np.array(IRIS[0], np.float64)
    y = IRIS[1] if make is LoomClassifier else x[:, 0].copy()
    model = make(hidden=(4,), epochs=1, random_state=0).fit(x, y)
    ask = getattr(model, "predict", None) or model.transform
    x[3, 1] = 1e300
    calls = [lambda: ask(x)]
    if make is not LoomTransformer:
        calls.append(lambda: make(hidden=(4,), epochs=1).fit(x, y))
    for call in calls:
        with pytest.raises(ValueError, match=r"X holds 1e\+300 in row 3.* precision=\"float64\""):
            call()
    if make is LoomClassifier:
        wide = make(hidden=(4,), epochs=1, precision="float64").fit(IRIS[0], y)
        assert wide.predict(x).shape == y.shape


def test_without_scikit_learn_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None; from loom import *; import loom.sklearn\n"
        "try: loom.sklearn.LoomClassifier\n"
        "except loom.MissingExtraError as error: print(error)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "loom-nn[sklearn]" in finished.stdout


def test_the_tabular_example_compares(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = str(Path(__file__).parents[2] / "examples" / "tabular.py")
    monkeypatch.setattr(sys, "argv", [example, "--rows", "500", "--folds", "2"])
    # Boosted trees are slow where more threads want to run than can.
    with warnings.catch_warnings(), threadpool_limits(1):
        runpy.run_path(example, run_name="__main__")
    shown = capsys.readouterr().out.splitlines()[2:]
    found = {line[:24].strip(): float(line[24:33]) for line in shown}
    best = found.pop("who knows everything")
    assert len(found) == 5
    assert all(0.5 < accuracy < best + 0.05 for accuracy in found.values()), found


@pytest.mark.parametrize(
    ("parameters", "remedy"),
    [
        ({"hidden_layer_sizes": (32,)}, '"hidden_layer_sizes"; in loom that is "hidden"'),
        ({"max_iter": 3}, '"max_iter"; in loom that is "epochs"'),
        ({"learning_rate_init": 0.1}, '"learning_rate_init"; in loom that is "learning_rate"'),
        ({"solver": "adam"}, '"solver"; in loom that is "optimizer"'),
        ({"seed": 0}, '"seed"; in loom that is "random_state"'),
        ({"alpha": 1e-4}, r"loom\.AdamW\(weight_decay=0\.01\)"),
        ({"gradient_clip": 1.0}, r"options=\{'gradient_clip': \.\.\.\}"),
        ({"hiden": (3,)}, 'did you mean "hidden"'),
    ],
)
@pytest.mark.parametrize("kind", [LoomClassifier, LoomRegressor, LoomTransformer])
def test_parameters_of_others_are_answered_with_loom_s(
    kind: type[Any], parameters: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(loom.ConfigError, match=remedy):
        kind(**parameters)


def test_a_second_parameter_by_place_is_refused_with_its_name() -> None:
    made: Any = LoomClassifier
    with pytest.raises(loom.ConfigError, match=r"takes hidden by place.*by name"):
        made((32,), "relu")
