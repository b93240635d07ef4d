"""What may be meant by a value that a setting does not take; for error messages alone."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["meant"]

_UNKNOWN_SIZE = "leave it out for the usual size; all samples at once are batch_size=len(x)"
_SHARE = "it is a share of all samples, such as 0.2"
_RATES = "the rate is a number, and schedule= changes it: schedule=loom.schedules.Cosine(), or another"

_OF_NAMES: dict[str, Callable[[object], str | None]] = {
    "learning_rate": lambda value: (
        "loom.find_rate(net, (x, y)).suggestion finds one"
        if value == "auto"
        else _RATES
        if callable(value) or hasattr(value, "factor")
        else None
    ),
    "batch_size": lambda value: _UNKNOWN_SIZE if value is None or value in (-1, 0) else None,
    "epochs": lambda value: (
        "a network that is to stay as it is needs no training: net.evaluate((x, y))" if value == 0 else None
    ),
    "validation_split": lambda value: _SHARE if _at_least_one(value) else None,
    "fraction": lambda value: _SHARE if _at_least_one(value) else None,
    "units": lambda value: "one number: the size of the input is inferred" if _several(value) else None,
    "rate": lambda value: (
        "it is the share that is dropped, as 0.5" if isinstance(value, (int, float)) and value >= 1 else None
    ),
}


def meant(name: str, value: object, *, counts: bool) -> str:
    """Returns what to write instead, after a semicolon; nothing where it is anybody's guess.

    Args:
        name: The setting's.
        value: What was given.
        counts: Whether it is to be a whole number.
    """
    told = _OF_NAMES.get(name)
    try:
        said = (None if told is None else told(value)) or _number(value, counts=counts)
    except Exception:  # noqa: BLE001 - users' own classes may raise anything, and what is said is only a hint
        return ""
    return "" if said is None else f"; {said}"


def _several(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _at_least_one(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 1


def _number(value: object, *, counts: bool) -> str | None:
    """Says which number a text or a whole float stands for."""
    if isinstance(value, str) and len(value) <= 40:
        number = float(value)
        return f"without quotes: {value.strip()}" if not math.isnan(number) else None
    if counts and isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return f"as a whole number: {int(value)}"
    if _several(value) and len(value) == 1:  # type: ignore[arg-type]
        return f"without brackets: {value[0]!r}"  # type: ignore[index]
    return None
