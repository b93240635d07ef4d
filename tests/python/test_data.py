"""Data: the forms it comes in, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom import TrainingBatch
from loom.data import ArraySource, BatchSource, as_source, as_target, split

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6)
W = np.ones(6)


@pytest.mark.parametrize("data", [(X, Y), (X.tolist(), Y.tolist()), TrainingBatch(X, Y), (X, Y, None)])
def test_arrays(data: Any) -> None:
    source = as_source(data)
    assert isinstance(source, ArraySource)
    assert source.rows == 6
    assert source.batch.weight is None
    np.testing.assert_array_equal(source.batch.input, X)


def test_sample_weights() -> None:
    source = as_source((X, Y, W))
    assert isinstance(source, ArraySource)
    assert source.batch.weight is W


@pytest.mark.parametrize(
    "data",
    [
        [TrainingBatch(X, Y), TrainingBatch(X[:2], Y[:2])],
        (TrainingBatch(X, Y), TrainingBatch(X[:2], Y[:2])),
        [(X, Y), (X[:2], Y[:2], W[:2])],
        [[X, Y], [X[:2], Y[:2]]],
    ],
)
def test_batches_can_be_gone_through_again(data: Any) -> None:
    source = as_source(data)
    assert isinstance(source, BatchSource)
    source.require_epochs(3)
    for _ in range(2):
        assert [len(np.asarray(batch.input)) for batch in source] == [6, 2]


def test_a_generator_serves_one_epoch() -> None:
    def batches() -> Iterator[TrainingBatch]:
        yield TrainingBatch(X, Y)

    source = as_source(batches())
    assert isinstance(source, BatchSource)
    source.require_epochs(1)
    with pytest.raises(
        loom.DataError, match="2 epochs need data that can be iterated 2 times, but generator"
    ):
        source.require_epochs(2)
    assert len(list(source)) == 1
    with pytest.raises(loom.DataError, match="no batches; was a generator iterated before"):
        list(source)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X, "data must be a tuple .*got ndarray"),
        (3, "got int"),
        ({"x": X}, "got dict"),
        ((X,), "got tuple of 1"),
        ((X, Y, W, W), "got tuple of 4"),
        ((X[:0], Y[:0]), r"data: input has no samples, its shape is \(0, 2\)"),
        ((np.float32(1), Y), "input has no samples"),
        ((X, Y[:5]), r"data: input has 6 samples but the target's shape is \(5,\)"),
        ((X, 3), r"the target's shape is \(\)"),
        ((X, Y, W[:3]), r"weight must be \(6,\), one for each sample, got \(3,\)"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(data: Any, message: str) -> None:
    with pytest.raises(loom.DataError, match=message):
        as_source(data)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "has no batches"),
        ([X], "expected a TrainingBatch.*got ndarray"),
        ([(X, Y), (X, Y[:5])], "batch 1: input has 6 samples"),
    ],
)
def test_a_wrong_batch_is_refused_by_number(batches: list[Any], message: str) -> None:
    source = as_source(batches)
    assert isinstance(source, BatchSource)
    with pytest.raises(loom.DataError, match=message):
        list(source)


@given(rows=st.integers(2, 50), fraction=st.floats(0.05, 0.95))
def test_the_split_holds_out_the_last_samples(rows: int, fraction: float) -> None:
    x, y = np.arange(rows)[:, None], np.arange(rows)
    source = as_source((x, y, y * 2.0))
    assert isinstance(source, ArraySource)
    if not 0 < round(rows * fraction) < rows:
        with pytest.raises(loom.DataError, match="both need at least one"):
            split(source, fraction)
        return
    kept, held = split(source, fraction)
    assert (kept.rows, held.rows) == (rows - round(rows * fraction), round(rows * fraction))
    np.testing.assert_array_equal(np.concatenate([kept.batch.target, held.batch.target]), y)  # type: ignore[list-item]
    np.testing.assert_array_equal(held.batch.weight, 2 * np.asarray(held.batch.target))  # type: ignore[arg-type]


def test_targets_become_classes_or_values() -> None:
    classes = as_target([1, 0], (3,), classification=True)
    assert classes.dtype == np.int32
    rows = as_target(np.eye(3, dtype=int)[:2], (3,), classification=True)
    assert rows.dtype == np.float32
    values = as_target([[1.0], [2.0]], (1,), classification=False, precision="float64")
    assert values.dtype == np.float64


@pytest.mark.parametrize(
    ("y", "shape", "classification", "error", "message"),
    [
        ([1.0, 0.0], (3,), True, loom.DTypeError, "class indices must be integers"),
        ([1, 0], (3,), False, loom.ShapeError, r"expected shape \(rows, 3\), got \(2,\)"),
        ([2**40, 0], (3,), True, loom.InvalidValueError, "do not fit 32 bits"),
        ([[1, 0]], (3,), True, loom.ShapeError, r"\(rows, 3\) or class indices.*got \(1, 2\)"),
        (["cat"], (3,), True, loom.DTypeError, "text labels go with"),
    ],
)
def test_other_targets_are_refused(
    y: Any, shape: tuple[int, ...], classification: bool, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        as_target(y, shape, classification=classification)
