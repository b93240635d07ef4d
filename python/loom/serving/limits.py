"""How often one address may ask."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

__all__ = ["RateLimit"]

_MOST_ADDRESSES = 10_000


class RateLimit:
    """Lets each address ask so many times a second, on average and at once.

    Args:
        rate: The requests a second; None for any number.
        clock: Gives seconds.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._most = max(rate or 1.0, 1.0)
        self._clock = clock
        # Of each address: how many requests it has left, and since when that is so.
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, address: str) -> float:
        """Counts a request.

        Args:
            address: Whose it is.

        Returns:
            0 where it may be answered; otherwise the seconds until one may.
        """
        if self._rate is None:
            return 0.0
        now = self._clock()
        left, since = self._left.pop(address, (self._most, now))
        left = min(self._most, left + (now - since) * self._rate)
        allowed = left >= 1
        # The newest behind, so that the first is who has been quiet longest.
        self._left[address] = (left - allowed, now)
        if len(self._left) > _MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
        return 0.0 if allowed else (1 - left) / self._rate
