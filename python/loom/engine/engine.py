"""The engine of a network: the native one, what Python knows of it, and who may use it now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from threading import Lock, get_ident
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from loom import _native, nn
from loom._forks import renewed
from loom._typing import ArrayLike, RealArray
from loom.architecture import InputConfig, LinkConfig, NetworkConfig, OutputConfig, as_layer
from loom.convert import as_input, real_dtype
from loom.device import missing_driver_told
from loom.engine.observation import Observation
from loom.engine.ports import Ports
from loom.engine.sizing import Sizing
from loom.engine.told import encoded
from loom.errors import ConfigError, StateError
from loom.grid import Coordinate, as_grid, as_open_shape, coordinates
from loom.observers import Observer

__all__ = ["Engine", "HasEngine", "InnerLayer", "NetworkT", "engine_of"]


@dataclass(frozen=True)
class InnerLayer:
    """A layer inside another.

    Args:
        places: Depth, row, column, the place in the cell, and places inside layers.
        name: What the names of its parameters start with in the layer of the cell, such as "layers.0".
        config: Its configuration.
        input_shape: One sample's extents as they come in.
        output_shape: One sample's extents as they go out.
    """

    places: tuple[int, ...]
    name: str
    config: nn.Layer
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


class Engine:
    """The native network, and what Python keeps beside it.

    Args:
        native: The native network.
        config: What it was made from; asked of the native network where None.
    """

    def __init__(self, native: _native.Network, config: NetworkConfig | None = None) -> None:
        self.native = native
        self._edition = 0
        """Grows once settings or weights of layers, or which there are, have changed."""
        self._config = None if config is None else (0, config)
        described = self.config
        self.grid = as_grid(described.grid)
        self.input_shape = as_open_shape(described.input_shape)
        self.precision = described.precision
        self.dtype = real_dtype(self.precision)
        self.observation = Observation()
        self.device = native.device()
        self._placed = False
        """Whether somebody has said where the network is to be."""
        self.last_forward_time: float | None = None
        """The seconds that the newest pass of the manual loop took; None before any."""
        self.optimizer_chosen = False
        """Whether the manual loop has been told what `apply_gradients` follows."""
        self.reads_indices = False
        """Whether the network reads whole numbers; known once built."""
        self.direct = False
        """Whether arrays of the right dtype may go straight to the native network."""
        self.revision = 0
        """Grows with whatever a compiled training program depends on."""
        self._sizing: Sizing | None = None
        self._packed: list[int] | None = None
        """A row's extents where it holds several sequences; see `resize`."""
        self.renew()
        self._built = False
        self._inner: dict[tuple[int, ...], tuple[int, dict[str, InnerLayer]]] = {}

    # What it is

    def renew(self) -> None:
        """Makes the lock: at first, and in a process that is forked off, where nobody holds it."""
        self._building = Lock()
        renewed.add(self)

    @property
    def config(self) -> NetworkConfig:
        """The network without its weights."""
        known, edition = self._config, self._edition
        if known is None or known[0] != edition:
            # What was read while another thread changed the network is not kept beyond that.
            known = (edition, NetworkConfig.from_config(json.loads(self.native.config())))
            self._config = known
        return known[1]

    @property
    def ports(self) -> Ports | None:
        """The named inputs and outputs; None where there is one of each, without names."""
        config = self.config
        return Ports(self.native, config) if config.inputs or config.outputs else None

    @property
    def sizing(self) -> Sizing | None:
        """What inputs of open extents go through; None where they are fixed. Builds the network."""
        if None not in self.input_shape:
            return None
        self.build()
        return self._sizing

    def check_fixed(self, what: str) -> None:
        """Refuses a network whose input has no fixed extents, of which something has no meaning.

        Args:
            what: What was asked for.

        Raises:
            ConfigError: The network takes inputs of different extents.
        """
        if None in self.input_shape:
            ports = self.ports
            named = {} if ports is None else ports.input_extents()
            has = f"inputs={named}" if named else f"input_shape={self.input_shape}"
            raise ConfigError(
                f"{what} takes a network of fixed extents; this one has {has}: "
                "net.resized(...) makes one of fixed extents with its weights"
            )

    def layer_config(self, at: Coordinate, place: int) -> nn.Layer:
        """Returns the configuration of a layer; a StateError where the cell has no layers any more."""
        for cell in self.config.cells:
            described: Any = cell
            if tuple(described.at) == at:
                layer: nn.Layer = described.layers[place]
                return layer
        raise StateError(f"cell {at} has no layers any more")

    def inner_layers(self, at: tuple[int, int, int, int]) -> Mapping[str, InnerLayer]:
        """Returns the layers inside a layer by name, in the order they are computed; builds the network."""
        known = self._inner.get(at)
        edition = self._edition
        if known is None or known[0] != edition:
            found = {
                name: InnerLayer(
                    tuple(places), name, as_layer(json.loads(config)), tuple(before), tuple(after)
                )
                for places, name, config, before, after in self.native.inner_layers(at)
            }
            known = (edition, found)
            self._inner[at] = known
        return known[1]

    def adapter_parameters(self, at: tuple[int, int, int, int]) -> dict[str, bool]:
        """Returns the names of what adapters of a layer have, and whether an optimizer moves each."""
        return {
            f"{weight}.{adapter['name']}.{part}": adapter["active"] and adapter["trainable"]
            for adapter in json.loads(self.native.adapters(at))
            for weight in adapter["parameters"]
            for part in ("lora_a", "lora_b", *(["lora_magnitude"] if adapter.get("decomposed") else []))
        }

    def layer_places(self) -> list[tuple[Coordinate, int]]:
        """Returns the cell of every layer and its place there, in the order data flows."""
        return [(at, place) for at in coordinates(self.grid) for place in range(self.native.cell_len(at))]

    def layer_paths(self) -> tuple[str, ...]:
        """Returns the name of every layer in a state dict, "z.y.x.l", in the order data flows."""
        return tuple(".".join(map(str, (*at, place))) for at, place in self.layer_places())

    def layers_by_path(self) -> list[tuple[str, tuple[int, int, int, int]]]:
        """Returns the path of every layer, with depth, row, column and the place in the cell."""
        places = [(*at, place) for at, place in self.layer_places()]
        return list(zip(self.layer_paths(), places, strict=True))

    def layer_kinds(self) -> tuple[str, ...]:
        """Returns the type of every layer, such as "dense", in the order data flows."""
        return tuple(self.layer_config(at, place).kind for at, place in self.layer_places())

    # Who may use it now

    @property
    def trained_by(self) -> int | None:
        """The thread that trains the network."""
        return self.native.trained_by()

    def claim(self) -> _native.Claim:
        """Returns what marks the network as training by this thread, while it is entered."""
        # While it trains, predict looks first.
        self.direct = False
        return self.native.claim(get_ident())

    def resize(self, extents: tuple[int, ...], *, packed: bool = False) -> None:
        """Gives the input other extents for good, where no parameter depends on them.

        Args:
            extents: One sample's extents.
            packed: Whether rows hold several sequences, one behind the other, and begin with a number for
                each step: that of its sequence, from 1 on, or 0 for padding.
        """
        self.rearrange("giving the input other extents", lambda native: native.resize(list(extents), packed))
        self._packed = list(extents) if packed else None

    def check_thread(self) -> None:
        """Refuses, with a StateError, whatever another thread asks while this one trains."""
        if self.trained_by not in {None, get_ident()}:
            raise StateError("the network is training in another thread; wait for that to end")

    def check_idle(self, what: str) -> None:
        """Refuses, with a StateError, what would get in the way of training; `what` is for the message."""
        self.check_thread()
        if self.trained_by is not None:
            raise StateError(f"{what} is not possible while loom.train trains the network")

    # Changing

    def note_change(self) -> None:
        """Notes that something has changed which training programs depend on."""
        self.revision += 1

    def change(self, change: Callable[[_native.Network], object]) -> None:
        """Changes settings or weights of layers; refused as by `check_thread`."""
        self.check_thread()
        try:
            change(self.native)
        finally:
            # Afterwards, since another thread may look at the network, or prepare to train it, in between.
            self._edition += 1
            self.note_change()

    def add(self, at: Coordinate, layers: Iterable[nn.Layer | Mapping[str, Any]]) -> None:
        """Adds layers at the end of a cell; all of them or, after an error, none."""
        described = [json.dumps(as_layer(layer).to_config()) for layer in layers]
        self.rearrange("adding layers", lambda native: native.add(at, described))

    def link(self, link: LinkConfig) -> None:
        """Hands a cell's output to another cell."""
        described = json.dumps(link.to_config())
        self.rearrange("adding a link", lambda native: native.link(described))

    def set_inputs(self, inputs: Sequence[InputConfig]) -> None:
        """Says what enters which cell."""
        described = json.dumps([entry.to_config() for entry in inputs])
        self.rearrange("naming inputs", lambda native: native.set_inputs(described))

    def set_outputs(self, outputs: Sequence[OutputConfig]) -> None:
        """Says which cells' outputs leave, and under which names."""
        described = json.dumps([entry.to_config() for entry in outputs])
        self.rearrange("naming outputs", lambda native: native.set_outputs(described))

    def rearrange(self, what: str, change: Callable[[_native.Network], object]) -> None:
        """Changes which layers and links there are; refused while training, with `what` in the message."""
        self.check_idle(what)
        try:
            change(self.native)
        finally:
            # Ctrl-C may come between the two.
            self._built = False
            self._sizing = None
            self.direct = False
            self._edition += 1
            self.note_change()

    def replace(self, native: _native.Network) -> None:
        """Puts another native network, on the CPU, in place of this one; refused while training."""
        native.to(self.device)
        if self._packed is not None:
            # Files have no word of it.
            native.resize(self._packed, True)

        def put(before: _native.Network) -> None:
            self.native = native

        self.rearrange("another network in its place", put)

    def build(self) -> None:
        """Infers every shape and draws initial weights, unless that was done."""
        self.check_thread()
        # The lock is for threads that meet at the first call alone: Ctrl-C may come before any line, and one
        # that comes where a lock is let go would leave it taken.
        if not self._built:
            with self._building:
                if not self._built:
                    self.native.build()
                    self.reads_indices = self.native.index_limit() is not None
                    if None in self.input_shape:
                        ports = self.ports
                        named = {} if ports is None else ports.input_extents()
                        self._sizing = Sizing(
                            self.native,
                            named or {"": self.input_shape},
                            self.precision,
                            outputs=() if ports is None else ports.output_names,
                        )
                    self._built = True
        # Numbers that are to be whole are looked at before they go to the engine.
        numbers = not self.reads_indices and not self.ports and self._sizing is None
        self.direct = self.trained_by is None and not self.observation.active and numbers

    def move(self, device: str) -> None:
        """Moves the network to a device; "auto" also leaves it to training again where it is to be."""
        with missing_driver_told(device):
            self.native.to(device)
        self._placed = device != "auto"
        self.device = self.native.device()
        # A GPU that was lost and opened anew has the same name.
        self.note_change()

    @property
    def placed(self) -> bool:
        """Whether the network was put where it is by name, and stays there in training by "auto"."""
        return self._placed

    def place_for_training(self, device: str) -> None:
        """Moves the network where training wants it; with "auto" one that was placed already stays."""
        if device != "auto" or not self._placed:
            self.move(device)

    def observe(self, observer: Observer, depth: int = 1) -> None:
        """Shows forward passes to an observer from now on; see `Observation.add`."""
        self.observation.add(observer, depth)
        self.direct = False
        self.note_change()

    def unobserve(self, observer: Observer | None) -> None:
        """Takes observers away; see `Observation.remove`."""
        self.observation.remove(observer)
        self.note_change()

    # Data

    def as_input(self, x: ArrayLike | Mapping[str, ArrayLike]) -> RealArray:
        """Converts what is to go into the network, as `loom.convert.as_input` does; builds it.

        Where extents are open, there is room for the steps of the longest sample.
        """
        self.build()
        ports = self.ports
        if self._sizing is not None:
            return self._sizing.all_rows(self._sizing.samples(x), exact=True)
        if ports is not None:
            return ports.pack(encoded(self.native, x), self.precision)
        known = cast("ArrayLike", encoded(self.native, x))
        return as_input(known, self.precision, indices=self.reads_indices)

    def as_steps(self, x: ArrayLike | Mapping[str, ArrayLike]) -> RealArray:
        """Converts the next steps of sequences, of which there may be any number; the network is built."""
        ports = self.ports
        if self._sizing is not None and (ports is None or not ports.inputs):
            # Steps are told by the array.
            return as_input(cast("ArrayLike", x), self.precision, indices=self.reads_indices)
        return self.as_input(x) if ports is None else ports.pack_steps(x, self.precision)

    def stepped(
        self,
        session: _native.Session | _native.Slots,
        x: ArrayLike | Mapping[str, ArrayLike],
        made: RealArray,
        *,
        last: bool,
    ) -> RealArray:
        """Returns what a session has made of steps; of named outputs a dictionary of arrays."""
        ports = self.ports
        if ports is None or not ports.outputs:
            return made
        first = next(iter(x.values())) if isinstance(x, Mapping) else x
        steps = 1 if last else np.shape(cast("Any", first))[1]
        shapes = [tuple(shape) for shape in session.output_shapes(steps)]
        # Type checkers know networks with a single output.
        return cast("RealArray", ports.unpack_shapes(made, shapes))


class HasEngine(Protocol):
    """What `engine_of` takes: a network, or a place in one."""

    @property
    def _engine(self) -> Engine: ...


NetworkT = TypeVar("NetworkT", bound=HasEngine)


def engine_of(owner: HasEngine) -> Engine:
    """Returns the engine of a network, or of the network that a cell or layer is in."""
    try:
        return owner._engine
    except AttributeError:
        hint = "; loom.load(path) makes one of a file" if isinstance(owner, (str, PathLike)) else ""
        raise ConfigError(f"expected a loom.Network, got {type(owner).__name__}{hint}") from None
