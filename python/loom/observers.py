"""Observers: what each layer's activations look like, after each forward pass.

An observer is any callable that takes a list of `LayerActivation`, one for each
layer in the order of the forward pass; with `net.observe(..., depth=2)` those inside
a layer follow it. The statistics are computed in Rust, and
only while something observes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TypeAlias

from loom._settings.checks import whole

__all__ = ["Console", "LayerActivation", "Observer", "Recorder"]


@dataclass(frozen=True)
class LayerActivation:
    """The statistics of one layer's output in one forward pass.

    Args:
        forward: Which forward pass, counted from 0 since observation began.
        cell: The layer's cell: depth, row, column.
        layer: Its place in the cell.
        kind: Its type, such as "dense".
        shape: The output's shape, batch first.
        mean: The mean over all elements.
        std: The standard deviation over all elements.
        min: The smallest element.
        max: The largest element.
        norm: The L2 norm of all elements.
        zeros: The share of elements that are exactly zero.
        nonfinite: How many elements are infinite or NaN.
        inside: For a layer inside another, its name there, such as "layers.0"; empty for others.
    """

    forward: int
    cell: tuple[int, int, int]
    layer: int
    kind: str
    shape: tuple[int, ...]
    mean: float
    std: float
    min: float
    max: float
    norm: float
    zeros: float
    nonfinite: int
    inside: str = ""

    @property
    def path(self) -> str:
        """The layer's name in a state dict: "z.y.x.l", or for one inside another "z.y.x.l.layers.0"."""
        return ".".join(map(str, (*self.cell, self.layer, *filter(None, [self.inside]))))

    @property
    def depth(self) -> int:
        """1 for a layer of a cell, 2 for one inside that, and so on."""
        names = self.inside.split(".")
        # The number behind "branches" is that of a branch.
        return 1 + sum(map(str.isdecimal, names)) - names.count("branches")


Observer: TypeAlias = "Callable[[Sequence[LayerActivation]], object]"


class Console:
    """Writes a table of each observed forward pass.

    Args:
        every: Writes only every so many forward passes.
        stream: Where to; standard output by default.
    """

    def __init__(self, every: int = 1, stream: IO[str] | None = None) -> None:
        self.every = whole("Console", "every", every, least=1)
        self._stream = stream

    def __call__(self, activations: Sequence[LayerActivation]) -> None:
        """Writes the table of one forward pass."""
        if not activations or activations[0].forward % self.every:
            return
        lines = [
            f"forward {activations[0].forward}",
            f"  {'layer':<10} {'kind':<18} {'mean':>11} {'std':>11} {'min':>11} {'max':>11} {'zero':>6}",
        ]
        for layer in activations:
            numbers = (layer.mean, layer.std, layer.min, layer.max)
            cells = " ".join(f"{number:>11.4g}" for number in numbers)
            warning = f"  {layer.nonfinite} not finite" if layer.nonfinite else ""
            lines.append(f"  {layer.path:<10} {layer.kind:<18} {cells} {100 * layer.zeros:>5.1f}%{warning}")
        stream = self._stream or sys.stdout
        stream.write("\n".join(lines) + "\n")


class Recorder:
    """Keeps the statistics of every observed forward pass.

    Args:
        limit: Keeps only the newest so many passes; all where None.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = None if limit is None else whole("Recorder", "limit", limit, least=1)
        self.records: list[list[LayerActivation]] = []

    def __call__(self, activations: Sequence[LayerActivation]) -> None:
        """Keeps the statistics of one forward pass."""
        self.records.append(list(activations))
        if self.limit is not None:
            del self.records[: -self.limit]

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"Recorder({len(self)} passes)"

    def clear(self) -> None:
        """Forgets everything."""
        self.records.clear()

    def series(self, path: str, statistic: str) -> list[float]:
        """Returns one layer's statistic over the kept passes.

        Args:
            path: The layer, as "z.y.x.l", or "z.y.x.l.layers.0" inside another.
            statistic: A field of `LayerActivation`, such as "mean".

        Returns:
            One number for each pass.

        Raises:
            ConfigError: There is no such layer or statistic.
        """
        from loom._settings.suggestions import unknown

        statistics = ("mean", "std", "min", "max", "norm", "zeros", "nonfinite")
        if statistic not in statistics:
            raise unknown("statistic", statistic, statistics)
        found = [layer for record in self.records for layer in record if layer.path == path]
        if not found:
            paths = {layer.path for record in self.records for layer in record}
            raise unknown("layer", path, paths)
        return [float(getattr(layer, statistic)) for layer in found]
