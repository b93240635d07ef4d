"""A layer's parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import HasEngine, engine_of

__all__ = ["ByName", "LayerPlace", "NamedArrays", "Parameters", "names_inside", "read_only"]

ValueT = TypeVar("ValueT")


class LayerPlace(HasEngine, Protocol):
    """What parameters and weights ask of their layer; a `LayerHandle` is one."""

    @property
    def at(self) -> tuple[int, int, int, int]:
        """Depth, row, column, and the place in the cell."""
        ...

    @property
    def path(self) -> str:
        """The layer's name in a state dict."""
        ...

    @property
    def kind(self) -> str:
        """The layer's type, such as "dense"."""
        ...

    @property
    def prefix(self) -> str:
        """What the names of its parameters start with in the layer of the cell, if it is inside that."""
        ...


class ByName(Mapping[str, ValueT]):
    """A mapping whose unknown names are a ConfigError that suggests the nearest.

    Args:
        names: The names that there are.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)

    def _what(self) -> str:
        """Returns what is named, for the message."""
        raise NotImplementedError

    def require(self, name: object) -> None:
        """Raises a ConfigError, with the nearest name, where there is none of this name."""
        if not isinstance(name, str) or name not in self._names:
            raise unknown(self._what(), name, self._names)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in Mapping
        """Returns the value, or a default where there is none of this name."""
        return self[name] if name in self._names else default

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class NamedArrays(ByName["NDArray[Any]"]):
    """Arrays of a layer by name; items can be assigned.

    Args:
        layer: The layer.
        names: Their names.
    """

    __slots__ = ("_layer",)

    def __init__(self, layer: LayerPlace, names: Iterable[str]) -> None:
        super().__init__(names)
        self._layer = layer

    def _label(self, name: str) -> str:
        """Returns what an array is called in messages."""
        raise NotImplementedError

    def _read(self, name: str) -> NDArray[Any]:
        raise NotImplementedError

    def _write(self, name: str, array: NDArray[Any]) -> None:
        raise NotImplementedError

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns full-precision values, in a read-only array."""
        self.require(name)
        return read_only(self._read(name))

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        """Sets the values; packed versions follow."""
        self.require(name)
        engine = engine_of(self._layer)
        engine.check_thread()
        self._write(name, as_real_array(values, engine.precision, what=self._label(name)))

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {values.shape}" for name, values in self.items())
        return f"{type(self).__name__}({shapes})"


class Parameters(NamedArrays):
    """A layer's parameters by name; items can be assigned.

    Args:
        layer: The layer.
    """

    __slots__ = ()

    def __init__(self, layer: LayerPlace) -> None:
        names = engine_of(layer).native.parameter_names(layer.at)
        super().__init__(layer, names_inside(layer.prefix, names))

    def _what(self) -> str:
        return f"parameter of layer {self._layer.path} ({self._layer.kind})"

    def _label(self, name: str) -> str:
        return f"{self._layer.path}.{name}"

    def _read(self, name: str) -> NDArray[Any]:
        return engine_of(self._layer).native.parameter(self._layer.at, self._layer.prefix + name, False)

    def _write(self, name: str, array: NDArray[Any]) -> None:
        engine_of(self._layer).native.set_parameter(self._layer.at, self._layer.prefix + name, array)


def names_inside(prefix: str, names: Iterable[str]) -> list[str]:
    """Returns what is left of those names that start so."""
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array that cannot be written to: a copy of what the engine holds."""
    array.flags.writeable = False
    return array
