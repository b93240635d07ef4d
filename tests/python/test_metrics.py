"""Metrics against scikit-learn's, and at their corners."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as reference

import loom
from loom import metrics, nn


@pytest.fixture(scope="module")
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_accuracy_matches_scikit_learn(random: np.random.Generator) -> None:
    outputs, classes = random.normal(size=(200, 7)), random.integers(0, 7, 200)
    expected = reference.accuracy_score(classes, outputs.argmax(axis=1))
    assert metrics.Accuracy()(outputs, classes) == pytest.approx(expected, abs=1e-12)
    assert metrics.Accuracy()(outputs, np.eye(7)[classes]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_top_k_matches_scikit_learn(random: np.random.Generator, k: int) -> None:
    outputs, classes = random.normal(size=(200, 8)), random.integers(0, 8, 200)
    expected = reference.top_k_accuracy_score(classes, outputs, k=k, labels=range(8))
    assert metrics.TopKAccuracy(k)(outputs, classes) == pytest.approx(expected, abs=1e-12)


def test_top_1_is_accuracy_even_with_ties() -> None:
    outputs = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])
    classes = np.array([0, 1, 2])
    assert metrics.TopKAccuracy(1)(outputs, classes) == metrics.Accuracy()(outputs, classes)


def overflowing(second: list[list[float]]) -> loom.Network:
    """Two layers, of which the first makes infinities of what is large."""
    net = loom.Sequential(
        [loom.nn.Dense(2, bias=False), loom.nn.Dense(len(second[0]), bias=False)], input_shape=2
    )
    net[0, 0, 0, 0].weight = np.eye(2) * 3e38
    net[0, 0, 0, 1].weight = np.array(second).T
    return net


@pytest.mark.parametrize("metric", [metrics.Accuracy(), metrics.TopKAccuracy(1)])
def test_rows_with_nan_are_misses(metric: metrics.Metric) -> None:
    outputs = np.array([[np.nan, 0.0, 0.0], [1.0, np.nan, 0.0], [1.0, 0.0, -1.0], [np.nan] * 3])
    assert metric(outputs, np.array([0, 0, 0, 1])) == 0.25
    # The rows give NaN and infinity, and 0.1 and 0.
    net = overflowing([[1.0, 0.0], [-1.0, 1.0]])
    x, y = np.array([[10.0, 10.0], [10.0, 10.0], [1e-39, 0.0]], np.float32), np.array([0, 1, 0])
    assert np.isnan(net.predict(x)[:2, 0]).all()
    assert net.evaluate((x, y), loss="cross_entropy", metrics=[metric])[metric.name] == pytest.approx(1 / 3)


def test_single_outputs_of_nan_are_misses() -> None:
    outputs, targets = np.array([[np.nan], [np.nan], [1.0], [-1.0]]), np.array([[0.0], [1.0], [1.0], [0.0]])
    assert metrics.Accuracy()(outputs, targets, threshold=0.0) == 0.5
    net = overflowing([[1.0], [-1.0]])
    x = np.array([[10.0, 10.0], [10.0, 10.0], [1e-38, 0.0], [0.0, 1e-38]])
    assert np.isnan(net.predict(x)[:2]).all()
    found = net.evaluate((x, targets), loss="binary_cross_entropy", metrics="accuracy")
    assert found["accuracy"] == 0.5


def test_regression_metrics_match_scikit_learn(random: np.random.Generator) -> None:
    outputs, targets = random.normal(size=(50, 3)), random.normal(size=(50, 3))
    assert metrics.MSE()(outputs, targets) == pytest.approx(reference.mean_squared_error(targets, outputs))
    assert metrics.MAE()(outputs, targets) == pytest.approx(reference.mean_absolute_error(targets, outputs))
    assert metrics.R2()(outputs, targets) == pytest.approx(
        reference.r2_score(targets.ravel(), outputs.ravel())
    )


def test_r2_of_targets_that_never_vary_is_undefined() -> None:
    targets = np.ones((3, 1))
    assert np.isnan(metrics.R2()(targets, targets))
    assert metrics.R2()(targets + 1.0, targets) == -np.inf


def test_images_have_their_classes_on_axis_1(random: np.random.Generator) -> None:
    outputs, classes = random.normal(size=(2, 5, 3, 4)), random.integers(0, 5, (2, 3, 4))
    assert metrics.Accuracy()(outputs, classes) == np.mean(outputs.argmax(axis=1) == classes)


def test_one_output_needs_a_threshold() -> None:
    outputs, targets = np.array([[-1.0], [2.0], [0.2]]), np.array([0, 1, 0])
    assert metrics.Accuracy()(outputs, targets, threshold=0.0) == pytest.approx(2 / 3)
    with pytest.raises(loom.ShapeError, match=r"threshold=0\.0 for logits"):
        metrics.Accuracy()(outputs, targets)


@pytest.mark.parametrize("one_hot", [False, True])
def test_metrics_that_are_functions_see_the_steps_that_count(one_hot: bool) -> None:
    random = np.random.default_rng(6)
    net = loom.Sequential([nn.Embedding(9, 8), nn.Dense(5)], input_shape=6, seed=0)
    x, classes = random.integers(0, 9, (10, 6)), random.integers(0, 5, (10, 6))
    weight = (random.random((10, 6)) < 0.6).astype(np.float32)
    shapes = []

    def seen(outputs: np.ndarray, targets: np.ndarray) -> float:
        shapes.append((outputs.shape, targets.shape))
        return 0.0

    y = np.eye(5)[classes] if one_hot else classes
    # A rate so low that the network stays what it is.
    config = loom.TrainingConfig(
        epochs=1,
        batch_size=4,
        loss="cross_entropy",
        learning_rate=1e-9,
        optimizer="sgd",
        metrics=["perplexity", seen],
        verbose=False,
    )
    data = (x, y, weight)
    found = loom.train(net, data, config, validation=data).history
    told = net.evaluate(data, loss="cross_entropy", metrics=["perplexity"])
    # Weights are 0 and 1, so that the loss is the mean over the steps that count.
    wanted = np.exp(told["loss"])
    for each in (found["perplexity"][0], found["val_perplexity"][0], told["perplexity"]):
        assert each == pytest.approx(wanted, rel=1e-5)
    count = int(weight.sum())
    assert shapes == [((count, 5), (count, 5) if one_hot else (count,))] * 2


@pytest.mark.parametrize("end", [nn.Softmax(), nn.Softmax(temperature=2.0)])
def test_perplexity_is_that_of_the_loss_behind_a_softmax(random: np.random.Generator, end: nn.Layer) -> None:
    net = loom.Sequential([nn.Dense(4), end], input_shape=(3, 6), seed=0)
    data = random.normal(size=(9, 3, 6)), random.integers(0, 4, (9, 3))
    for loss in ("cross_entropy", "nll"):
        told = net.evaluate(data, loss=loss, metrics=["perplexity"], batch_size=4)
        assert told["perplexity"] == pytest.approx(np.exp(told["loss"]), rel=1e-5)


@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5)])
def test_perplexity_by_loops(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    outputs, targets = 30 * random.normal(size=shape), random.integers(0, 5, shape[:-1])
    costs = [
        np.log(sum(np.exp(score - row[wanted]) for score in row))
        for row, wanted in zip(outputs.reshape(-1, 5), targets.reshape(-1), strict=True)
    ]
    assert metrics.resolve("perplexity")(outputs, targets) == pytest.approx(np.exp(np.mean(costs)), rel=1e-10)


def test_names_callables_and_json() -> None:
    def worst(outputs: np.ndarray, targets: np.ndarray) -> float:
        return float(np.abs(outputs - targets).max())

    assert metrics.names() == sorted(
        [
            *(
                "accuracy",
                "auc",
                "expr",
                "f1",
                "iou",
                "mae",
                "mse",
                "perplexity",
                "precision",
                "r2",
                "recall",
            ),
            "top_k_accuracy",
        ]
    )
    assert metrics.resolve("mae") == metrics.MAE()
    assert metrics.MAE().to_config() == "mae"
    assert metrics.resolve({"top_k_accuracy": {"k": 2}}) == metrics.TopKAccuracy(2)
    assert metrics.resolve(worst) is worst
    assert metrics.name_of(worst) == "worst"
    assert metrics.name_of(metrics.TopKAccuracy(3)) == "top_k_accuracy"


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "error"),
    [
        (metrics.MSE(), np.zeros((2, 3)), np.zeros((2, 2)), loom.ShapeError),
        (metrics.MSE(), np.zeros((0, 3)), np.zeros((0, 3)), loom.DataError),
        (metrics.Accuracy(), np.zeros((2, 3)), np.zeros(3, int), loom.ShapeError),
        (metrics.Accuracy(), np.zeros(3), np.zeros(3, int), loom.ShapeError),
        (metrics.Accuracy(), np.zeros((2, 3)), np.array([0, 3]), loom.DataError),
        (metrics.Accuracy(), np.zeros((2, 3)), np.array([0, -1]), loom.DataError),
    ],
)
def test_what_does_not_fit_is_refused(metric, outputs, targets, error) -> None:
    with pytest.raises(error):
        metric(outputs, targets)


AVERAGES = ["auto", "macro", "micro", "weighted"]
COUNTED = {
    "precision": (metrics.Precision, reference.precision_score),
    "recall": (metrics.Recall, reference.recall_score),
    "f1": (metrics.F1, reference.f1_score),
    "iou": (metrics.IoU, reference.jaccard_score),
}


def kinds_of_targets(random: np.random.Generator) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Losses, outputs and targets of everything that has classes."""
    rows = 300
    return {
        "classes": ("cross_entropy", random.normal(size=(rows, 5)), random.integers(0, 4, rows)),
        "two": ("cross_entropy", random.normal(size=(rows, 2)), random.integers(0, 2, rows)),
        "images": ("cross_entropy", random.normal(size=(6, 3, 5, 7)), random.integers(0, 3, (6, 5, 7))),
        "words": ("cross_entropy", random.normal(size=(20, 8, 4)), random.integers(0, 4, (20, 8))),
        "single": ("binary_cross_entropy", random.normal(size=(rows, 1)), random.integers(0, 2, (rows, 1))),
        "focal": ("binary_focal", random.normal(size=(rows, 1)), random.integers(0, 2, (rows, 1))),
        "margin": ("hinge", random.normal(size=(rows, 1)), random.integers(0, 2, (rows, 1)) * 2 - 1),
        "share": ("mse", random.uniform(size=(rows, 1)), random.integers(0, 2, (rows, 1))),
        "labels": ("binary_cross_entropy", random.normal(size=(rows, 3)), random.integers(0, 2, (rows, 3))),
    }


KINDS = list(kinds_of_targets(np.random.default_rng(0)))


def decided(loss: str, outputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What scikit-learn compares: predictions, and what is right."""
    threshold = 0.5 if loss == "mse" else 0.0
    if loss == "cross_entropy":
        return outputs.argmax(axis=1 if outputs.ndim == 4 else -1).ravel(), targets.ravel()
    said, right = (outputs > threshold).astype(int), (targets > 0.5).astype(int)
    return (said.ravel(), right.ravel()) if outputs.shape[1] == 1 else (said, right)


def through_a_network(metric: object, loss: str, outputs: np.ndarray, targets: np.ndarray) -> float:
    """What evaluation measures where a network makes these outputs."""
    shape = outputs.shape[1:]
    net = loom.Network(shape, grid=(1, 1), precision="float64")
    net[0, 0].add(nn.Activation("linear"))
    found = net.evaluate((outputs, targets), loss=loss, metrics=[metric], batch_size=7)
    return found[metrics.name_of(metrics.resolve(metric))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COUNTED)
def test_figures_by_class_match_scikit_learn(random: np.random.Generator, kind: str, name: str) -> None:
    loss, outputs, targets = kinds_of_targets(random)[kind]
    said, right = decided(loss, outputs, targets)
    two = said.ndim == 1 and outputs.shape[-1] <= 2 and outputs.ndim == 2
    for average in AVERAGES:
        metric, function = COUNTED[name][0](average), COUNTED[name][1]
        told = {"auto": "binary" if two else "macro"}.get(average, average)
        expected = function(right, said, average=told, zero_division=0.0)
        threshold = None if loss == "cross_entropy" else 0.5 if loss == "mse" else 0.0
        assert metric(outputs, targets, threshold) == pytest.approx(expected, abs=1e-12)
        assert through_a_network(metric, loss, outputs, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["two", "single", "focal", "share"])
def test_auc_matches_scikit_learn(random: np.random.Generator, kind: str) -> None:
    loss, outputs, targets = kinds_of_targets(random)[kind]
    # Many ties.
    outputs = np.round(outputs, 1)
    scores = outputs[:, -1] - (outputs[:, 0] if kind == "two" else 0.0)
    expected = reference.roc_auc_score(targets.ravel(), scores)
    assert metrics.AUC()(outputs, targets) == pytest.approx(expected, abs=1e-12)
    assert through_a_network("auc", loss, outputs, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("kind", "told"), [("classes", "5 classes"), ("labels", "3 labels")])
def test_auc_of_more_classes_is_refused(random: np.random.Generator, kind: str, told: str) -> None:
    loss, outputs, targets = kinds_of_targets(random)[kind]
    with pytest.raises(loom.errors.LoomError, match=rf"auc is of .* {told}.*sklearn.roc_auc_score"):
        through_a_network("auc", loss, outputs, targets)


def test_auc_without_both_classes_is_nan() -> None:
    assert np.isnan(metrics.AUC()([[0.1], [0.2]], [1, 1]))
    assert np.isnan(metrics.AUC()([[np.nan], [0.2]], [0, 1]))


def test_figures_by_class_are_watched_upwards_and_come_back() -> None:
    for name in ("precision", "recall", "f1", "iou", "auc"):
        assert metrics.resolve(metrics.resolve(name).to_config()) == metrics.resolve(name)
    micro = loom.TrainingConfig(metrics=[metrics.F1("micro")])
    assert loom.TrainingConfig.from_config(micro.to_config()) == micro
    with pytest.raises(loom.errors.ConfigError, match='did you mean "macro"'):
        metrics.F1("makro")
    x = np.random.default_rng(1).normal(size=(64, 3))
    y = (x.sum(axis=1) > 0).astype(int)
    net = loom.Sequential([nn.Dense(2)], input_shape=3)
    stopping = loom.EarlyStopping(monitor="val_f1", patience=2)
    config = loom.TrainingConfig(
        epochs=12,
        loss="cross_entropy",
        metrics=["f1"],
        early_stopping=stopping,
        learning_rate=0.1,
        verbose=False,
    )
    result = loom.train(net, (x, y), config, validation=(x, y))
    assert result.metrics["val_f1"][-1] > 0.9


def test_accuracy_decides_where_the_loss_does(random: np.random.Generator) -> None:
    for kind in ("single", "focal", "margin"):
        loss, outputs, targets = kinds_of_targets(random)[kind]
        expected = float(np.mean((outputs > 0) == (targets > 0.5)))
        assert through_a_network("accuracy", loss, outputs, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "binary_focal"])
def test_accuracy_of_several_labels_counts_each_by_itself(random: np.random.Generator, loss: str) -> None:
    outputs = random.normal(size=(70, 5)).astype(np.float32)
    # Some rows have no label, and some have all.
    targets = (random.random((70, 5)) < random.random((70, 1))).astype(np.float32)
    expected = float(np.mean((outputs > 0) == (targets > 0.5)))
    assert through_a_network("accuracy", loss, outputs, targets) == pytest.approx(expected, abs=1e-12)


def test_r2_of_targets_far_from_zero_keeps_its_digits(random: np.random.Generator) -> None:
    targets = 1.6e9 + random.normal(size=(500, 1)) * 10
    outputs = targets + random.normal(size=(500, 1)) * 3
    net = loom.Sequential([nn.Flatten()], input_shape=1, precision="float64")
    found = net.evaluate((outputs, targets), loss="mse", metrics=["r2"], batch_size=37)["r2"]
    assert found == pytest.approx(reference.r2_score(targets, outputs), abs=1e-9)
