"""Ranks that are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from loom import _native
from loom._settings.checks import whole
from loom.errors import StateError

__all__ = ["threads"]

ResultT = TypeVar("ResultT")


class _Thread:
    """One of them."""

    def __init__(self, rank: int, size: int, shared: _Shared) -> None:
        self.rank, self.size = rank, size
        self._shared = shared
        # The engine's own steps go past Python.
        self._meeting = shared.meeting

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        return [given[self.rank] for given in self._shared.exchange(self.rank, list(parts))]

    def to_all(self, part: bytes) -> list[bytes]:
        return [given[0] for given in self._shared.exchange(self.rank, [part])]

    def fail(self, message: str) -> None:
        self._shared.fail(f"rank {self.rank} could not go on: {message}")

    def __repr__(self) -> str:
        return f"Thread(rank={self.rank}, size={self.size})"


class _Shared:
    def __init__(self, size: int) -> None:
        self._places: list[list[bytes]] = [[] for _ in range(size)]
        self._barrier = threading.Barrier(size)
        self._message: str | None = None
        self.meeting = _native.Meeting(size)

    def exchange(self, rank: int, given: list[bytes]) -> list[list[bytes]]:
        self._places[rank] = given
        self._wait()
        found = list(self._places)
        # Nobody hands in the next before all have taken these.
        self._wait()
        return found

    def _wait(self) -> None:
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise StateError(self._message or "another rank has ended") from None

    def fail(self, message: str) -> None:
        self._message = self._message or message
        self.meeting.fail(self._message)
        self._barrier.abort()


def threads(count: int, function: Callable[[_Thread], ResultT]) -> list[ResultT]:
    """Runs a function in several threads of this process, each with a communicator.

    Each rank has a network of its own. This is for trying things out, and for tests; on processors several
    processes are as fast, and MPI reaches several machines.

    Args:
        count: How many ranks.
        function: Called once in each thread, with the rank's communicator.

    Returns:
        What it has returned, in the order of the ranks.

    Raises:
        Exception: What it has raised in the first rank that did; the other ranks are told, and end.

    Examples:
        >>> def train(ranks):
        ...     net = loom.Sequential([nn.Dense(2)], input_shape=2)
        ...     data, config = (np.eye(2), np.array([0, 1])), loom.TrainingConfig(verbose=False)
        ...     loom.train(net, data, config, distributed=ranks)
        ...     return net.fingerprint()
        >>> one, two = loom.distributed.threads(2, train)
        >>> one == two
        True
    """
    size = whole("threads", "count", count, least=1)
    shared = _Shared(size)
    results: list[ResultT | None] = [None] * size
    errors: list[tuple[float, BaseException]] = []
    lock = threading.Lock()

    def run(rank: int) -> None:
        try:
            results[rank] = function(_Thread(rank, size, shared))
        except BaseException as error:  # noqa: BLE001 - raised again below
            with lock:
                errors.append((len(errors), error))
            shared.fail(str(error))

    workers = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0][1]
    return results  # type: ignore[return-value]
