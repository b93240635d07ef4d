"""Every parameter and state of a network, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from numpy.typing import NDArray

from loom._settings.checks import flag, items
from loom._settings.suggestions import shown
from loom._typing import ArrayLike
from loom.convert import as_real_array, real_dtype
from loom.engine import Engine, HasEngine, NetworkT, engine_of
from loom.errors import ConfigError, ShapeError
from loom.network.adapting import adapted
from loom.tensors import TensorEntry, write_safetensors

__all__ = ["IncompatibleKeys", "load_state_dict", "save_safetensors", "state_dict", "state_entries"]


def state_dict(self: HasEngine) -> dict[str, NDArray[Any]]:
    """Returns copies of all parameters in full precision, and of what layers keep beside them.

    They are named "z.y.x.l.name"; running statistics and the like are among them, and what
    stateful layers carry from batch to batch, (rows, ...), once they carry anything. Layers that
    use another one's parameters have none of their own.
    """
    engine = engine_of(self)
    native = engine.native
    state: dict[str, NDArray[Any]] = {}
    for path, at in engine.layers_by_path():
        for name in native.parameter_names(at):
            state[f"{path}.{name}"] = native.parameter(at, name, False)
        for name in native.state_names(at):
            state[f"{path}.{name}"] = native.state(at, name)
    return state


def save_safetensors(
    self: HasEngine, path: str | PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Saves all parameters and states as safetensors, for other programs; `save` is what keeps the network.

    They are named as `state_dict` names them, and laid out as PyTorch does; each is read when its turn comes
    to be written. `load_state_dict(loom.open_tensors(path))` reads them back. An older file survives a
    failure.

    Args:
        path: Where to.
        metadata: What the file is to say beside them: strings by name. "format" is "pt" unless it is given,
            by which programs know the layout.

    Raises:
        InvalidValueError: Metadata are not strings by name.
        FileError: The system refuses.
    """
    write_safetensors(path, state_entries(self), {"format": "pt", **(metadata or {})})


def state_entries(self: HasEngine, *, decoded: bool = False, adapted: bool = False) -> dict[str, TensorEntry]:
    """Returns what `state_dict` does, but each array is copied when it is read.

    Where `decoded`, what packed weights stand for is read in place of masters that were dropped. Where
    `adapted`, weights have what the adapters in use add to them.
    """
    engine = engine_of(self)
    native, dtype = engine.native, real_dtype(engine.precision)
    entries: dict[str, TensorEntry] = {}

    def add(name: str, shape: Sequence[int], read: Callable[[], NDArray[Any]]) -> None:
        entries[name] = TensorEntry(name, tuple(shape), dtype.name, prod(shape) * dtype.itemsize, read)

    for path_of, at in engine.layers_by_path():
        names = native.parameter_names(at)
        active = decoded and bool(names) and native.weights_state(at)["dropped"]
        for name in names:
            shape = native.parameter_shape(at, name)
            read = partial(native.parameter, at, name, active)
            add(f"{path_of}.{name}", shape, partial(_adapted, self, at, name, read) if adapted else read)
        for name in native.state_names(at):
            array = native.state(at, name)
            add(f"{path_of}.{name}", array.shape, lambda array=array: array)  # type: ignore[misc]
    return entries


def _adapted(
    network: HasEngine, at: tuple[int, int, int, int], name: str, read: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    values = read()
    return adapted(network, at, name, values).astype(values.dtype, copy=False)


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` has left out where it was not strict.

    Args:
        missing_keys: Names of the network that the state does not have: these are as they were.
        unexpected_keys: Names of the state that the network does not have, after they were renamed.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


Rename: TypeAlias = "Mapping[str, str] | Callable[[str], str | None] | Sequence[tuple[str, str]]"
"""New names by old ones, a function that makes them, or regular expressions with what replaces them."""


@overload
def load_state_dict(
    self: NetworkT,
    state: Mapping[str, ArrayLike],
    strict: Literal[True] = True,
    rename: Rename | None = None,
) -> NetworkT: ...
@overload
def load_state_dict(
    self: HasEngine, state: Mapping[str, ArrayLike], strict: Literal[False], rename: Rename | None = None
) -> IncompatibleKeys: ...
@overload
def load_state_dict(
    self: NetworkT, state: Mapping[str, ArrayLike], strict: bool, rename: Rename | None = None
) -> NetworkT | IncompatibleKeys: ...
def load_state_dict(
    self: NetworkT, state: Mapping[str, ArrayLike], strict: bool = True, rename: Rename | None = None
) -> NetworkT | IncompatibleKeys:
    """Sets parameters and states; after an error none has changed.

    What stateful layers carry may be left out: then they begin new sequences. Layers of packed weights whose
    masters were dropped cannot be set: where not strict, a state without them sets all else, adapters too.

    Args:
        state: Arrays by name, as `state_dict` returns them.
        strict: Whether every name of the network must be there, and no other. Otherwise names that are
            on one side alone are left out, and returned.
        rename: What names of the state are called here. A mapping, of whole names or of what they begin
            with up to a dot: {"0.0.0.2": "0.0.1.0"} for all of a layer; the longest that fits holds.
            A function, which returns the new name, or None to leave the array out. Or pairs of a regular
            expression and what replaces it, all applied in turn, as by `re.sub`.

    Returns:
        The network; where not strict, `missing_keys` and `unexpected_keys`, both sorted.

    Raises:
        ConfigError: Names are missing or unknown; or renaming makes one name of two.
        ShapeError: An array has another shape than its parameter, whether strict or not.
        NonFiniteError: An array holds NaN or infinity.
        StateError: What two stateful layers carry is of different numbers of rows.

    Examples:
        >>> old = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=3)
        >>> new = loom.Sequential([nn.LayerNorm(), nn.Dense(8), nn.Dense(5)], input_shape=3)
        >>> left = new.load_state_dict(
        ...     old.state_dict(), strict=False, rename={"0.0.0.0": "0.0.0.1", "0.0.0.1": "old_head"}
        ... )
        >>> left.missing_keys
        ['0.0.0.0.bias', '0.0.0.0.weight', '0.0.0.2.bias', '0.0.0.2.weight']
        >>> left.unexpected_keys
        ['old_head.bias', 'old_head.weight']
        >>> bool((new.layers[1].weight == old.layers[0].weight).all())
        True
    """
    engine = engine_of(self)
    engine.check_thread()
    strict = flag("load_state_dict", "strict", strict)
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"a state is arrays by name, as state_dict returns them, got {type(state).__name__}"
        )
    names: list[object] = list(state)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ConfigError(
            f"a state is arrays by name, as state_dict returns them, and {shown(odd[0])} is no name"
        )
    state = state if rename is None else _renamed(state, rename)
    before = state_dict(self) if strict else _readable(engine)
    carried = [
        f"{path}.{name}" for path, at in engine.layers_by_path() for name in engine.native.carried_names(at)
    ]
    known = (
        before
        if strict
        else [f"{path}.{name}" for path, at in engine.layers_by_path() for name in _names(engine, at)]
    )
    fixed = [name for name in known if name not in carried]
    left = IncompatibleKeys(
        sorted(set(fixed) - set(state)), sorted(name for name in state if name not in {*fixed, *carried})
    )
    if strict:
        _check_names(left)
    arrays = {
        name: as_real_array(state[name], engine.precision, what=name)
        for name in (*fixed, *carried)
        if name in state
    }
    for name in fixed:
        if name in arrays and name in before and arrays[name].shape != before[name].shape:
            raise ShapeError(f"{name}: expected shape {before[name].shape}, got {arrays[name].shape}")
    try:
        _set(engine, arrays, resets=bool(carried))
    except BaseException:
        _set(engine, before, resets=bool(carried))
        raise
    return self if strict else left


def _readable(engine: Engine) -> dict[str, NDArray[Any]]:
    """Returns what `state_dict` does, as far as there are masters of weights."""
    native, state = engine.native, {}
    for path, at in engine.layers_by_path():
        names = native.parameter_names(at)
        dropped = bool(names) and native.weights_state(at)["dropped"]
        still = set(names) - set(engine.adapter_parameters(at)) if dropped else set()
        state.update(
            {f"{path}.{name}": native.parameter(at, name, False) for name in names if name not in still}
        )
        state.update({f"{path}.{name}": native.state(at, name) for name in native.state_names(at)})
    return state


def _names(engine: Engine, at: tuple[int, int, int, int]) -> list[str]:
    return [*engine.native.parameter_names(at), *engine.native.state_names(at)]


def _renamed(state: Mapping[str, ArrayLike], rename: Rename) -> dict[str, ArrayLike]:
    """Returns a state under new names, without what has none."""
    new_name = _renaming(rename)
    renamed: dict[str, ArrayLike] = {}
    sources: dict[str, str] = {}
    for name, array in state.items():
        new = new_name(name)
        if new is None:
            continue
        if not isinstance(new, str):
            raise ConfigError(f'rename: a name or None was expected for "{name}", got {shown(new)}')
        if new in renamed:
            raise ConfigError(f'rename: "{sources[new]}" and "{name}" both become "{new}"')
        renamed[new], sources[new] = array, name
    return renamed


def _renaming(rename: Rename) -> Callable[[str], str | None]:
    if isinstance(rename, Mapping):
        names = dict(rename)

        def by_beginning(name: str) -> str:
            held = [old for old in names if name == old or name.startswith(f"{old}.")]
            longest = max(held, key=len, default="")
            return names[longest] + name[len(longest) :] if held else name

        return by_beginning
    if callable(rename):
        return rename
    pairs = [items(pair) or () for pair in items(rename) or ((),)]
    if any(len(pair) != 2 or not all(isinstance(text, str) for text in pair) for pair in pairs):
        raise ConfigError(
            "rename is new names by old ones, a function of a name, or a list of pairs of a regular "
            f"expression and what replaces it, got {shown(rename)}"
        )
    try:
        expressions = [(re.compile(str(pattern)), str(replacement)) for pattern, replacement in pairs]
    except re.error as error:
        raise ConfigError(f"rename: not a regular expression: {error}") from error

    def by_expressions(name: str) -> str:
        for expression, replacement in expressions:
            name = expression.sub(replacement, name)
        return name

    return by_expressions


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


def _check_names(left: IncompatibleKeys) -> None:
    words = (("missing", left.missing_keys), ("unknown", left.unexpected_keys))
    parts = [f"{word} {', '.join(names)}" for word, names in words if names]
    if parts:
        raise ConfigError(f"the state does not fit the network: {'; '.join(parts)}")
