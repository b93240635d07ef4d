"""What numeric types cost layer by layer, and which one each layer is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loom.reports.base import Report, TabularReport
from loom.reports.bit_search import Front, best_choices

__all__ = ["BitsReport", "MeasuredTypes", "SensitivityReport"]


@dataclass(frozen=True, eq=False)
class SensitivityReport(TabularReport):
    """What each layer costs in each numeric type, the other layers as they are.

    Args:
        layers: The layers that have weights which can be packed, by their paths.
        kinds: Their types, such as "dense".
        held: The numeric type that each had while the others were measured.
        dtypes: The numeric types.
        measure: What was measured: "loss", or the name of a metric.
        rising: Whether more of it is better.
        base: What the network has with every layer as it was.
        values: (layers, dtypes) what it has with that layer alone in that type; NaN where the layer's
            weights do not fit the type.
        sizes: (layers, dtypes) the bytes of the layer's parameters then.
        other_bytes: The bytes of all other layers' parameters.
    """

    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    held: tuple[str, ...]
    dtypes: tuple[str, ...]
    measure: str
    rising: bool
    base: float
    values: NDArray[np.float64]
    sizes: NDArray[np.int64]
    other_bytes: int

    @property
    def drops(self) -> NDArray[np.float64]:
        """(layers, dtypes) by how much each is worse than the base; infinite where it cannot be."""
        return np.where(np.isnan(self.values), np.inf, drop(self.base, self.values, rising=self.rising))

    def front(self) -> Front:
        """Returns the choices of a type for each layer that no other one beats, if drops add up.

        Fewer bits help by chance alone, so that a drop counts by its magnitude.
        """
        return best_choices(self.sizes, np.abs(self.drops))

    def columns(self) -> dict[str, Any]:
        """Returns a row for every layer in every type: layer, kind, dtype, bytes, the measure, drop."""
        count = len(self.dtypes)
        return {
            "layer": [path for path in self.layers for _ in range(count)],
            "kind": [kind for kind in self.kinds for _ in range(count)],
            "dtype": [*self.dtypes] * len(self.layers),
            "bytes": self.sizes.reshape(-1),
            self.measure: self.values.reshape(-1),
            "drop": self.drops.reshape(-1),
        }

    def print(self, file: IO[str] | None = None) -> None:
        """Writes a table of the drops, a row for each type and a column for each layer.

        Args:
            file: Where to; standard output by default.
        """
        heads = [f"{path} {kind}" for path, kind in zip(self.layers, self.kinds, strict=True)]
        rows = [
            [name, *(f"{value:+.4g}" if np.isfinite(value) else "-" for value in column)]
            for name, column in zip(self.dtypes, self.drops.T, strict=True)
        ]
        title = (
            f"drop of {self.measure} from {self.base:.4g}"
            if self.rising
            else (f"rise of {self.measure} over {self.base:.4g}")
        )
        _print(title, ["type", *heads], rows, file)


@dataclass(frozen=True, eq=False)
class MeasuredTypes(Report):
    """A type for each layer, and what it came to.

    Args:
        name: The type that all layers have; "mixed" where they have several.
        dtypes: Each layer's type.
        bytes: The bytes of all weights then.
        measured: The measure on the data that types were chosen by; NaN where it was not taken.
        held_out: The measure on what was held out; NaN where it was not taken.
    """

    name: str
    dtypes: tuple[str, ...]
    bytes: int
    measured: float
    held_out: float


class _Morphs(Protocol):
    def morph(
        self, dtype: str, where: Callable[[Any], object] | None = None, *, calibration: str = "absmax"
    ) -> object: ...


@dataclass(frozen=True, eq=False)
class BitsReport(TabularReport):
    """Which numeric type each layer is given, and what that costs on data that was held out.

    Args:
        max_bytes: The bytes that all weights may take; None where there was no such limit.
        max_drop: By how much the measure may get worse; None where there was no such limit.
        base: The network in full precision.
        chosen: What was chosen.
        trained: The measure on what was held out once trained through the chosen types; None where
            the network was not.
        singles: Each type for all layers alike, smallest first.
        tried: What else was measured, in that order.
        front_bytes: The bytes of choices that no other one beats, if drops add up; rising.
        front_drops: Their drops.
        calibrations: How each layer's scales are found.
        sensitivity: What each layer costs in each type, the others in full precision.
    """

    max_bytes: int | None
    max_drop: float | None
    base: MeasuredTypes
    chosen: MeasuredTypes
    trained: float | None
    singles: tuple[MeasuredTypes, ...]
    tried: tuple[MeasuredTypes, ...]
    front_bytes: NDArray[np.int64]
    front_drops: NDArray[np.float64]
    calibrations: tuple[str, ...]
    sensitivity: SensitivityReport

    @property
    def plan(self) -> dict[str, str]:
        """Each layer's type, by its path."""
        return dict(zip(self.sensitivity.layers, self.chosen.dtypes, strict=True))

    @property
    def drop(self) -> float:
        """By how much the measure is worse, on what was held out, than in full precision."""
        found = drop(self.base.held_out, self.chosen.held_out, rising=self.sensitivity.rising)
        return float(found)

    def best_single(self) -> MeasuredTypes | None:
        """Returns the best single type that takes no more bytes than what was chosen; None if none does."""
        sign = -1.0 if self.sensitivity.rising else 1.0
        fit = [single for single in self.singles if single.bytes <= self.chosen.bytes]
        return min(fit, key=lambda single: sign * single.held_out) if fit else None

    def apply(self, net: _Morphs) -> None:
        """Gives a network's layers the chosen types.

        Args:
            net: The network that the report is of, or one of the same layers.

        Raises:
            DTypeError: A type is unknown there.
            InvalidValueError: Weights do not fit a type.
        """
        for path, dtype, calibration in zip(
            self.sensitivity.layers, self.chosen.dtypes, self.calibrations, strict=True
        ):
            net.morph(dtype, _at(path), calibration=calibration)

    def columns(self) -> dict[str, Any]:
        """Returns a row for every layer: layer, kind, dtype, bytes, and the drop of that layer alone."""
        report = self.sensitivity
        places = [report.dtypes.index(dtype) for dtype in self.chosen.dtypes]
        layers = np.arange(len(places))
        return {
            "layer": list(report.layers),
            "kind": list(report.kinds),
            "dtype": list(self.chosen.dtypes),
            "bytes": report.sizes[layers, places],
            "drop": report.drops[layers, places],
        }

    def print(self, file: IO[str] | None = None) -> None:
        """Writes a table of the layers, and below it what the choice comes to.

        Args:
            file: Where to; standard output by default.
        """
        table = self.columns()
        rows = [
            [path, kind, dtype, f"{size:,}", f"{value:+.4g}"]
            for path, kind, dtype, size, value in zip(*table.values(), strict=True)
        ]
        measure = self.sensitivity.measure
        title = (
            f"{self.chosen.bytes:,} bytes of {self.base.bytes:,}; {measure} {self.chosen.held_out:.5g}, "
            f"in full precision {self.base.held_out:.5g}"
        )
        if (single := self.best_single()) is not None:
            title += f", all in {single.name} {single.held_out:.5g}"
        if self.trained is not None:
            title += f"; trained {self.trained:.5g}"
        _print(title, ["layer", "kind", "type", "bytes", "drop"], rows, file)


def drop(base: float, value: Any, *, rising: bool) -> Any:  # noqa: ANN401 - a number, or an array of them
    """Returns by how much a value is worse than the base."""
    return base - value if rising else value - base


def _at(path: str) -> Callable[[Any], bool]:
    return lambda layer: layer.path == path


def _print(title: str, heads: list[str], rows: list[list[str]], file: IO[str] | None) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = Console(file=file)
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)
