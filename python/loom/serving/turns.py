"""How answers that are made side by side share the processor: one thread computes, in steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import monotonic
from typing import TypeVar

from loom.text import Batch, Generation, Told

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """Has answers made by a batch, step by step, and tells each of them what it gets.

    A step reads a token of every answer and a piece of one prompt; who comes joins at the next one, so that
    none waits for another's end, except where there are more than so many at once.

    Args:
        batch: Makes them; nobody else steps it.
        most: How many answers are made side by side, at most as many as the batch has places.
    """

    def __init__(self, batch: Batch, most: int) -> None:
        self._batch = batch
        self._thread = ThreadPoolExecutor(1, "loom serve")
        self._free = asyncio.Semaphore(most)
        # What has been made for whom, and who makes it.
        self._listeners: dict[int, asyncio.Queue[Told | Exception]] = {}
        self._work: asyncio.Task[None] | None = None
        self.running = 0
        """How many are made."""
        self.waiting = 0
        """How many wait for one to end."""

    async def run(self, work: Callable[[], T], deadline: float) -> T:
        """Does other work between two steps.

        Args:
            work: The work.
            deadline: The time, of the monotonic clock, after which nobody waits for it.

        Raises:
            TimeoutError: It was not done by then.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.run_in_executor(self._thread, work), deadline - monotonic())

    @asynccontextmanager
    async def place(self, deadline: float) -> AsyncIterator[None]:
        """Waits until one more may be made, and is one of them inside."""
        self.waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), deadline - monotonic())
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()

    async def pieces(self, generation: Generation, deadline: float) -> AsyncGenerator[Told, None]:
        """Yields what is made of an answer, token by token; it ends where nobody listens any more.

        Raises:
            TimeoutError: It has not ended by then.
            LoomError: The network fails.
        """
        queue: asyncio.Queue[Told | Exception] = asyncio.Queue()
        self._listeners[id(generation)] = queue
        self._batch.add(generation)
        self._go_on()
        try:
            while True:
                told = await asyncio.wait_for(queue.get(), deadline - monotonic())
                if isinstance(told, Exception):
                    raise told
                if told.error is not None:
                    raise told.error
                if told.tokens:
                    yield told
                if told.last:
                    return
        finally:
            del self._listeners[id(generation)]
            # Behind the step that may be under way.
            self._batch.remove(generation)
            self._go_on()

    def _go_on(self) -> None:
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._steps())

    async def _steps(self) -> None:
        """Steps until there is nothing to do."""
        loop = asyncio.get_running_loop()
        while not self._batch.idle:
            try:
                made = await loop.run_in_executor(self._thread, self._batch.step)
            except Exception as error:  # noqa: BLE001 - whoever waits is told, and raises it
                for queue in self._listeners.values():
                    queue.put_nowait(error)
                return
            for told in made:
                listener = self._listeners.get(id(told.generation))
                if listener is not None:
                    listener.put_nowait(told)

    def close(self) -> None:
        """Ends the thread, behind what is under way."""
        self._thread.shutdown()
