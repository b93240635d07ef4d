"""Samples of several inputs by name, of which some have extents of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.convert import SizedRows
from loom.data.extents import Samples
from loom.errors import DataError

__all__ = ["NamedSamples"]


class NamedSamples:
    """Samples of several inputs, as `loom.data.extents.Samples` are of one.

    Args:
        parts: By name, in the order in which inputs lie in a row: samples of inputs whose extents are open,
            (rows, elements) of the others.
        lengths: By name which of the lengths that a row begins with is that of an input; None for one that
            has none.

    Raises:
        DataError: There are more or fewer samples of one input than of another; or a sample has other
            lengths in inputs whose steps the network joins.
    """

    def __init__(
        self, parts: Mapping[str, Samples | NDArray[Any]], lengths: Mapping[str, int | None]
    ) -> None:
        self._parts, self._lengths = parts, lengths
        self._open = {name: part for name, part in parts.items() if isinstance(part, Samples)}
        self._count = 1 + max((length for length in lengths.values() if length is not None), default=-1)
        self.are_sequences = self._count > 0
        """Whether rows begin with lengths."""
        first, *others = parts
        for name in others:
            if len(parts[name]) != len(parts[first]):
                raise DataError(
                    f'input "{first}" has {len(parts[first])} samples but input "{name}" has '
                    f"{len(parts[name])}"
                )
        for name, part in self._open.items():
            length = lengths[name]
            leader = name if length is None else self._leader(length)
            ahead = self._open[leader]
            for number in range(len(part) if leader != name else 0):
                if part.length(number) != ahead.length(number):
                    raise DataError(
                        f'sample {number} has {ahead.length(number)} steps of input "{leader}" and '
                        f'{part.length(number)} of input "{name}", which the network joins step by step'
                    )

    def __len__(self) -> int:
        return len(next(iter(self._parts.values())))

    def _leader(self, length: int) -> str:
        return next(name for name in self._open if self._lengths[name] == length)

    def lengths(self, number: int) -> tuple[int, ...]:
        """Returns the lengths that the row of a sample begins with."""
        return tuple(self._open[self._leader(place)].length(number) for place in range(self._count))

    def size(self, number: int) -> tuple[tuple[int, ...], ...]:
        """Returns the extents that samples of one call have in common."""
        return tuple(
            part.arrays[number].shape for name, part in self._open.items() if self._lengths[name] is None
        )

    def of_length(self, length: int | None) -> Samples:
        """Returns the samples of the first input that has a length; of the first open one where None."""
        return self._open[next(iter(self._open)) if length is None else self._leader(length)]

    def contents(self) -> list[NDArray[Any]]:
        """Returns all that tells these samples from others."""
        found: list[NDArray[Any]] = []
        for part in self._parts.values():
            found += part.arrays if isinstance(part, Samples) else [part]
        return found

    def of_input(self, name: str) -> Samples | None:
        """Returns the samples of an input whose extents are open; None for another one."""
        return self._open.get(name)

    def rows_of(self, chosen: Sequence[int], steps: Sequence[int]) -> SizedRows:
        """Puts samples together as the engine takes them.

        Args:
            chosen: Their numbers.
            steps: For each length how many steps rows have room for.

        Returns:
            (rows, elements): the lengths of each, and its inputs, flat one behind the other.
        """
        picked = list(chosen)
        blocks: list[NDArray[Any]] = []
        extents: list[tuple[int, ...]] = []
        if self._count:
            blocks.append(np.array([self.lengths(number) for number in picked]))
        for name, part in self._parts.items():
            length = self._lengths[name]
            if not isinstance(part, Samples):
                blocks.append(part[picked])
                extents.append(())
            elif length is None:
                block = np.stack([part.arrays[number] for number in picked])
                blocks.append(block.reshape(len(picked), math.prod(block.shape[1:])))
                extents.append(block.shape[1:])
            else:
                blocks.append(part.filled(picked, steps[length]))
                extents.append((steps[length], *(extent or 0 for extent in part.shape[1:])))
        dtype = next(iter(self._open.values())).arrays[0].dtype
        rows: SizedRows = np.concatenate(blocks, axis=1, dtype=dtype).view(SizedRows)
        rows.extents = tuple(extents)
        return rows
