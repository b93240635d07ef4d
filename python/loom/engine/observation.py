"""Who is shown each layer's activations after a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loom._settings.suggestions import shown
from loom.engine.statistics import layer_activations
from loom.errors import ConfigError, StateError
from loom.observers import Observer

__all__ = ["Observation"]


class Observation:
    """A network's observers, and how many forward passes they have seen."""

    def __init__(self) -> None:
        self._observers: list[tuple[Observer, int]] = []
        self._passes = 0

    @property
    def active(self) -> bool:
        """Whether anybody observes."""
        return bool(self._observers)

    @property
    def levels(self) -> int:
        """How deep anybody looks: 0 for nobody, 1 at layers of cells, 2 at what these hold, and so on."""
        return max((depth for _, depth in self._observers), default=0)

    def add(self, observer: Observer, depth: int = 1) -> None:
        """Shows forward passes to an observer from now on; the first one's are counted from 0."""
        if not callable(observer):
            raise ConfigError(f"an observer is called with each layer's statistics, got {shown(observer)}")
        if not self._observers:
            self._passes = 0
        self._observers.append((observer, depth))

    def remove(self, observer: Observer | None) -> None:
        """Takes an observer away, or all of them where None."""
        if observer is None:
            self._observers.clear()
            return
        for place, (found, _) in enumerate(self._observers):
            if found == observer:
                del self._observers[place]
                return
        raise StateError(f"{shown(observer)} does not observe this network")

    def tell(self, figures: Iterable[Mapping[str, Any]]) -> None:
        """Shows what the engine found about each layer in a forward pass to every observer."""
        activations = layer_activations(self._passes, figures)
        self._passes += 1
        for observer, depth in tuple(self._observers):
            observer([layer for layer in activations if layer.depth <= depth])
