"""Where the answers of a batch keep what they have read: what several texts share is read once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import CacheTypeName
from loom.errors import DeviceError, StateError
from loom.network import Network
from loom.network.slots import Slots
from loom.text.sessions import PIECE, PIECE_ON_GPUS, Asked, Reader, common, followed

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
        return PIECE_ON_GPUS if self.on_gpu else PIECE

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one."""
        return self._bank.on_gpu

    @property
    def goes_on_by_itself(self) -> bool:
        """Whether it has `follow`: on a GPU, and where it is a session of its own."""
        return self.on_gpu or not self._bank.joins

    def follow(self, asked: Asked) -> list[int]:
        """Reads a token and goes on by itself, as `Reader.follow`."""
        return self._bank.follow([self], [asked])[0]

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

    Where every layer keeps something for each token, all places are rows of one memory, and the next tokens
    of any of them are read together, on processors with the bits that they have alone. Otherwise, and where a
    GPU has no room for all of them, each is a session of its own, and they are read one after the other.

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
            except DeviceError as error:
                warnings.warn(
                    f"{error}; so answers take turns, and each has memory of its own once it is made: "
                    f"make fewer than {self._count} at once, or have a capacity below {self._capacity}",
                    RuntimeWarning,
                    stacklevel=2,
                )
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

    def follow(self, slots: Sequence[Slot], asked: Sequence[Asked]) -> list[list[int]]:
        """Has the texts at some places go on by themselves, as `Reader.follow`.

        Args:
            slots: The places.
            asked: What is asked for at each.

        Returns:
            The tokens of each; where they are read together, one may have fewer, up to what ends another.
        """
        with self._lock:
            if self._together is None:
                made = [
                    followed(self._session(slot.number), one) for slot, one in zip(slots, asked, strict=True)
                ]
            else:
                likeliest = all(one.likeliest for one in asked)
                made = self._together.follow(
                    [one.token for one in asked],
                    [slot.number for slot in slots],
                    [one.count for one in asked],
                    stops=sorted({token for one in asked for token in one.end}),
                    samplers=None if likeliest else [one.sampler for one in asked],
                )
        for slot, one, tokens in zip(slots, asked, made, strict=True):
            slot.seen += [one.token, *tokens[:-1]]
        return made

    def _session(self, number: int) -> Any:  # noqa: ANN401 - a Session
        if self._apart[number] is None:
            self._apart[number] = self._network.session(self._capacity, cache_dtype=self._cache_dtype)
        return self._apart[number]
