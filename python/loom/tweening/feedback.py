"""The feedback maps that learn in the difference modes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from loom import _native
from loom.engine import engine_of
from loom.network import Network
from loom.network.layers import LayerHandle
from loom.network.parameters import ByName, NamedArrays

__all__ = ["FeedbackMap", "FeedbackMaps"]


class FeedbackMap(NamedArrays):
    """The parameters of one feedback map by name; items can be assigned.

    Args:
        layer: The layer that it goes back through.
        names: Its parameters.
    """

    __slots__ = ()

    def __init__(self, layer: LayerHandle, names: list[str]) -> None:
        super().__init__(layer, names)

    def _what(self) -> str:
        return f"parameter of the feedback map of layer {self._layer.path}"

    def _label(self, name: str) -> str:
        return f"{self._layer.path} feedback {name}"

    def _read(self, name: str) -> NDArray[Any]:
        return _native.feedback_parameter(engine_of(self._layer).native, self._layer.at, name)

    def _write(self, name: str, array: NDArray[Any]) -> None:
        _native.set_feedback_parameter(engine_of(self._layer).native, self._layer.at, name, array)


class FeedbackMaps(ByName[FeedbackMap]):
    """The feedback maps of a network in the difference modes, by the layers that they go back through.

    Args:
        network: The network.
    """

    def __init__(self, network: Network) -> None:
        native = engine_of(network).native
        named = [(layer, _native.feedback_names(native, layer.at)) for layer in network.layers]
        self._maps = {layer.path: FeedbackMap(layer, names) for layer, names in named if names}
        super().__init__(self._maps)

    def _what(self) -> str:
        return "layer with a feedback map"

    def __getitem__(self, path: str) -> FeedbackMap:
        """Returns the map that goes back through a layer."""
        self.require(path)
        return self._maps[path]

    def __repr__(self) -> str:
        return f"FeedbackMaps({', '.join(self._maps)})"
