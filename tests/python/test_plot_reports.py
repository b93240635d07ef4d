"""Pictures of reports: every one is drawn as SVG and PNG, and shows the report's figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.analysis import ClassificationReport, DeviationCourse, DeviationReport, RegressionReport


def classification(classes: int = 4) -> ClassificationReport:
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, 300)
    names = ["cat", "dog", "horse", "mouse"] if classes == 4 else None
    logits = random.normal(size=(300, classes)) + 1.5 * np.eye(classes)[labels]
    return ClassificationReport.of(logits, labels, names)


def regression(outputs: int = 2) -> RegressionReport:
    random = np.random.default_rng(1)
    expected = random.normal(size=(200, outputs))
    return RegressionReport.of(expected + 0.2 * random.normal(size=expected.shape), expected)


def deviation() -> DeviationReport:
    random = np.random.default_rng(2)
    expected = random.uniform(1.0, 2.0, 500)
    return DeviationReport.of(expected * (1.0 + 0.4 * random.normal(size=500)), expected)


def course() -> DeviationCourse:
    random, found = np.random.default_rng(3), DeviationCourse()
    expected = random.uniform(1.0, 2.0, 200)
    for epoch in range(15):
        actual = expected * (1.0 + random.normal(size=200) * 1.5 * 0.75**epoch)
        found = found.with_epoch(epoch, DeviationReport.of(actual, expected))
    return found


def images() -> np.ndarray:
    return np.random.default_rng(4).uniform(size=(300, 1, 8, 8))


PICTURES: dict[str, Callable[..., Any]] = {
    "deviation": lambda path: loom.plot.deviation(deviation(), path),
    "deviation_course": lambda path: loom.plot.deviation_course(course(), path),
    "confusion_matrix": lambda path: loom.plot.confusion_matrix(classification(), path=path),
    "confusion_shares": lambda path: loom.plot.confusion_matrix(classification(), normalize=True, path=path),
    "confusion_large": lambda path: loom.plot.confusion_matrix(classification(25), path=path),
    "roc": lambda path: loom.plot.roc(classification(), path=path),
    "precision_recall": lambda path: loom.plot.precision_recall(classification(), ["cat", 2], path=path),
    "calibration": lambda path: loom.plot.calibration(classification(), path),
    "residuals": lambda path: loom.plot.residuals(regression(), path),
    "top_errors": lambda path: loom.plot.top_errors(classification().top_errors(images(), 8), path=path),
    "top_errors_regression": lambda path: loom.plot.top_errors(
        regression().top_errors(images()[:200, 0], 4), columns=2, path=path
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn(tmp_path: Path, name: str) -> None:
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"{name}{ending}"
        assert PICTURES[name](path).axes
        assert path.read_bytes().startswith(start)


def test_bars_are_the_buckets() -> None:
    report = deviation()
    heights = [bar.get_height() for bar in loom.plot.deviation(report).axes[0].patches]
    np.testing.assert_allclose(heights, [100 * bucket.share for bucket in report.buckets])


def test_the_course_tells_milestones() -> None:
    found = course()
    axes = loom.plot.deviation_course(found).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), found.scores)
    told = {int(text.get_text()): text.xy[0] - 1 for text in axes.texts}  # type: ignore[attr-defined]
    assert told == {score: first for score, first in found.first_epochs.items() if first is not None}
    watcher = loom.DeviationHistory()
    with pytest.raises(loom.DataError, match="no epoch was measured"):
        loom.plot.deviation_course(watcher)
    watcher.course = found
    assert loom.plot.deviation_course(watcher).axes


def test_curves_name_their_class_and_area() -> None:
    report = classification()
    roc = loom.plot.roc(report, ["dog"]).axes[0]
    assert [text.get_text() for text in roc.get_legend().get_texts()] == [
        f"dog (area {report.roc[1].area:.3f})"
    ]
    np.testing.assert_array_equal(roc.lines[0].get_ydata(), report.roc[1].true_positive_rate)
    with pytest.raises(loom.ConfigError, match='unknown roc class "hrse"; did you mean "horse"'):
        loom.plot.roc(report, ["hrse"])


def test_titles_say_what_was_answered() -> None:
    report = ClassificationReport.of([[0.9, 0.1], [np.nan, 1.0]], [1, 0], ["cat", "dog"])
    titles = [axes.get_title() for axes in loom.plot.top_errors(report.top_errors(np.zeros((2, 4, 4)))).axes]
    assert titles == ["no answer\nis cat, row 1", "cat (90%)\nis dog, row 0"]


def test_edge_cases_are_drawn() -> None:
    one = ClassificationReport.of([[0.1, 0.9]], [1])
    for draw in (
        loom.plot.roc,
        loom.plot.precision_recall,
        loom.plot.calibration,
        loom.plot.confusion_matrix,
    ):
        assert draw(one).axes  # type: ignore[operator]
    assert loom.plot.residuals(RegressionReport.of([1.0, np.nan], [1.0, 1.0])).axes
    assert loom.plot.deviation(DeviationReport.of([np.nan], [1.0])).axes


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(loom.DataError, match="no sample has an answer"):
        loom.plot.calibration(ClassificationReport.of([[np.nan, 1.0]], [0]))
    with pytest.raises(loom.DataError, match="there are no errors"):
        loom.plot.top_errors(ClassificationReport.of([[0.9, 0.1]], [0]).top_errors(np.zeros((1, 2, 2))))
    with pytest.raises(loom.ShapeError, match="images must be"):
        loom.plot.top_errors(ClassificationReport.of([[0.9, 0.1]], [1]).top_errors([[1.0]]))
    draws: list[Callable[[Any], Any]] = [
        loom.plot.deviation,
        loom.plot.deviation_course,
        loom.plot.confusion_matrix,
        loom.plot.roc,
        loom.plot.precision_recall,
        loom.plot.calibration,
        loom.plot.residuals,
        loom.plot.top_errors,
    ]
    for draw in draws:
        with pytest.raises(loom.ConfigError, match=r"draws .*, got 3"):
            draw(3)
