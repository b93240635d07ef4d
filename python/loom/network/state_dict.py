"""Every parameter and state of a network, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import Engine
from loom.errors import ConfigError, ShapeError

__all__ = ["StateDict"]


class StateDict:
    """What `Network.state_dict` and `Network.load_state_dict` do.

    Args:
        engine: The network's engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters in full precision, and of what layers keep beside them."""
        native = self._engine.native
        state: dict[str, NDArray[Any]] = {}
        for path, at in self._places():
            for name in native.parameter_names(at):
                state[f"{path}.{name}"] = native.parameter(at, name, False)
            for name in native.state_names(at):
                state[f"{path}.{name}"] = native.state(at, name)
        return state

    def write(self, state: Mapping[str, ArrayLike]) -> None:
        """Sets all parameters; after an error none has changed."""
        engine = self._engine
        engine.check_thread()
        before = self.read()
        carried = [
            f"{path}.{name}" for path, at in self._places() for name in engine.native.carried_names(at)
        ]
        fixed = [name for name in before if name not in carried]
        _check_names(fixed, [name for name in state if name not in carried])
        names = [*fixed, *(name for name in carried if name in state)]
        arrays = {name: as_real_array(state[name], engine.precision, what=name) for name in names}
        for name in fixed:
            if arrays[name].shape != before[name].shape:
                raise ShapeError(f"{name}: expected shape {before[name].shape}, got {arrays[name].shape}")
        try:
            self._set(arrays, resets=bool(carried))
        except BaseException:
            self._set(before, resets=bool(carried))
            raise

    def _places(self) -> list[tuple[str, tuple[int, int, int, int]]]:
        """Returns the path and the place of every layer."""
        engine = self._engine
        places = [(*at, place) for at, place in engine.layer_places()]
        return list(zip(engine.layer_paths(), places, strict=True))

    def _set(self, arrays: Mapping[str, NDArray[Any]], *, resets: bool) -> None:
        native = self._engine.native
        if resets:
            native.reset_states()
        for path, array in arrays.items():
            *numbers, name = path.split(".", 4)
            at = [int(number) for number in numbers]
            if name in native.parameter_names(at):
                native.set_parameter(at, name, array)
            else:
                native.set_state(at, name, array)


def _check_names(expected: Iterable[str], given: Iterable[str]) -> None:
    missing = sorted(set(expected) - set(given))
    unexpected = sorted(set(given) - set(expected))
    if missing or unexpected:
        parts = [
            f"{word} {', '.join(names)}"
            for word, names in (("missing", missing), ("unknown", unexpected))
            if names
        ]
        raise ConfigError(f"the state does not fit the network: {'; '.join(parts)}")
