"""Cells and layers in their places: what `net[z, y, x]` and `net[z, y, x, l]` give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from numpy.typing import NDArray

from loom import nn
from loom._checks import flag, real
from loom._suggest import unknown
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.errors import CellIndexError
from loom.grid import Coordinate
from loom.weights import InputRange, Weights

if TYPE_CHECKING:
    from loom.network import Network

__all__ = ["Cell", "LayerHandle", "Parameters"]


class Cell:
    """One cell of a network: a sequence of layers, which `add` makes longer.

    Args:
        network: The network it belongs to.
        at: Where it is: depth, row, column.
    """

    __slots__ = ("_network", "at")

    def __init__(self, network: Network, at: Coordinate) -> None:
        self._network = network
        self.at = at

    def add(self, *layers: nn.Layer | Mapping[str, Any]) -> Cell:
        """Adds layers at the end of the cell; all of them or, after an error, none.

        Args:
            *layers: Layers such as `nn.Dense(10)`, or their JSON form.

        Returns:
            The cell.

        Raises:
            ConfigError: Something is no layer.
            StateError: The network is training.
        """
        self._network._add(self.at, layers)
        return self

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they leave the cell; builds the network.

        Those of its last layer's output, or, without layers, of what arrives there, links included.
        """
        return tuple(self._network._native.cell_output_shape(self.at))

    def __len__(self) -> int:
        """Returns how many layers the cell holds."""
        return self._network._native.cell_len(self.at)

    def __iter__(self) -> Iterator[LayerHandle]:
        """Yields the layers in order."""
        for place in range(len(self)):
            yield LayerHandle(self._network, self.at, place)

    @overload
    def __getitem__(self, index: int) -> LayerHandle: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerHandle]: ...
    def __getitem__(self, index: int | slice) -> LayerHandle | list[LayerHandle]:
        """Returns one layer, or a list of them; negative numbers count from the end."""
        if isinstance(index, slice):
            return list(self)[index]
        return LayerHandle(self._network, self.at, place_in_cell(self.at, index, len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self._network is other._network and self.at == other.at

    def __hash__(self) -> int:
        return hash((id(self._network), self.at))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles the place, as a layer's handle does."""
        return Cell, (self._network, self.at)

    def __repr__(self) -> str:
        """Returns the cell's place and its layers."""
        lines = [f"Cell {self.at}", *(f"  {layer.index}: {brief(layer.config)}" for layer in self)]
        return "\n".join(lines)


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
    _network: Network
    cell: Coordinate
    index: int

    def __init__(self, network: Network, cell: Coordinate, index: int) -> None:
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "cell", cell)
        object.__setattr__(self, "index", index)

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
        return self._network._layer_config(self.cell, self.index)

    @property
    def kind(self) -> str:
        """The layer's type, such as "dense"."""
        return self.config.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in; builds the network."""
        return tuple(self._network._native.layer_shapes(self.at)[0])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return tuple(self._network._native.layer_shapes(self.at)[1])

    @property
    def parameters(self) -> Parameters:
        """The parameters by name; each can be read and assigned."""
        return Parameters(self)

    @property
    def states(self) -> dict[str, NDArray[Any]]:
        """What the layer keeps beside its parameters, such as running statistics, by name.

        What a stateful layer carries from batch to batch is among it, (rows, ...), once it carries
        anything. `set_state` and `Network.load_state_dict` set them.
        """
        native = self._network._native
        return {name: _read_only(native.state(self.at, name)) for name in native.state_names(self.at)}

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
        network = self._network
        network._check_thread()
        array = as_real_array(values, network.precision, what=f"{self.path}.{name}")
        network._native.set_state(self.at, name, array)
        return self

    @property
    def _carried(self) -> list[str]:
        """The names of what it carries from batch to batch, also before it does."""
        return self._network._native.carried_names(self.at)

    @property
    def gradients(self) -> dict[str, NDArray[Any]]:
        """The gradient of each parameter; zeros before any backward pass."""
        native = self._network._native
        return {name: _read_only(native.gradient(self.at, name)) for name in self.parameters}

    @property
    def input(self) -> NDArray[Any]:
        """What the layer read in the newest pass through the network, which must be one of `forward`.

        Raises:
            StateError: There was none, or another call, such as `predict`, has passed rows since:
                call `forward(x, training=False)` to look at what inference makes of x.
        """
        return self._network._native.layer_value(self.at, "input")

    @property
    def preactivation(self) -> NDArray[Any]:
        """The output before the activation in that pass; the output where there is none.

        Raises:
            StateError: As for `input`.
        """
        return self._network._native.layer_value(self.at, "preactivation")

    @property
    def activation(self) -> NDArray[Any]:
        """The output in that pass.

        Raises:
            StateError: As for `input`.
        """
        return self._network._native.layer_value(self.at, "output")

    @property
    def trainable(self) -> bool:
        """Whether an optimizer may move the parameters."""
        return self._network._native.trainable(self.at)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._network._change_layers()
        self._network._native.set_trainable(self.at, flag("layer", "trainable", value))

    @property
    def frozen(self) -> tuple[str, ...]:
        """The names of the parameters that `freeze` keeps as they are."""
        return tuple(self._network._native.frozen(self.at))

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
        self._network._change_layers()
        for name in names:
            self._network._native.set_frozen(self.at, name, frozen)
        return self

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by in this layer."""
        return self._network._native.rate_factor(self.at)

    @rate_factor.setter
    def rate_factor(self, value: float) -> None:
        factor = real("layer", "rate_factor", value, least=0.0)
        self._network._change_layers()
        self._network._native.set_rate_factor(self.at, factor)

    @property
    def dtype(self) -> str | None:
        """The numeric type that the weights are read in; None without parameters.

        Biases, gains, positions and centroids stay float unless they are morphed by name, and tell
        the type only of layers that have nothing else. Where weights have several types this is
        the layer's own, if any has it, and otherwise the first's; `weights.stored` has each one's.
        """
        return self._network._native.layer_dtype(self.at)

    @property
    def weights(self) -> Weights:
        """The weights as they are held: masters, packed versions, scales, epoch and sizes."""
        return Weights(self)

    @property
    def input_range(self) -> InputRange | None:
        """What the layer was given to read while `Network.calibrate` measured it; None before that."""
        found = self._network._native.input_range(self.at)
        return None if found is None else InputRange(*found)

    def decoded(self, name: str) -> NDArray[Any]:
        """Returns a parameter as the forward pass reads it: the values that its packed form stands for."""
        self.parameters.require(name)
        return _read_only(self._network._native.parameter(self.at, name, True))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns a parameter."""
        return self.parameters[name]

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        """Sets a parameter."""
        self.parameters[name] = values

    def __getattr__(self, name: str) -> NDArray[Any]:
        """Returns a parameter."""
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
        """Returns the layer's place and its settings."""
        return f"Layer {self.at}: {brief(self.config)}"


class Parameters(Mapping[str, "NDArray[Any]"]):
    """A layer's parameters by name; items can be assigned.

    Args:
        layer: The layer.
    """

    __slots__ = ("_layer", "_names")

    def __init__(self, layer: LayerHandle) -> None:
        self._layer = layer
        self._names: list[str] = layer._network._native.parameter_names(layer.at)

    def require(self, name: str) -> None:
        """Raises a ConfigError, with the nearest name, where there is no such parameter."""
        if name not in self._names:
            layer = self._layer
            raise unknown(f"parameter of layer {layer.path} ({layer.kind})", name, self._names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns the parameter's full-precision values, in a read-only array."""
        self.require(name)
        layer = self._layer
        return _read_only(layer._network._native.parameter(layer.at, name, False))

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        """Sets the parameter; packed versions follow."""
        self.require(name)
        layer = self._layer
        layer._network._check_thread()
        array = as_real_array(values, layer._network.precision, what=f"{layer.path}.{name}")
        layer._network._native.set_parameter(layer.at, name, array)

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


def place_in_cell(at: Coordinate, index: int, count: int) -> int:
    """Returns a layer's place, counted from the start.

    Args:
        at: The cell.
        index: The place; negative numbers count from the end.
        count: How many layers the cell holds.

    Returns:
        The place.

    Raises:
        CellIndexError: There is no such layer.
    """
    if not -count <= index < count:
        held = "no layers" if count == 0 else f"{count} layer{'s' * (count > 1)}"
        raise CellIndexError(f"cell {at} has {held}, so there is no layer {index}")
    return index % count


def brief(layer: nn.Layer) -> str:
    """Returns a layer as one would write it: without the settings that have their defaults."""
    described: Any = layer
    fields = dataclasses.fields(described)
    required = {field.name for field in fields if field.default is dataclasses.MISSING}
    values = {field.name: getattr(layer, field.name) for field in fields}
    # Defaults in the form that they are kept in, some of which depend on what is required.
    usual = type(layer)(**{name: values[name] for name in required})
    settings = [
        f"{name}={value!r}"
        for name, value in values.items()
        if name in required or value != getattr(usual, name)
    ]
    return f"{type(layer).__name__}({', '.join(settings)})"


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
