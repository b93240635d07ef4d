"""The sessions of a model: one for each answer under way, and those kept for texts that go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loom._typing import CacheTypeName, RealArray
from loom.errors import StateError
from loom.network import Network
from loom.text.sampling import Sampler

__all__ = ["PIECE", "PIECE_ON_GPUS", "Asked", "Lease", "Reader", "Sessions", "common", "followed"]

PIECE = 64
PIECE_ON_GPUS = 512
"""The most tokens of a prompt that are read before others have their turn."""


@dataclass(frozen=True)
class Asked:
    """What an answer asks of a network that chooses its next tokens itself.

    Args:
        token: The token to read first.
        count: The most tokens to make.
        end: Those after which no more are needed.
        sampler: Draws them and takes note of them.
        likeliest: Whether the sampler takes the likeliest ones, so that none is needed.
    """

    token: int
    count: int
    end: Collection[int]
    sampler: Sampler
    likeliest: bool


class Reader(Protocol):
    """Reads the tokens of one answer, and may go on by itself.

    Args:
        seen: The tokens that it has read.
        piece: The most tokens of a prompt that it reads at once.
    """

    seen: list[int]

    @property
    def piece(self) -> int:
        """The most tokens of a prompt that it reads at once."""

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one, where tokens are drawn without its scores coming back."""

    @property
    def goes_on_by_itself(self) -> bool:
        """Whether it has `follow`, rather than being read together with others."""

    def follow(self, asked: Asked) -> list[int]:
        """Reads a token and goes on by the likeliest ones, or by those that are drawn.

        Args:
            asked: What is asked for.

        Returns:
            The tokens; the last one is not read yet.

        Raises:
            StateError: There is no room for so many, or the network has changed.
            NonFiniteError: Scores hold NaN or infinity.
        """

    def goes_back(self, count: int) -> bool:
        """Goes back to where it had read so many tokens; returns whether it could."""

    def restart(self) -> None:
        """Forgets what was read."""

    def keep(self, tokens: Sequence[int]) -> None:
        """Goes back to where what it has read is the beginning of a text, of which a token is left to read.

        Args:
            tokens: The text.
        """
        shared = common(self.seen, tokens[:-1])
        if shared < len(self.seen) and not (shared and self.goes_back(shared)):
            self.restart()


class Lease(Reader):
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

    @property
    def piece(self) -> int:
        """The most tokens of a prompt that it reads at once."""
        return self._owner.piece

    def give_back(self) -> None:
        """Gives the session back."""
        self._owner.give_back(self)

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> NDArray[Any]:
        """Reads tokens; returns what the network makes of the last, (1, ...), or of each, (tokens, ...).

        Args:
            tokens: The tokens.
            every: Whether what it makes of each is wanted.

        Raises:
            StateError: There are more than it has room for, or the network has changed.
        """
        with self._owner.lock:
            scores: RealArray = self.session(np.asarray([tokens]), last=not every)
        self.seen += tokens
        rows: NDArray[Any] = scores[0]
        return rows

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one, where tokens are drawn without its scores coming back."""
        return self._owner.on_gpu

    @property
    def goes_on_by_itself(self) -> bool:
        """Whether it has `follow`: a session does."""
        return True

    def follow(self, asked: Asked) -> list[int]:
        """Reads a token and goes on by itself, as `Reader.follow`."""
        with self._owner.lock:
            made = followed(self.session, asked)
        self.seen += [asked.token, *made[:-1]]
        return made

    def goes_back(self, count: int) -> bool:
        """Goes back to where it had read so many tokens; returns whether it could."""
        try:
            self.session.rewind(count)
        except StateError:
            return False
        del self.seen[count:]
        return True

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
        cache_dtype: What keys and values are kept as, as in `loom.Session`.
    """

    def __init__(
        self,
        network: Network,
        capacity: int,
        kept: int = 1,
        cache_dtype: CacheTypeName | None = None,
    ) -> None:
        self._network = network
        self._capacity = capacity
        self._kept = kept
        self._cache_dtype = cache_dtype
        self._idle: list[Lease] = []
        self.lock = RLock()

    def made(self) -> Any:  # noqa: ANN401 - a Session
        """Returns a new session."""
        return self._network.session(self._capacity, cache_dtype=self._cache_dtype)

    def lease(self, tokens: Sequence[int]) -> Lease:
        """Returns a session that has read nothing, or the beginning of a text.

        Args:
            tokens: The text; at least one token of it is left to be read.
        """
        with self.lock:
            # The one that has read most of it. One that has read more of another text goes back, unless
            # that is most of what it has read and there is room for one more.
            shared = {id(lease): common(lease.seen, tokens[:-1]) for lease in self._idle}
            room = len(self._idle) < self._kept
            begun = [
                lease
                for lease in self._idle
                if shared[id(lease)] and not (room and 2 * shared[id(lease)] < len(lease.seen))
            ]
            best = max(begun, key=lambda lease: shared[id(lease)], default=None)
            if best is None and (room or not self._idle):
                return Lease(self, self.made(), [])
            chosen = best or self._idle[0]
            self._idle.remove(chosen)
            if best is not None and best.goes_back(shared[id(best)]):
                return best
        chosen.restart()
        return chosen

    def forget(self) -> None:
        """Lets go of the sessions that nobody has: the network has changed."""
        with self.lock:
            self._idle.clear()

    def keep(self, tokens: Sequence[int], session: Any) -> None:  # noqa: ANN401 - a Session
        """Keeps a session that has read a text, as though an answer to it had ended."""
        self.give_back(Lease(self, session, list(tokens)))

    @property
    def piece(self) -> int:
        """The most tokens of a prompt that are read before others have their turn."""
        return PIECE_ON_GPUS if self.on_gpu else PIECE

    @property
    def on_gpu(self) -> bool:
        """Whether the network is on one."""
        return str(self._network.device) != "cpu"

    def give_back(self, lease: Lease) -> None:
        """Takes a session back; of those that are kept the one that has rested longest goes."""
        with self.lock:
            # After an error it may have read more than is known.
            if lease.session.position != len(lease.seen):
                return
            self._idle.append(lease)
            del self._idle[: -self._kept or len(self._idle)]


def followed(
    session: Any,  # noqa: ANN401 - a Session
    asked: Asked,
) -> list[int]:
    """Has a session of one sequence go on by itself, as `Reader.follow`."""
    samplers = None if asked.likeliest else [asked.sampler]
    made = session.follow([[asked.token]], asked.count, stops=asked.end, samplers=samplers)
    tokens: list[int] = made[0].tolist()
    return tokens


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """Returns with how many tokens both begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
