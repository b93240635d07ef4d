"""Samples of different extents in batches of like ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom.data.batches import TrainingBatch
from loom.data.extents import Samples
from loom.data.named_extents import NamedSamples
from loom.data.sample_targets import Targets

__all__ = ["Buckets"]

_WINDOW = 64
"""How many batches' worth of shuffled samples are sorted by length together."""

_AnySamples: TypeAlias = "Samples | NamedSamples"


class Pack(Protocol):
    """Puts samples into rows, with room for the steps of others as well."""

    def __call__(
        self, samples: _AnySamples, chosen: Sequence[int], beside: Iterable[tuple[int, ...]] = ()
    ) -> NDArray[Any]: ...


class Buckets:
    """A data set of samples of different extents, dealt out in batches that need little padding.

    Every epoch shuffles the samples; within windows of 64 batches they are sorted by length and cut into
    batches, which come in an order of their own. Images are put together by size. The order is a matter of
    the seed and the epoch alone.

    Args:
        samples: The samples.
        targets: What they are compared with.
        batch_size: How many samples a batch has at most.
        shuffle: Whether the order is another one in each epoch.
        seed: What it is drawn from.
        pack: Puts samples into rows.
        alike: How many batches, one after the other, have room for the same steps.
    """

    def __init__(
        self,
        samples: _AnySamples,
        targets: Targets,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        pack: Pack,
        alike: int = 1,
    ) -> None:
        self._samples, self._targets, self._pack = samples, targets, pack
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._alike, self._epoch = alike, 0

    def __len__(self) -> int:
        groups = self._groups(range(len(self._samples)))
        return sum(math.ceil(len(group) / self._batch_size) for group in groups)

    @property
    def order(self) -> list[int]:
        """The samples' numbers in the order in which they come where nothing is shuffled."""
        return [number for batch in self._batches(0) for number in batch]

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch is iterated next."""
        self._epoch = epoch

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data."""
        found = hashlib.sha256()
        for each in (*self._samples.contents(), *self._targets.contents()):
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
        batches = self._batches(epoch)
        for place, chosen in enumerate(batches):
            first = place - place % self._alike
            others = batches[first : first + self._alike] if self._alike > 1 else ()
            beside = [self._samples.lengths(number) for batch in others for number in batch]
            rows = self._pack(self._samples, chosen, beside)
            yield TrainingBatch(rows, *self._targets.batch(chosen, rows.dtype))

    def _batches(self, epoch: int) -> list[list[int]]:
        draw = np.random.default_rng((self._seed, epoch))
        rows, size = len(self._samples), self._batch_size
        order = draw.permutation(rows).tolist() if self._shuffle else list(range(rows))
        found: list[list[int]] = []
        for group in self._groups(order):
            window = size * _WINDOW if self._samples.are_sequences and self._shuffle else max(len(group), 1)
            for begin in range(0, len(group), window):
                part = group[begin : begin + window]
                if self._samples.are_sequences and self._shuffle:
                    part = sorted(part, key=self._steps)
                found += [part[start : start + size] for start in range(0, len(part), size)]
        if self._shuffle:
            found = [found[place] for place in draw.permutation(len(found)).tolist()]
        return found

    def _steps(self, number: int) -> tuple[int, tuple[int, ...]]:
        lengths = self._samples.lengths(number)
        return sum(lengths), lengths

    def _groups(self, order: Sequence[int]) -> list[list[int]]:
        groups: dict[Any, list[int]] = {}
        for number in order:
            groups.setdefault(self._samples.size(number), []).append(number)
        return list(groups.values())
