"""What processes of one training tell each other through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Alone", "Communicator"]


@runtime_checkable
class Communicator(Protocol):
    """Carries bytes between processes, all of which make the same calls in the same order.

    A communicator of one's own goes to `loom.train(..., distributed=mine)`.
    """

    @property
    def rank(self) -> int:
        """This process's number, from 0."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each process a part, in the order of their ranks.

        Args:
            parts: One for each.

        Returns:
            What each has handed this one, in the order of their ranks.

        Raises:
            StateError: A process has ended, or does not answer.
        """

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all processes the same.

        Args:
            part: The bytes.

        Returns:
            What each has handed all, in the order of their ranks.

        Raises:
            StateError: A process has ended, or does not answer.
        """

    def fail(self, message: str) -> None:
        """Lets the others know that this process cannot go on, so that none waits for it.

        Args:
            message: Why.
        """


class Alone:
    """A single process: what it hands out, it gets."""

    rank = 0
    size = 1

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Returns the parts; see `Communicator`."""
        return list(parts)

    def to_all(self, part: bytes) -> list[bytes]:
        """Returns the part; see `Communicator`."""
        return [part]

    def fail(self, message: str) -> None:
        """Does nothing: there is nobody to tell."""

    def __repr__(self) -> str:
        return "Alone()"
