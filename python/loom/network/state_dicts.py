"""Every parameter and state of a network, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import Engine, HasEngine, NetworkT, engine_of
from loom.errors import ConfigError, ShapeError

__all__ = ["load_state_dict", "state_dict"]


def state_dict(self: HasEngine) -> dict[str, NDArray[Any]]:
    """Returns copies of all parameters in full precision, and of what layers keep beside them.

    They are named "z.y.x.l.name"; running statistics and the like are among them, and what
    stateful layers carry from batch to batch, (rows, ...), once they carry anything. Layers that
    use another one's parameters have none of their own.
    """
    engine = engine_of(self)
    native = engine.native
    state: dict[str, NDArray[Any]] = {}
    for path, at in _places(engine):
        for name in native.parameter_names(at):
            state[f"{path}.{name}"] = native.parameter(at, name, False)
        for name in native.state_names(at):
            state[f"{path}.{name}"] = native.state(at, name)
    return state


def load_state_dict(self: NetworkT, state: Mapping[str, ArrayLike]) -> NetworkT:
    """Sets all parameters; after an error none has changed.

    What stateful layers carry may be left out: then they begin new sequences.

    Args:
        state: Arrays by name, as `state_dict` returns them.

    Returns:
        The network.

    Raises:
        ConfigError: Names are missing or unknown.
        ShapeError: An array has another shape than its parameter.
        NonFiniteError: An array holds NaN or infinity.
        StateError: What two stateful layers carry is of different numbers of rows.
    """
    engine = engine_of(self)
    engine.check_thread()
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"a state is arrays by name, as state_dict returns them, got {type(state).__name__}"
        )
    before = state_dict(self)
    carried = [f"{path}.{name}" for path, at in _places(engine) for name in engine.native.carried_names(at)]
    fixed = [name for name in before if name not in carried]
    _check_names(fixed, [name for name in state if name not in carried])
    names = [*fixed, *(name for name in carried if name in state)]
    arrays = {name: as_real_array(state[name], engine.precision, what=name) for name in names}
    for name in fixed:
        if arrays[name].shape != before[name].shape:
            raise ShapeError(f"{name}: expected shape {before[name].shape}, got {arrays[name].shape}")
    try:
        _set(engine, arrays, resets=bool(carried))
    except BaseException:
        _set(engine, before, resets=bool(carried))
        raise
    return self


def _places(engine: Engine) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Returns the path and the place of every layer."""
    places = [(*at, place) for at, place in engine.layer_places()]
    return list(zip(engine.layer_paths(), places, strict=True))


def _set(engine: Engine, arrays: Mapping[str, NDArray[Any]], *, resets: bool) -> None:
    native = engine.native
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
