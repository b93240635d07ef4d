"""Requests that come at about the same time are computed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from loom._typing import RealArray
from loom.network import Network

__all__ = ["Batcher"]


@dataclass(frozen=True)
class _Request:
    x: RealArray
    answer: asyncio.Future[RealArray]


class Batcher:
    """Predicts for many callers, in a thread of its own.

    Whoever comes within `wait` of the first of a batch, or while another batch is computed, is computed
    with it; a batch that is full does not wait. What anyone gets is what he would get alone, to the bit: on
    the CPU a sample's result is the same in any batch, and on a GPU all batches have the same size.

    Args:
        net: The network.
        rows: How many samples are computed at once.
        wait: The seconds that the first of a batch waits for others.
        told: Is called with the rows and the seconds of every batch.
        rows_of: Predicts in place of the network's `predict`, by samples and how many at once: of named
            inputs or outputs rows of all of them.
    """

    def __init__(
        self,
        net: Network,
        rows: int,
        wait: float,
        told: Callable[[int, float], None] = lambda *_: None,
        rows_of: Callable[[RealArray, int], RealArray] | None = None,
    ) -> None:
        self._net = net
        self._rows_of = rows_of
        self._rows = rows
        self._wait = wait
        self._told = told
        self._fixed = net.device != "cpu"
        self._thread = ThreadPoolExecutor(1, "loom serve")
        self._pending: list[_Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait, those that are computed not among them."""
        return len(self._pending)

    async def predict(self, x: RealArray) -> RealArray:
        """Returns the outputs for samples.

        Args:
            x: (rows, *input_shape) the samples, in the network's precision.

        Returns:
            (rows, *output_shape).

        Raises:
            LoomError: The network cannot take them.
        """
        loop = asyncio.get_running_loop()
        request = _Request(x, loop.create_future())
        self._pending.append(request)
        if self._running is None:
            if sum(len(each.x) for each in self._pending) >= self._rows:
                self._begin()
            elif self._timer is None:
                self._timer = loop.call_later(self._wait, self._begin)
        return await request.answer

    async def close(self) -> None:
        """Ends, once everyone who waits has an answer."""
        while self._pending or self._running is not None:
            self._begin()
            if self._running is not None:
                await self._running
        self._thread.shutdown()

    def _begin(self) -> None:
        """Computes what waits, unless a batch is being computed: what comes next then follows it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is None and self._pending:
            self._running = asyncio.get_running_loop().create_task(self._compute())

    async def _compute(self) -> None:
        taken: list[_Request] = []
        rows = 0
        while self._pending and rows < self._rows:
            request = self._pending.pop(0)
            # Whoever has given up is left out.
            if not request.answer.done():
                taken.append(request)
                rows += len(request.x)
        if taken:
            inputs = [request.x for request in taken]
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._answers, inputs)
            for request, answer in zip(taken, answers, strict=True):
                if request.answer.done():
                    continue
                if isinstance(answer, BaseException):
                    request.answer.set_exception(answer)
                else:
                    request.answer.set_result(answer)
        self._running = None
        self._begin()

    def _answers(self, inputs: list[RealArray]) -> list[RealArray | Exception]:
        """Returns the outputs, or errors, of several requests."""
        if len(inputs) > 1 and all(x.shape[1:] == self._net.input_shape for x in inputs):
            try:
                together = self._predict(np.concatenate(inputs))
            except Exception:  # noqa: BLE001 - whose fault it is shows below
                pass
            else:
                ends = np.cumsum([len(x) for x in inputs])
                return [together[end - len(x) : end] for x, end in zip(inputs, ends, strict=True)]
        return [self._alone(x) for x in inputs]

    def _alone(self, x: RealArray) -> RealArray | Exception:
        try:
            return self._predict(x)
        except Exception as error:  # noqa: BLE001 - it goes to whoever asked
            return error

    def _predict(self, x: RealArray) -> RealArray:
        rows = len(x)
        if self._fixed and rows % self._rows and x.shape[1:] == self._net.input_shape:
            # With copies of a sample: not everything can read zeros.
            x = np.concatenate([x, np.repeat(x[:1], -rows % self._rows, axis=0)])
        began = perf_counter()
        computed = self._rows_of or self._net.predict
        y = computed(x, self._rows)
        self._told(rows, perf_counter() - began)
        return y[:rows]
