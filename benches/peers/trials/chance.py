"""Seeded choices, of which a whole network is made."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Draws that follow from a seed and a network's number alone.

    Args:
        seed: The run's.
        number: The network's.

    Attributes:
        wide: Whether extents are to be larger than a processor's vectors, instead of a few.
    """

    wide = False

    def __init__(self, seed: int, number: int) -> None:
        self._random = Random(f"{seed}:{number}")

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self._random.random() < probability

    def whole(self, least: int, most: int) -> int:
        """Returns a whole number, both ends included."""
        return self._random.randint(least, most)

    def real(self, least: float, most: float) -> float:
        """Returns a number between, of few digits, so that it is easy to write down again."""
        return round(self._random.uniform(least, most), 3)

    def one(self, choices: Sequence[T]) -> T:
        """Returns one of several."""
        return choices[self._random.randrange(len(choices))]

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """Returns them in another order."""
        return self._random.sample(list(choices), len(choices))

    def divisor(self, number: int) -> int:
        """Returns one of a number's divisors."""
        return self.one([d for d in range(1, number + 1) if number % d == 0])
