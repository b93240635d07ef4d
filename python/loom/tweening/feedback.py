"""The feedback maps that learn in the difference modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from loom import _native
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.network import Network
from loom.network.layers import LayerHandle

__all__ = ["FeedbackMap", "FeedbackMaps"]


class FeedbackMaps(Mapping[str, "FeedbackMap"]):
    """The feedback maps of a network in the difference modes.

    Args:
        network: The network.
    """

    def __init__(self, network: Network) -> None:
        native = engine_of(network).native
        named = {layer.path: (layer, _native.feedback_names(native, layer.at)) for layer in network.layers}
        self._maps = {path: FeedbackMap(layer, names) for path, (layer, names) in named.items() if names}

    def __getitem__(self, path: str) -> FeedbackMap:
        """Returns the map that goes back through a layer."""
        if path not in self._maps:
            raise unknown("layer with a feedback map", path, self._maps)
        return self._maps[path]

    def __contains__(self, path: object) -> bool:
        """Whether there is a map that goes back through this layer."""
        return path in self._maps

    def __iter__(self) -> Iterator[str]:
        """Yields the layers' paths."""
        return iter(self._maps)

    def __len__(self) -> int:
        """Returns how many maps there are."""
        return len(self._maps)

    def __repr__(self) -> str:
        """Returns the maps' layers."""
        return f"FeedbackMaps({', '.join(self._maps)})"


class FeedbackMap(Mapping[str, "NDArray[Any]"]):
    """The parameters of one feedback map by name; items can be assigned.

    Args:
        layer: The layer that it goes back through.
        names: Its parameters.
    """

    def __init__(self, layer: LayerHandle, names: list[str]) -> None:
        self._layer = layer
        self._names = names

    def _require(self, name: str) -> None:
        if name not in self._names:
            raise unknown(f"parameter of the feedback map of layer {self._layer.path}", name, self._names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns a parameter, in a read-only array."""
        self._require(name)
        array = _native.feedback_parameter(engine_of(self._layer).native, self._layer.at, name)
        array.flags.writeable = False
        return array

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        """Sets a parameter."""
        self._require(name)
        engine = engine_of(self._layer)
        engine.check_thread()
        array = as_real_array(values, engine.precision, what=f"{self._layer.path} feedback {name}")
        _native.set_feedback_parameter(engine.native, self._layer.at, name, array)

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
        return f"FeedbackMap({shapes})"
