"""What comparisons found: the worst differences by layer, by option, by quantity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is smaller may be what rounding left of a zero; differences are relative to no less.
TINY = 1e-3


class Difference(Exception):  # noqa: N818 - it is what is looked for, not what went wrong
    """loom and the reference say different things."""


@dataclass
class Worst:
    """The largest difference of one quantity for one layer or option.

    Args:
        networks: In how many networks it was compared.
        difference: The largest, relative to the quantity's largest element.
        number: The network it was found in.
    """

    networks: int = 0
    difference: float = 0.0
    number: int = -1


@dataclass
class Findings:
    """The worst of everything, and which networks were too ill-conditioned to say.

    Args:
        worst: By subject and quantity.
        ill: Quantities that rounding alone moves by more than the tolerance, and in which networks.
        seen: In how many networks each subject was.
        failures: Networks in which something differed, and what.
    """

    worst: dict[tuple[str, str], Worst] = field(default_factory=dict)
    ill: dict[str, list[int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def note(self, subjects: Iterable[str], quantity: str, difference: float, number: int) -> None:
        """Keeps a difference if it is the worst for one of these subjects."""
        for subject in subjects:
            entry = self.worst.setdefault((subject, quantity), Worst())
            entry.networks += 1
            if difference >= entry.difference:
                entry.difference, entry.number = difference, number

    def note_ill(self, quantity: str, number: int) -> None:
        """Keeps that rounding moves a quantity of this network too far to say anything."""
        numbers = self.ill.setdefault(quantity, [])
        if number not in numbers:
            numbers.append(number)

    def merge(self, other: Findings) -> None:
        """Takes over what another process found."""
        for key, theirs in other.worst.items():
            mine = self.worst.setdefault(key, Worst())
            mine.networks += theirs.networks
            if theirs.difference >= mine.difference:
                mine.difference, mine.number = theirs.difference, theirs.number
        for quantity, numbers in other.ill.items():
            self.ill.setdefault(quantity, []).extend(numbers)
        for subject, count in other.seen.items():
            self.seen[subject] = self.seen.get(subject, 0) + count
        self.failures.update(other.failures)

    def table(self) -> str:
        """Lays out the worst relative differences: a row for each subject, a column for each quantity."""
        quantities = sorted({quantity for _, quantity in self.worst}, key=_order)
        subjects = sorted(self.seen)
        width = max((len(subject) for subject in subjects), default=10) + 1
        lines = [f"{'':<{width}}{'networks':>9}" + "".join(f"{name:>13}" for name in quantities)]
        for subject in subjects:
            cells = []
            for quantity in quantities:
                found = self.worst.get((subject, quantity))
                cells.append("-" if found is None else f"{found.difference:.0e}")
            lines.append(
                f"{subject:<{width}}{self.seen[subject]:>9}" + "".join(f"{cell:>13}" for cell in cells)
            )
        for quantity, numbers in sorted(self.ill.items()):
            shown = ", ".join(map(str, sorted(numbers)[:8]))
            lines.append(
                f"{quantity}: in {len(numbers)} networks rounding moves it beyond the tolerance: {shown}"
            )
        return "\n".join(lines)


_QUANTITIES = (
    "predict",
    "forward",
    "loss",
    "input",
    "gradient",
    "statistics",
    "manual",
    "train",
    "evaluate",
    "history",
    "float32",
)


def _order(quantity: str) -> tuple[int, str]:
    known = [place for place, name in enumerate(_QUANTITIES) if quantity.startswith(name)]
    return (known[0] if known else len(_QUANTITIES), quantity)


# Options whose values are worth telling apart.
_NAMED = ("activation", "function", "combine", "padding", "initial_state", "alpha")


def subjects(configs: Iterable[Mapping[str, Any]], defaults: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Returns the layers that these configurations describe, and their options that are not as usual."""
    found: set[str] = set()
    for config in configs:
        kind = str(config["type"])
        found.add(kind)
        for name, value in config.items():
            if name == "type" or value == defaults.get(kind, {}).get(name):
                continue
            if name in _NAMED and isinstance(value, (str, float)):
                found.add(f"{kind} {name}={value}")
            elif name in _NAMED and isinstance(value, dict):
                found.add(f"{kind} {name}={next(iter(value))}")
            elif not isinstance(value, (list, tuple)) or _is_numbers(value) or value:
                found.add(f"{kind} {name}")
    return found


def _is_numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (int, float)) for item in value)


def relative(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Returns the largest difference, relative to the largest element, or to `TINY`."""
    if ours.shape != theirs.shape:
        raise Difference(f"loom's shape is {ours.shape}, PyTorch's {theirs.shape}")
    if not ours.size:
        return 0.0
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        raise Difference(f"loom gives {ours!r}, PyTorch {theirs!r}")
    finite = np.isfinite(theirs)
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(theirs[finite]).max()), TINY)
    return float(np.abs(ours[finite].astype(np.float64) - theirs[finite]).max()) / scale
