"""Models that complement each other: which are right where others are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import DataError, DTypeError, InvalidValueError, ShapeError
from loom.reports.base import Report, TabularReport
from loom.reports.samples import as_names

__all__ = ["Group", "Masks", "Matches", "Pair", "as_masks", "group_of", "matches_of"]

Masks: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"
"""(models, samples) which samples each model has right; or such a row by each model's name."""


@dataclass(frozen=True, eq=False)
class Pair(Report):
    """Two models side by side.

    Args:
        first: The first model's name.
        second: The second model's name.
        coverage: The share of samples that either has right.
        overlap: The share of samples that both have right.
    """

    first: str
    second: str
    coverage: float
    overlap: float


@dataclass(frozen=True, eq=False)
class Matches(TabularReport):
    """Pairs of models, those that complement each other best first.

    Args:
        samples: How many samples were looked at.
        names: Every model.
        accuracies: (models,) the share of samples that each has right.
        minimum: What coverage a pair needs to be listed.
        pairs: The pairs: by coverage downwards, then by overlap upwards, then in the models' order.
    """

    samples: int
    names: tuple[str, ...]
    accuracies: NDArray[np.float64]
    minimum: float
    pairs: tuple[Pair, ...]

    def columns(self) -> dict[str, Any]:
        """Returns a row for each pair: first, second, coverage, overlap."""
        return {
            name: [getattr(pair, name) for pair in self.pairs]
            for name in ("first", "second", "coverage", "overlap")
        }


@dataclass(frozen=True, eq=False)
class Group(TabularReport):
    """Models that cover much together, in the order in which they were taken.

    Args:
        samples: How many samples were looked at.
        names: The models' names.
        places: (models,) their places among all.
        coverages: (models,) the share of samples that at least one has right, of the models so far.
    """

    samples: int
    names: tuple[str, ...]
    places: NDArray[np.int64]
    coverages: NDArray[np.float64]

    @property
    def coverage(self) -> float:
        """The share of samples that at least one of the models has right."""
        return float(self.coverages[-1])

    def columns(self) -> dict[str, Any]:
        """Returns a row for each model: name, place, coverage so far."""
        return {"name": self.names, "place": self.places, "coverage": self.coverages}


def as_masks(
    masks: Masks, names: Sequence[object] | None = None
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Checks correctness masks.

    Args:
        masks: (models, samples) booleans, or numbers that are 0 or 1; or a row by name.
        names: The models' names, where the masks are no mapping; "model 0" and so on where None.

    Returns:
        (models, samples) the masks, and the models' names.

    Raises:
        DataError: There are no models, or a mask is empty.
        ShapeError: Masks are of different lengths, or no rows.
        DTypeError: Something else than booleans.
        InvalidValueError: A number is neither 0 nor 1.
        ConfigError: The names do not fit.
    """
    if isinstance(masks, Mapping):
        names = names or list(masks)
        masks = list(masks.values())
    rows = [as_numpy(mask, what=f"correctness mask {place}") for place, mask in enumerate(_rows(masks))]
    called = as_names(names, len(rows), what="models", prefix="model ")
    if not rows:
        raise DataError("there are no correctness masks; give one for each model, (models, samples)")
    for name, row in zip(called, rows, strict=True):
        if row.ndim != 1:
            raise ShapeError(f'the correctness mask of "{name}" must be (samples,), got shape {row.shape}')
        if row.size == 0:
            raise DataError(f'the correctness mask of "{name}" is empty; it needs an entry for each sample')
        if len(row) != len(rows[0]):
            raise ShapeError(
                f'the correctness masks of "{called[0]}" and "{name}" have {len(rows[0])} and {len(row)} '
                "samples, but must be of the same ones"
            )
        if row.dtype.kind not in "biuf":
            raise DTypeError(f'the correctness mask of "{name}" must hold booleans, got dtype {row.dtype}')
        if not np.isin(row, (0, 1)).all():
            raise InvalidValueError(
                f'the correctness mask of "{name}" must hold True and False, or 1 and 0, '
                f"got {row[~np.isin(row, (0, 1))][0]}"
            )
    return np.array(rows, dtype=np.bool_), called


def _rows(masks: ArrayLike) -> Sequence[Any]:
    if isinstance(masks, (list, tuple)):
        return masks
    array = as_numpy(masks, what="correctness masks")
    if array.ndim != 2:
        raise ShapeError(f"correctness masks must be (models, samples), got shape {array.shape}")
    return list(array)


def matches_of(masks: NDArray[np.bool_], names: tuple[str, ...], minimum: float) -> Matches:
    """Lists the pairs of models whose coverage is large enough.

    Args:
        masks: (models, samples), of two models at least.
        names: The models.
        minimum: The least coverage.

    Returns:
        The pairs.

    Raises:
        DataError: There is one model only.
        ConfigError: The minimum is no share.
    """
    least = real("match", "minimum", minimum, least=0.0, most=1.0)
    if len(masks) < 2:
        raise DataError("pairs need two models or more, got 1")
    samples = masks.shape[1]
    # Counts below 2^53 are exact in products of floats, which are far faster than those of integers.
    counted = masks.astype(np.float64)
    both = counted @ counted.T
    right = np.diagonal(both)
    either = right[:, None] + right - both
    first, second = np.triu_indices(len(masks), 1)
    order = np.lexsort((both[first, second], -either[first, second]))
    found = [
        Pair(names[i], names[j], either[i, j] / samples, both[i, j] / samples)
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
    ]
    pairs = tuple(pair for pair in found if pair.coverage >= least)
    return Matches(samples, names, right / samples, least, pairs)


def group_of(masks: NDArray[np.bool_], names: tuple[str, ...], k: int) -> Group:
    """Picks models that cover much together, one after the other.

    Args:
        masks: (models, samples).
        names: The models.
        k: How many.

    Returns:
        The models: the best one first, then whichever has most samples right that all before have wrong; of
        several the more accurate one, then the earlier.

    Raises:
        ConfigError: k is not positive, or larger than the number of models.
    """
    count = whole("best_group", "k", k, least=1, most=len(masks))
    covered = np.zeros(masks.shape[1], np.bool_)
    right = masks.sum(axis=1)
    places: list[int] = []
    coverages: list[float] = []
    for _ in range(count):
        gains = (masks & ~covered).sum(axis=1)
        rest = [place for place in range(len(masks)) if place not in places]
        best = max(rest, key=lambda place: (gains[place], right[place], -place))
        covered |= masks[best]
        places.append(best)
        coverages.append(float(covered.mean()))
    return Group(
        masks.shape[1], tuple(names[place] for place in places), np.array(places), np.array(coverages)
    )
