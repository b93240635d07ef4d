"""Events of a run, one a line of JSON: written whole, and read up to the last whole one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["EVENTS", "Writer", "decoded", "encoded", "parsed", "whole_lines"]

EVENTS = "events.jsonl"
"""The file in a run's directory that holds its events."""

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Writer:
    """Writes events to a file, each with one call of the system.

    Args:
        path: The file.
        append: Whether it goes on in a file that is there.
    """

    def __init__(self, path: Path, *, append: bool) -> None:
        before = path.read_bytes() if append and path.exists() else b""
        self._file = path.open("ab" if append else "wb", buffering=0)
        if before and not before.endswith(b"\n"):
            # A process that was killed has left half a line.
            self._file.write(b"\n")

    def write(self, event: Mapping[str, object]) -> None:
        """Writes one event."""
        left = memoryview(encoded(event).encode() + b"\n")
        while left:
            # A disk that is nearly full takes less than it is given.
            left = left[self._file.write(left) :]

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def encoded(value: object) -> str:
    """Returns a value as JSON; what is not finite, which JSON does not know, as text."""
    return json.dumps(_plain(value), allow_nan=False)


def decoded(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Takes back what is not finite."""
    if isinstance(value, dict):
        return {name: decoded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [decoded(entry) for entry in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def parsed(line: bytes) -> dict[str, Any]:
    """Reads one event; a ValueError where it is none."""
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise ValueError("no event")
    return {
        name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def whole_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Returns the lines that were written to their ends, and what comes after."""
    *lines, rest = data.split(b"\n")
    return [line for line in lines if line.strip()], rest


def _plain(value: object) -> object:
    """Returns a value of JSON, which knows no numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, (bool, int, float, str)) else float(str(value))
