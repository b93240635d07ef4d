"""Inference in several processes that share one network's weights."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.engine import engine_of
from loom.errors import ConfigError, DataError, StateError
from loom.network import Network

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Predictors"]


class Predictors:
    """Processes that predict with the weights of one network, which are in memory once.

    Where Python around a network is what takes the time, or one call is too small for all processors, several
    processes are faster than one. These are forked off when they are first needed: they read the weights
    where this process has them, in memory or in a file that it has mapped, and copy none. So they have the
    network as it was then: make new ones after it has learned on.

    Args:
        network: The network, on the processor.
        processes: How many processes; as many as there are processors where None.
        batch_size: How many samples a process is handed at a time.

    Raises:
        ConfigError: A setting is out of range, the network is on a GPU, or the system cannot fork.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=4, seed=0)
        >>> x = np.ones((100, 4), "float32")
        >>> with loom.Predictors(net, processes=2, batch_size=16) as predictors:
        ...     y = predictors.predict(x)
        >>> bool((y == net.predict(x)).all())
        True
    """

    def __init__(self, network: Network, processes: int | None = None, *, batch_size: int = 256) -> None:
        count = (os.cpu_count() or 1) if processes is None else processes
        self.processes = whole("Predictors", "processes", count, least=1, most=4096)
        self.batch_size = whole("Predictors", "batch_size", batch_size, least=1)
        if "fork" not in multiprocessing.get_all_start_methods():
            raise ConfigError(
                "Predictors forks processes off, which this system cannot; give each process a network that "
                "it loads itself"
            )
        if engine_of(network).native.device() != "cpu":
            raise ConfigError('Predictors takes a network on the processor; call network.to("cpu") first')
        self._network = network
        self._workers: list[tuple[BaseProcess, Connection]] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def predict(self, x: ArrayLike) -> NDArray[Any]:
        """Returns the network's output for each sample, in the bits of `network.predict`.

        Args:
            x: (rows, *input_shape) the samples.

        Returns:
            (rows, *output_shape) the outputs.

        Raises:
            DataError: There are no samples.
            ShapeError: They do not fit the network.
            StateError: The processes are closed, or one has ended.
        """
        if self._closed:
            raise StateError("these predictors are closed; make new ones")
        samples = as_numpy(x, what="x")
        if samples.ndim == 0 or len(samples) == 0:
            raise DataError(f"x has no samples, its shape is {samples.shape}")
        if not self._workers:
            # What is made of the weights when they are first used is made once, before there are others.
            self._network.predict(samples[:1])
            self._start()
        found: dict[int, NDArray[Any]] = {}
        starts = iter(range(0, len(samples), self.batch_size))
        try:
            for start, made in self._answers(starts, samples):
                if isinstance(made, BaseException):
                    raise made
                found[start] = made
        except BaseException:
            # What is under way would be taken for an answer to the next call.
            self.close()
            self._closed = False
            raise
        return np.concatenate([found[start] for start in sorted(found)])

    def _answers(self, starts: Iterator[int], samples: NDArray[Any]) -> Iterator[tuple[int, Any]]:
        """Hands out the samples to whoever is idle, and yields what comes back."""
        busy: dict[Connection, int] = {}

        def hand_to(connection: Connection) -> None:
            start = next(starts, None)
            if start is not None:
                connection.send((start, samples[start : start + self.batch_size]))
                busy[connection] = start

        try:
            for _, connection in self._workers:
                hand_to(connection)
            while busy:
                for ready in wait(list(busy)):
                    connection = ready  # type: ignore[assignment]
                    answer = connection.recv()
                    del busy[connection]
                    hand_to(connection)
                    yield answer
        except (EOFError, OSError) as error:
            raise StateError("a process that predicts has ended") from error

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        for _ in range(self.processes):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(self._network, there), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def close(self) -> None:
        """Ends the processes."""
        self._closed = True
        for _, connection in self._workers:
            with suppress(OSError):
                connection.close()
        for process, _ in self._workers:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []

    def __repr__(self) -> str:
        return f"Predictors(processes={self.processes}, batch_size={self.batch_size})"


def _serve(network: Network, connection: Connection) -> None:
    """Predicts until nobody asks any more."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            start, samples = connection.recv()
            answer: Any
            try:
                answer = network.predict(samples)
            except Exception as error:  # noqa: BLE001 - raised again by who has asked
                answer = error
            connection.send((start, answer))
