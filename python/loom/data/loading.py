"""Batches that are made while they are needed: in an order that seed and epoch say, by workers or without."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, whole
from loom._settings.suggestions import listed
from loom._typing import Foreign
from loom.data.augmenting import Augment
from loom.data.batches import TrainingBatch
from loom.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Loader", "SampleLoader"]

Job = Callable[[], TrainingBatch]


def share(count: int, parts: int, number: int) -> slice:
    """Returns which of `count` things one of several parts has; as the engine cuts steps into shards.

    Args:
        count: How many things.
        parts: How many parts.
        number: Which of them.
    """
    return slice(count * number // parts, count * (number + 1) // parts)


class Loader:
    """Base of what gives batches epoch after epoch, and goes on in the middle of one.

    The batches of an epoch are the same ones whatever the number of workers: what is drawn for them is keyed
    by the seed, the epoch and the sample.

    Args:
        where: What it is, for error messages.
        batch_size: How many samples a batch has; the last of an epoch may have fewer.
        shuffle: Whether the order is another one in each epoch.
        seed: What the order, and augmentation, is drawn from.
        workers: How many threads make batches ahead; without any they are made when they are asked for.
        prefetch: How many batches lie ready for each worker.
        augment: What is done to images, other in each epoch; nothing where None.
    """

    classes: tuple[str, ...] | None = None
    """The names of the classes that targets are; None where they are none, or nobody has named them."""
    _shard = (0, 1)
    """Which shard of how many this gives batches of."""
    _to_one = False
    """Whether images are bytes that become real numbers from 0 to 1."""

    def __init__(
        self,
        where: str,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        workers: int,
        prefetch: int = 2,
        augment: Augment | None = None,
    ) -> None:
        self.batch_size = whole(where, "batch_size", batch_size, least=1)
        self.shuffle = flag(where, "shuffle", shuffle)
        self.seed = whole(where, "seed", seed, least=0)
        self.workers = whole(where, "workers", workers, least=0, most=256)
        self.prefetch = whole(where, "prefetch", prefetch, least=1)
        if augment is not None and not isinstance(augment, Augment):
            raise ConfigError(f"{where}: augment is a loom.data.Augment, got {augment!r}")
        self.augment = augment
        self._where = where
        self._epoch = 0
        self._start = 0
        self._taken = 0

    def __repr__(self) -> str:
        rows = getattr(self, "rows", None)
        told = ["rows that nobody has counted" if rows is None else f"{rows:,} rows", *self._looks()]
        if self.classes:
            told.append(f"{len(self.classes)} classes ({listed(self.classes)})")
        order = "shuffled" if self.shuffle else "in order"
        return f"{type(self).__name__}({', '.join(told)}, batches of {self.batch_size}, {order})"

    def _looks(self) -> list[str]:
        """Says of what form the samples are, where that is known before one is read."""
        return []

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next pass is of; training does.

        Args:
            epoch: Its number, from 0.
        """
        if epoch != self._epoch:
            self._start = 0
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Returns how far the newest pass has come, as JSON."""
        return {"epoch": self._epoch, "batch": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass of the same epoch go on where another one was.

        Args:
            state: What `state_dict` has returned.

        Raises:
            SerializationError: It is of something else.
        """
        try:
            self._epoch, self._start = int(state["epoch"]), int(state["batch"])
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(f"{self._where}: {state!r} says of no batch where it is") from error

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data, as JSON: runs that are kept compare it."""
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "augment": None if self.augment is None else self.augment.to_config(),
        }

    def order(self) -> dict[str, object]:
        """Returns what says which samples come in which batch of an epoch, by the names of settings."""
        drawn = {"seed": self.seed} if self.shuffle else {}
        return {"batch_size": self.batch_size, "shuffle": self.shuffle, **drawn}

    def of_shard(self, shard: int, shards: int) -> Self:
        """Returns the part that one of several shards has; see `loom.data.by_shard`.

        Args:
            shard: Its number, from 0.
            shards: How many there are.

        Raises:
            ConfigError: A batch has fewer samples than there are shards.
        """
        if self.batch_size < shards:
            raise ConfigError(
                f"{self._where}: batches of {self.batch_size} samples are too small for {shards} shards; set "
                f"batch_size to {shards} or more, or TrainingConfig(shards={self.batch_size})"
            )
        found = copy.copy(self)
        vars(found).update(_epoch=0, _start=0, _taken=0, _shard=(shard, shards))
        return found

    def __iter__(self) -> Iterator[TrainingBatch]:
        start, self._start = self._start, 0
        self._taken = start
        for batch in self._made(self._jobs(self._epoch, start)):
            self._taken += 1
            yield batch

    def _jobs(self, epoch: int, start: int) -> Iterator[Job]:
        """Yields what makes each batch of an epoch, from one of them on; any thread may make it."""
        raise NotImplementedError

    def _made(self, jobs: Iterator[Job]) -> Iterator[TrainingBatch]:
        if self.workers == 0:
            for job in jobs:
                yield job()
            return
        most = self.workers * self.prefetch
        waiting: deque[Future[TrainingBatch]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="loom-data")
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) >= most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Whoever left the loop early may have left this to the collector of garbage, which runs anywhere,
            # in the midst of the start of a thread, too: to wait there for a thread would never end.
            pool.shutdown(wait=False, cancel_futures=True)

    def _finished(
        self,
        epoch: int,
        rows: NDArray[np.intp],
        x: Foreign,
        y: Foreign,
        weight: Foreign = None,
    ) -> TrainingBatch:
        """Returns a batch, augmented."""
        if self.augment is not None and isinstance(x, Mapping):
            raise ConfigError(
                f"{self._where}: augment= is of images alone, and samples come by name: augment them before"
            )
        if self.augment is not None:
            count = None if self.classes is None else len(self.classes)
            x, y = self.augment.batch(
                x, y, epoch=epoch, samples=rows, seed=self.seed, classes=count, to_one=self._to_one
            )
        elif self._to_one:
            x = np.multiply(x, np.float32(1.0 / 255.0), dtype=np.float32)
        return TrainingBatch(x, y, weight)


class SampleLoader(Loader):
    """Base of what can be asked for any samples: each epoch goes through all of them in an order of its own.

    Args:
        where: What it is, for error messages.
        rows: How many samples there are.
        **settings: As for `Loader`.
    """

    def __init__(self, where: str, rows: int, **settings: Foreign) -> None:
        super().__init__(where, **settings)
        self.rows = rows
        self._turn: AbstractContextManager[Any] = nullcontext()

    def __len__(self) -> int:
        return math.ceil(self.rows / self.batch_size)

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data, as JSON."""
        return {**super().identity(), "rows": self.rows}

    def order(self) -> dict[str, object]:
        """Returns what says which samples come in which batch of an epoch, by the names of settings."""
        return {**super().order(), "rows": self.rows}

    def steps_by_shard(self, epoch: int, shards: int) -> int:
        """Returns how many steps an epoch has, whatever the number of shards."""
        del epoch, shards
        return len(self)

    def _samples(self, rows: NDArray[np.intp]) -> tuple[Any, Any, Any]:
        """Returns samples, targets and weights of some rows; called by workers."""
        raise NotImplementedError

    def _jobs(self, epoch: int, start: int) -> Iterator[Job]:
        if self.shuffle:
            order = np.random.default_rng((self.seed, epoch)).permutation(self.rows)
        else:
            order = np.arange(self.rows)

        def job(rows: NDArray[np.intp]) -> Job:
            def make() -> Any:  # noqa: ANN401 - None where the shard has no rows in this batch
                if len(rows) == 0:
                    return None
                with self._turn:
                    return self._finished(epoch, rows, *self._samples(rows))

            return make

        for first in range(start * self.batch_size, self.rows, self.batch_size):
            rows = order[first : first + self.batch_size]
            shard, shards = self._shard
            yield job(rows[share(len(rows), shards, shard)])
