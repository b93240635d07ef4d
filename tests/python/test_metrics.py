"""Metrics against scikit-learn's, and at their corners."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as reference

import loom
from loom import metrics


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


def test_names_callables_and_json() -> None:
    def worst(outputs: np.ndarray, targets: np.ndarray) -> float:
        return float(np.abs(outputs - targets).max())

    assert metrics.names() == ["accuracy", "mae", "mse", "r2", "top_k_accuracy"]
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
