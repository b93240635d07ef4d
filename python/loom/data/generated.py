"""What functions yield, as data for training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loom._settings.checks import whole
from loom._typing import Foreign
from loom.data.augmenting import Augment
from loom.data.streaming import Piece, StreamLoader, checked_batch
from loom.errors import ConfigError, DataError

__all__ = ["Generated", "generate"]

_BY_SHARD = 3


class Generated(StreamLoader):
    """What a function yields; `generate` makes it."""

    def __init__(
        self, function: Callable[..., Iterable[Any]], rows: int | None, window: int, **settings: Foreign
    ) -> None:
        super().__init__("generate", rows, window, **settings)
        self._function = function
        self._parameters = len(_parameters(function))

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data: the function's name."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return {**super().identity(), "function": name}

    def of_shard(self, shard: int, shards: int) -> Generated:
        """Returns the part that one of several shards has; see `loom.data.by_shard`."""
        if self._parameters != _BY_SHARD:
            raise ConfigError(
                "generate: what is read by shard comes of a function of three arguments, which are the "
                f"epoch, a shard's number and how many shards there are; this one takes {self._parameters}"
            )
        return super().of_shard(shard, shards)

    def steps_by_shard(self, epoch: int, shards: int) -> None:
        """Nobody knows how many steps an epoch has: that is for the function to say."""
        del epoch, shards

    def _own_pieces(self, epoch: int) -> Iterable[Piece]:
        return self._pieces(epoch)

    def _pieces(self, epoch: int, shards: int = 1) -> Iterable[Piece]:
        del shards
        told = (epoch, *self._shard) if self._parameters == _BY_SHARD else (epoch,) * min(self._parameters, 1)
        batches = self._function(*told)
        for number, batch in enumerate(batches):
            arrays, form = checked_batch(batch, f"generate: batch {number}")
            if number == 0:
                self._form = form
            elif form != self._form:
                raise DataError(f"generate: batch {number} has other parts or names than the first one")
            yield Piece(len(arrays[0]), None, lambda arrays=arrays: arrays)  # type: ignore[misc]


def _parameters(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Built-in functions do not say what they take.
        return []
    return [each.name for each in known if each.kind in kinds and each.default is each.empty]


def generate(
    function: Callable[..., Iterable[Any]],
    *,
    batch_size: int = 32,
    rows: int | None = None,
    shuffle: bool = False,
    window: int = 8192,
    seed: int = 0,
    augment: Augment | None = None,
    classes: Sequence[str] | None = None,
    workers: int = 0,
) -> Generated:
    """Gives what a function yields in batches of one size, shuffled by windows.

    The function is called for each epoch, and so may be a generator's. What it yields may be of any length.

    Args:
        function: Yields (x, y), (x, y, weight) or `TrainingBatch`es, with rows as the first axis, of arrays
            or, where inputs or outputs have names, of dictionaries of arrays. It is called with the epoch's
            number where it takes an argument, otherwise without any; where it takes three, with a shard's
            number and how many shards there are, too, for `by_shard`.
        batch_size: How many samples a batch has.
        rows: How many samples an epoch has, where that is known: schedules over the whole run need it.
        shuffle: Whether rows are shuffled within windows.
        window: How many rows are shuffled together, and held in memory.
        seed: What is drawn from.
        augment: What is done to images (rows, channels, height, width).
        classes: The names of the classes, which the network then remembers.
        workers: How many threads make batches ahead, augmented, say; the function runs in the caller's.

    Returns:
        Batches, for `loom.train` and the like. A run that goes on calls the function and passes over what was
        learned from.

    Raises:
        ConfigError: A setting is out of range.
        DataError: While it is iterated: something else is yielded, or nothing.

    Examples:
        >>> def rows(epoch):
        ...     for start in range(0, 6, 3):
        ...         yield np.ones((3, 2)), np.arange(start, start + 3) + 10 * epoch
        >>> [batch.target.tolist() for batch in loom.data.generate(rows, batch_size=4)]
        [[0, 1, 2, 3], [4, 5]]
    """
    if not callable(function):
        raise ConfigError(
            f"generate takes a function that yields batches, got {type(function).__name__}; for what can be "
            "iterated again: generate(lambda: data)"
        )
    count = None if rows is None else whole("generate", "rows", rows, least=1)
    found = Generated(
        function,
        count,
        window,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        workers=workers,
        augment=augment,
    )
    found.classes = None if classes is None else tuple(map(str, classes))
    return found
