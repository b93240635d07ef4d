"""Data of which each process of a shared training reads the rows of its own shards alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from loom.errors import DataError

__all__ = ["ByShard", "Sharded", "by_shard"]


@runtime_checkable
class Sharded(Protocol):
    """Data that can be read in parts: what `by_shard` takes."""

    def of_shard(self, shard: int, shards: int) -> Iterable[Any]:
        """Returns what one of several shards learns from: a batch for each step, smaller than a whole one.

        Args:
            shard: Its number, from 0.
            shards: How many there are.

        Returns:
            Batches, as `loom.train` takes them, or None for a step in which the shard has no rows. It is told
            the epoch's number by `set_epoch`, where it has that. What has ended before the others has no rows
            from then on.
        """


class ByShard:
    """Data that is read by shard; `by_shard` makes it. Iterated, it is what it was made of.

    Args:
        data: What it is made of.
    """

    def __init__(self, data: Sharded) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)  # type: ignore[call-overload, no-any-return]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the data has
        if name in ("data", "__array__"):
            raise AttributeError(name)
        return getattr(self.data, name)

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data."""
        known = getattr(self.data, "identity", None)
        return {"by shard": None if known is None else known()}

    def steps(self, epoch: int, shards: int) -> int | None:
        """Returns how many steps an epoch has; None where nobody knows.

        Args:
            epoch: Its number, from 0.
            shards: Into how many shards a step is cut.
        """
        counted = getattr(self.data, "steps_by_shard", None)
        return None if counted is None else counted(epoch, shards)


def by_shard(data: Sharded) -> ByShard:
    """Has each process of a shared training read the rows of its own shards alone.

    A step is cut into `TrainingConfig.shards` shards, whoever computes them, and here each shard has a stream
    of its own: of the pieces of the data (rows of arrays that lie side by side, row groups of Parquet files,
    record batches of Arrow's), which are dealt to the shards anew in every epoch, in an order that the seed
    says, and shuffled within windows. So the order is a matter of the seed and of the number of shards, and a
    process reads what it computes, and nothing else. Shards that run out of rows before the others have none
    in the steps that remain.

    Args:
        data: What `loom.data.stream`, `column_files`, `samples`, `image_folder` or `generate` has made; of
            the latter a function that takes the epoch, a shard's number and how many there are. Or an object
            of one's own with `of_shard`; see `Sharded`.

    Returns:
        Batches, for `loom.train` and the like. A process alone that takes steps whole, and whoever else
        iterates it, gets those of `data`.

    Raises:
        DataError: It is something else.

    Examples:
        >>> x, y = np.arange(12.0)[:, None], np.arange(12.0)
        >>> data = loom.data.by_shard(loom.data.stream(x, y, batch_size=4, shuffle=False))
        >>> [batch.target.tolist() for batch in data.of_shard(1, 2)]
        [[1.0, 3.0], [5.0, 7.0], [9.0, 11.0]]
    """
    if isinstance(data, (list, tuple)) or not isinstance(data, Sharded):
        raise DataError(
            "by_shard takes data that can be read in parts, such as that of loom.data.stream, "
            f"column_files or samples, or an object with of_shard(shard, shards); got {type(data).__name__}"
        )
    return ByShard(data)
