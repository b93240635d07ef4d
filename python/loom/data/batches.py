"""What training, evaluation and prediction take as data: arrays, and batches that are iterated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import DataError

__all__ = [
    "ArraySource",
    "BatchSource",
    "Data",
    "Pairs",
    "Source",
    "TrainingBatch",
    "as_batch",
    "as_source",
    "check_iterable",
    "is_single",
]


@dataclass(frozen=True)
class TrainingBatch:
    """Samples that are learned from together.

    Args:
        input: (rows, ...) the samples.
        target: (rows, ...) values, or (rows,) class indices.
        weight: (rows,) how much each sample counts, or (rows, ...) how much each place of its output does:
            (rows, steps), (rows, height, width); equally where None. What has a weight of 0 may have any
            target, such as NaN.
    """

    input: ArrayLike
    target: ArrayLike
    weight: ArrayLike | None = None


Pairs: TypeAlias = "tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike | None]"
Named: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"
NamedPairs: TypeAlias = "tuple[Named, Named] | tuple[Named, Named, Named | None]"
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
            yield _checked(as_batch(item), where=f"batch {count}").batch
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
    if is_single(data):
        return _checked(as_batch(data), where="data")
    batches = check_iterable(data)
    return BatchSource(batches, reusable=iter(batches) is not batches)


def check_iterable(data: object) -> Iterable[Any]:
    """Returns data that is to be batches; a DataError where it is a thing that batches do not come from."""
    if isinstance(data, (str, bytes, dict)) or hasattr(data, "__array__") or not isinstance(data, Iterable):
        raise DataError(
            "data must be a tuple (x, y) or (x, y, weight), a TrainingBatch, or an iterable of them, "
            f"got {type(data).__name__}{_meant(data)}"
        )
    return data


def _meant(data: object) -> str:
    if isinstance(data, dict) and {"x", "y"} <= set(data):
        return '; samples and targets are a tuple, (data["x"], data["y"])'
    if isinstance(data, str):
        return "; it opens no files: numpy.load, loom.data.columns(pandas.read_csv(path), target=...)"
    if hasattr(data, "__array__"):
        return "; samples and targets go in together, (x, y)"
    if isinstance(data, (int, float)):
        return "; settings go by name, as in epochs=3"
    if not callable(data):
        return ""
    return "; of a function that yields batches loom.data.generate(function) makes data"


def as_batch(item: object) -> TrainingBatch:
    """Returns samples with their targets as a batch; a DataError where it is something else."""
    if isinstance(item, TrainingBatch):
        return item
    if isinstance(item, (tuple, list)) and len(item) in {2, 3}:
        return TrainingBatch(*item)
    size = f" of {len(item)}" if isinstance(item, (tuple, list)) else ""
    # A list of two arrays is one of batches, which these are not.
    pair = "; data in arrays is a tuple, (x, y)" if hasattr(item, "__array__") else ""
    raise DataError(
        f"expected a TrainingBatch, (x, y) or (x, y, weight), got {type(item).__name__}{size}{pair}"
    )


def is_single(data: object) -> bool:
    """Whether data is samples with their targets, and no batches: one of them, or a tuple of other things."""
    if not isinstance(data, tuple):
        return isinstance(data, TrainingBatch)
    return not (data and all(isinstance(item, TrainingBatch) for item in data))


def _checked(batch: TrainingBatch, where: str) -> ArraySource:
    x = as_numpy(batch.input, what=f"{where}: input")
    y = as_numpy(batch.target, what=f"{where}: target")
    weight = None if batch.weight is None else as_numpy(batch.weight, what=f"{where}: weight")
    rows = x.shape[0] if x.ndim else 0
    if rows == 0 or x.size == 0:
        raise DataError(f"{where}: input has no samples, its shape is {x.shape}")
    if y.shape[:1] != (rows,):
        several = isinstance(batch.input, (list, tuple)) and y.ndim and x.shape[1:2] == y.shape[:1]
        told = "; several inputs go by name: docs/guides/several-inputs.md" if several else ""
        raise DataError(f"{where}: input has {rows} samples but the target's shape is {y.shape}{told}")
    if weight is not None and where == "data" and weight.size and not weight.any():
        # One batch of several may count for nothing; all samples may not.
        raise DataError("data: the weight of every sample is zero, and at least one must count")
    # Where outputs have steps or other places, each may have a weight: `by_place` knows how many there are.
    if weight is not None and weight.shape[:1] != (rows,):
        raise DataError(f"{where}: weight must be ({rows},), one for each sample, got {weight.shape}")
    return ArraySource(TrainingBatch(x, y, weight), rows)
