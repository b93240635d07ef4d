"""Which choice for each layer costs least, where what choices cost adds up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Front", "best_choices"]


@dataclass(frozen=True)
class Front:
    """Every choice that no other one beats in bytes and drop both, from the smallest to the largest.

    Args:
        bytes: (choices,) rising.
        drops: (choices,) falling.
        choices: (choices, layers) which column each layer takes.
    """

    bytes: NDArray[np.int64]
    drops: NDArray[np.float64]
    choices: NDArray[np.intp]

    def within(self, most: float, count: int) -> NDArray[np.intp]:
        """Returns the last few choices of at most so many bytes, the best first."""
        end = int(np.searchsorted(self.bytes, most, side="right"))
        return self.choices[max(end - count, 0) : end][::-1]

    def cheapest(self, drop: float) -> NDArray[np.intp] | None:
        """Returns the smallest choice whose drop is at most this; None where there is none."""
        found = np.flatnonzero(self.drops <= drop)
        return self.choices[found[0]] if len(found) else None


def best_choices(sizes: NDArray[np.int64], drops: NDArray[np.float64], most_points: int = 20_000) -> Front:
    """Finds all choices, one column for each row, that no other one beats in total bytes and total drop.

    Row by row it keeps of all sums those that nothing smaller is as good as, so the result is exact: the
    knapsack problem with a choice from every group, solved for every budget at once (Nemhauser and
    Ullmann 1969). Where more than `most_points` sums are left, as many of them are kept, evenly by rank.

    Args:
        sizes: (layers, columns) bytes.
        drops: (layers, columns) what is lost; infinite where a layer cannot take a column.
        most_points: How many sums are kept.

    Returns:
        The choices.
    """
    sums, lost = np.zeros(1, np.int64), np.zeros(1)
    taken: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
    for row_sizes, row_drops in zip(sizes, drops, strict=True):
        columns = np.flatnonzero(np.isfinite(row_drops))
        all_sums = (sums[:, None] + row_sizes[columns]).reshape(-1)
        all_lost = (lost[:, None] + row_drops[columns]).reshape(-1)
        order = np.lexsort((all_lost, all_sums))
        least = np.minimum.accumulate(all_lost[order])
        kept = order[np.concatenate([[True], least[1:] < least[:-1]])]
        if len(kept) > most_points:
            kept = kept[np.unique(np.linspace(0, len(kept) - 1, most_points).astype(np.intp))]
        before, column = np.divmod(kept, len(columns))
        taken.append((before, columns[column]))
        sums, lost = all_sums[kept], all_lost[kept]
    choices = np.zeros((len(sums), len(taken)), np.intp)
    at = np.arange(len(sums))
    for layer in reversed(range(len(taken))):
        before, column = taken[layer]
        choices[:, layer] = column[at]
        at = before[at]
    return Front(sums, lost, choices)
