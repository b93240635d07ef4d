"""Samples of different extents in batches of like ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike, Foreign
from loom.convert import as_numpy
from loom.data.batches import TrainingBatch
from loom.data.extents import Samples
from loom.data.labels import KINDS, Classes, as_names
from loom.errors import DataError, ShapeError

__all__ = ["Buckets"]

_WINDOW = 64
"""How many batches' worth of shuffled samples are sorted by length together."""

Pack = Callable[[Samples, Sequence[int]], NDArray[Any]]


class Buckets:
    """A data set of samples of different extents, dealt out in batches that need little padding.

    Every epoch shuffles the samples; within windows of 64 batches they are sorted by length and cut into
    batches, which come in an order of their own. Images are put together by size. The order is a matter of
    the seed and the epoch alone.

    Args:
        samples: The samples.
        target: (rows, ...) one for each; where outputs have steps, one of as many steps for each.
        weight: (rows,) how much each counts, or (rows, outputs) for each of several; equally where None.
        steps: Whether outputs have a step for each of the samples'.
        batch_size: How many samples a batch has at most.
        shuffle: Whether the order is another one in each epoch.
        seed: What it is drawn from.
        pack: Puts samples into rows.
        classes: What labels of steps stand for; None where they are no labels.

    Raises:
        DataError: There are more or fewer targets or weights than samples.
        ShapeError: A target has other steps than its sample.
    """

    def __init__(
        self,
        samples: Samples,
        target: Foreign,
        weight: ArrayLike | None,
        *,
        steps: bool,
        batch_size: int,
        shuffle: bool,
        seed: int,
        pack: Pack,
        classes: Classes | None = None,
    ) -> None:
        self._samples, self._steps, self._pack = samples, steps, pack
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._epoch = 0
        rows = len(samples)
        self._target = _targets(target, samples, classes) if steps else _together(target)
        self._weight = None if weight is None else as_numpy(weight, what="data: weight")
        found = (len(self._target),) if isinstance(self._target, list) else self._target.shape[:1]
        if found != (rows,):
            told = len(self._target) if found else "no"
            raise DataError(f"data: input has {rows} samples but there are {told} targets")
        shape = (rows,) if self._weight is None else self._weight.shape
        if shape != (rows,) and (steps or len(shape) != 2 or shape[0] != rows):
            raise DataError(f"data: weight must be ({rows},), one for each sample, got {shape}")

    def __len__(self) -> int:
        if self._samples.are_sequences:
            return math.ceil(len(self._samples) / self._batch_size)
        return sum(-(-len(group) // self._batch_size) for group in self._groups(range(len(self._samples))))

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch is iterated next."""
        self._epoch = epoch

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data."""
        found = hashlib.sha256()
        parts = [self._samples.arrays, list(self._target), [] if self._weight is None else [self._weight]]
        for part in parts:
            for each in part:
                array = np.ascontiguousarray(each)
                found.update(repr((array.shape, str(array.dtype))).encode())
                found.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        return {
            "rows": len(self._samples),
            "batch_size": self._batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "values": found.hexdigest(),
        }

    def __iter__(self) -> Iterator[TrainingBatch]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        for chosen in self._batches(epoch):
            yield self._batch(chosen)

    def _batches(self, epoch: int) -> list[list[int]]:
        draw = np.random.default_rng((self._seed, epoch))
        rows, size = len(self._samples), self._batch_size
        order = draw.permutation(rows).tolist() if self._shuffle else list(range(rows))
        found: list[list[int]] = []
        if not self._samples.are_sequences:
            for group in self._groups(order):
                found += [group[start : start + size] for start in range(0, len(group), size)]
        elif not self._shuffle:
            found = [order[start : start + size] for start in range(0, rows, size)]
        else:
            window = size * _WINDOW
            for begin in range(0, rows, window):
                part = sorted(order[begin : begin + window], key=self._samples.length)
                found += [part[start : start + size] for start in range(0, len(part), size)]
        if self._shuffle:
            found = [found[place] for place in draw.permutation(len(found)).tolist()]
        return found

    def _groups(self, order: Sequence[int]) -> list[list[int]]:
        groups: dict[tuple[int, ...], list[int]] = {}
        for number in order:
            groups.setdefault(self._samples.arrays[number].shape, []).append(number)
        return list(groups.values())

    def _batch(self, chosen: list[int]) -> TrainingBatch:
        rows = self._pack(self._samples, chosen)
        weight = None if self._weight is None else self._weight[chosen]
        if not self._steps:
            if isinstance(self._target, list):
                return TrainingBatch(rows, np.stack([self._target[number] for number in chosen]), weight)
            return TrainingBatch(rows, self._target[chosen], weight)
        width = int(np.prod(self._samples.arrays[0].shape[1:], dtype=np.int64))
        steps = (rows.shape[1] - 1) // width
        parts = [self._target[number] for number in chosen]
        target = np.zeros((len(parts), steps, *parts[0].shape[1:]), parts[0].dtype)
        weights = np.zeros((len(parts), steps), rows.dtype)
        for place, part in enumerate(parts):
            target[place, : len(part)] = part
            weights[place, : len(part)] = 1.0 if weight is None else weight[place]
        return TrainingBatch(rows, target, weights)


def _together(target: Foreign) -> NDArray[Any] | list[NDArray[Any]]:
    """Returns targets in one array, or, where they have extents of their own, each for itself."""
    if (
        isinstance(target, (list, tuple))
        and len({np.shape(each) for each in target if hasattr(each, "shape")}) > 1
    ):
        return [as_numpy(each, what="data: target") for each in target]
    return as_numpy(target, what="data: target")


def _targets(target: Foreign, samples: Samples, classes: Classes | None) -> list[NDArray[Any]]:
    """Returns targets of as many steps as their samples have."""
    padded = samples.form != "list"
    found: list[NDArray[Any]] = []
    if len(target) != len(samples):
        raise DataError(f"data: input has {len(samples)} samples but there are {len(target)} targets")
    for number, each in enumerate(target):
        array = as_numpy(each, what=f"data: the target of sample {number}")
        length = samples.length(number)
        if padded and array.ndim and len(array) >= length:
            array = array[:length]
        if array.ndim == 0 or len(array) != length:
            got = "a single number" if array.ndim == 0 else f"{len(array)}"
            raise ShapeError(
                f"data: sample {number} has {length} steps, and the network tells something of each, but its "
                f"target has {got}; for one target a sample let a layer make one vector of the steps, such "
                "as nn.SequencePool"
            )
        if classes is not None and array.dtype.kind in f"TOU{KINDS[classes.kind]}":
            array = classes.indices(as_names(array), f"data: the target of sample {number}")
        if array.dtype.kind not in "iubf":
            raise ShapeError(
                f"data: the target of sample {number} is of {array.dtype}, and the network has no names "
                "for classes: it learns them from lists and arrays; where data comes in batches, "
                "net.card = loom.ModelCard(labels=[...]) tells them before"
            )
        if found and array.shape[1:] != found[0].shape[1:]:
            raise ShapeError(
                f"data: targets have steps of shape {found[0].shape[1:]} and, of sample {number}, "
                f"{array.shape[1:]}"
            )
        found.append(array)
    if found and any(array.dtype != found[0].dtype for array in found):
        kind = np.result_type(*found)
        found = [array.astype(kind) for array in found]
    return found
