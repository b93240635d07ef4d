"""Layers in their places: what `net[z, y, x, l]` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from numpy.typing import NDArray

from loom import _native, nn
from loom._settings.checks import flag, real
from loom._settings.spellings import layer_remark
from loom._settings.suggestions import shown
from loom._tables import settings_table
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import Engine, HasEngine, InnerLayer, engine_of
from loom.errors import ConfigError, StateError
from loom.grid import Coordinate
from loom.network.parameters import Parameters, names_inside, read_only
from loom.network.text import brief
from loom.network.weights import InputRange, Weights

__all__ = ["InnerLayerHandle", "LayerHandle", "layers_of"]


_PARTS = ("layers", "projection", "branches", "gate")


_HOLDING = frozenset(
    {"checkpoint", "masked", "parallel", "residual", "sequential", "spectral_norm", "weight_norm"}
)
"""Kinds of layers that hold layers."""


class LayerHandle:
    """A layer in its place: its parameters, gradients and last values as NumPy arrays.

    Parameters are attributes and items: `layer.weight`, `layer["weight"]`; both can be
    assigned to. The arrays are read-only copies, so change them as a whole:
    `layer.weight = layer.weight * 0.5`.

    Layers that hold others have those as handles, too: `layer.layers` of Residual, Sequential and
    Masked, `layer.branches` of Parallel, and `layer.inner` at any depth.

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
    def places(self) -> tuple[int, ...]:
        """`at`, and for a layer inside another its places there, as the engine counts them."""
        return self.at

    @property
    def prefix(self) -> str:
        """What the names of its parameters start with in the layer of the cell; empty for that itself."""
        return ""

    @property
    def config(self) -> nn.Layer:
        """The layer's configuration."""
        return self._engine.layer_config(self.cell, self.index)

    @property
    def kind(self) -> str:
        """The layer's type, such as "dense"."""
        return self.config.kind

    def _repr_html_(self) -> str:
        """Returns the settings as a table, for notebooks."""
        return settings_table(f"{self.path} {type(self.config).__name__}", self.config)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in; builds the network."""
        return tuple(self._engine.native.layer_shapes(self.at)[0])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return tuple(self._engine.native.layer_shapes(self.at)[1])

    @property
    def holds_layers(self) -> bool:
        """Whether it is made of layers, which `inner` has."""
        return self.kind in _HOLDING

    @property
    def inner(self) -> list[InnerLayerHandle]:
        """Every layer inside this one, at any depth, in the order they are computed; builds the network.

        What Residual and Parallel put in by themselves, such as a projection, is among them.

        Examples:
            >>> net = loom.Sequential([nn.Residual([nn.Dense(4), nn.Dense(3)])], input_shape=2)
            >>> [layer.path for layer in net.layers[0].inner]
            ['0.0.0.0.layers.0', '0.0.0.0.layers.1', '0.0.0.0.projection.0']
        """
        names = self._engine.inner_layers(self.at)
        return [self._inside(name) for name in names if name.startswith(self.prefix)]

    @property
    def layers(self) -> list[InnerLayerHandle]:
        """The layers that Residual, Sequential and the like hold, first to last; other layers have none."""
        return self._row(
            "layers", {"residual": "layers.", **dict.fromkeys(_HOLDING - {"parallel", "residual"}, "")}
        )

    @property
    def projection(self) -> list[InnerLayerHandle]:
        """The layers on the skip of a Residual, also where it chose one by itself; empty without."""
        return self._row("projection", {"residual": "projection."})

    @property
    def branches(self) -> list[list[InnerLayerHandle]]:
        """The layers of each branch of a Parallel; a branch without layers is an empty list."""
        self._row("branches", {"parallel": "branches."})
        count = len(cast(nn.Parallel, self.config).branches)
        return [self._row("branches", {"parallel": f"branches.{branch}."}) for branch in range(count)]

    @property
    def gate(self) -> list[InnerLayerHandle]:
        """The layers that weigh the branches of a Parallel which filters; empty without."""
        return self._row("gate", {"parallel": "gate."})

    def _row(self, what: str, parts: Mapping[str, str]) -> list[InnerLayerHandle]:
        if self.kind not in parts:
            raise AttributeError(self._no_attribute(what))
        begin = self.prefix + parts[self.kind]
        names = self._engine.inner_layers(self.at)
        return [
            self._inside(name)
            for name in names
            if name.startswith(begin) and name.removeprefix(begin).isdecimal()
        ]

    def _inside(self, name: str) -> InnerLayerHandle:
        return InnerLayerHandle(self._network, self.cell, self.index, name)

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
        names = names_inside(self.prefix, native.state_names(self.at))
        return {name: read_only(native.state(self.at, self.prefix + name)) for name in names}

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
                native.set_state(self.at, self.prefix + name, array)
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
        if not isinstance(name, str):
            raise ConfigError(f"set_state: name must be one of a layer's states, got {shown(name)}")
        array = as_real_array(values, engine.precision, what=f"{self.path}.{name}")
        engine.native.set_state(self.at, self.prefix + name, array)
        return self

    @property
    def gradients(self) -> dict[str, NDArray[Any]]:
        """The gradient of each parameter, of `backward` alone; zeros before any backward pass.

        Trainings and trainers keep none: `observe=True` measures them, `loom.WeightHistograms` counts them.
        """
        native = self._engine.native
        return {name: read_only(native.gradient(self.at, self.prefix + name)) for name in self.parameters}

    @property
    def input(self) -> NDArray[Any]:
        """What the layer read in the newest pass through the network, which must be one of `forward`.

        Raises:
            StateError: There was none, or another call, such as `predict`, has passed rows since:
                call `forward(x, training=False)` to look at what inference makes of x.
        """
        return self._engine.native.layer_value(self.places, "input")

    @property
    def preactivation(self) -> NDArray[Any]:
        """The output before the activation in that pass; the output where there is none.

        Raises:
            StateError: As for `input`.
        """
        return self._engine.native.layer_value(self.places, "preactivation")

    @property
    def activation(self) -> NDArray[Any]:
        """The output in that pass.

        Raises:
            StateError: As for `input`.
        """
        return self._engine.native.layer_value(self.places, "output")

    @property
    def input_gradient(self) -> NDArray[Any]:
        """The gradient of what the layer read in that pass, once `backward` has gone back through it.

        It is that which this layer hands back: beside a skip, what comes through the skip is not
        in it. `forward(x, input_gradients=True)` has it kept.

        Raises:
            StateError: As for `input`; it was not kept; `backward` has not followed; or the layer
                reads whole numbers, which have no gradient.

        Examples:
            >>> net = loom.Sequential([nn.Residual([nn.Dense(3), nn.Dense(3)])], input_shape=3)
            >>> _ = net.forward(np.ones((2, 3)), input_gradients=True)
            >>> _ = net.backward(np.ones((2, 3)))
            >>> net.layers[0].layers[1].input_gradient.shape
            (2, 3)
        """
        return self._engine.native.layer_value(self.places, "input_gradient")

    @property
    def trainable(self) -> bool:
        """Whether an optimizer may move the parameters; running statistics do in training anyway."""
        return self._engine.native.trainable(self.at)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        trainable = flag("layer", "trainable", value)
        self._engine.change(lambda native: native.set_trainable(self.at, trainable))

    @property
    def frozen(self) -> tuple[str, ...]:
        """The names of the parameters that `freeze` keeps as they are."""
        return tuple(names_inside(self.prefix, self._engine.native.frozen(self.at)))

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

        def freeze(native: _native.Network) -> None:
            for name in names:
                native.set_frozen(self.at, self.prefix + name, frozen)

        self._engine.change(freeze)
        return self

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by in this layer."""
        return self._engine.native.rate_factor(self.at)

    @rate_factor.setter
    def rate_factor(self, value: float) -> None:
        factor = real("layer", "rate_factor", value, least=0.0)
        self._engine.change(lambda native: native.set_rate_factor(self.at, factor))

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
        return read_only(self._engine.native.parameter(self.at, self.prefix + name, True))

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
        own = getattr(type(self), name, None)
        if own is not None and not (isinstance(own, property) and own.fset is None):
            object.__setattr__(self, name, value)
        elif name in self.parameters:
            self.parameters[name] = value
        elif own is not None or name in self.config.to_config():
            cell = ", ".join(map(str, self.cell))
            raise AttributeError(
                f"'{name}' of a layer in a network stays as it is; net[{cell}][{self.index}] = "
                "nn.Dense(5), or another, puts a layer in its place"
            )
        else:
            raise AttributeError(self._no_attribute(name))

    def _no_attribute(self, name: str) -> str:
        names = ", ".join(self.parameters) or "none"
        told = layer_remark(name)
        said = "" if told is None else f"; instead there is {told}"
        return f"layer {self.path} ({self.kind}) has no attribute '{name}'{said}; its parameters: {names}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place: `copy.copy` in the same network, others in a copy of it."""
        return LayerHandle, (self._network, self.cell, self.index)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self.parameters}
        # What only layers that hold others have.
        return sorted(name for name in names if name not in _PARTS or hasattr(self, name))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LayerHandle)
            and self._network is other._network
            and (self.at, self.prefix) == (other.at, other.prefix)
        )

    def __hash__(self) -> int:
        return hash((id(self._network), self.at, self.prefix))

    def __repr__(self) -> str:
        return f"Layer {self.at}: {brief(self.config)}"


class InnerLayerHandle(LayerHandle):
    """A layer inside another: in a Residual, Sequential, Parallel or Masked.

    It is what a `LayerHandle` is; its parameters are those of the layer of the cell whose names start
    with its own, such as "layers.0.weight". What only that layer has as a whole (`rate_factor`, a
    measured `input_range`) is to be set there.

    Args:
        network: The network it belongs to.
        cell: Its cell: depth, row, column.
        index: The place in the cell of the layer that it is inside.
        name: Its name there, such as "layers.0".

    Examples:
        >>> net = loom.Sequential([nn.Residual([nn.Dense(8), nn.Dense(4)])], input_shape=4)
        >>> layer = net[0, 0, 0, 0].layers[1]
        >>> layer.path, layer.weight.shape
        ('0.0.0.0.layers.1', (4, 8))
        >>> bool((layer.weight == net[0, 0, 0, 0]["layers.1.weight"]).all())
        True
    """

    __slots__ = ("name",)
    name: str

    def __init__(self, network: HasEngine, cell: Coordinate, index: int, name: str) -> None:
        super().__init__(network, cell, index)
        object.__setattr__(self, "name", name)

    @property
    def _entry(self) -> InnerLayer:
        try:
            return self._engine.inner_layers(self.at)[self.name]
        except KeyError:
            raise StateError(f"layer {self.whole.path} holds no layer {self.name} any more") from None

    @property
    def whole(self) -> LayerHandle:
        """The layer of the cell that it is inside."""
        return LayerHandle(self._network, self.cell, self.index)

    @property
    def path(self) -> str:
        """The layer's name in a state dict, such as "z.y.x.l.layers.0"."""
        return f"{super().path}.{self.name}"

    @property
    def places(self) -> tuple[int, ...]:
        """`at`, and its places inside layers, as the engine counts them."""
        return self._entry.places

    @property
    def prefix(self) -> str:
        """What the names of its parameters start with in the layer of the cell."""
        return f"{self.name}."

    @property
    def config(self) -> nn.Layer:
        """The layer's configuration."""
        return self._entry.config

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in; builds the network."""
        return self._entry.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return self._entry.output_shape

    @property
    def trainable(self) -> bool:
        """Whether an optimizer may move the parameters; to set it freezes all of them, or none."""
        frozen = set(self.frozen)
        names = set(self.parameters)
        return self.whole.trainable and (not names or frozen != names)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        train = flag("layer", "trainable", value)
        if train and not self.whole.trainable:
            raise ConfigError(
                f"layer {self.path} is inside layer {self.whole.path}, which is not trained: "
                "set trainable there"
            )
        self._set_frozen(tuple(self.parameters), not train)

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by in the layer of the cell, which alone can set it."""
        return self.whole.rate_factor

    @rate_factor.setter
    def rate_factor(self, value: float) -> None:
        raise ConfigError(
            f"layer {self.path} learns at the rate of layer {self.whole.path}: set rate_factor there"
        )

    @property
    def dtype(self) -> str | None:
        """The numeric type that the weights are read in; None without parameters."""
        return self.weights.dtype

    @property
    def input_range(self) -> InputRange | None:
        """None: what layers inside others are given to read is not measured."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place, as of other layers."""
        return InnerLayerHandle, (self._network, self.cell, self.index, self.name)

    def __repr__(self) -> str:
        return f"Layer {self.path}: {brief(self.config)}"


def layers_of(network: HasEngine) -> list[LayerHandle]:
    """Returns every layer of a network, in the order data flows."""
    return [LayerHandle(network, cell, place) for cell, place in engine_of(network).layer_places()]
