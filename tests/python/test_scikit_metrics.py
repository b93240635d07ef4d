"""Metrics of scikit-learn by name: which want classes, which probabilities, which values."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference

import loom
from loom import metrics
from networks import blobs, mlp, quiet

# What of sklearn.metrics gives no number for outputs and targets.
NO_METRIC = {
    "auc", "calinski_harabasz_score", "class_likelihood_ratios", "consensus_score", "davies_bouldin_score",
    "silhouette_score", "check_scoring",
}  # fmt: skip


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


LOGITS = np.random.default_rng(0).normal(size=(60, 4))
LABELS = np.random.default_rng(1).integers(0, 4, 60)


def test_none_is_forgotten() -> None:
    endings = ("_score", "_loss", "_error", "_deviance", "_corrcoef", "auc", "_ratios")
    there = {
        name
        for name in reference.__all__
        if name.endswith(endings) and inspect.isfunction(getattr(reference, name))
    }
    known = {metrics.sklearn(name).function for name in there - NO_METRIC}
    assert known == there - NO_METRIC


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.sklearn("accuracy_score"), lambda y, c, p: reference.accuracy_score(y, c)),
        (metrics.sklearn("balanced_accuracy_score"), lambda y, c, p: reference.balanced_accuracy_score(y, c)),
        (metrics.sklearn("f1_score"), lambda y, c, p: reference.f1_score(y, c, average="macro")),
        (
            metrics.sklearn("f1_score", average="micro"),
            lambda y, c, p: reference.f1_score(y, c, average="micro"),
        ),
        (
            metrics.sklearn("fbeta_score", beta=2),
            lambda y, c, p: reference.fbeta_score(y, c, beta=2, average="macro"),
        ),
        (metrics.sklearn("cohen_kappa_score"), lambda y, c, p: reference.cohen_kappa_score(y, c)),
        (metrics.sklearn("matthews_corrcoef"), lambda y, c, p: reference.matthews_corrcoef(y, c)),
        (metrics.sklearn("adjusted_rand_score"), lambda y, c, p: reference.adjusted_rand_score(y, c)),
        (metrics.sklearn("log_loss"), lambda y, c, p: reference.log_loss(y, p)),
        (metrics.sklearn("brier_score_loss"), lambda y, c, p: reference.brier_score_loss(y, p)),
        (metrics.sklearn("roc_auc_score"), lambda y, c, p: reference.roc_auc_score(y, p, multi_class="ovr")),
        (
            metrics.sklearn("roc_auc_score", multi_class="ovo"),
            lambda y, c, p: reference.roc_auc_score(y, p, multi_class="ovo"),
        ),
        (
            metrics.sklearn("average_precision_score"),
            lambda y, c, p: reference.average_precision_score(np.eye(4)[y], p),
        ),
        (
            metrics.sklearn("top_k_accuracy_score", k=3),
            lambda y, c, p: reference.top_k_accuracy_score(y, p, k=3),
        ),
        (metrics.sklearn("hinge_loss"), lambda y, c, p: reference.hinge_loss(y, LOGITS)),
        (metrics.sklearn("ndcg_score"), lambda y, c, p: reference.ndcg_score(np.eye(4)[y], p)),
        (metrics.sklearn("coverage_error"), lambda y, c, p: reference.coverage_error(np.eye(4)[y], p)),
    ],
    ids=lambda value: value.name if isinstance(value, metrics.ScikitLearnMetric) else "",
)
def test_many_classes(metric: metrics.ScikitLearnMetric, expected: Any) -> None:
    probabilities = softmax(LOGITS)
    wanted = pytest.approx(expected(LABELS, LOGITS.argmax(axis=1), probabilities), abs=1e-12)
    assert metric(LOGITS, LABELS) == wanted
    if metric.function not in ("hinge_loss", "ndcg_score"):
        assert metric(LOGITS, np.eye(4)[LABELS]) == wanted
    if metric.function != "hinge_loss":
        assert metric(probabilities, LABELS) == wanted


# Of the two best of two classes.
@pytest.mark.filterwarnings("ignore:'k' .* greater than or equal to 'n_classes'")
@pytest.mark.parametrize("name", metrics.scikit_learn.functions())
@pytest.mark.parametrize("form", ["single", "two", "many", "labels", "values"])
def test_each_reads_what_it_can(name: str, form: str) -> None:
    """Every metric gives a number, or an error of loom's, for every form of outputs."""
    random = np.random.default_rng(5)
    positive = np.abs(random.normal(size=(30, 3))) + 0.1
    outputs, targets = {
        "single": (random.normal(size=(30, 1)), random.integers(0, 2, 30)),
        "two": (random.normal(size=(30, 2)), random.integers(0, 2, 30)),
        "many": (random.normal(size=(30, 4)), LABELS[:30]),
        "labels": (random.normal(size=(30, 3)), random.integers(0, 2, (30, 3))),
        "values": (positive[:, :1], positive[:, 1:2]),
    }[form]
    kind = metrics.scikit_learn._WANTS[name]
    metric = metrics.sklearn(name, **({"beta": 1} if name == "fbeta_score" else {}))
    must = form == "values" if kind == "values" else form in ("two", "many")
    try:
        found = metric(outputs, targets)
    except loom.LoomError:
        assert not must, name
    else:
        assert math.isfinite(found)


def test_two_classes_as_one_output_or_two() -> None:
    random = np.random.default_rng(7)
    labels = random.integers(0, 2, 50)
    logits = random.normal(size=50)
    chance = 1 / (1 + np.exp(-logits))
    for name, expected in (
        ("f1_score", reference.f1_score(labels, logits > 0)),
        ("roc_auc_score", reference.roc_auc_score(labels, logits)),
        ("average_precision_score", reference.average_precision_score(labels, logits)),
        ("brier_score_loss", reference.brier_score_loss(labels, chance)),
        ("log_loss", reference.log_loss(labels, chance)),
        ("hinge_loss", reference.hinge_loss(labels, logits)),
    ):
        metric = metrics.sklearn(name)
        wide = np.stack([np.zeros(50), logits], axis=1)
        for outputs in (logits[:, None], logits, wide):
            assert metric(outputs, labels) == pytest.approx(expected, abs=1e-12), name
        if name != "hinge_loss":
            assert metric(chance, labels) == pytest.approx(expected, abs=1e-12), name


def test_several_labels_at_once() -> None:
    random = np.random.default_rng(9)
    targets = random.integers(0, 2, (40, 3))
    logits = random.normal(size=(40, 3)) + targets
    expected = reference.f1_score(targets, logits > 0, average="macro")
    assert metrics.sklearn("f1_score")(logits, targets) == pytest.approx(expected, abs=1e-12)
    chance = 1 / (1 + np.exp(-logits))
    expected = reference.roc_auc_score(targets, chance)
    assert metrics.sklearn("roc_auc_score")(logits, targets) == pytest.approx(expected, abs=1e-12)
    # One right label in each row is a class, unless the loss says otherwise.
    one_hot = np.eye(3, dtype=int)[random.integers(0, 3, 40)]
    metric = metrics.sklearn("accuracy_score")
    classes = reference.accuracy_score(one_hot.argmax(axis=1), logits.argmax(axis=1))
    assert metric(logits, one_hot) == metric.under("cross_entropy")(logits, one_hot) == pytest.approx(classes)
    rows = reference.accuracy_score(one_hot, (logits > 0).astype(int))
    assert metric.under("binary_cross_entropy")(logits, one_hot) == pytest.approx(rows)


def test_values() -> None:
    random = np.random.default_rng(11)
    outputs, targets = random.normal(size=(30, 2)), random.normal(size=(30, 2))
    for name in ("r2_score", "median_absolute_error", "explained_variance_score", "mean_pinball_loss"):
        expected = getattr(reference, name)(targets, outputs)
        assert metrics.sklearn(name)(outputs, targets) == pytest.approx(expected, abs=1e-12)
    expected = reference.max_error(targets[:, 0], outputs[:, 0])
    assert metrics.sklearn("max_error")(outputs[:, :1], targets[:, 0]) == expected
    with pytest.raises(loom.ShapeError, match="but targets"):
        metrics.sklearn("max_error")(outputs, targets[:, 0])


def test_outputs_that_are_not_finite_give_nan() -> None:
    for bad in ([np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]):
        for name in ("f1_score", "log_loss", "roc_auc_score", "hinge_loss"):
            assert math.isnan(metrics.sklearn(name)([bad, [0.0, 1.0]], [0, 1])), (name, bad)
    # What is ruled out is no answer, but the other is.
    assert metrics.sklearn("f1_score")([[-np.inf, 1.0], [0.0, -np.inf]], [1, 0]) == 1.0
    assert metrics.sklearn("log_loss")([[-np.inf, 1.0], [0.0, -np.inf]], [1, 0]) == pytest.approx(0.0)
    assert math.isnan(metrics.sklearn("max_error")([np.inf, 1.0], [1.0, 1.0]))
    assert math.isnan(metrics.sklearn("f1_score")([[np.nan, 1.0], [0.0, 1.0]], [[1, 1], [0, 1]]))


def test_in_training_and_evaluation() -> None:
    x, y = blobs()
    net = mlp()
    chosen = [
        "accuracy",
        "sklearn.f1_score",
        {"sklearn.log_loss": {}},
        metrics.sklearn("f1_score", average="micro"),
    ]
    config = quiet(epochs=2, learning_rate=0.01, metrics=chosen)
    result = loom.train(net, (x, y), config, validation=(x[:90], y[:90]))
    names = ["accuracy", "f1_score", "log_loss", "f1_score_micro"]
    assert list(result.metrics) == [*names, "val_loss", *(f"val_{name}" for name in names)]
    found = net.evaluate((x, y))
    outputs = net.predict(x).astype(float)
    assert found["f1_score"] == pytest.approx(
        reference.f1_score(y, outputs.argmax(axis=1), average="macro"), abs=1e-12
    )
    assert found["log_loss"] == pytest.approx(found["loss"], rel=1e-5)
    assert found["f1_score_micro"] == pytest.approx(found["accuracy"])
    one_hot = net.evaluate((x, np.eye(3)[y]), metrics=["sklearn.f1_score"])
    assert one_hot["f1_score"] == pytest.approx(found["f1_score"], abs=1e-12)


def test_a_loss_says_that_small_outputs_are_logits() -> None:
    net = loom.Sequential([loom.nn.Dense(1)], input_shape=1)
    net[0, 0, 0, 0].weight = np.array([[0.2]])
    data = (np.array([[1.0], [-1.0]]), np.array([1, 0]))
    found = net.evaluate(data, loss="binary_cross_entropy", metrics=["accuracy", "sklearn.accuracy_score"])
    assert found["accuracy"] == found["accuracy_score"] == 1.0
    data = (np.array([[1.0], [1.0]]), np.array([1, 1]))
    found = net.evaluate(data, loss="binary_cross_entropy", metrics=["sklearn.accuracy_score"])
    assert found["accuracy_score"] == 1.0


def test_configurations_go_to_json_and_back() -> None:
    config = quiet(metrics=["sklearn.f1_score", {"sklearn.fbeta_score": {"beta": 2, "average": "macro"}}])
    written = config.to_config()
    assert written["metrics"] == [
        "sklearn.f1_score",
        {"sklearn.fbeta_score": {"beta": 2, "average": "macro"}},
    ]
    assert loom.TrainingConfig.from_config(written) == config
    assert [metrics.name_of(metric) for metric in metrics.resolve_all(config.metrics)] == [
        "f1_score",
        "fbeta_score_2_macro",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("sklearn.f1", 'unknown scikit-learn metric "f1"; did you mean "f1_score"'),
        ("sklearn.roc_auc", 'did you mean "roc_auc_score"'),
        ("f1_score", 'unknown metric "f1_score"; in loom that is "f1"'),
        ("acuracy", 'did you mean "accuracy"'),
        ({"sklearn.f1_score": {}, "accuracy": {}}, "one metric with its options"),
        ({"sklearn.f1_score": 3}, "one metric with its options"),
    ],
)
def test_unknown_names_get_suggestions(entry: Any, message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        quiet(metrics=[entry])


def test_options_are_checked_before_training() -> None:
    config = quiet(metrics=[metrics.sklearn("f1_score", avrage="macro")])
    with pytest.raises(loom.ConfigError, match='unknown f1_score option "avrage"; did you mean "average"'):
        loom.train(mlp(), blobs(), config)
    with pytest.raises(loom.ConfigError, match="choose an average"):
        metrics.sklearn("f1_score", average=None)(LOGITS, LABELS)
    with pytest.raises(loom.DataError, match="scikit-learn's f1_score"):
        metrics.sklearn("f1_score", average="most")(LOGITS, LABELS)


def test_a_missing_extra_is_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    config = quiet(metrics=["sklearn.f1_score"])
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(loom.MissingExtraError, match=r"metric f1_score needs sklearn.*'loom-nn\[analysis\]'"):
        loom.train(mlp(), blobs(), config)


def test_watchers_know_that_scores_are_to_rise() -> None:
    rising, falling = loom.EarlyStopping("val_f1_score"), loom.EarlyStopping("val_log_loss")
    for watcher in (rising, falling):
        watcher.patience = 3
        for epoch, value in enumerate((0.5, 0.6, 0.4)):
            watcher.on_epoch_end(epoch, {watcher.monitor: value})
    assert (rising.best, falling.best) == (0.6, 0.4)
