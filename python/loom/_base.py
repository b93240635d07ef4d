"""What the parts of a network share: the engine's network, who observes it, who trains it."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from loom import _native
from loom._typing import ArrayLike, Precision, RealArray
from loom.architecture import NetworkConfig
from loom.convert import as_input, real_dtype
from loom.errors import ConfigError, StateError
from loom.grid import Extents
from loom.observers import Observer
from loom.statistics import layer_activations

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.config import TrainingConfig

__all__ = ["OWN_ATTRIBUTES", "NetworkBase"]


OWN_ATTRIBUTES = frozenset(
    {
        "_building",
        "_built",
        "_config",
        "_device",
        "_direct",
        "_dtype",
        "_forward_seconds",
        "_grid",
        "_input_shape",
        "_judged_by",
        "_native",
        "_observed",
        "_observers",
        "_placed",
        "_precision",
        "_predict",
        "_reads_indices",
        "_revision",
        "_take_notes",
    }
)
"""What a network has that is made anew with it: all attributes but those that its users give it."""


class NetworkBase(ABC):  # noqa: B024 - the parts of a network make sense only together
    """The engine's network, and what Python keeps beside it."""

    def _adopt(self, native: _native.Network, config: NetworkConfig | None) -> None:
        self._native = native
        self._predict = native.predict
        self._config = config
        described = self.config
        self._grid: Extents = _triple(described.grid)
        self._input_shape = _extents(described.input_shape)
        self._precision: Precision = _precision(described.precision)
        self._dtype = real_dtype(self._precision)
        self._observers: list[Observer] = []
        self._observed = 0
        self._device = native.device()
        # Whether somebody has said where the network is to be.
        self._placed = False
        # How training judged what it learned, and what keeps its callbacks' states while it runs.
        self._judged_by: TrainingConfig | None = None
        self._take_notes: Callable[[], None] | None = None
        # Grows with whatever a compiled training program depends on.
        self._revision = 0
        self._building = Lock()
        self._built = False
        # Whether the network reads whole numbers; known once built.
        self._reads_indices = False
        # Whether predict may go straight to the engine.
        self._direct = False

    @property
    def _trained_by(self) -> int | None:
        """The thread that trains the network."""
        return self._native.trained_by()

    def _claim(self) -> _native.Claim:
        """Returns what marks the network as training by this thread, while it is entered."""
        # While it trains, predict looks first.
        self._direct = False
        return self._native.claim(get_ident())

    @property
    def config(self) -> NetworkConfig:
        """The network without its weights."""
        if self._config is None:
            self._config = NetworkConfig.from_config(json.loads(self._native.config()))
        return self._config

    def build(self) -> Self:
        """Infers every shape and draws initial weights, unless that was done.

        Returns:
            The network.

        Raises:
            ShapeError: Layers do not fit together: names the cell, the layer, what it
                expected and what it got.
        """
        self._check_thread()
        with self._building:
            if not self._built:
                self._native.build()
                self._reads_indices = self._native.index_limit() is not None
                self._built = True
        # Numbers that are to be whole are looked at before they go to the engine.
        self._direct = self._trained_by is None and not self._observers and not self._reads_indices
        return self

    def _as_input(self, x: ArrayLike) -> RealArray:
        """Converts what is to go into the network; builds it.

        Raises:
            DTypeError: It is no array of real numbers, or the network reads whole numbers and
                these are not of an integer type.
        """
        self.build()
        return as_input(x, self._precision, indices=self._reads_indices)

    def _check_thread(self) -> None:
        """Refuses whatever another thread asks while this one trains."""
        if self._trained_by not in {None, get_ident()}:
            raise StateError("the network is training in another thread; wait for that to end")

    def _check_idle(self, what: str) -> None:
        """Refuses what would get in the way of training."""
        self._check_thread()
        if self._trained_by is not None:
            raise StateError(f"{what} is not possible while loom.train trains the network")

    def _change_layers(self) -> None:
        """Notes that what training programs depend on is about to change."""
        self._check_thread()
        self._config = None
        self._revision += 1

    @property
    def device(self) -> str:
        """What the network computes on: "cpu", or a GPU such as "gpu:0"."""
        return self._device

    def _place_for_training(self, device: str) -> None:
        """Moves the network where training wants it; with "auto" one that was placed already stays."""
        if device != "auto" or not self._placed:
            self._move(device)

    def _move(self, device: str) -> None:
        self._native.to(device)
        self._placed = device != "auto"
        self._device = self._native.device()
        # A GPU that was lost and opened anew has the same name.
        self._revision += 1

    def observe(self, observer: Observer) -> Self:
        """Shows each layer's activation statistics to an observer after each forward pass.

        Args:
            observer: `loom.observers.Console()`, `Recorder()`, or any callable that takes
                a list of `LayerActivation`.

        Returns:
            The network.

        Raises:
            ConfigError: The observer cannot be called.
        """
        if not callable(observer):
            raise ConfigError(f"an observer is called with each layer's statistics, got {observer!r}")
        if not self._observers:
            self._observed = 0
        self._observers.append(observer)
        self._direct = False
        self._revision += 1
        return self

    def unobserve(self, observer: Observer | None = None) -> Self:
        """Takes an observer away, or all of them where None.

        Raises:
            StateError: The observer is not observing.
        """
        if observer is None:
            self._observers.clear()
        elif observer in self._observers:
            self._observers.remove(observer)
        else:
            raise StateError(f"{observer!r} does not observe this network")
        self._revision += 1
        return self

    def _tell_observers(self, figures: Iterable[Mapping[str, Any]]) -> None:
        activations = layer_activations(self._observed, figures)
        self._observed += 1
        for observer in tuple(self._observers):
            observer(activations)


def _triple(extents: Sequence[int]) -> Extents:
    depth, rows, columns = extents
    return depth, rows, columns


def _precision(name: str) -> Precision:
    return "float64" if name == "float64" else "mixed" if name == "mixed" else "float32"


def _extents(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
