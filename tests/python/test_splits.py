"""Splits, folds and windows of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import TrainingBatch, nn
from loom.data import folds, split, windows


@given(rows=st.integers(4, 80), fraction=st.floats(0.1, 0.9), seed=st.integers(0, 5), shuffle=st.booleans())
@settings(max_examples=60, deadline=None)
def test_each_sample_is_on_one_side(rows: int, fraction: float, seed: int, shuffle: bool) -> None:
    x = np.arange(rows)
    if not 0 < round(rows * fraction) < rows:
        with pytest.raises(loom.DataError, match="both need at least one"):
            split((x, x), fraction, seed=seed, shuffle=shuffle)
        return
    (kept, _), (held, held_y) = split((x, x), fraction, seed=seed, shuffle=shuffle)
    assert len(held) == round(rows * fraction)
    assert sorted([*kept, *held]) == x.tolist()
    np.testing.assert_array_equal(held, held_y)
    assert (np.diff(kept) > 0).all()
    again = split((x, x), fraction, seed=seed, shuffle=shuffle)[1][0]
    np.testing.assert_array_equal(held, again)
    if not shuffle:
        np.testing.assert_array_equal(held, x[-len(held) :])


@given(counts=st.lists(st.integers(2, 30), min_size=2, max_size=5), fraction=st.floats(0.2, 0.8))
@settings(max_examples=60, deadline=None)
def test_strata_have_the_same_share(counts: list[int], fraction: float) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    wanted = round(len(y) * fraction)
    _, (_, held) = split((y[:, None], y), fraction, stratify=True)
    assert len(held) == wanted
    found = np.bincount(held, minlength=len(counts))
    assert (np.abs(found - np.array(counts) * fraction) < 1 + 1e-9).all()


@given(teams=st.lists(st.integers(0, 6), min_size=10, max_size=60), seed=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_groups_stay_together(teams: list[int], seed: int) -> None:
    groups = np.array(teams)
    if len(set(teams)) < 2:
        with pytest.raises(loom.DataError, match="1 groups"):
            split((groups, groups), 0.3, groups=groups, seed=seed)
        return
    (kept, _), (held, _) = split((groups, groups), 0.3, groups=groups, seed=seed)
    assert not set(kept.tolist()) & set(held.tolist())
    assert len(kept) + len(held) == len(groups)


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"stratify": True}, {"groups": True}])
def test_folds_hold_each_sample_out_once(options: dict[str, Any]) -> None:
    y = np.repeat([0, 1, 2], [30, 15, 5])
    teams = np.arange(50) // 3
    given_ = {**options, **({"groups": teams} if "groups" in options else {})}
    seen = np.zeros(50, int)
    sizes = []
    for kept, held in folds((np.arange(50), y), 5, seed=1, **given_):
        seen[held[0]] += 1
        sizes.append(len(held[0]))
        assert len(kept[0]) + len(held[0]) == 50
        if "stratify" in options:
            assert np.bincount(held[1], minlength=3).tolist() == [6, 3, 1]
        if "groups" in options:
            assert not set(teams[kept[0]].tolist()) & set(teams[held[0]].tolist())
    assert (seen == 1).all()
    assert max(sizes) - min(sizes) <= 3


def test_numbers_without_a_second_sample_are_told_as_classes() -> None:
    with pytest.raises(loom.DataError, match=r"20 samples of 20 classes leaves 20 for training"):
        split((np.ones((20, 1)), np.linspace(0, 1, 20)), 0.25, stratify=True)


def test_what_is_given_comes_back_in_its_form() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"a": np.arange(20.0), "k": ["u", "v"] * 10}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        kept, held = split(frame, 0.25, stratify="k")
        assert type(kept) is type(frame)
        assert (len(kept), len(held)) == (15, 5)
    batch = TrainingBatch(np.arange(10)[:, None], np.arange(10), np.ones(10))
    kept, held = split(batch, 0.3)
    assert isinstance(held, TrainingBatch)
    assert np.asarray(held.weight).shape == (3,)
    table = loom.data.columns(columns, target="k")
    kept_table, _ = split(table, 0.5, stratify=True)
    assert kept_table.encoder is table.encoder


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: split((x, x), 1.5), "fraction must be a finite number above 0 and below 1"),
        (lambda x: split((x, x[:3]), 0.5), r"arrays have \[3, 10\] samples"),
        (lambda x: split((x, x), 0.5, stratify=x, groups=x), "contradict each other"),
        (lambda x: split((x, x), 0.5, groups=x[:4]), r"groups must be \(10,\)"),
        (lambda x: split((x, x), 0.5, stratify="k"), "the data is no frame"),
        (lambda x: split((x, x), 0.5, stratify=True, shuffle=False), "leave shuffle=False out"),
        (lambda x: split({"a": x}, 0.5, groups="b"), 'unknown column in split "b"'),
        (lambda x: list(folds((x, x), 11)), "10 samples do not make 11 folds"),
        (lambda x: split(3, 0.5), "got int"),
    ],
)
def test_what_cannot_be_split_is_refused(call: Any, message: str) -> None:
    with pytest.raises(loom.LoomError, match=message):
        call(np.arange(10))


@given(
    time=st.integers(1, 40),
    length=st.integers(1, 8),
    horizon=st.integers(0, 4),
    stride=st.integers(1, 5),
    features=st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_windows_are_what_a_loop_cuts(
    time: int, length: int, horizon: int, stride: int, features: int
) -> None:
    series = np.random.default_rng(time).normal(size=(time, features) if features else time)
    starts = range(0, time - length - horizon + 1, stride)
    if len(starts) == 0:
        with pytest.raises(loom.DataError, match="are fewer than"):
            windows(series, length, horizon, stride)
        return
    x, y = windows(series, length, horizon, stride)
    wide = series if features else series[:, None]
    np.testing.assert_array_equal(x, [wide[at : at + length] for at in starts])
    if horizon:
        ahead = np.array([series[at + length : at + length + horizon] for at in starts])
        np.testing.assert_array_equal(y, ahead)
    assert np.shares_memory(x, series)
    if features and horizon:
        told = windows(series, length, horizon, stride, target=0)[1]
        np.testing.assert_array_equal(told, y[:, :, 0])


def test_a_network_learns_what_comes_next() -> None:
    series = np.sin(np.arange(400) / 5.0).astype(np.float32)
    x, y = windows(series, 12, horizon=2)
    (x_train, y_train), (x_test, y_test) = split((x, y), 0.2, shuffle=False)
    net = loom.Sequential([nn.Flatten(), nn.Dense(2)], input_shape=(12, 1), seed=0)
    net.fit(x_train, y_train, epochs=60, learning_rate=0.02, verbose=False)
    assert net.evaluate((x_test, y_test))["loss"] < 0.01


LENGTHS = np.array([3, 1, 4, 1, 5, 2, 6, 2, 3, 5])
FORMS: dict[str, Any] = {
    "arrays": [np.full((length, 2), float(row)) for row, length in enumerate(LENGTHS)],
    "lists": [[float(row)] * int(length) for row, length in enumerate(LENGTHS)],
    "padded": loom.data.Padded(np.arange(10.0)[:, None, None].repeat(6, 1), LENGTHS),
}


def numbers_of(part: Any) -> list[int]:
    """Which samples these are."""
    if isinstance(part, loom.data.Padded):
        values, lengths = np.asarray(part.values), np.asarray(part.lengths)
        np.testing.assert_array_equal(lengths, LENGTHS[values[:, 0, 0].astype(int)])
        return [int(row) for row in values[:, 0, 0]]
    for row in part:
        assert len(row) == LENGTHS[int(np.ravel(row)[0])]
    return [int(np.ravel(row)[0]) for row in part]


@pytest.mark.parametrize("options", [{}, {"stratify": LENGTHS > 2}, {"groups": np.arange(10) // 2}])
@pytest.mark.parametrize("form", FORMS)
def test_sequences_of_any_length_are_split(form: str, options: dict[str, Any]) -> None:
    """They were no array; padded ones had no rows."""
    x, y = FORMS[form], np.arange(10)
    steps = [np.full(length, row) for row, length in enumerate(LENGTHS)]
    kept, held = split((x, y, steps), 0.3, **options)
    assert type(held[0]) is type(x)
    for part in (kept, held):
        assert numbers_of(part[0]) == part[1].tolist() == [int(each[0]) for each in part[2]]
    assert sorted([*kept[1], *held[1]]) == list(range(10))
    found = [number for _, part in folds(({"words": x, "row": y}, y), 3, **options) for number in part[1]]
    assert sorted(found) == list(range(10))
    net = loom.Sequential([nn.GRU(3), nn.Dense(1)], input_shape=(None, 1), seed=0)
    if form == "padded":
        assert np.isfinite(net.fit(kept[:2], epochs=1, verbose=False).final_loss)


def test_a_list_of_samples_and_targets_is_a_pair() -> None:
    """Samples and targets of one shape were rows of one array."""
    kept, held = split([np.arange(10.0), np.arange(10)], 0.2)
    assert [len(part) for part in (*kept, *held)] == [8, 8, 2, 2]
    np.testing.assert_array_equal(*held)
