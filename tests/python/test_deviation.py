"""Evaluation by deviation: the rule, the buckets, what is compared, and the callback that keeps it."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom.analysis import DeviationCourse, DeviationReport
from networks import blobs, mlp, quiet, weights

NAMES = ["0-10 %", "10-20 %", "20-30 %", "30-40 %", "40-50 %", "50-100 %", "over 100 %"]


def deviation(actual: float, expected: float) -> float:
    """The rule, written down once more."""
    base = 1.0 if abs(expected) < 1e-10 else abs(expected)
    try:
        found = abs(actual - expected) / base * 100.0
    except OverflowError:
        return 100.0
    return found if math.isfinite(found) else 100.0


def bucket(value: float) -> int:
    return next((index for index, edge in enumerate((10, 20, 30, 40, 50, 100)) if value <= edge), 6)


numbers = st.floats() | st.sampled_from(
    [0.0, -0.0, 1e-10, 9.9e-11, -1e-10, 1.0, 2.0, math.nan, math.inf, 1e308]
)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40))
def test_every_figure_follows_from_the_rule(pairs: list[tuple[float, float]]) -> None:
    actual, expected = map(list, zip(*pairs, strict=True))
    report = DeviationReport.of(actual, expected, worst=3)
    found = [deviation(*pair) for pair in pairs]
    np.testing.assert_array_equal(report.deviations, found)
    assert report.compared == "values"
    assert report.score == pytest.approx(math.fsum(max(0.0, 100.0 - one) for one in found) / len(found))
    assert report.mean_deviation == pytest.approx(math.fsum(one / len(found) for one in found))
    assert report.failures == sum(one > 100.0 for one in found)
    assert report.exact_matches == sum(a == e and math.isfinite(a) for a, e in pairs)
    assert [part.name for part in report.buckets] == NAMES
    for index, part in enumerate(report.buckets):
        samples = [place for place, one in enumerate(found) if bucket(one) == index]
        assert (part.count, part.samples.tolist()) == (len(samples), samples)
        assert part.share == len(samples) / len(found)
    assert sum(part.count for part in report.buckets) == report.samples == len(pairs)
    order = sorted(range(len(found)), key=lambda place: -found[place])[:3]
    assert [one.sample for one in report.worst] == order
    again = DeviationReport.from_json(report.to_json())
    assert again == report
    np.testing.assert_array_equal(again.actual, actual)


def test_the_upper_edge_belongs_to_the_bucket_and_zero_to_the_first() -> None:
    edges = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 100.0, 100.001]
    # Of 100, so that deviations are these numbers exactly.
    report = DeviationReport.of([100.0 + edge for edge in edges], [100.0] * len(edges))
    assert [part.samples.tolist() for part in report.buckets] == [[0, 1], [2], [3], [4], [5], [6], [7]]
    assert (report.failures, report.exact_matches) == (1, 1)
    assert [(part.lower, part.upper) for part in report.buckets][-1] == (100.0, math.inf)


def test_next_to_zero_the_plain_difference_counts() -> None:
    report = DeviationReport.of([0.25, 0.25, 0.0], [0.0, 9e-11, 1e-10])
    np.testing.assert_allclose(report.deviations, [25.0, 25.0 - 9e-9, 100.0], rtol=1e-12)


def test_what_is_not_finite_counts_100_and_is_no_failure() -> None:
    actual = [math.nan, math.inf, 1.0, math.inf, -math.inf, 1e308]
    expected = [1.0, 1.0, math.nan, math.inf, math.inf, 1e-9]
    report = DeviationReport.of(actual, expected)
    np.testing.assert_array_equal(report.deviations, 100.0)
    assert (report.score, report.mean_deviation, report.failures, report.not_finite) == (0.0, 100.0, 0, 6)
    assert (report.exact_matches, report.buckets[5].count) == (0, 6)


def test_one_sample() -> None:
    for report in (
        DeviationReport.of([1.5], [1.0]),
        DeviationReport.of([[1.5]], [1.0]),
        DeviationReport.of(1.5, 1.0),
    ):
        assert (report.samples, report.score, report.buckets[4].samples.tolist()) == (1, 50.0, [0])
    assert report.worst[0].to_dict() == {
        "sample": 0, "output": 0, "expected": 1.0, "actual": 1.5, "deviation": 50.0
    }  # fmt: skip


def test_classes_go_by_argmax_and_are_compared_as_numbers() -> None:
    outputs = np.array([[0, 0, 9], [9, 0, 0], [0, 9, 0], [np.nan, 9, 0], [np.inf, 0, 0], [-np.inf, 1, 0]])
    report = DeviationReport.of(outputs, np.array([2, 2, 0, 1, 0, 1]))
    assert report.compared == "classes"
    np.testing.assert_array_equal(report.actual, [2, 0, 1, np.nan, np.nan, 1])
    np.testing.assert_array_equal(report.deviations, [0, 100, 100, 100, 100, 0])
    assert (report.exact_matches, report.not_finite, report.failures) == (2, 2, 0)
    one_hot = DeviationReport.of(outputs, np.eye(3)[[2, 2, 0, 1, 0, 1]], classes=True)
    assert one_hot == report


def test_other_wide_outputs_are_compared_one_by_one() -> None:
    report = DeviationReport.of([[1.0, 2.0], [3.0, 8.0]], [[1.0, 4.0], [2.0, 4.0]])
    assert (report.compared, report.samples) == ("outputs", 2)
    np.testing.assert_array_equal(report.deviations, [[0.0, 50.0], [50.0, 100.0]])
    halves = report.buckets[4]
    assert (halves.samples.tolist(), halves.outputs.tolist(), halves.share) == ([0, 1], [1, 0], 0.5)
    assert (report.worst[0].sample, report.worst[0].output, report.worst[0].actual) == (1, 1, 8.0)


def test_pixels_have_classes() -> None:
    outputs = np.zeros((2, 3, 1, 2))
    outputs[:, 1] = 1.0
    report = DeviationReport.of(outputs, np.array([[[1, 2]], [[1, 1]]]))
    assert (report.compared, report.samples, report.exact_matches) == ("classes", 2, 3)
    assert (report.worst[0].sample, report.worst[0].output) == (0, 1)


@pytest.mark.parametrize(
    ("actual", "expected", "kind", "message"),
    [
        ([], [], loom.DataError, "are empty; give samples to compare"),
        (np.zeros((0, 3)), np.zeros(0, int), loom.DataError, "are empty"),
        ([1.0, 2.0], [1.0], loom.ShapeError, r"actual has shape \(2,\) and expected \(1,\)"),
        (np.zeros((2, 3)), [0.5, 1.0], loom.DTypeError, "expected must be class indices"),
        (np.zeros((2, 3)), [0, 3], loom.DataError, "name classes from 0 to 3"),
        (["a"], [1.0], loom.DTypeError, "actual: expected real numbers"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    actual: Any, expected: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        DeviationReport.of(actual, expected)


def test_frames_hold_the_buckets() -> None:
    report = DeviationReport.of([1.0, 1.5], [1.0, 1.0])
    for library in ("pandas", "polars"):
        frame = report.to_frame(library)  # type: ignore[arg-type]
        assert list(frame["name"]) == NAMES
        assert list(frame["count"]) == [1, 0, 0, 0, 1, 0, 0]


# Of networks


def linear(units: int = 1) -> loom.Network:
    net = loom.Sequential([loom.nn.Dense(units, bias=False)], input_shape=1)
    net[0, 0, 0, 0].weight = np.arange(1.0, units + 1.0)[:, None]
    return net


def test_evaluate_adds_the_report() -> None:
    x, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.4])
    found = loom.evaluate(linear(), (x, y), loss="mse", metrics=["mae"], deviation=True)
    plain = linear().evaluate((x, y), loss="mse", metrics=["mae"])
    assert list(found) == ["loss", "mae", "deviation"]
    assert {name: found[name] for name in plain} == plain
    np.testing.assert_allclose(found["deviation"].deviations, [0.0, 100.0, 25.0], rtol=1e-6)
    assert found["deviation"].exact_matches == 1


def test_data_in_batches_is_one_report() -> None:
    x, y = np.arange(1.0, 7.0)[:, None], np.ones((6, 2))
    net = linear(2)
    whole = net.evaluate((x, y), loss="mse", deviation=True)["deviation"]
    parts = net.evaluate([(x[:4], y[:4]), (x[4:], y[4:])], loss="mse", deviation=True, batch_size=3)[
        "deviation"
    ]
    assert whole == parts == loom.analysis.deviation(net, (x, y))
    assert whole == loom.analysis.deviation(net, [(x[:4], y[:4]), (x[4:], y[4:])])
    assert whole.compared == "outputs"


def test_a_loss_says_what_outputs_mean() -> None:
    x, y = blobs(40)
    net = mlp()
    found = net.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"], deviation=True)
    assert found["deviation"].exact_matches == round(40 * found["accuracy"])
    one_hot = net.evaluate((x, np.eye(3)[y]), loss="cross_entropy", deviation=True)
    assert found["deviation"] == one_hot["deviation"]
    assert found["deviation"] == loom.analysis.deviation(net, (x, y))
    chance = net.evaluate((x, np.eye(3)[y]), loss="binary_cross_entropy", deviation=True)["deviation"]
    assert chance.compared == "outputs"
    np.testing.assert_allclose(chance.actual, 1 / (1 + np.exp(-net.predict(x).astype(float))), rtol=1e-12)
    assert chance == loom.analysis.deviation(net, (x, np.eye(3)[y]), loss="binary_cross_entropy")


def test_a_network_that_overflows() -> None:
    net = loom.Sequential([loom.nn.Dense(1, bias=False), loom.nn.Dense(2, bias=False)], input_shape=1)
    net[0, 0, 0, 0].weight = np.array([[3e38]])
    net[0, 0, 0, 1].weight = np.array([[1.0], [-1.0]])
    data = (np.array([[10.0], [1e-38]], np.float32), np.array([[1.0, 1.0], [3.0, -3.0]]))
    report = net.evaluate(data, loss="mse", deviation=True)["deviation"]
    np.testing.assert_array_equal(np.isfinite(report.actual), [[False, False], [True, True]])
    assert (report.not_finite, report.failures, report.score) == (2, 0, pytest.approx(50.0, abs=1e-4))


def test_networks_that_give_every_pixel_a_class() -> None:
    net = loom.Sequential([loom.nn.Conv2D(3, kernel_size=1)], input_shape=(1, 2, 2))
    x, y = np.random.default_rng(0).normal(size=(5, 1, 2, 2)), np.ones((5, 2, 2), int)
    found = net.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"], deviation=True)
    assert found["deviation"].deviations.shape == (5, 4)
    assert found["deviation"].exact_matches == round(20 * found["accuracy"])
    assert loom.analysis.classification(net, (x, y)).accuracy == pytest.approx(found["accuracy"])


def test_on_a_gpu_too(gpu: str) -> None:
    watched, plain = mlp(), mlp()
    watcher = loom.DeviationHistory()
    x, y = blobs(64)
    settings = {"epochs": 2, "device": gpu}
    loom.train(watched, (x, y), quiet(**settings), validation=(x, y), callbacks=[watcher])
    loom.train(plain, (x, y), quiet(**settings), validation=(x, y))
    assert weights(watched) == weights(plain)
    assert watcher.report == watched.evaluate((x, y), deviation=True)["deviation"]


def test_a_metric_cannot_take_the_name() -> None:
    def deviation(outputs: Any, targets: Any) -> float:
        return 0.0

    data = (np.ones((1, 1)), [1.0])
    assert linear().evaluate(data, loss="mse", metrics=[deviation])["deviation"] == 0.0
    with pytest.raises(loom.ConfigError, match='a metric called "deviation"'):
        linear().evaluate(data, loss="mse", metrics=[deviation], deviation=True)


# Over training


def line(rows: int = 32) -> tuple[Any, Any]:
    x = np.linspace(1.0, 2.0, rows)[:, None].astype(np.float32)
    return x, 3.0 * x


def test_the_course_of_a_run() -> None:
    data, net = line(), linear()
    watcher, judged = loom.DeviationHistory(), []
    after = loom.LambdaCallback(
        on_epoch_end=lambda epoch, logs: judged.append(net.evaluate(data, deviation=True)["deviation"])
    )
    config = loom.TrainingConfig(epochs=12, learning_rate=0.2, verbose=False)
    net.fit(data, config, validation=data, callbacks=[watcher, after])
    assert watcher.report == judged[-1]
    assert watcher.scores == tuple(report.score for report in judged)
    assert watcher.course.buckets == tuple(tuple(part.count for part in one.buckets) for one in judged)
    assert watcher.course.mean_deviations == tuple(report.mean_deviation for report in judged)
    assert watcher.course.epochs == tuple(range(12))
    for score, first in watcher.milestones.items():
        reached = [epoch for epoch, found in enumerate(watcher.scores) if found >= score]
        assert first == (reached[0] if reached else None)
    assert watcher.milestones[90] is not None
    assert DeviationCourse.from_json(watcher.course.to_json()) == watcher.course
    assert watcher.course.to_frame()["score"].tolist() == list(watcher.scores)


def test_milestones_count_the_score_itself() -> None:
    course = DeviationCourse()
    for epoch, (actual, expected) in enumerate(((0.7, 1.0), (1.0, 1.0))):
        course = course.with_epoch(epoch, DeviationReport.of([actual * 100], [expected * 100]))
    assert course.scores == (70.0, 100.0)
    assert course.first_epochs == {**dict.fromkeys(range(10, 80, 10), 0), 80: 1, 90: 1, 100: 1}
    assert course.failures == (0, 0)


@pytest.mark.parametrize("source", ["validation", "split", "batches", "given"])
def test_what_is_measured_on(source: str) -> None:
    x, y = line(20)
    held = (x[16:], y[16:])
    watcher = loom.DeviationHistory(held if source == "given" else None)
    settings: dict[str, Any] = {"epochs": 2, "verbose": False}
    validation: Any = {"validation": held, "batches": [(x[16:18], y[16:18]), (x[18:], y[18:])]}.get(source)
    if source == "split":
        settings["validation_split"] = 0.2
    net = linear()
    data = (x, y) if source == "split" else (x[:16], y[:16])
    net.fit(data, loom.TrainingConfig(**settings), validation, callbacks=[watcher])
    assert watcher.report == net.evaluate(held, deviation=True)["deviation"]
    assert watcher.report is not None
    assert watcher.report.samples == 4


def test_nobody_notices_that_it_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = mlp(), mlp()
    x, y = blobs()
    one = loom.train(with_it, (x, y), quiet(epochs=3), callbacks=[loom.DeviationHistory((x[:50], y[:50]))])
    two = loom.train(without, (x, y), quiet(epochs=3))
    assert one.loss_history == two.loss_history
    assert weights(with_it) == weights(without)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("source", ["memory", "file"])
def test_a_resumed_run_goes_on(tmp_path: Path, source: str) -> None:
    whole, part = mlp(), mlp()
    expected, began, went_on = (loom.DeviationHistory(blobs(60)) for _ in range(3))
    loom.train(whole, blobs(), quiet(epochs=5), callbacks=[expected])
    loom.train(part, blobs(), quiet(epochs=3), callbacks=[began])
    if source == "file":
        part.save(tmp_path / "part.loom", optimizer=True)
        part = loom.load(tmp_path / "part.loom")
    loom.train(part, blobs(), quiet(epochs=5), callbacks=[went_on], resume=True)
    assert went_on.course == expected.course
    loom.train(mlp(), blobs(), quiet(epochs=1), callbacks=[went_on])
    assert went_on.course.epochs == (0,)


def test_it_can_look_less_often_and_not_at_nothing() -> None:
    watcher = loom.DeviationHistory(line(), frequency=2)
    linear().fit(line(), loom.TrainingConfig(epochs=5, verbose=False), callbacks=[watcher])
    assert watcher.course.epochs == (1, 3)
    with pytest.raises(loom.ConfigError, match="nothing to measure on: give the run validation data"):
        linear().fit(line(), loom.TrainingConfig(verbose=False), callbacks=[loom.DeviationHistory()])
    with pytest.raises(loom.ConfigError, match="frequency must be a positive whole number"):
        loom.DeviationHistory(frequency=0)


class Interrupted:
    """Data in the middle of which Ctrl-C comes."""

    went_on = False

    def __iter__(self) -> Iterator[Any]:
        yield line()
        signal.raise_signal(signal.SIGINT)
        self.went_on = True


def test_ctrl_c_is_heard_while_it_measures() -> None:
    data = Interrupted()
    watcher = loom.DeviationHistory(data)
    result = linear().fit(line(), loom.TrainingConfig(epochs=3, verbose=False), callbacks=[watcher])
    assert (result.stop_reason, len(result.loss_history), data.went_on) == ("interrupted", 1, False)
    assert (watcher.course.epochs, watcher.report) == ((), None)


def test_learning_by_targets_is_watched_too() -> None:
    watcher = loom.DeviationHistory(line())
    trainer = loom.TweenTrainer(linear(), loom.TweenConfig.tween(base_rate=0.05))
    trainer.fit(line(), loom.TrainingConfig(epochs=2, verbose=False), callbacks=[watcher])
    assert len(watcher.scores) == 2
