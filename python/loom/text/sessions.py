"""The sessions of a model: one for each answer under way, and those kept for texts that go on."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import RealArray
from loom.errors import StateError
from loom.network import Network

__all__ = ["PIECE", "Lease", "Sessions"]

PIECE = 64
"""The most tokens of a prompt that go through the network at once: scores of all of them are made."""


class Lease:
    """A session while somebody has it.

    Args:
        owner: Whose it is.
        session: The session.
        seen: The tokens that it has read.
    """

    def __init__(self, owner: Sessions, session: Any, seen: list[int]) -> None:  # noqa: ANN401 - a Session
        self._owner = owner
        self.session = session
        self.seen = seen

    def feed(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Reads tokens; returns what the network makes of each, (tokens, ...).

        Raises:
            StateError: There are more than it has room for, or the network has changed.
        """
        with self._owner.lock:
            scores: RealArray = self.session(np.asarray([tokens]))
        self.seen += tokens
        row: NDArray[Any] = scores[0]
        return row

    def restart(self) -> None:
        """Forgets what was read, and takes up the network as it is now."""
        self.seen = []
        with self._owner.lock:
            try:
                self.session.reset()
            except StateError:
                # The network is on another device now.
                self.session = self._owner.made()


class Sessions:
    """Makes sessions of a network, and keeps some that nobody has.

    One thread at a time computes, so that any number may have sessions of one network: each step of each of
    them is one turn.

    Args:
        network: The network.
        capacity: The most tokens of a session.
        kept: How many are kept that nobody has.
    """

    def __init__(self, network: Network, capacity: int, kept: int = 1) -> None:
        self._network = network
        self._capacity = capacity
        self._kept = kept
        self._idle: list[Lease] = []
        self.lock = RLock()

    def made(self) -> Any:  # noqa: ANN401 - a Session
        """Returns a new session."""
        return self._network.session(self._capacity)

    def lease(self, tokens: Sequence[int]) -> Lease:
        """Returns a session that has read nothing, or the beginning of a text.

        Args:
            tokens: The text; at least one token of it is left to be read.
        """
        with self.lock:
            # The one that has read most of it; a session cannot go back.
            begun = [
                lease
                for lease in self._idle
                if len(lease.seen) < len(tokens) and list(tokens[: len(lease.seen)]) == lease.seen
            ]
            best = max(begun, key=lambda lease: len(lease.seen), default=None)
            if best is None and len(self._idle) < self._kept:
                return Lease(self, self.made(), [])
            chosen = best or self._idle[0]
            self._idle.remove(chosen)
        if best is None:
            chosen.restart()
        return chosen

    def forget(self) -> None:
        """Lets go of the sessions that nobody has: the network has changed."""
        with self.lock:
            self._idle.clear()

    def give_back(self, lease: Lease) -> None:
        """Takes a session back; of those that are kept the one that has rested longest goes."""
        with self.lock:
            # After an error it may have read more than is known.
            if lease.session.position != len(lease.seen):
                return
            self._idle.append(lease)
            del self._idle[: -self._kept or len(self._idle)]
