"""Checks of single settings, with errors that say what would be right."""

from __future__ import annotations

import errno
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath, lstat
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, cast

from loom._settings.suggestions import shown, unknown
from loom._settings.values import meant
from loom.errors import ConfigError

ExtentsLike: TypeAlias = "int | Sequence[int]"

_Name = TypeVar("_Name", bound=str)

_NOTES: ContextVar[dict[str, dict[str, Any]] | None] = ContextVar("checks", default=None)


@contextmanager
def noted() -> Iterator[dict[str, dict[str, Any]]]:
    """Notes what is checked meanwhile: each setting's check, under "check", and its limits.

    What a configuration refuses is said in one place, the checks that it runs; JSON Schemas are made of that.
    """
    notes: dict[str, dict[str, Any]] = {}
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def _note(check: str, name: str, **limits: object) -> None:
    notes = _NOTES.get()
    if notes is not None:
        given = {limit: value for limit, value in limits.items() if value is not None}
        notes.setdefault(name, {"check": check, **given})


def whole(where: str, name: str, value: object, *, least: int, most: int = (1 << 64) - 1) -> int:
    """Returns `value` as an int that is at least `least`, at most `most`, and fits 64 bits."""
    _note("whole", name, least=least, most=most)
    named = {
        -(1 << 63): "a whole number",
        0: "a whole number that is not negative",
        1: "a positive whole number",
    }
    wanted = named.get(least, f"a whole number of at least {least}")
    number = _index(value)
    if number is None or number < least:
        raise ConfigError(
            f"{where}: {name} must be {wanted}, got {shown(value)}{meant(name, value, counts=True)}"
        )
    if number >= 1 << 64:
        raise ConfigError(f"{where}: {name} must be below 2**64, got {shown(value)}")
    if number > most:
        raise ConfigError(f"{where}: {name} must be at most {most}, got {shown(value)}")
    return number


def real(
    where: str,
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Returns `value` as a finite float inside the given bounds."""
    _note("real", name, above=above, least=least, below=below, most=most)
    number = _float(value)
    fits = (
        number is not None
        and math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if number is None or not fits:
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("above", above), ("at least", least), ("below", below), ("at most", most))
            if bound is not None
        ]
        wanted = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
        raise ConfigError(
            f"{where}: {name} must be {wanted}, got {shown(value)}{meant(name, value, counts=False)}"
        )
    return number


def file_path(where: str, value: object, name: str = "path") -> Path:
    """Returns `value` as a path, if it is one or a string that can be one."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ConfigError(
            f"{where}: {name} must be a string or a pathlib.Path, got {len(value)} bytes; what a file holds "
            "is written to one first, pathlib.Path(name).write_bytes(data), and os.fsdecode makes a string "
            "of a path in bytes"
        )
    if not isinstance(value, (str, PathLike)) or not isinstance(fspath(value), str):
        raise ConfigError(f"{where}: {name} must be a string or a pathlib.Path, got {shown(value)}")
    try:
        lstat(value)
    except OSError as error:
        # Whoever opens it says what else there is to say, such as that it is not there.
        possible = error.errno != errno.ENAMETOOLONG
    except ValueError:
        # It has a null character, or one that is none in the system's encoding.
        possible = False
    else:
        possible = True
    if not possible:
        raise ConfigError(f"{where}: {name} must be what a file can be called, got {shown(value)}")
    return Path(value)


def flag(where: str, name: str, value: object) -> bool:
    """Returns `value` if it is a bool."""
    _note("flag", name)
    if isinstance(value, bool) or type(value).__name__ in {"bool_", "bool"}:
        return bool(value)
    raise ConfigError(f"{where}: {name} must be True or False, got {shown(value)}")


def flag_or_name(where: str, name: str, value: object, known: Iterable[str]) -> bool | str:
    """Returns `value` if it is a bool, or one of the known names."""
    names = tuple(known)
    _note("flag_or_name", name, names=names)
    if isinstance(value, str):
        return choice(where, name, value, names)
    if isinstance(value, int) and not isinstance(value, bool):
        # Keras's numbers, of which 1 and 2 are kinds of True.
        told = " or ".join(["True", "False", *(f'"{known_name}"' for known_name in names)])
        raise ConfigError(
            f"{where}: {name} must be {told}, got {value}; {name}={bool(value)} is what that means"
        )
    return flag(where, name, value)


def extents(
    where: str, name: str, value: object, *, axes: int, least: int, most: int = (1 << 64) - 1
) -> tuple[int, ...]:
    """Expands one whole number, or one for each axis, to as many as there are axes."""
    numbers = items(value)
    if numbers is None:
        return (whole(where, name, value, least=least, most=most),) * axes
    if len(numbers) != axes:
        wanted = {1: "", 2: " or a pair (height, width)", 3: " or three (depth, height, width)"}[axes]
        raise ConfigError(f"{where}: {name} must be one whole number{wanted}, got {shown(value)}")
    return tuple(whole(where, name, number, least=least, most=most) for number in numbers)


def items(value: object) -> tuple[object, ...] | None:
    """Returns a sequence's items, or None for anything else; text is no sequence here."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def sequence(value: object) -> list[Any] | None:
    """Returns the items of anything that has some, or None for anything else; text is one thing here.

    An array without axes says that it can be gone through, and cannot.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return None
    try:
        return list(value)
    except TypeError:
        return None


def choice(where: str, name: str, value: object, known: Iterable[_Name]) -> _Name:
    """Returns `value` if it is one of the known names."""
    names = tuple(known)
    _note("choice", name, names=names)
    if isinstance(value, str):
        for known_name in names:
            if value == known_name:
                return known_name
    raise unknown(f"{where} {name}", value, names)


def choice_or_real(
    where: str, name: str, value: object, known: Iterable[str], *, above: float
) -> str | float:
    """Returns `value` if it is one of the known names, or a number above a bound."""
    names = tuple(known)
    _note("choice_or_real", name, names=names, above=above)
    if isinstance(value, str):
        return choice(where, name, value, names)
    return real(where, name, value, above=above)


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _float(value: object) -> float | None:
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        return float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError):
        return None
