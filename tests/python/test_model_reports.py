"""Reports of classes and of numbers, against scikit-learn and at their corners."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

import loom
from loom.analysis import (
    CalibrationCurve,
    ClassificationReport,
    PrecisionRecallCurve,
    RegressionReport,
    RocCurve,
)
from networks import blobs, cnn, mlp, quiet, stripes

CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def answers(seed: int, rows: int = 200, classes: int = 5, digits: int | None = None) -> tuple[Any, Any]:
    """Logits that are right more often than not; rounded, they have ties."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    logits = random.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[labels]
    return (logits if digits is None else logits.round(digits)), labels


def check(report: ClassificationReport, probabilities: np.ndarray, labels: np.ndarray) -> None:
    """Compares every figure with scikit-learn's; every class occurs."""
    classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    np.testing.assert_array_equal(report.predicted, predicted)
    np.testing.assert_array_equal(
        report.confusion, reference.confusion_matrix(labels, predicted, labels=range(classes))
    )
    ours = (report.precision, report.recall, report.f1, report.support)
    theirs = reference.precision_recall_fscore_support(
        labels, predicted, labels=range(classes), zero_division=0
    )
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, **CLOSE)
    for average, found in (("macro", report.macro), ("weighted", report.weighted)):
        expected = reference.precision_recall_fscore_support(
            labels, predicted, average=average, zero_division=0
        )
        np.testing.assert_allclose([found.precision, found.recall, found.f1], expected[:3], **CLOSE)
    assert report.accuracy == pytest.approx(reference.accuracy_score(labels, predicted), abs=1e-12)
    with warnings.catch_warnings():
        # Of answers that are never right.
        warnings.simplefilter("ignore", UserWarning)
        balanced = reference.balanced_accuracy_score(labels, predicted)
    assert report.balanced_accuracy == pytest.approx(balanced, abs=1e-12)
    for label in range(classes):
        scores, positive = probabilities[:, label], labels == label
        roc, curve = report.roc[label], report.precision_recall[label]
        if not positive.any() or positive.all():
            assert np.isnan(roc.area)
            assert not roc.thresholds.size
            continue
        for own, other in zip(
            (roc.false_positive_rate, roc.true_positive_rate, roc.thresholds),
            reference.roc_curve(positive, scores),
            strict=True,
        ):
            np.testing.assert_allclose(own, other, **CLOSE)
        assert roc.area == pytest.approx(reference.roc_auc_score(positive, scores), abs=1e-12)
        for own, other in zip(
            (curve.precision, curve.recall, curve.thresholds),
            reference.precision_recall_curve(positive, scores, drop_intermediate=True),
            strict=True,
        ):
            np.testing.assert_allclose(own, other, **CLOSE)
        expected = reference.average_precision_score(positive, scores)
        assert curve.average_precision == pytest.approx(expected, abs=1e-12)
    sure = probabilities.max(axis=1)
    calibration = report.calibration
    assert calibration is not None
    held = calibration.count > 0
    frequency, probability = (
        calibration_curve(predicted == labels, sure, n_bins=10)
        if len(set(predicted == labels)) == 2
        else (calibration.frequency[held], calibration.probability[held])
    )
    np.testing.assert_allclose(calibration.frequency[held], frequency, **CLOSE)
    np.testing.assert_allclose(calibration.probability[held], probability, **CLOSE)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [None, 1, 0])
def test_every_figure_is_scikit_learn_s(seed: int, digits: int | None) -> None:
    logits, labels = answers(seed, digits=digits)
    report = ClassificationReport.of(logits, labels)
    assert report.logits
    probabilities = softmax(logits)
    check(report, probabilities, labels)
    assert not ClassificationReport.of(probabilities, labels).logits
    check(ClassificationReport.of(probabilities, np.eye(5)[labels]), probabilities, labels)
    expected = reference.roc_auc_score(labels, probabilities, multi_class="ovr")
    assert report.roc_area == pytest.approx(expected, abs=1e-12)
    for k in range(2, 5):
        if digits is None:
            expected = reference.top_k_accuracy_score(labels, logits, k=k, labels=range(5))
            assert report.top_k[k - 1] == pytest.approx(expected, abs=1e-12)
        assert report.top_k[k - 1] == loom.metrics.TopKAccuracy(k)(probabilities, labels)
    assert report.top_k[-1] == 1.0


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_small_cases_too(data: st.DataObject) -> None:
    classes = data.draw(st.integers(2, 4))
    rows = data.draw(st.integers(1, 8))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)))
    weights = st.lists(st.integers(1, 4), min_size=classes, max_size=classes)
    counts = np.array(data.draw(st.lists(weights, min_size=rows, max_size=rows)), float)
    probabilities = counts / counts.sum(axis=1, keepdims=True)
    report = ClassificationReport.of(probabilities, labels)
    check(report, probabilities, labels)
    assert ClassificationReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
def test_a_single_output_speaks_for_class_1(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 60)
    logits = random.normal(size=60) + labels
    chance = 1 / (1 + np.exp(-logits))
    check(
        ClassificationReport.of(logits.reshape(shape), labels), np.stack([1 - chance, chance], axis=1), labels
    )
    report = ClassificationReport.of(chance.reshape(shape), labels.astype(float).reshape(shape))
    assert not report.logits
    check(report, np.stack([1 - chance, chance], axis=1), labels)
    # Logits from 0 to 1 are taken for probabilities unless it is said.
    small = ClassificationReport.of([0.2, 0.4], [1, 1], logits=True)
    assert small.accuracy == 1.0
    assert ClassificationReport.of([0.2, 0.4], [1, 1]).accuracy == 0.0


def test_expected_calibration_error_by_hand() -> None:
    said = np.array([0.0, 0.1, 0.15, 0.25, 0.9, 0.95, 1.0, 0.3])
    happened = np.array([0, 0, 1, 0, 1, 1, 0, 1])
    curve = CalibrationCurve.of(said, happened, bins=4)
    bins = [said <= 0.25, (said > 0.25) & (said <= 0.5), (said > 0.5) & (said <= 0.75), said > 0.75]
    gaps = [abs(happened[one].mean() - said[one].mean()) * one.mean() for one in bins if one.any()]
    assert curve.error == pytest.approx(sum(gaps), abs=1e-15)
    assert curve.count.tolist() == [4, 1, 0, 3]
    assert np.isnan(curve.frequency[2])
    assert curve.largest_error == pytest.approx(0.7)
    with pytest.raises(loom.DataError, match=r"from 0 to 1, got 0\.5 to 2"):
        CalibrationCurve.of([0.5, 2.0], [True, False])
    with pytest.raises(loom.ConfigError, match="bins must be a positive whole number"):
        CalibrationCurve.of([0.5], [True], bins=0)


def test_rows_that_are_not_finite_are_misses() -> None:
    logits, labels = answers(1, 50, 3)
    broken = logits.copy()
    broken[0, 1], broken[1, 0] = np.nan, np.inf
    broken[2] = -np.inf
    report = ClassificationReport.of(broken, labels)
    whole = ClassificationReport.of(logits[3:], labels[3:])
    assert (report.unanswered, report.samples) == (3, 50)
    assert report.predicted[:3].tolist() == [-1, -1, -1]
    assert report.accuracy == pytest.approx(whole.accuracy * 47 / 50)
    np.testing.assert_array_equal(report.confusion, whole.confusion)
    np.testing.assert_array_equal(report.precision, whole.precision)
    np.testing.assert_array_equal(report.support, np.bincount(labels, minlength=3))
    assert report.roc == whole.roc
    assert report.calibration == whole.calibration
    assert report.top_k[-1] == 47 / 50
    assert ClassificationReport.from_json(report.to_json()) == report
    assert report.top_errors(np.arange(50.0)[:, None], 4).rows[:3].tolist() == [0, 1, 2]
    assert report.top_errors(np.arange(50.0)[:, None], 1).to_frame()["predicted"].tolist() == [None]


def test_nothing_but_nan() -> None:
    report = ClassificationReport.of(np.full((2, 3), np.nan), [0, 2])
    assert (report.accuracy, report.macro.f1, report.unanswered) == (0.0, 0.0, 2)
    assert report.calibration is None
    assert np.isnan(report.roc_area)
    assert np.isnan(report.average_precision)
    assert ClassificationReport.from_json(report.to_json()) == report


def test_one_sample_of_one_class() -> None:
    report = ClassificationReport.of([[0.1, 0.9]], [1])
    assert (report.accuracy, report.balanced_accuracy, report.macro.f1, report.weighted.f1) == (
        1.0,
        1.0,
        1.0,
        1.0,
    )
    assert all(np.isnan(curve.area) for curve in report.roc)
    assert np.isnan(report.precision_recall[0].average_precision)
    assert report.precision_recall[1].average_precision == 1.0
    assert report.average_precision == 1.0
    assert ClassificationReport.from_json(report.to_json()) == report
    assert loom.plot.roc(report).axes


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((np.zeros((0, 3)), np.zeros(0, int)), loom.DataError, "are empty; give samples"),
        (([0.5], []), loom.DataError, "are empty"),
        ((np.zeros((2, 3)), [0, 3]), loom.DataError, "classes 0 to 2"),
        ((np.zeros((2, 3)), [0, -1]), loom.DataError, "classes from -1 to 0"),
        (([0.5, 0.5], [0, 2]), loom.DataError, "classes 0 to 1"),
        ((np.zeros((2, 3)), [0, 1, 2]), loom.ShapeError, r"class indices of shape \(2,\)"),
        ((np.zeros((2, 3)), [0.5, 1]), loom.DTypeError, "whole numbers"),
        ((np.zeros((2, 3)), [0, 1], ["a"]), loom.ConfigError, "names must name each of the 3 classes, got 1"),
    ],
)
def test_what_cannot_be_reported_is_refused(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ClassificationReport.of(*arguments)


def test_what_are_no_probabilities_are_refused() -> None:
    with pytest.raises(loom.DataError, match="outputs from -1 to 2 are no probabilities; say logits=True"):
        ClassificationReport.of([[2.0, -1.0]], [0], logits=False)
    for curve in (RocCurve, PrecisionRecallCurve):
        with pytest.raises(loom.DataError, match="scores hold NaN"):
            curve.of([np.nan], [True])
        with pytest.raises(loom.DataError, match="scores are empty"):
            curve.of([], [])
        with pytest.raises(loom.ShapeError, match=r"must both be \(samples,\)"):
            curve.of([1.0], [True, False])


def test_the_surest_errors_come_first() -> None:
    probabilities = np.array([[0.6, 0.4], [0.1, 0.9], [0.2, 0.8], [0.7, 0.3]])
    report = ClassificationReport.of(probabilities, [1, 0, 1, 0], ["off", "on"])
    x = np.arange(8.0).reshape(4, 2)
    errors = report.top_errors(x, 5)
    assert errors.rows.tolist() == [1, 0]
    np.testing.assert_array_equal(errors.inputs, x[[1, 0]])
    assert errors.confidence.tolist() == [0.9, 0.6]
    assert errors.to_frame().to_dict("list") == {
        "row": [1, 0],
        "expected": ["off", "on"],
        "predicted": ["on", "off"],
        "confidence": [0.9, 0.6],
    }
    assert type(errors).from_json(errors.to_json()) == errors
    with pytest.raises(loom.ShapeError, match="x must hold the 4 inputs"):
        report.top_errors(x[:3])


def test_errors_of_pixels_name_their_image() -> None:
    outputs = np.zeros((3, 2, 2, 2))
    outputs[2, 1, 1, 0] = 5.0
    report = ClassificationReport.of(outputs, np.zeros((3, 2, 2), int))
    assert report.samples == 12
    errors = report.top_errors(np.arange(3.0)[:, None], 3)
    assert (errors.rows.tolist(), errors.inputs.tolist()) == ([2], [[2.0]])


def test_as_text_and_as_a_frame() -> None:
    report = ClassificationReport.of([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], [0, 1, 0], ["cat", "dog"])
    lines = str(report).splitlines()
    assert lines[1].split() == ["cat", "1.0000", "0.5000", "0.6667", "2"]
    assert lines[-1] == "accuracy 0.6667, balanced 0.7500"
    assert repr(report).startswith("ClassificationReport(3 samples, 2 classes, accuracy 0.6667")
    frame = report.to_frame("polars")
    assert frame["class"].to_list() == ["cat", "dog"]
    assert frame["support"].to_list() == [2, 1]


# Numbers


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression_is_scikit_learn_s(outputs: int) -> None:
    random = np.random.default_rng(outputs)
    expected = random.normal(size=(80, outputs)) * [1.0, 10.0, 0.1][:outputs]
    predicted = expected + random.normal(size=expected.shape) + 0.3
    report = RegressionReport.of(predicted, expected)
    for own, function in (
        (report.r2, reference.r2_score),
        (report.explained_variance, reference.explained_variance_score),
        (report.mean_absolute_error, reference.mean_absolute_error),
        (report.root_mean_squared_error, reference.root_mean_squared_error),
        (report.median_absolute_error, reference.median_absolute_error),
    ):
        np.testing.assert_allclose(own, function(expected, predicted, multioutput="raw_values"), **CLOSE)
    np.testing.assert_allclose(report.max_error, np.abs(expected - predicted).max(axis=0), **CLOSE)
    np.testing.assert_array_equal(report.residuals, expected - predicted)
    assert RegressionReport.from_json(report.to_json()) == report
    assert report.to_frame()["r2"].tolist() == report.r2.tolist()
    if outputs == 1:
        assert RegressionReport.of(predicted, expected[:, 0]) == report
        assert RegressionReport.of(predicted[:, 0], expected) == report


@pytest.mark.parametrize("value", [0.0, 0.1, 3.0])
def test_targets_that_never_vary(value: float) -> None:
    expected = np.full(7, value)
    exact = RegressionReport.of(expected, expected)
    assert np.isnan(exact.r2[0])
    assert np.isnan(exact.explained_variance[0])
    shifted = RegressionReport.of(expected + 1.0, expected)
    assert shifted.r2[0] == -np.inf
    varied = RegressionReport.of(np.arange(7.0), expected)
    assert varied.r2[0] == varied.explained_variance[0] == -np.inf
    assert RegressionReport.from_json(varied.to_json()) == varied
    single = RegressionReport.of([2.0], [value])
    assert (single.r2[0], single.max_error[0]) == (-np.inf, abs(2.0 - value))


def test_outputs_that_are_not_finite_have_no_figures() -> None:
    report = RegressionReport.of([[1.0, np.nan], [2.0, 1.0]], [[1.0, 1.0], [1.0, 2.0]], ["a", "b"])
    assert report.not_finite.tolist() == [0, 1]
    assert report.mean_absolute_error[0] == 0.5
    for name in ("r2", "explained_variance", "mean_absolute_error", "median_absolute_error", "max_error"):
        assert np.isnan(getattr(report, name)[1]), name
    errors = report.top_errors([[5.0], [6.0]], 2)
    assert (errors.rows.tolist(), errors.outputs.tolist()) == ([0, 1], [1, 0])
    assert RegressionReport.from_json(report.to_json()) == report
    assert report.top_errors([[5.0], [6.0]]).to_frame()["output"].tolist() == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([], []), loom.DataError, "are empty; give samples"),
        (([1.0], [1.0, 2.0]), loom.ShapeError, r"outputs have shape \(1,\) but targets \(2,\)"),
        ((np.zeros((2, 2)), np.zeros((2, 3))), loom.ShapeError, "outputs have shape"),
        (([1.0], [1.0], ["a", "b"]), loom.ConfigError, "names must name each of the 1 outputs, got 2"),
    ],
)
def test_what_cannot_be_regressed_is_refused(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        RegressionReport.of(*arguments)


# Of networks


def test_reports_of_networks() -> None:
    x, y = blobs(60)
    net = mlp()
    outputs = net.predict(x)
    assert loom.analysis.classification(net, (x, y)) == ClassificationReport.of(outputs, y)
    halves = [(x[:30], y[:30]), (x[30:], y[30:])]
    assert loom.analysis.classification(net, halves) == ClassificationReport.of(outputs, y)
    targets = np.eye(3, dtype=np.float32)[y]
    assert loom.analysis.regression(net, (x, targets)) == RegressionReport.of(outputs, targets)
    with pytest.raises(loom.DataError, match="has no samples"):
        loom.analysis.classification(net, (x[:0], y[:0]))
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.Network, got 3"):
        loom.analysis.classification(3, (x, y))  # type: ignore[arg-type]


def test_images_with_their_errors() -> None:
    x, y = stripes(40)
    report = loom.analysis.classification(cnn(), (x, y))
    errors = report.top_errors(x, 3)
    np.testing.assert_array_equal(errors.inputs, x[errors.rows])
    assert len(errors.rows) == 3


def test_single_outputs_of_binary_cross_entropy_are_logits() -> None:
    net = loom.Sequential([loom.nn.Dense(1)], input_shape=6)
    net[0, 0, 0, 0].weight = np.full((1, 6), 0.01)
    x, y = np.full((4, 6), 2.0, np.float32), np.array([1, 1, 0, 1])
    assert loom.analysis.classification(net, (x, y)).accuracy == 0.25
    config = quiet(loss="binary_cross_entropy", learning_rate=0.0, metrics=["accuracy"])
    net.fit((x, y), config)
    report = loom.analysis.classification(net, (x, y))
    assert report.logits
    assert report.accuracy == net.evaluate((x, y))["accuracy"] == 0.75
