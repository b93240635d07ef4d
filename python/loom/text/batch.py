"""Answers that are made side by side, which join and leave while others go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from loom._settings.checks import whole
from loom.errors import LoomError, StateError
from loom.text.generation import Finish, Generation
from loom.text.slots import Bank, Slot

if TYPE_CHECKING:
    from threading import RLock

    from loom._typing import CacheTypeName
    from loom.network import Network

__all__ = ["Batch", "Told"]

_TOGETHER = 8
"""The most tokens that answers get where the network chooses them itself, before others have their turn."""

_SOON = 0.04
"""Seconds that these may take."""


@dataclass(frozen=True)
class Told:
    """What a step has made of one answer.

    Args:
        generation: The answer.
        text: What may be told now; it may be empty.
        tokens: How many tokens it has now.
        finish: Why it has ended; None while it goes on.
        error: Why it cannot go on.
    """

    generation: Generation
    text: str = ""
    tokens: int = 0
    finish: Finish | None = None
    error: LoomError | None = None

    @property
    def last(self) -> bool:
        """Whether it is the last of this answer."""
        return self.finish is not None or self.error is not None


@dataclass
class _Entry:
    generation: Generation
    slot: Slot

    @property
    def pending(self) -> int:
        """How many tokens are to be read before the next is chosen."""
        return len(self.generation.context) - len(self.slot.seen)

    @property
    def goes_on(self) -> bool:
        """Whether the network chooses its next tokens itself."""
        return self.generation.goes_on(self.slot)


class Batch:
    """Makes answers side by side: each step reads a token of every one of them with one call of the network.

    The weights are gone through once for all, which is what takes the time. Whoever is added joins at the
    next step, and whoever has ended makes room for the next. On a processor each gets the very tokens that
    it gets alone; a GPU, which makes several of all of them at a time, rounds otherwise for many than for
    one. With recurrent layers they take turns.

    One thread steps; any may add and remove.

    Args:
        network: The network.
        capacity: The most tokens of a prompt and its answer.
        lock: Is held while the network computes.
        most: How many answers are made at once; others wait until one has ended.
        cache_dtype: What keys and values are kept as, as in `loom.Session`.

    Examples:
        >>> batch = model.batch(8)  # doctest: +SKIP
        >>> for prompt in prompts:  # doctest: +SKIP
        ...     batch.add(model.generate(prompt))
        >>> for told in batch:  # doctest: +SKIP
        ...     print(told.generation.seed, told.text)
    """

    def __init__(
        self,
        network: Network,
        capacity: int,
        lock: RLock,
        most: int,
        cache_dtype: CacheTypeName | None = None,
    ) -> None:
        self._lock = lock
        self._network = network
        self._capacity = capacity
        self._cache_dtype = cache_dtype
        self._most = whole("Batch", "most", most, least=1, most=1 << 16)
        # Its memory is taken when somebody joins.
        self._made: Bank | None = None
        self._waiting: deque[Generation] = deque()
        self._leaving: deque[Generation] = deque()
        self._running: list[_Entry] = []
        self._together = 1

    @property
    def running(self) -> int:
        """How many answers are made."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def add(self, generation: Generation) -> None:
        """Adds an answer, of which nothing is made yet.

        Args:
            generation: What `generate` or `chat` of the same model has returned.
        """
        self._waiting.append(generation)

    def remove(self, generation: Generation) -> None:
        """Ends an answer early; its place is free from the next step on.

        Args:
            generation: The answer; one that is not there, or not any more, changes nothing.
        """
        self._leaving.append(generation)

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return not (self._running or self._waiting or self._leaving)

    def __iter__(self) -> Iterator[Told]:
        """Goes on until all have ended, those that are added meanwhile among them."""
        while not self.idle:
            yield from self.step()

    def step(self) -> list[Told]:
        """Reads a token of each answer, and a piece of one prompt.

        Returns:
            What was made of each that has moved.
        """
        told: list[Told] = []
        with self._lock:
            self._leave()
            self._join()
            going_on = [entry for entry in self._running if entry.goes_on]
            reading = next(
                (entry for entry in self._running if entry.pending > 1 and entry not in going_on), None
            )
            if reading is not None:
                # Behind the others, who have their turn then.
                self._running.remove(reading)
                self._running.append(reading)
                told += self._read([reading])
            alone = (reading, *going_on)
            writing = [entry for entry in self._running if entry.pending == 1 and entry not in alone]
            if writing:
                told += self._read(writing)
            for group in [going_on] if self._bank.joins else [[entry] for entry in going_on]:
                # What went wrong with another one may have ended some.
                told += self._go_on([entry for entry in group if entry in self._running])
        return told

    def _go_on(self, entries: list[_Entry]) -> list[Told]:
        """Has the network choose the next tokens of some answers itself."""
        if not entries:
            return []
        slots = [entry.slot for entry in entries]
        asked = [entry.generation.asks(entry.slot, self._together) for entry in entries]
        started = perf_counter()
        try:
            made = self._bank.follow(slots, asked)
        except StateError as error:
            return self._anew(error, begun=True)
        except LoomError as error:
            if len(entries) > 1:
                # It may be about one of them alone.
                return [told for entry in entries for told in self._go_on([entry])]
            self._end(entries[0])
            return [Told(entries[0].generation, error=error)]
        self._pace(perf_counter() - started)
        told = []
        for entry, tokens in zip(entries, made, strict=True):
            generation, text = entry.generation, ""
            generation.gets(tokens)
            while generation.finish_reason is None and generation.has_more:
                text += generation.tells()
            told.append(Told(generation, text, len(generation.tokens), generation.finish_reason))
            if generation.finish_reason is not None:
                self._end(entry)
        return told

    def _pace(self, seconds: float) -> None:
        """Has answers get as many tokens at a time as nobody has to wait for."""
        if seconds < _SOON / 2:
            self._together = min(2 * self._together, _TOGETHER)
        elif seconds > 2 * _SOON:
            self._together = max(self._together // 2, 1)

    @property
    def _bank(self) -> Bank:
        if self._made is None:
            self._made = Bank(self._network, self._most, self._capacity, self._lock, self._cache_dtype)
        return self._made

    def _leave(self) -> None:
        while self._leaving:
            generation = self._leaving.popleft()
            for entry in self._running:
                if entry.generation is generation:
                    self._end(entry)
                    break
            else:
                if generation in self._waiting:
                    self._waiting.remove(generation)
                generation.close()

    def _join(self) -> None:
        while self._waiting and len(self._running) < self._most:
            generation = self._waiting.popleft()
            slot = self._bank.lease(generation.context)
            generation.reused_tokens = len(slot.seen)
            self._running.append(_Entry(generation, slot))

    def _end(self, entry: _Entry) -> None:
        self._running.remove(entry)
        entry.slot.taken = False
        entry.generation.close()

    def _read(self, entries: list[_Entry]) -> list[Told]:
        """Has entries read what is next, as many tokens each."""
        guessing = len(self._running) == 1
        wanted = [entry.generation.wanted(entry.slot, guessing=guessing) for entry in entries]
        if len({len(tokens) for tokens, _ in wanted}) > 1:
            # One has let go of a part of its text, and reads the rest again.
            return [told for entry in entries for told in self._read_wanted([entry])]
        return self._read_wanted(entries, wanted)

    def _read_wanted(
        self, entries: list[_Entry], wanted: list[tuple[list[int], bool]] | None = None
    ) -> list[Told]:
        if wanted is None:
            wanted = [entry.generation.wanted(entry.slot, guessing=False) for entry in entries]
        begun = any(entry.slot.seen for entry in entries)
        try:
            scores = self._bank.feed(
                [entry.slot for entry in entries],
                [tokens for tokens, _ in wanted],
                every=any(every for _, every in wanted),
            )
        except StateError as error:
            return self._anew(error, begun=begun)
        except LoomError as error:
            return self._anew(error, begun=False)
        told = []
        for entry, rows in zip(entries, scores, strict=True):
            generation = entry.generation
            try:
                text = generation.take(entry.slot, rows)
            except LoomError as error:
                told.append(Told(generation, error=error))
                self._end(entry)
                continue
            told.append(Told(generation, text, len(generation.tokens), generation.finish_reason))
            if generation.finish_reason is not None:
                self._end(entry)
        return told

    def _anew(self, error: LoomError, *, begun: bool) -> list[Told]:
        """The network has changed: who has written nothing yet is read by it as it is now."""
        self._bank.begin()
        failed = []
        for entry in list(self._running):
            if entry.generation.tokens or not begun:
                failed.append(Told(entry.generation, error=error))
                self._end(entry)
            entry.generation.reused_tokens = 0
        return failed
