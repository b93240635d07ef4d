"""A layer's parameters by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import HasEngine, engine_of

__all__ = ["LayerPlace", "Parameters", "read_only"]


class LayerPlace(HasEngine, Protocol):
    """What parameters ask of their layer; a `LayerHandle` is one."""

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


class Parameters(Mapping[str, "NDArray[Any]"]):
    """A layer's parameters by name; items can be assigned.

    Args:
        layer: The layer.
    """

    __slots__ = ("_layer", "_names")

    def __init__(self, layer: LayerPlace) -> None:
        self._layer = layer
        self._names: list[str] = engine_of(layer).native.parameter_names(layer.at)

    def require(self, name: str) -> None:
        """Raises a ConfigError, with the nearest name, where there is no such parameter."""
        if name not in self._names:
            layer = self._layer
            raise unknown(f"parameter of layer {layer.path} ({layer.kind})", name, self._names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns the parameter's full-precision values, in a read-only array."""
        self.require(name)
        layer = self._layer
        return read_only(engine_of(layer).native.parameter(layer.at, name, False))

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        """Sets the parameter; packed versions follow."""
        self.require(name)
        layer = self._layer
        engine = engine_of(layer)
        engine.check_thread()
        array = as_real_array(values, engine.precision, what=f"{layer.path}.{name}")
        engine.native.set_parameter(layer.at, name, array)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in Mapping
        """Returns the parameter, or a default where there is none of this name."""
        return self[name] if name in self._names else default

    def __contains__(self, name: object) -> bool:
        """Whether there is a parameter of this name."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Yields the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Returns how many parameters there are."""
        return len(self._names)

    def __repr__(self) -> str:
        """Returns names and shapes."""
        shapes = ", ".join(f"{name}: {values.shape}" for name, values in self.items())
        return f"Parameters({shapes})"


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array that cannot be written to: a copy of what the engine holds."""
    array.flags.writeable = False
    return array
