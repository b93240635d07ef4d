"""Arrays in: what is taken, what is refused, and what is not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import loom
from loom.convert import as_labels, as_numpy, as_real_array
from loom.data.labels import as_names

REAL = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">i8"]


class Array:
    """An object with `__array__`, as tensors of other libraries are."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array if dtype is None else self.array.astype(dtype)


class Capsule:
    """An object with DLPack's protocol alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Elsewhere:
    """An object whose memory the CPU cannot reach."""

    def __dlpack__(self, **options: Any) -> object:
        raise BufferError("on a device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Refusing:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("can't convert device memory to numpy")


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_real_dtype_is_converted(dtype: str, precision: Any) -> None:
    values = as_real_array(np.array([[0, 1], [1, 0]], dtype), precision)
    assert values.dtype == np.dtype(precision)
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, [[0, 1], [1, 0]])


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=4), elements=st.floats(-1e30, 1e30)))
def test_values_are_rounded_once(array: np.ndarray) -> None:
    np.testing.assert_array_equal(as_real_array(array), array.astype(np.float32))
    np.testing.assert_array_equal(as_real_array(array.T), array.T.astype(np.float32))


def test_what_fits_is_not_copied() -> None:
    array = np.zeros((3, 4), np.float32)
    assert as_real_array(array) is array
    for holder in (Array(array), Capsule(array)):
        assert np.shares_memory(as_real_array(holder), array)
    labels = np.zeros(3, np.int64)
    assert as_labels(labels) is labels


def test_lists_are_taken() -> None:
    np.testing.assert_array_equal(as_real_array([[1, 2.5], [True, 0]]), [[1.0, 2.5], [1.0, 0.0]])
    np.testing.assert_array_equal(as_labels([1, 0, 2]), [1, 0, 2])
    assert as_real_array(3).shape == ()


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (np.zeros(2, complex), "dtype complex128"),
        (np.array(["a", "b"]), "dtype <U1"),
        (["1", "2"], "dtype <U1 from list"),
        (np.array([1, None]), "dtype object"),
        (np.zeros(2, "datetime64[s]"), "dtype datetime64"),
        (np.zeros(2, [("x", "f4")]), "dtype"),
        (None, "dtype object from NoneType"),
        ({"x": 1}, "dtype object from dict"),
        ([{"x": 1}], "pandas.DataFrame(rows)"),
    ],
)
def test_what_is_not_real_is_refused_by_name(value: Any, came: str) -> None:
    with pytest.raises(loom.DTypeError, match=r"input: expected real numbers, got .*") as caught:
        as_real_array(value)
    assert came in str(caught.value)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(loom.DTypeError, match=r"Elsewhere could not be handed over.*move it to the CPU"):
        as_real_array(Elsewhere())  # type: ignore[arg-type]
    with pytest.raises(loom.DTypeError, match="Refusing cannot be turned into a NumPy array"):
        as_real_array(Refusing())
    with pytest.raises(loom.ShapeError, match="rows of different lengths"):
        as_real_array([[1, 2], [3]])
    with pytest.raises(loom.DTypeError, match="masked"):
        as_numpy(np.ma.masked_array([1.0, 2.0], [True, False]))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "u8", ">i2"])
def test_labels_become_int64(dtype: str) -> None:
    labels = as_labels(np.array([3, 1, 0], dtype))
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, [3, 1, 0])


@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), np.array([True]), ["cat"], np.zeros(1, complex)])
def test_labels_must_be_integers(value: Any) -> None:
    with pytest.raises(loom.DTypeError, match="class indices must be integers, got dtype"):
        as_labels(value)


def test_a_label_beyond_64_bits_is_out_of_range() -> None:
    with pytest.raises(loom.InvalidValueError, match="18446744073709551615 is out of range"):
        as_labels(np.array([2**64 - 1], np.uint64))


def test_a_table_of_numbers_is_read_whatever_pandas_stores_them_as() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for kind in ("Float32", "Int64", "boolean"):
        frame = (
            pandas.DataFrame(x, columns=["a", "b"]).astype(kind if kind != "boolean" else bool).astype(kind)
        )
        np.testing.assert_array_equal(as_real_array(frame), frame.astype(float).to_numpy())
    mixed = pandas.DataFrame({"a": pandas.array([1, 2], "Int64"), "b": [0.5, 1.5]})
    assert as_numpy(mixed).tolist() == [[1.0, 0.5], [2.0, 1.5]]
    twice = pandas.concat([mixed["a"], mixed["a"]], axis=1)
    assert as_labels(twice).tolist() == [[1, 1], [2, 2]]
    gaps = pandas.DataFrame({"a": pandas.array([1, None], "Int64"), "b": [0.5, 1.5]})
    np.testing.assert_array_equal(as_numpy(gaps), [[1.0, 0.5], [np.nan, 1.5]])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_columns_of_a_table_that_are_no_numbers_are_named(package: str) -> None:
    module: Any = pytest.importorskip(package)
    columns = {"size": [1.0, 2.0], "city": ["Oslo", "Rome"]}
    table = module.table(columns) if package == "pyarrow" else module.DataFrame(columns)
    with pytest.raises(
        loom.DTypeError, match=r"in column city; make numbers of them with loom\.data\.columns"
    ):
        as_numpy(table)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 2 has texts of any length")
def test_texts_of_any_length_are_labels() -> None:
    texts = np.array([["a", "long"], ["b", "a"]], np.dtypes.StringDType())
    assert as_names(texts).tolist() == [["a", "long"], ["b", "a"]]
    assert as_names(texts).dtype == np.dtype("U4")
    gaps = np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan))
    with pytest.raises(loom.DataError, match="the label of row 1 is missing"):
        as_names(gaps)
    with pytest.raises(loom.DTypeError, match="they are texts"):
        as_real_array(texts)
