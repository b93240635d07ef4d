"""Arrays in: NumPy arrays, `__array__`, `__dlpack__`, lists; without a copy where possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike, LabelArray, Precision, RealArray, SupportsArray, SupportsDLPack
from loom.errors import DTypeError, InvalidValueError, NonFiniteError, ShapeError

__all__ = ["DividedWeights", "SizedRows", "as_input", "as_labels", "as_numpy", "as_real_array", "real_dtype"]

_SMALL_FLOATS = ("bfloat16", "float8", "float6", "float4", "int4", "uint4", "int2", "uint2")
"""Extension dtypes (of the package ml_dtypes) that hold real numbers."""


class SizedRows(np.ndarray[Any, Any]):
    """Rows of several inputs of which some have extents of their own; these stay with every part of them."""

    extents: tuple[tuple[int, ...], ...] = ()
    """One sample's extents of each input, in the order in which they lie in a row."""

    def __array_finalize__(self, other: object) -> None:
        self.extents = getattr(other, "extents", ())


class DividedWeights(np.ndarray[Any, Any]):
    """Weights of rows by output, or by step, of a mean over something else than how many rows there are."""

    divisor: float = 0.0
    """What all rows together count in the mean."""

    def __array_finalize__(self, other: object) -> None:
        self.divisor = getattr(other, "divisor", 0.0)


def as_numpy(x: ArrayLike, *, what: str = "input") -> NDArray[Any]:
    """Views or converts anything array-like as a NumPy array, keeping its dtype.

    Args:
        x: An array, an object with `__array__` or `__dlpack__`, or nested lists
            of numbers.
        what: What it is, for error messages.

    Returns:
        The array; a view of the same memory where the object allows one.

    Raises:
        DTypeError: The object cannot be turned into an array of numbers.
        ShapeError: Nested lists have rows of different lengths.
    """
    if type(x) is np.ndarray or isinstance(x, (DividedWeights, SizedRows)):
        return x
    if isinstance(x, Mapping):
        raise DTypeError(
            f"{what}: expected real numbers, got dtype object from dict; train, fit, evaluate, predict, "
            "forward and backward take arrays by name where the network has inputs or outputs with names"
        )
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise DTypeError(f"{what}: masked arrays are not supported; fill or drop the masked entries first")
    if not isinstance(x, SupportsArray) and isinstance(x, SupportsDLPack):
        try:
            return np.from_dlpack(x)  # type: ignore[arg-type]
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DTypeError(
                f"{what}: {_name(x)} could not be handed over through DLPack ({error}); move it to the CPU"
            ) from error
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise DTypeError(f"{what}: {_name(x)} is sparse, and loom reads dense arrays; x.toarray() is one")
    try:
        array = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise DTypeError(f"{what}: {_name(x)} cannot be turned into a NumPy array ({error})") from error
        told = (
            "; a network of input_shape=(None, ...) takes sequences of any length" if what == "input" else ""
        )
        raise ShapeError(f"{what}: rows of different lengths do not make an array{told}") from error
    except (RuntimeError, TypeError) as error:
        raise DTypeError(f"{what}: {_name(x)} cannot be turned into a NumPy array ({error})") from error
    if array.dtype.kind == "O" and array.shape[-1:] != (0,) and hasattr(x, "columns"):
        return _table_of_numbers(x, array, what)
    return array


def as_real_array(x: ArrayLike, precision: Precision = "float32", *, what: str = "input") -> RealArray:
    """Converts anything array-like to real numbers of the network's precision.

    Integers, booleans and every real float type are converted, once; a
    C-contiguous array of the right dtype comes back as it is.

    Args:
        x: An array, an object with `__array__` or `__dlpack__`, or nested lists
            of numbers.
        precision: "float32", "float64", or "mixed", whose numbers are float32.
        what: What it is, for error messages.

    Returns:
        A C-contiguous array of that dtype.

    Raises:
        DTypeError: The values are complex numbers, strings, dates or objects.
        ShapeError: Nested lists have rows of different lengths.
        NonFiniteError: A number is beyond what the network's precision holds.
    """
    array = as_numpy(x, what=what)
    if not _is_real(array.dtype):
        raise DTypeError(f"{what}: expected real numbers, got {_describe(x, array)}{_numbers_of(x, array)}")
    dtype = real_dtype(precision)
    if array.dtype.kind != "f" or array.dtype.itemsize <= dtype.itemsize:
        return np.require(array, dtype, ("C", "ALIGNED"))
    try:
        with np.errstate(over="raise"):
            return np.require(array, dtype, ("C", "ALIGNED"))
    except FloatingPointError:
        raise _too_large(array, dtype, what) from None


def _too_large(array: NDArray[Any], dtype: np.dtype[Any], what: str) -> NonFiniteError:
    with np.errstate(over="ignore"):
        beyond = np.isfinite(array) & ~np.isfinite(array.astype(dtype))
    value = float(array[beyond][0])
    row = f" in row {int(np.argwhere(beyond)[0][0])}" if array.ndim else ""
    wider = "" if dtype.itemsize == 8 else ', or make the network with precision="float64"'
    return NonFiniteError(f"{what} holds {value:g}{row}, which is beyond {dtype}: scale the data{wider}")


def real_dtype(precision: Precision) -> np.dtype[Any]:
    """Returns the dtype of a network's numbers in memory.

    Args:
        precision: The network's.
    """
    return np.dtype(np.float64 if precision == "float64" else np.float32)


def as_input(x: ArrayLike, precision: Precision, *, indices: bool) -> RealArray:
    """Converts anything array-like to what a network reads.

    Args:
        x: An array, an object with `__array__` or `__dlpack__`, or nested lists
            of numbers.
        precision: "float32" or "float64".
        indices: Whether the network reads whole numbers, such as places in a vocabulary.

    Returns:
        A C-contiguous array of the network's precision, which holds whole numbers exactly.

    Raises:
        DTypeError: The values are not real numbers; or they are to be whole numbers and are
            not of an integer type.
        ShapeError: Nested lists have rows of different lengths.
    """
    if not indices:
        return as_real_array(x, precision)
    array = as_numpy(x, what="input")
    if array.dtype.kind not in "iu":
        raise DTypeError(
            "input: the network reads whole numbers, such as places in a vocabulary, "
            f"got {_describe(x, array)}; {_whole_numbers_of(array)}"
        )
    return as_real_array(array, precision)


def as_labels(x: ArrayLike, *, what: str = "labels") -> LabelArray:
    """Converts anything array-like that holds integers to class indices.

    Args:
        x: An array, an object with `__array__` or `__dlpack__`, or nested lists
            of whole numbers.
        what: What it is, for error messages.

    Returns:
        A C-contiguous int64 array; negative values are left for the loss to
        refuse, since only it knows the number of classes.

    Raises:
        DTypeError: The values are not integers.
        InvalidValueError: A value does not fit 64 bits.
        ShapeError: Nested lists have rows of different lengths.
    """
    array = as_numpy(x, what=what)
    if array.dtype.kind not in "iu":
        raise DTypeError(
            f"{what}: class indices must be integers, got {_describe(x, array)}; "
            "convert them with .astype(int) if they are whole numbers"
        )
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise InvalidValueError(f"{what}: class index {array.max()} is out of range")
    return np.require(array, np.int64, ("C", "ALIGNED"))


def _is_real(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fiub" or (dtype.kind == "V" and dtype.name.startswith(_SMALL_FLOATS))


def _table_of_numbers(x: Any, array: NDArray[Any], what: str) -> NDArray[Any]:  # noqa: ANN401
    """Joins the columns of a table; pandas makes objects of one whose columns are of its own types."""
    # pandas may have a name twice; Arrow's `columns` are no names.
    named = (
        x.items()
        if hasattr(x, "items")
        else ((name, x[name]) for name in getattr(x, "column_names", x.columns))
    )
    columns = [(name, np.asarray(column)) for name, column in named]
    texts = [str(name) for name, column in columns if not _is_real(column.dtype)]
    if texts:
        raise DTypeError(
            f"{what}: expected real numbers, got {_describe(x, array)} "
            f"in column{'s' * (len(texts) > 1)} {', '.join(texts)}; make numbers of them with "
            'loom.data.columns(frame, target="..."), and give that to net.fit'
        )
    return np.column_stack([column for _, column in columns])


def _numbers_of(x: object, array: NDArray[Any]) -> str:
    """Says what makes numbers of values that are none."""
    if hasattr(x, "toarray"):
        return "; it is sparse: x.toarray() is the array"
    if array.dtype.kind == "M":
        return "; numbers of dates are how long ago, (t - t.min()) / numpy.timedelta64(1, 'D'), weekdays, ..."
    if array.dtype.kind == "m":
        return "; x / numpy.timedelta64(1, 's') is in seconds"
    if array.dtype.kind == "c":
        return "; numpy.abs(x), or both parts side by side, numpy.concatenate([x.real, x.imag], -1)"
    if array.dtype.kind == "O" and array.ndim == 0 and hasattr(x, "__next__"):
        return "; it is an iterator: numpy.stack(list(x)) is the array of what it gives"
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], Mapping):
        return "; rows by name are a frame: pandas.DataFrame(rows)"
    if array.dtype.kind == "O" and array.ndim and array.size:
        return "; x.astype(float) makes numbers, if that is what they are"
    if array.dtype.kind in "UST" and array.ndim:
        return "; they are texts: x.astype(float) makes numbers, if that is what they say"
    if isinstance(x, str):
        return "; it takes arrays, and opens no files: numpy.load, pandas.read_csv, loom.data.image_folder"
    return "; None is no array" if x is None else ""


def _whole_numbers_of(array: NDArray[Any]) -> str:
    """Says what makes whole numbers of values that are none."""
    if array.dtype.kind in "UST" or (array.dtype.kind == "O" and isinstance(next(array.flat, None), str)):
        return (
            "texts go in as numbers of their words, "
            "[[number[word] for word in text.split()] for text in texts]"
        )
    return "convert them with .astype(int) if they are whole numbers"


def _describe(x: object, array: NDArray[Any]) -> str:
    source = "" if isinstance(x, np.ndarray) else f" from {_name(x)}"
    return f"dtype {array.dtype}{source}"


def _name(x: object) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
