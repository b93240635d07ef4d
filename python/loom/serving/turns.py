"""How answers that are made side by side share the processor: one thread computes, each has its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import monotonic
from typing import TypeVar

from loom.text import Generation

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """Gives each answer one step after the other, in the order in which they come.

    A step, a token or a piece of a prompt, has all processors; who has had one comes behind all who wait. So
    answers get slower as there are more of them, and none waits for another's end, except where there are
    more than so many at once.

    Args:
        most: How many answers are made side by side.
    """

    def __init__(self, most: int) -> None:
        self._thread = ThreadPoolExecutor(1, "loom serve")
        self._free = asyncio.Semaphore(most)
        self.running = 0
        """How many are made."""
        self.waiting = 0
        """How many wait for one to end."""

    async def run(self, work: Callable[[], T], deadline: float) -> T:
        """Does one step.

        Args:
            work: The step.
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

    async def pieces(self, generation: Generation, deadline: float) -> AsyncGenerator[str, None]:
        """Yields an answer's text, token by token, which may be empty; ends where nobody listens any more."""
        try:
            while (piece := await self.run(generation.step, deadline)) is not None:
                if generation.tokens:
                    yield piece
        finally:
            # Behind the step that may be under way.
            self._thread.submit(generation.close)

    def close(self) -> None:
        """Ends the thread, behind what is under way."""
        self._thread.shutdown()
