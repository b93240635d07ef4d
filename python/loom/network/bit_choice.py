"""The search for a numeric type for each layer, and the data that it goes by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from loom.data import ArraySource, Data, Source, TrainingBatch, as_source
from loom.errors import ConfigError, DataError
from loom.network.bit_trials import Measured, Trial
from loom.reports.bits import BitsReport, MeasuredTypes, SensitivityReport, drop

__all__ = ["Search", "parted", "repeatable"]

_HELD_OUT = 5
"""Every so many samples one is held out."""
_CANDIDATES = 6
"""Choices of a front that are measured."""


class Search:
    """The search for the best types.

    Args:
        trial: The copy that is measured.
        learned: What types are chosen by.
        held_out: What the choice is verified on.
        budget: The bytes that all weights may take.
        allowed: By how much the measure may get worse.
    """

    def __init__(
        self,
        trial: Trial,
        learned: Measured,
        held_out: Measured,
        budget: int | None,
        allowed: float | None,
    ) -> None:
        self.trial, self.learned, self.held_out = trial, learned, held_out
        self.budget, self.allowed = budget, allowed
        self.tried: dict[tuple[str, ...], None] = {}

    def run(self, first: SensitivityReport, rounds: int) -> BitsReport:
        """Searches, verifies, and reports; `first` is what layers cost, the others in full precision."""
        trial, self.first = self.trial, first
        front = self.first.front()
        smallest = int(front.bytes[0]) + self.first.other_bytes
        if self.budget is not None and smallest > self.budget:
            raise ConfigError(
                f"fit_bits: max_bytes is {self.budget:,}, but in the smallest types the weights take "
                f"{smallest:,} bytes"
            )
        singles = [self._types([column] * len(trial.paths)) for column in range(len(trial.dtypes))]
        singles = [types for types in singles if self._possible(types)]
        own = (trial.own,) * len(trial.paths)
        best = self._best([*self._guesses(self.first, own), *singles, own])
        for _ in range(rounds):
            around = trial.sensitivity(self.learned, best)
            better = self._best([*self._guesses(around, best), best])
            if better == best:
                break
            best = better
        shown = sorted((self._told(types) for types in singles), key=lambda it: (it.bytes, it.name))
        return BitsReport(
            self.budget,
            self.allowed,
            self._told(own),
            self._told(best),
            None,
            tuple(shown),
            tuple(self._told(types, held_out=False) for types in self.tried if types not in singles),
            front.bytes + self.first.other_bytes,
            front.drops,
            tuple(trial.rules[number].get(dtype, "absmax") for number, dtype in enumerate(best)),
            self.first,
        )

    def _types(self, columns: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
        return tuple(self.trial.dtypes[column] for column in columns)

    def _columns(self, types: Sequence[str]) -> list[int]:
        return [self.trial.dtypes.index(dtype) for dtype in types]

    def _bytes(self, types: Sequence[str]) -> int:
        columns = self._columns(types)
        return int(self.first.sizes[np.arange(len(columns)), columns].sum()) + self.first.other_bytes

    def _possible(self, types: Sequence[str]) -> bool:
        return not np.isnan(self.first.values[np.arange(len(types)), self._columns(types)]).any()

    def _guesses(self, around: SensitivityReport, center: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Returns what seems best where drops add to that of a center, by what is known around it."""
        front = around.front()
        if self.budget is not None:
            rows = front.within(self.budget - around.other_bytes, _CANDIDATES)
            return [self._types(row) for row in rows]
        allowed = cast(float, self.allowed)
        # What is left of the drop once the present one is taken off; more and less of it, too, for drops do
        # not quite add up.
        room = allowed - self._drop(self.learned, center)
        found = [
            front.cheapest(room - part * allowed) for part in np.linspace(-1.0, 1.0, 4 * _CANDIDATES + 1)
        ]
        return [self._types(row) for row in found if row is not None]

    def _best(self, choices: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        """Measures choices and returns the best: the least drop in budget, or the least bytes in the drop."""
        several = list(dict.fromkeys(choices))
        if self.budget is not None:
            fit = [types for types in several if self._bytes(types) <= self.budget]
            self.tried.update(dict.fromkeys(fit))
            return min(fit, key=lambda types: (abs(self._drop(self.learned, types)), self._bytes(types)))
        for types in sorted(several, key=lambda types: (self._bytes(types), self._drop(self.learned, types))):
            self.tried[types] = None
            if all(
                self._drop(data, types) <= cast(float, self.allowed) for data in (self.learned, self.held_out)
            ):
                return types
        return (self.trial.own,) * len(self.trial.paths)

    def _drop(self, data: Measured, types: tuple[str, ...]) -> float:
        base = data((self.trial.own,) * len(types))
        return float(drop(base, data(types), rising=self.trial.rising))

    def _told(self, types: tuple[str, ...], *, held_out: bool = True) -> MeasuredTypes:
        name = types[0] if len(set(types)) == 1 else "mixed"
        held = self.held_out(types) if held_out else float("nan")
        return MeasuredTypes(name, types, self._bytes(types), self.learned(types), held)


def repeatable(data: Data) -> Source:
    """Returns data that can be gone through many times; a DataError for other data."""
    source = as_source(data)
    if not isinstance(source, ArraySource):
        source.require_epochs(2)
    return source


def parted(data: Data, validation: Data | None) -> tuple[Source, Source]:
    """Returns what types are chosen by, and what the choice is verified on."""
    source = repeatable(data)
    if validation is not None:
        return source, repeatable(validation)
    if not isinstance(source, ArraySource):
        raise DataError("data in batches cannot be parted; give validation=, which the choice is verified on")
    if source.rows < _HELD_OUT:
        raise DataError(f"{source.rows} samples are too few to hold out every fifth; give validation=")
    held = np.arange(source.rows) % _HELD_OUT == _HELD_OUT - 1
    return _rows(source, ~held), _rows(source, held)


def _rows(source: ArraySource, rows: NDArray[np.bool_]) -> ArraySource:
    batch = source.batch
    weight = None if batch.weight is None else np.asarray(batch.weight)[rows]
    part = TrainingBatch(np.asarray(batch.input)[rows], np.asarray(batch.target)[rows], weight)
    return ArraySource(part, int(rows.sum()))
