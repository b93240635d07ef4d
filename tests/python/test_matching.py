"""Models that complement each other: pairs and groups, against sets counted by hand."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import loom
from loom import analysis, nn
from networks import blobs, mlp, quiet

masks = st.tuples(st.integers(2, 7), st.integers(1, 12)).flatmap(lambda shape: arrays(np.bool_, shape))


@given(masks, st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_pairs_are_counted_and_sorted(found: Any, minimum: float) -> None:
    report = analysis.match(found, minimum=minimum)
    samples = found.shape[1]
    wanted = []
    for i, j in combinations(range(len(found)), 2):
        a, b = set(np.flatnonzero(found[i])), set(np.flatnonzero(found[j]))
        if len(a | b) / samples >= minimum:
            wanted.append((-len(a | b) / samples, len(a & b) / samples, f"model {i}", f"model {j}"))
    wanted.sort(key=lambda row: row[:2])
    assert [(-p.coverage, p.overlap, p.first, p.second) for p in report.pairs] == wanted
    np.testing.assert_array_equal(report.accuracies, found.mean(axis=1))
    assert analysis.Matches.from_json(report.to_json()) == report


@given(masks, st.data())
def test_groups_are_greedy(found: Any, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(found)))
    group = analysis.best_group(found, k)
    covered: set[int] = set()
    for step, place in enumerate(group.places):
        gains = [len(set(np.flatnonzero(row)) - covered) for row in found]
        assert gains[place] == max(gains)
        covered |= set(np.flatnonzero(found[place]))
        assert group.coverages[step] == len(covered) / found.shape[1]
    assert len(set(group.places.tolist())) == k
    assert group.coverage == group.coverages[-1]
    assert analysis.Group.from_json(group.to_json()) == group


def test_a_group_s_ties_go_to_the_better_and_then_to_the_earlier_model() -> None:
    found = analysis.best_group([[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1]], 3)
    assert found.places.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(found.coverages, [0.75, 1.0, 1.0])


def test_networks_are_matched_on_data() -> None:
    x, y = blobs(90)
    nets = [mlp(seed) for seed in range(3)]
    for net in nets:
        net.fit((x, y), quiet(epochs=1))
    right = analysis.correctness(nets, (x, y))
    assert right.shape == (3, 90)
    for row, net in zip(right, nets, strict=True):
        np.testing.assert_array_equal(row, net.predict(x).argmax(axis=1) == y)
        accuracy = net.evaluate((x, y), metrics=["accuracy"])["accuracy"]
        assert row.mean() == pytest.approx(accuracy, abs=1e-12)
    names = ["a", "b", "c"]
    assert analysis.match(nets, (x, y), names=names) == analysis.match(dict(zip(names, right, strict=True)))
    assert analysis.match(dict(zip(names, nets, strict=True)), (x, y)).names == tuple(names)
    batches = iter([(x[:50], y[:50]), (x[50:], y[50:])])
    np.testing.assert_array_equal(analysis.correctness(nets, batches), right)
    assert analysis.best_group(nets, 2, (x, y)) == analysis.best_group(right, 2)


def test_single_outputs_need_a_threshold() -> None:
    net = loom.Sequential([nn.Dense(1)], input_shape=2)
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    with pytest.raises(loom.ShapeError, match="threshold"):
        analysis.correctness([net], (x, y))
    right = analysis.correctness([net], (x, y), threshold=0.0)
    np.testing.assert_array_equal(right[0], (net.predict(x)[:, 0] > 0) == y)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], loom.DataError, "there are no correctness masks"),
        ({}, loom.DataError, "there are no correctness masks"),
        ({"a": [], "b": []}, loom.DataError, 'mask of "a" is empty'),
        ({"a": [True], "b": []}, loom.DataError, 'mask of "b" is empty'),
        (np.zeros((2, 0), bool), loom.DataError, 'mask of "model 0" is empty'),
        ({"a": [True], "b": [True, False]}, loom.ShapeError, '"a" and "b" have 1 and 2'),
        ([[1, 0], [2, 0]], loom.InvalidValueError, '"model 1" must hold True and False.*got 2'),
        ([[1.0, np.nan]], loom.InvalidValueError, "got nan"),
        ([["yes"]], loom.DTypeError, "must hold booleans"),
        ([True, False], loom.ShapeError, r'"model 0" must be \(samples,\)'),
        (np.zeros(3, bool), loom.ShapeError, r"must be \(models, samples\), got shape \(3,\)"),
        ([[True, False]], loom.DataError, "two models"),
    ],
)
def test_bad_masks_are_refused_by_name(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        analysis.match(given)


def test_bad_settings_are_refused() -> None:
    good = [[True, False], [False, True]]
    with pytest.raises(loom.ConfigError, match="minimum"):
        analysis.match(good, minimum=1.5)
    with pytest.raises(loom.ConfigError, match="3 names do not fit 2 models"):
        analysis.match(good, names=["a", "b", "c"])
    with pytest.raises(loom.ConfigError, match='named "a"'):
        analysis.match(good, names=["a", "a"])
    with pytest.raises(loom.ConfigError, match="k must be at most 2"):
        analysis.best_group(good, 3)
    with pytest.raises(loom.ConfigError, match="networks are matched on data"):
        analysis.match([mlp(), mlp()])  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="must be a list of networks"):
        analysis.correctness([], (np.zeros((1, 6)), [0]))
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.Network"):
        analysis.correctness([3], (np.zeros((1, 6)), [0]))  # type: ignore[list-item]


def test_frames_and_the_picture(tmp_path: Path) -> None:
    report = analysis.match({"a": [1, 1, 0, 0], "b": [1, 1, 1, 0], "c": [0, 0, 1, 1]})
    assert list(report.to_frame().columns) == ["first", "second", "coverage", "overlap"]
    assert report.to_frame("polars")["coverage"].to_list() == [1.0, 1.0, 0.75]
    group = analysis.best_group({"a": [1, 1, 0, 0], "b": [0, 0, 1, 1]}, 2)
    assert group.to_frame()["name"].tolist() == ["a", "b"]
    for ending in ("svg", "png"):
        figure = loom.plot.matches(report, tmp_path / f"pairs.{ending}", most=2)
        assert (tmp_path / f"pairs.{ending}").stat().st_size > 1000
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a, c", "b, c"]
    with pytest.raises(loom.DataError, match="nothing to draw"):
        loom.plot.matches(analysis.match([[True, False], [True, False]], minimum=0.9))
