"""What training, evaluation and prediction take as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike, Precision, RealArray
from loom.convert import as_labels, as_numpy, as_real_array
from loom.errors import DataError, DTypeError, InvalidValueError, ShapeError

__all__ = [
    "ArraySource",
    "BatchSource",
    "Data",
    "Source",
    "TrainingBatch",
    "as_source",
    "as_target",
    "split",
]


@dataclass(frozen=True)
class TrainingBatch:
    """Samples that are learned from together.

    Args:
        input: (rows, ...) the samples.
        target: (rows, ...) values, or (rows,) class indices.
        weight: (rows,) how much each sample counts; equally where None.
    """

    input: ArrayLike
    target: ArrayLike
    weight: ArrayLike | None = None


Pairs: TypeAlias = "tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike | None]"
Named: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"
NamedPairs: TypeAlias = "tuple[Named, Named] | tuple[Named, Named, ArrayLike | None]"
Data: TypeAlias = (
    "Pairs | TrainingBatch | Iterable[TrainingBatch] | Iterable[Pairs] | NamedPairs | Iterable[NamedPairs]"
)


@dataclass(frozen=True)
class ArraySource:
    """A data set that is held in arrays, cut into batches as the run asks.

    Args:
        batch: The whole data set, as NumPy arrays in their own dtypes.
        rows: How many samples it has.
    """

    batch: TrainingBatch
    rows: int


@dataclass(frozen=True)
class BatchSource:
    """A data set that comes batch by batch, as often as it is iterated.

    Args:
        batches: What is iterated, once per epoch.
        reusable: Whether it can be iterated more than once.
    """

    batches: Iterable[Any]
    reusable: bool

    def __iter__(self) -> Iterator[TrainingBatch]:
        count = 0
        for item in self.batches:
            yield _checked(_as_batch(item), where=f"batch {count}").batch
            count += 1
        if count == 0:
            raise DataError("the data set has no batches; was a generator iterated before?")

    def require_epochs(self, epochs: int) -> None:
        """Refuses a second pass over data that can be iterated only once.

        Args:
            epochs: How often the data will be iterated.

        Raises:
            DataError: More than once, and the data is a generator or iterator.
        """
        if epochs > 1 and not self.reusable:
            raise DataError(
                f"{epochs} epochs need data that can be iterated {epochs} times, but "
                f"{type(self.batches).__name__} can be iterated only once; give arrays, a list of "
                "TrainingBatch, or an object whose __iter__ starts anew"
            )


Source: TypeAlias = "ArraySource | BatchSource"


def as_source(data: Data) -> Source:
    """Sorts out what was given as data.

    Args:
        data: (x, y) or (x, y, weight) arrays, one `TrainingBatch`, or an
            iterable of either that gives batches.

    Returns:
        The data set in arrays, or as batches.

    Raises:
        DataError: The data is empty, of unequal length, or of no known form.
    """
    if isinstance(data, TrainingBatch) or (isinstance(data, tuple) and not _holds_batches(data)):
        return _checked(_as_batch(data), where="data")
    if isinstance(data, (str, bytes, dict)) or hasattr(data, "__array__") or not isinstance(data, Iterable):
        raise DataError(
            "data must be a tuple (x, y) or (x, y, weight), a TrainingBatch, or an iterable of them, "
            f"got {type(data).__name__}"
        )
    return BatchSource(data, reusable=iter(data) is not data)


def split(source: ArraySource, fraction: float) -> tuple[ArraySource, ArraySource]:
    """Holds out the last samples, before any shuffling.

    Args:
        source: The data set.
        fraction: The share held out; between 0 and 1.

    Returns:
        What is left for training, and what was held out.

    Raises:
        DataError: One of the two would be empty.
    """
    held = round(source.rows * fraction)
    kept = source.rows - held
    if held == 0 or kept == 0:
        raise DataError(
            f"validation_split {fraction:g} of {source.rows} samples leaves {kept} for training "
            f"and {held} for validation; both need at least one"
        )
    return _rows(source, 0, kept), _rows(source, kept, source.rows)


def as_target(
    y: ArrayLike, output_shape: tuple[int, ...], *, classification: bool, precision: Precision = "float32"
) -> NDArray[Any]:
    """Converts a target to class indices or to real values, as the loss takes it.

    Args:
        y: The target.
        output_shape: One sample's output, without the batch.
        classification: Whether the loss takes class indices.
        precision: The network's precision.

    Returns:
        Class indices (int32), where the loss takes them and the target has one
        axis less than the output; otherwise real values.

    Raises:
        DTypeError: The values are neither integers nor real numbers.
        ShapeError: The target has the wrong number of axes.
        InvalidValueError: A class index does not fit 32 bits.
    """
    array = as_numpy(y, what="target")
    axes = len(output_shape) + 1
    if classification and array.ndim == axes - 1 and array.dtype.kind not in "US":
        return _as_classes(array, single=output_shape == (1,))
    if output_shape == (1,) and array.ndim == 1:
        # One number a row, without its axis.
        array = array[:, None]
    if array.dtype.kind in "US":
        raise DTypeError(
            f"target: expected numbers, got dtype {array.dtype}; text labels become class indices by "
            "classes, y = np.unique(y, return_inverse=True)"
        )
    values: RealArray = as_real_array(array, precision, what="target")
    if values.ndim != axes or values.shape[1:] != output_shape:
        wanted = f"(rows, {', '.join(map(str, output_shape))})"
        indices = " or class indices without the class axis" if classification else ""
        remedy = _remedy(array, output_shape, classification=classification)
        raise ShapeError(f"target: expected shape {wanted}{indices}, got {values.shape}{remedy}")
    return values


def _remedy(array: NDArray[Any], output_shape: tuple[int, ...], *, classification: bool) -> str:
    """Says what may be meant by a target of another shape than the output."""
    flat = array.ndim == 1 or array.shape[1:] == (1,)
    if flat and len(output_shape) > 1:
        return (
            f"; the output has {len(output_shape)} axes for each sample: nn.Flatten() before the last "
            "nn.Dense leaves one, and input_shape is that of one sample, without the batch"
        )
    if array.shape[1:] == (1,) and array.dtype.kind in "iub":
        return '; class labels have one axis: y[:, 0], with loss="cross_entropy"'
    if array.ndim == len(output_shape) and not classification and bool(np.all(array == np.round(array))):
        cast = "" if array.dtype.kind in "iu" else ", as whole numbers: y.astype(int)"
        return f'; class labels go with loss="cross_entropy"{cast}'
    if array.ndim == 2 and len(output_shape) == 1:
        return f"; for such targets the last layer has {array.shape[1]} outputs"
    return ""


def _as_classes(array: NDArray[Any], *, single: bool) -> NDArray[np.int32]:
    if single and array.dtype.kind in "iu" and array.any():
        raise InvalidValueError(
            f"target: a single output has the class 0 alone, got {array.max()}; for two classes the last "
            'layer is nn.Dense(2), or take loss="binary_cross_entropy"'
        )
    if array.dtype == np.int32:
        return np.asarray(array, order="C")
    labels = as_labels(array, what="target")
    bounds = np.iinfo(np.int32)
    if labels.size and not (bounds.min <= labels.min() and labels.max() <= bounds.max):
        raise InvalidValueError(
            f"target: class indices from {labels.min()} to {labels.max()} do not fit 32 bits"
        )
    return labels.astype(np.int32)


def _as_batch(item: object) -> TrainingBatch:
    if isinstance(item, TrainingBatch):
        return item
    if isinstance(item, (tuple, list)) and len(item) in {2, 3}:
        return TrainingBatch(*item)
    size = f" of {len(item)}" if isinstance(item, (tuple, list)) else ""
    raise DataError(f"expected a TrainingBatch, (x, y) or (x, y, weight), got {type(item).__name__}{size}")


def _holds_batches(items: tuple[object, ...]) -> bool:
    return bool(items) and all(isinstance(item, TrainingBatch) for item in items)


def _checked(batch: TrainingBatch, where: str) -> ArraySource:
    x = as_numpy(batch.input, what=f"{where}: input")
    y = as_numpy(batch.target, what=f"{where}: target")
    weight = None if batch.weight is None else as_numpy(batch.weight, what=f"{where}: weight")
    rows = x.shape[0] if x.ndim else 0
    if rows == 0 or x.size == 0:
        raise DataError(f"{where}: input has no samples, its shape is {x.shape}")
    if y.shape[:1] != (rows,):
        raise DataError(f"{where}: input has {rows} samples but the target's shape is {y.shape}")
    if weight is not None and weight.shape != (rows,):
        raise DataError(f"{where}: weight must be ({rows},), one for each sample, got {weight.shape}")
    return ArraySource(TrainingBatch(x, y, weight), rows)


def _rows(source: ArraySource, first: int, last: int) -> ArraySource:
    cut = slice(first, last)
    whole = source.batch
    weight = None if whole.weight is None else np.asarray(whole.weight)[cut]
    return ArraySource(
        TrainingBatch(np.asarray(whole.input)[cut], np.asarray(whole.target)[cut], weight), last - first
    )
