"""Layers in their places: what `net[z, y, x, l]` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from loom import nn
from loom._settings.checks import flag, real
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import Engine, HasEngine, engine_of
from loom.errors import ConfigError
from loom.grid import Coordinate
from loom.network.parameters import Parameters, read_only
from loom.network.text import brief
from loom.network.weights import InputRange, Weights

__all__ = ["LayerHandle", "layers_of"]


class LayerHandle:
    """A layer in its place: its parameters, gradients and last values as NumPy arrays.

    Parameters are attributes and items: `layer.weight`, `layer["weight"]`; both can be
    assigned to. The arrays are read-only copies, so change them as a whole:
    `layer.weight = layer.weight * 0.5`.

    A handle is a place in its network. A copy of it is the same place; `copy.deepcopy` and pickles
    take the network along, so they give the same place in a copy of the network. `layer.config` is
    the layer by itself, to be added elsewhere.

    Args:
        network: The network it belongs to.
        cell: Its cell: depth, row, column.
        index: Its place in the cell.
    """

    __slots__ = ("_network", "cell", "index")
    _network: HasEngine
    cell: Coordinate
    index: int

    def __init__(self, network: HasEngine, cell: Coordinate, index: int) -> None:
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "cell", cell)
        object.__setattr__(self, "index", index)

    @property
    def _engine(self) -> Engine:
        return engine_of(self._network)

    @property
    def at(self) -> tuple[int, int, int, int]:
        """Depth, row, column, and the place in the cell."""
        return (*self.cell, self.index)

    @property
    def path(self) -> str:
        """The layer's name in a state dict: "z.y.x.l"."""
        return ".".join(map(str, self.at))

    @property
    def config(self) -> nn.Layer:
        """The layer's configuration."""
        return self._engine.layer_config(self.cell, self.index)

    @property
    def kind(self) -> str:
        """The layer's type, such as "dense"."""
        return self.config.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in; builds the network."""
        return tuple(self._engine.native.layer_shapes(self.at)[0])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return tuple(self._engine.native.layer_shapes(self.at)[1])

    @property
    def parameters(self) -> Parameters:
        """The parameters by name; each can be read and assigned."""
        return Parameters(self)

    @property
    def states(self) -> dict[str, NDArray[Any]]:
        """What the layer keeps beside its parameters, such as running statistics, by name.

        What a stateful layer carries from batch to batch is among it, (rows, ...), once it carries
        anything: of an LSTM hidden and cell states, (rows, 2, units), of others (rows, 1, units).

        The dict is a copy; assigning one sets the states that it names, or, after an error, none.
        `set_state` and `Network.load_state_dict` set them, too.

        Raises:
            ConfigError: What is assigned is no mapping.
            InvalidValueError: There is no such state.
            ShapeError: A state has another shape.
            StateError: Layers carry another number of rows.
            NonFiniteError: The values hold NaN or infinity.

        Examples:
            >>> net = loom.Sequential([nn.GRU(3, stateful=True)], input_shape=(5, 2))
            >>> layer = net.layers[0]
            >>> _ = net.forward(np.ones((4, 5, 2)))
            >>> layer.states["state_l0"].shape
            (4, 1, 3)
            >>> layer.states = {"state_l0": np.zeros((4, 1, 3))}
        """
        native = self._engine.native
        return {name: read_only(native.state(self.at, name)) for name in native.state_names(self.at)}

    @states.setter
    def states(self, values: Mapping[str, ArrayLike]) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"states are arrays by name, got {type(values).__name__}")
        before, native = self.states, self._engine.native
        try:
            for name, array in values.items():
                self.set_state(name, array)
        except BaseException:
            if not before.keys() >= self.states.keys():
                native.reset_states()
            for name, array in before.items():
                native.set_state(self.at, name, array)
            raise

    def set_state(self, name: str, values: ArrayLike) -> LayerHandle:
        """Sets something that the layer keeps beside its parameters, or carries from batch to batch.

        What is carried is (rows, ...): the next batch then has as many rows. `Network.reset_states`
        forgets it.

        Args:
            name: One of `states`; of a stateful layer also before it carries anything.
            values: What it is to be.

        Returns:
            The layer.

        Raises:
            InvalidValueError: There is no such state.
            ShapeError: It has another shape.
            StateError: Layers carry another number of rows.
            NonFiniteError: The values hold NaN or infinity.
        """
        engine = self._engine
        engine.check_thread()
        array = as_real_array(values, engine.precision, what=f"{self.path}.{name}")
        engine.native.set_state(self.at, name, array)
        return self

    @property
    def gradients(self) -> dict[str, NDArray[Any]]:
        """The gradient of each parameter; zeros before any backward pass."""
        native = self._engine.native
        return {name: read_only(native.gradient(self.at, name)) for name in self.parameters}

    @property
    def input(self) -> NDArray[Any]:
        """What the layer read in the newest pass through the network, which must be one of `forward`.

        Raises:
            StateError: There was none, or another call, such as `predict`, has passed rows since:
                call `forward(x, training=False)` to look at what inference makes of x.
        """
        return self._engine.native.layer_value(self.at, "input")

    @property
    def preactivation(self) -> NDArray[Any]:
        """The output before the activation in that pass; the output where there is none.

        Raises:
            StateError: As for `input`.
        """
        return self._engine.native.layer_value(self.at, "preactivation")

    @property
    def activation(self) -> NDArray[Any]:
        """The output in that pass.

        Raises:
            StateError: As for `input`.
        """
        return self._engine.native.layer_value(self.at, "output")

    @property
    def trainable(self) -> bool:
        """Whether an optimizer may move the parameters."""
        return self._engine.native.trainable(self.at)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._engine.begin_change()
        self._engine.native.set_trainable(self.at, flag("layer", "trainable", value))

    @property
    def frozen(self) -> tuple[str, ...]:
        """The names of the parameters that `freeze` keeps as they are."""
        return tuple(self._engine.native.frozen(self.at))

    def freeze(self, *names: str) -> LayerHandle:
        """Keeps these parameters as they are while the others of the layer are trained.

        Their gradients are made all the same, and count in `gradient_clip`. `trainable = False`
        freezes the whole layer.

        Args:
            *names: Parameters, such as "bias".

        Returns:
            The layer.

        Raises:
            ConfigError: There is no such parameter.
        """
        return self._set_frozen(names, True)

    def unfreeze(self, *names: str) -> LayerHandle:
        """Lets an optimizer move these parameters again; see `freeze`."""
        return self._set_frozen(names, False)

    def _set_frozen(self, names: tuple[str, ...], frozen: bool) -> LayerHandle:
        for name in names:
            self.parameters.require(name)
        self._engine.begin_change()
        for name in names:
            self._engine.native.set_frozen(self.at, name, frozen)
        return self

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by in this layer."""
        return self._engine.native.rate_factor(self.at)

    @rate_factor.setter
    def rate_factor(self, value: float) -> None:
        factor = real("layer", "rate_factor", value, least=0.0)
        self._engine.begin_change()
        self._engine.native.set_rate_factor(self.at, factor)

    @property
    def dtype(self) -> str | None:
        """The numeric type that the weights are read in; None without parameters.

        Biases, gains, positions and centroids stay float unless they are morphed by name, and tell
        the type only of layers that have nothing else. Where weights have several types this is
        the layer's own, if any has it, and otherwise the first's; `weights.stored` has each one's.
        """
        return self._engine.native.layer_dtype(self.at)

    @property
    def weights(self) -> Weights:
        """The weights as they are held: masters, packed versions, scales, epoch and sizes."""
        return Weights(self)

    @property
    def input_range(self) -> InputRange | None:
        """What the layer was given to read while `Network.calibrate` measured it; None before that."""
        found = self._engine.native.input_range(self.at)
        return None if found is None else InputRange(*found)

    def decoded(self, name: str) -> NDArray[Any]:
        """Returns a parameter as the forward pass reads it: the values that its packed form stands for."""
        self.parameters.require(name)
        return read_only(self._engine.native.parameter(self.at, name, True))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.parameters[name]

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        self.parameters[name] = values

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_"):
            # Of a handle that is only being made, even its network.
            raise AttributeError(f"a layer has no attribute '{name}'")
        if name not in self.parameters:
            raise AttributeError(self._no_attribute(name))
        return self.parameters[name]

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - arrays, and properties' own types
        """Sets a parameter, or `trainable` and `rate_factor`."""
        if hasattr(type(self), name):
            object.__setattr__(self, name, value)
        elif name in self.parameters:
            self.parameters[name] = value
        else:
            raise AttributeError(self._no_attribute(name))

    def _no_attribute(self, name: str) -> str:
        names = ", ".join(self.parameters) or "none"
        return f"layer {self.path} ({self.kind}) has no attribute '{name}'; its parameters: {names}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place: `copy.copy` in the same network, others in a copy of it."""
        return LayerHandle, (self._network, self.cell, self.index)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.parameters})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayerHandle) and self._network is other._network and self.at == other.at

    def __hash__(self) -> int:
        return hash((id(self._network), self.at))

    def __repr__(self) -> str:
        return f"Layer {self.at}: {brief(self.config)}"


def layers_of(network: HasEngine) -> list[LayerHandle]:
    """Returns every layer of a network, in the order data flows."""
    return [LayerHandle(network, cell, place) for cell, place in engine_of(network).layer_places()]
