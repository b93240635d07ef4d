"""Where the answers of a batch keep what they have read: what several texts share is read once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import CacheTypeName
from loom.errors import StateError
from loom.network import Network
from loom.network.slots import Slots
from loom.text.sampling import Sampler
from loom.text.sessions import PIECE, Reader, common, followed

__all__ = ["Bank", "Slot"]


class Slot(Reader):
    """A place in a bank, which reads one answer's tokens.

    Args:
        bank: Whose it is.
        number: Which one.
    """

    def __init__(self, bank: Bank, number: int) -> None:
        self._bank = bank
        self.number = number
        self.seen = []
        self.taken = False
        """Whether an answer has it."""

    @property
    def piece(self) -> int:
        """The most tokens of a prompt that it reads at once."""
        return PIECE

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one."""
        return self._bank.on_gpu

    @property
    def goes_on_by_itself(self) -> bool:
        """Whether it is a session of its own."""
        return not self._bank.joins

    def follow(
        self, token: int, count: int, end: Collection[int], sampler: Sampler | None = None
    ) -> list[int]:
        """Reads a token and goes on by itself, as `Reader.follow`, where it is a session of its own."""
        made = self._bank.follow(self.number, token, count, end, sampler)
        self.seen += [token, *made[:-1]]
        return made

    def goes_back(self, count: int) -> bool:
        """Goes back to where it had read so many tokens; returns whether it could."""
        if not self._bank.rewind(self.number, count):
            return False
        del self.seen[count:]
        return True

    def restart(self) -> None:
        """Forgets what was read."""
        self._bank.rewind(self.number, 0)
        self.seen = []


class Bank:
    """Room for the texts of several answers.

    On a processor, and where every layer keeps something for each token, all places are rows of one memory,
    and the next tokens of any of them are read together, with the bits that they have alone. Otherwise each
    is a session of its own, and they are read one after the other.

    Args:
        network: The network.
        count: How many places there are.
        capacity: The most tokens of each.
        lock: Is held while the network computes.
        cache_dtype: What keys and values are kept as, as in `loom.Session`.
    """

    def __init__(
        self,
        network: Network,
        count: int,
        capacity: int,
        lock: RLock,
        cache_dtype: CacheTypeName | None = None,
    ) -> None:
        self._network = network
        self._cache_dtype = cache_dtype
        self._count = count
        self._capacity = capacity
        self._lock = lock
        self.slots = [Slot(self, number) for number in range(count)]
        self._together: Slots | None = None
        # Made where they are needed.
        self._apart: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """Forgets everything, and takes up the network as it is now."""
        with self._lock:
            try:
                together = Slots(self._network, self._count, self._capacity, cache_dtype=self._cache_dtype)
                self._together, self._apart = together, []
            except StateError:
                self._together, self._apart = None, [None] * self._count
        for slot in self.slots:
            slot.seen = []

    @property
    def joins(self) -> bool:
        """Whether several texts are read together."""
        return self._together is not None

    def lease(self, tokens: Sequence[int]) -> Slot:
        """Takes a place that nobody has, in which nothing is read, or the beginning of a text.

        Args:
            tokens: The text; at least one token of it is left to be read.
        """
        shared = {slot.number: common(slot.seen, tokens[:-1]) for slot in self.slots}
        free = [slot for slot in self.slots if not slot.taken]
        best = max(self.slots, key=lambda slot: (shared[slot.number], not slot.taken))
        count = shared[best.number]
        if best.taken or (2 * count < len(best.seen) and len(free) > 1):
            # Its text stays; another place gets what both share: an empty one, or that which is free longest.
            others = [slot for slot in free if slot is not best]
            chosen = min(others, key=lambda slot: len(slot.seen) > 0)
            if count and self._together is not None:
                with self._lock:
                    self._together.copy(best.number, chosen.number, count)
                chosen.seen = list(best.seen[:count])
            else:
                chosen.restart()
        else:
            chosen = best
            chosen.keep(tokens)
        chosen.taken = True
        # Behind the others, so that the first of those that are free is free longest.
        self.slots.remove(chosen)
        self.slots.append(chosen)
        return chosen

    def rewind(self, number: int, count: int) -> bool:
        """Goes back at one place; returns whether it could."""
        try:
            with self._lock:
                if self._together is not None:
                    self._together.rewind(number, count)
                elif self._apart[number] is not None:
                    if count:
                        self._apart[number].rewind(count)
                    else:
                        self._apart[number].reset()
        except StateError:
            return False
        return True

    def feed(self, slots: Sequence[Slot], tokens: Sequence[Sequence[int]], *, every: bool) -> NDArray[Any]:
        """Reads the next tokens at some places, as many at each.

        Args:
            slots: The places.
            tokens: Those of each.
            every: Whether what the network makes of each token is wanted, rather than of the last.

        Returns:
            (places, 1 or tokens, ...)

        Raises:
            StateError: The network has changed.
        """
        x = np.asarray(tokens)
        with self._lock:
            if self._together is not None:
                scores = self._together(x, [slot.number for slot in slots], last=not every)
            else:
                scores = np.concatenate(
                    [
                        self._session(slot.number)(row[None], last=not every)
                        for slot, row in zip(slots, x, strict=True)
                    ]
                )
        for slot, row in zip(slots, tokens, strict=True):
            slot.seen += row
        return scores

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one."""
        return str(self._network.device) != "cpu"

    def follow(
        self, number: int, token: int, count: int, end: Collection[int], sampler: Sampler | None
    ) -> list[int]:
        """Has the session at one place go on by itself, as `Reader.follow`.

        Args:
            number: The place, which is a session of its own.
            token: The token to read first.
            count: The most tokens to make.
            end: Those after which no more are needed.
            sampler: What draws them; None for the likeliest ones.
        """
        with self._lock:
            return followed(self._session(number), token, count, end, sampler)

    def _session(self, number: int) -> Any:  # noqa: ANN401 - a Session
        if self._apart[number] is None:
            self._apart[number] = self._network.session(self._capacity, cache_dtype=self._cache_dtype)
        return self._apart[number]
