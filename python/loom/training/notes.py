"""What callbacks keep with a network's training state, so that a resumed run goes on where they were."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    from loom import _native

__all__ = ["read_notes", "write_notes"]

_ARRAY = "loom.array"
"""The key of a mapping that stands for an array: the array's name."""


def write_notes(native: _native.Network, states: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Keeps callbacks' states with the network's training state, in memory and in files that have it."""
    arrays: dict[str, NDArray[Any]] = {}
    kept = [[key, _plain(key, state, arrays)] for key, state in states if state]
    native.set_notes(json.dumps({"callbacks": kept}) if kept else "", arrays)


def read_notes(native: _native.Network) -> list[tuple[str, dict[str, Any]]]:
    """Returns the states that were kept, each with its key."""
    text, arrays = native.notes()
    if not text:
        return []
    try:
        return [(str(key), _with_arrays(state, arrays)) for key, state in json.loads(text)["callbacks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise SerializationError(
            f"what the file's callbacks have kept is damaged ({shown(error)})"
        ) from error


def _plain(key: str, value: object, arrays: dict[str, NDArray[Any]]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
        name = str(len(arrays))
        # A copy: whoever has the array may go on writing to it.
        arrays[name] = np.array(value, order="C")
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(key, item, arrays) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(key, item, arrays) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(
        f"the state_dict of callback {key} holds {type(value).__name__}; it may hold None, numbers, text, "
        "lists, dicts with text for keys, and NumPy arrays of float32 or float64"
    )


def _with_arrays(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {name: _with_arrays(item, arrays) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value
