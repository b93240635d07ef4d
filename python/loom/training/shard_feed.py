"""Data that each process of a shared training reads by shard, on its way into the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from loom import _native
from loom.data import BatchSource, ByShard, TrainingBatch
from loom.data.loading import Loader
from loom.errors import ConfigError, DataError
from loom.training.config import TrainingConfig
from loom.training.feed import copied, require_known_length
from loom.training.form import Examples, Form
from loom.training.sharing import Sharing

__all__ = ["ShardFeed"]

_UNLIMITED = 1 << 62


class ShardFeed:
    """The rows of this process's shards; all take part in every step, with rows or without.

    Args:
        data: The data.
        form_of: Says by the first batch what examples look like.
        config: How the training goes.
        epoch: The first epoch's number.
        shared: This process's part in the training.

    Raises:
        ConfigError: The settings do not go with data by shard.
    """

    def __init__(
        self,
        data: ByShard,
        form_of: Callable[[TrainingBatch], Form],
        config: TrainingConfig,
        epoch: int,
        shared: Sharing,
    ) -> None:
        if config.accumulate > 1:
            raise ConfigError("a training in shards takes batches one by one; take larger ones, accumulate=1")
        self._data, self._shared, self._epoch = data, shared, epoch
        self._epochs = config.epochs
        self.order: dict[str, object] = data.data.order() if isinstance(data.data, Loader) else {}
        """What is known of which samples come in which step of an epoch."""
        self._parts: list[Any] = [data.data.of_shard(shard, shared.shards) for shard in shared.own_shards]
        self._iterators: list[Iterator[Any]] = []
        self._next: list[Any] = []
        first = self._look()
        self._form = form_of(first)
        if self._form.sizing is not None:
            raise ConfigError("data by shard is for networks of fixed extents; give batches without by_shard")
        self.first = copied(self._form.examples(first))
        self.steps = data.steps(epoch, shared.shards)

    def _look(self) -> TrainingBatch:
        """Returns a first batch, of another shard where this process has none."""
        for part in (*self._parts, self._data.data):
            if hasattr(part, "set_epoch"):
                part.set_epoch(self._epoch)
            batches: Iterator[TrainingBatch] = (batch for batch in _batches(part) if batch is not None)
            found = next(batches, None)
            if found is not None:
                return found
        raise DataError("the data set has no batches")

    def total_steps(self, config: TrainingConfig) -> int:
        """Returns the length of the whole run; refuses schedules that need one where it is unknown."""
        counts = [self._data.steps(epoch, self._shared.shards) for epoch in range(config.epochs)]
        if any(count is None for count in counts):
            require_known_length(config)
            return _UNLIMITED
        return min(sum(count or 0 for count in counts), _UNLIMITED)

    def begin(self, trainer: _native.Trainer, done: int, changed: bool) -> None:
        """Starts to read, past what was learned from already."""
        del trainer, changed
        self._iterators = []
        for part in self._parts:
            skipped = done
            if hasattr(part, "set_epoch"):
                part.set_epoch(self._epoch)
            if done and hasattr(part, "load_state_dict"):
                part.load_state_dict({"epoch": self._epoch, "batch": done})
                skipped = 0
            iterator = _batches(part)
            for _ in range(skipped):
                next(iterator, None)
            self._iterators.append(iterator)
        self._epoch += 1

    def ready(self) -> bool:
        """Whether any process has rows for another step."""
        self._next = [next(iterator, _ENDED) for iterator in self._iterators]
        return self._shared.any(one=any(batch is not _ENDED for batch in self._next))

    def position(self) -> None:
        """Returns nothing: how many steps are done says it all."""

    def run(
        self, trainer: _native.Trainer, single: bool, seconds: float, shared: Sharing | None = None
    ) -> _native.Report:
        """Runs the step that is ready."""
        del single, seconds, shared
        batches = [None if batch is _ENDED else batch for batch in self._next]
        here = [self._form.examples(batch) for batch in batches if batch is not None]
        counts = iter([len(examples[0]) for examples in here])
        parts = [0 if batch is None else next(counts) for batch in batches]
        return self._shared.step(trainer, _together(here) if here else self.first, parts)


_ENDED = object()


def _batches(part: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever gives batches
    """Yields checked batches, and None for steps without rows."""
    for batch in part:
        if batch is None:
            yield None
            continue
        yield next(iter(BatchSource([batch], reusable=True)))


def _together(all_of: list[Examples]) -> Examples:
    if len(all_of) == 1:
        return all_of[0]
    weights = [weight for _, _, weight in all_of]
    if any(weight is None for weight in weights) != all(weight is None for weight in weights):
        raise DataError("some batches have weights and others none; give all weights, or none")
    weight = None if weights[0] is None else np.concatenate([each for each in weights if each is not None])
    return np.concatenate([x for x, *_ in all_of]), np.concatenate([y for _, y, _ in all_of]), weight
