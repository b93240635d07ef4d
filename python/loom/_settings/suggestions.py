"""The error for an unknown name: lists the known ones and suggests the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loom._settings.spellings import remark, spelling
from loom.errors import ConfigError

_LONGEST = 1000
"""The most characters that a message shows of a value."""


def shown(value: object) -> str:
    """Returns a value as error messages show it: at most 1,000 characters, and whatever it is.

    Args:
        value: What was given: also numbers of more digits than Python prints, and what holds itself.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - users' own classes may raise anything
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def listed(names: Sequence[object], most: int = 5) -> str:
    """Returns names as they are shown in a line: the first ones, and dots for the others.

    Args:
        names: The names.
        most: How many are shown.
    """
    return ", ".join([*map(str, names[:most]), *(["..."] if len(names) > most else [])])


def unknown(what: str, given: object, known: Iterable[str]) -> ConfigError:
    """Builds the error for a name that is not among `known`.

    Args:
        what: The kind of thing that is named, such as "activation".
        given: The name as it came.
        known: Every name that would have been right.

    Returns:
        The error, to be raised by the caller.
    """
    names = sorted(known)
    told = given if isinstance(given, str) and len(given) <= _LONGEST else shown(given)
    return ConfigError(f'unknown {what} "{told}"{_hint(what, given, names)} Known: {_all_of(names)}')


def _all_of(names: list[str]) -> str:
    """Returns the names in a line, the first of them where they would fill pages."""
    text = ", ".join(names)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: text.rindex(', ', 0, _LONGEST)]}, ... ({len(names)} names)"


def _hint(what: str, given: object, names: list[str]) -> str:
    from difflib import get_close_matches

    if isinstance(given, type):
        return f"; that is a class, give one of it: {given.__name__}(...)."
    if what.endswith("activation") and isinstance(given, int):
        return "; the size of the input is no argument of layers, they infer it."
    if callable(given) and (name := str(getattr(given, "__name__", ""))) in names:
        return f'; it goes by its name, "{name}".'
    if given is None and (said := remark(what, "none")) is not None:
        return f"; {said}."
    if (
        isinstance(given, (list, tuple))
        and len(given) == 1
        and isinstance(given[0], str)
        and given[0] in names
    ):
        return f'; without brackets: "{given[0]}".'
    if not isinstance(given, str) or len(given) > _LONGEST:
        return "."
    if (ours := spelling(given, names)) is not None:
        return f'; in loom that is "{ours}".'
    if (said := remark(what, given)) is not None:
        return f"; {said}."
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(given.lower(), by_lower, n=1, cutoff=0.5)
    near = near or [name for name in by_lower if given and name.startswith(given.lower())]
    return f'; did you mean "{by_lower[near[0]]}"?' if near else "."
