"""Where the random generators stand that Python and NumPy share with everybody."""

from __future__ import annotations

import random
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Streams", "as_plain", "from_plain", "set_streams", "streams_here"]

Streams: TypeAlias = "tuple[Any, Any]"
"""That of Python's, and of NumPy's where it is there."""


def streams_here() -> Streams:
    """Returns where the generators stand that Python and NumPy share with everybody."""
    numpy = "numpy.random" in sys.modules
    return random.getstate(), np.random.get_state(legacy=False) if numpy else None  # noqa: NPY002


def set_streams(streams: Streams) -> None:
    """Has them stand where they did."""
    python, numpy = streams
    random.setstate(python)
    if numpy is not None:
        np.random.set_state(numpy)  # noqa: NPY002


def as_plain(streams: Streams) -> dict[str, Any]:
    """Returns where generators stand as JSON values."""
    (version, inner, gauss), numpy = streams
    found: dict[str, Any] = {"python": [version, _words(inner), gauss], "numpy": None}
    # Whoever puts another generator there keeps it, too.
    if numpy is not None and numpy["bit_generator"] == "MT19937":
        state = numpy["state"]
        found["numpy"] = {**numpy, "state": {"key": _words(state["key"]), "pos": state["pos"]}}
    return found


def from_plain(found: Mapping[str, Any]) -> Streams:
    """Returns what `as_plain` was given."""
    version, inner, gauss = found["python"]
    numpy = found["numpy"]
    if numpy is not None:
        state = numpy["state"]
        numpy = {**numpy, "state": {"key": _from_words(state["key"]), "pos": state["pos"]}}
    return (version, tuple(_from_words(inner).tolist()), gauss), numpy


def _words(values: object) -> str:
    return b64encode(np.asarray(values, dtype="<u4").tobytes()).decode()


def _from_words(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(b64decode(text), dtype="<u4").astype(np.uint32)
