"""Layers made of layers: rows, skips, branches, masks, and ones of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, cast

from loom._settings.checks import items, sequence, whole
from loom._settings.encoding import encode
from loom._settings.suggestions import shown
from loom._typing import JSON
from loom.activations import ActivationFunction
from loom.activations import names as activation_names
from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer, layer_from_config
from loom.nn._schema import READERS
from loom.nn.activation import Activation

__all__ = [
    "Checkpoint",
    "Composed",
    "LayerLike",
    "LayersLike",
    "Masked",
    "Parallel",
    "Residual",
    "Sequential",
    "as_layer",
]

LayerLike: TypeAlias = "Layer | ActivationFunction | Mapping[str, Any]"
"""A layer, its JSON form, or an activation function."""
LayersLike: TypeAlias = "LayerLike | Sequence[LayerLike]"
"""A layer, or several in a row."""


def as_layer(layer: object) -> Layer:
    """Returns the layer that something stands for.

    Args:
        layer: A layer, its JSON form, or an activation function.

    Returns:
        The layer.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(layer, Layer):
        return layer
    if isinstance(layer, Mapping):
        return layer_from_config(layer)
    if isinstance(layer, ActivationFunction):
        return Activation(layer)
    if hasattr(layer, "config") and hasattr(layer, "parameters"):
        raise ConfigError(
            f"{shown(layer)} stands in a network: cells take a copy of it with its weights, "
            "net[0, 0, 0].add(layer), and layers inside of others its description alone, layer.config"
        )
    if hasattr(layer, "layers") and hasattr(layer, "predict"):
        raise ConfigError(
            f"{type(layer).__name__} is no layer: its layers are, and their weights are copied, "
            "loom.Sequential([*net.layers, nn.Dense(3)], input_shape=...)"
        )
    raise ConfigError(f"expected a layer such as nn.Dense(10), got {shown(layer)}{_meant(layer)}")


def _meant(layer: object) -> str:
    """Says which layer may be meant by what is none."""
    if isinstance(layer, str):
        return f'; nn.Activation("{layer}") is the layer of a function' if layer in activation_names() else ""
    if isinstance(layer, (list, tuple)):
        return "; layers stand in one list: [*block, nn.Dense(3)], or nn.Sequential([...]) as one of them"
    if isinstance(layer, int):
        return f"; nn.Dense({shown(layer)}) has {shown(layer)} units"
    if callable(layer) and str(getattr(layer, "__name__", "")) in activation_names():
        return f'; nn.Activation("{layer.__name__}") is the layer of that function'  # type: ignore[attr-defined]
    return "; leave it out" if layer is None else ""


def _row(where: str, layers: object, *, empty: bool = False) -> tuple[Layer, ...]:
    if isinstance(layers, (Layer, Mapping, ActivationFunction)):
        return (as_layer(layers),)
    if isinstance(layers, (str, bytes)) or not isinstance(layers, Sequence):
        raise ConfigError(f"{where}: expected a layer or a list of layers, got {shown(layers)}")
    if not layers and not empty:
        raise ConfigError(f"{where}: expected at least one layer")
    return tuple(as_layer(layer) for layer in layers)


READERS["layers"] = lambda where, setting, value: _row(where, value, empty="least" not in setting)


@FAMILY.register("sequential")
@dataclass(frozen=True)
class Sequential(Layer):
    """Layers in a row as one layer, for wherever one layer is asked for.

    Its parameters are named by place: `0.weight`, `1.bias`.

    Args:
        layers: The layers, first to last.

    Raises:
        ConfigError: There is none, or something is no layer.

    Examples:
        >>> row = nn.Sequential([nn.Dense(8, activation="relu"), nn.Dense(2)])
        >>> loom.Sequential([row], input_shape=4).output_shape
        (2,)
    """

    layers: LayersLike

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - also what users composed
        """Builds the layer from what `to_config` returned; a composed one as the class that made it."""
        settings = dict(config)
        name = settings.pop("name", None)
        made_from = settings.pop("settings", None)
        if cls is Sequential and name is not None:
            if not isinstance(name, str) or not (made_from is None or isinstance(made_from, Mapping)):
                raise ConfigError("Sequential: name must be text, and settings a mapping")
            if name in Composed.names:
                return Composed.names[name](**(made_from or {}))
            return _Foreign(settings.get("layers", ()), name, made_from or {})
        return super().from_config(settings)


@FAMILY.register("checkpoint")
@dataclass(frozen=True)
class Checkpoint(Layer):
    """Layers in a row of which training keeps no more than their input (Chen et al. 2016).

    What is between them is computed again when their gradients are: training takes less memory and about a
    third more time, and gives the same bits. Inference is that of the layers in a row. Around each block of a
    deep network the memory of a step is that of one block, and of the blocks' inputs.

    Its parameters are named by place, as those of Sequential: `0.weight`, `1.bias`.

    Args:
        layers: The layers, first to last.

    Raises:
        ConfigError: There is none, or something is no layer.

    Examples:
        >>> block = nn.Checkpoint([nn.Dense(64, activation="gelu"), nn.Dense(8)])
        >>> loom.Sequential([block, block], input_shape=8).output_shape
        (8,)
    """

    layers: LayersLike


@dataclass(frozen=True)
class _Foreign(Sequential):
    """Layers that were composed under a name which is not known here."""

    name: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kind: ClassVar[str] = "sequential"


class Composed(Layer):
    """Base of layers that users compose from others, under a name of their own.

    A subclass is a frozen dataclass whose fields are its settings; `layers` says what it
    consists of. Files hold both the settings and the layers, so that they can be read, too,
    where the class is not known.

    Raises:
        ConfigError: The name is taken.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Bottleneck(nn.Composed, name="bottleneck"):
        ...     width: int
        ...     def layers(self):
        ...         return [nn.Dense(self.width, activation="relu"), nn.Dense(4)]
        >>> net = loom.Sequential([Bottleneck(2)], input_shape=4)
        >>> net.config.cells[0].layers[0]
        Bottleneck(width=2)
    """

    names: ClassVar[dict[str, type[Composed]]] = {}
    kind: ClassVar[str] = "sequential"
    name: ClassVar[str]

    def __init_subclass__(cls, name: str | None = None, **others: object) -> None:
        """Enters the class under its name."""
        super().__init_subclass__(**others)
        if name is None:
            raise ConfigError(
                f'{cls.__name__}: a composed layer needs a name: class X(nn.Composed, name="x")'
            )
        known = Composed.names.get(name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ConfigError(f'a layer of the name "{name}" exists already')
        cls.name = name
        Composed.names[name] = cls

    def __post_init__(self) -> None:
        """Leaves the settings to the class that composes."""

    def layers(self) -> LayersLike:
        """Returns what the layer consists of: a layer, or several in a row."""
        raise NotImplementedError(f"{type(self).__name__} does not say its layers")

    def to_config(self) -> dict[str, JSON]:
        """Returns the name, the settings, and the layers that they stand for."""
        fields = dataclasses.fields(cast(Any, self))
        return {
            "type": self.kind,
            "layers": encode(_row(type(self).__name__, self.layers())),
            "name": self.name,
            "settings": {field.name: encode(getattr(self, field.name)) for field in fields if field.init},
        }


@FAMILY.register("residual")
@dataclass(frozen=True)
class Residual(Layer):
    """A skip around layers: `layers(x) + x` (He et al. 2016).

    Where the shapes differ, `projection` stands on the skip: by default a strided 1x1
    convolution for images, and otherwise, or where no stride makes that shape, a Dense layer
    where only the last axis differs; neither has a bias.

    Parameters are named `layers.0.weight`, `projection.0.weight`.

    Args:
        layers: What is skipped: a layer, or several in a row.
        projection: What brings the input to the output's shape, where that is needed.

    Raises:
        ConfigError: Something is no layer.

    Examples:
        >>> block = nn.Residual([nn.Dense(8, activation="relu"), nn.Dense(4)])
        >>> loom.Sequential([block], input_shape=4).output_shape
        (4,)
    """

    layers: LayersLike
    projection: LayersLike = ()


@FAMILY.register("parallel")
@dataclass(frozen=True)
class Parallel(Layer):
    """Branches that read the same input, and a way to combine what they make.

    "concat" puts outputs side by side along an axis: the last, or the channels of images and
    volumes. "add" and "average" are what they say. "multiply" makes the product: outputs have as
    many axes as each other, and one with an extent of 1 is repeated along that axis, as the gate of
    a squeeze-and-excitation is, (channels, 1, 1), over an image. "grid_scatter" puts each output at
    a place of its own on a grid, (rows, columns, *output), with zeros where no branch writes. "filter" adds
    them up weighted by a softmax over the scores that `gate` makes of the input: every sample
    routes itself, and gradients reach the gate.

    Parameters are named `branches.1.0.weight` (branch, place in it), `gate.0.weight`.

    Args:
        branches: Each a layer, several in a row, or an empty list, which hands the input on.
        combine: "concat", "add", "average", "multiply", "grid_scatter" or "filter".
        axis: For concat: the axis, counted without the batch.
        grid: For grid_scatter: (rows, columns).
        places: For grid_scatter: (row, column) of each branch; row by row by default.
        gate: For filter: layers that make one score a branch; Flatten and Dense by default.

    Raises:
        ConfigError: A setting is out of range or does not go with `combine`.

    Examples:
        >>> experts = nn.Parallel([nn.Dense(3), nn.Dense(3)], combine="filter")
        >>> net = loom.Sequential([experts], input_shape=5)
        >>> net.predict(np.ones((2, 5))).shape
        (2, 3)
        >>> gate = [nn.AdaptiveAvgPool2D(1), nn.Conv2D(8, 1, activation="sigmoid")]
        >>> excitation = nn.Parallel([[], gate], combine="multiply")  # (8, height, width) stays
    """

    branches: Sequence[LayersLike]
    combine: Literal["concat", "add", "average", "multiply", "grid_scatter", "filter"] = "concat"
    axis: int | None = None
    grid: Sequence[int] | None = None
    places: Sequence[Sequence[int]] | None = None
    gate: LayersLike = ()

    def __post_init__(self) -> None:
        where = "Parallel"
        if isinstance(self.branches, (str, bytes, Mapping)) or not isinstance(self.branches, Sequence):
            raise ConfigError(f"{where}: branches must be a list, got {shown(self.branches)}")
        if not self.branches:
            raise ConfigError(f"{where}: branches must be at least one")
        if self.places is not None and sequence(self.places) is None:
            raise ConfigError(
                f"{where}: places must be (row, column) of each branch, got {shown(self.places)}"
            )
        self._set(
            grid=None if self.grid is None else _place("grid", self.grid, 1),
            places=None
            if self.places is None
            else tuple(_place("a place", place, 0) for place in self.places),
        )
        super().__post_init__()
        for name, mode in (("axis", "concat"), ("grid", "grid_scatter"), ("places", "grid_scatter")):
            if getattr(self, name) is not None and self.combine != mode:
                raise ConfigError(f'{where}: {name} goes with combine="{mode}" alone')
        if self.gate and self.combine != "filter":
            raise ConfigError(f'{where}: gate goes with combine="filter" alone')
        if self.combine == "grid_scatter" and self.grid is None:
            raise ConfigError(f'{where}: combine="grid_scatter" needs a grid, (rows, columns)')
        if self.combine == "grid_scatter":
            self._check_places()

    def _check_places(self) -> None:
        rows, columns = cast("tuple[int, int]", self.grid)
        count = len(self.branches)
        places = self.places
        if places is None:
            places = [divmod(branch, columns) for branch in range(count)]
        inside = all(row < rows and column < columns for row, column in places)
        if not inside or len(places) != count or len(set(map(tuple, places))) != count:
            raise ConfigError(
                f"Parallel: each of {count} branches needs a place of its own on a grid of "
                f"{rows} x {columns}, got {tuple(map(tuple, places))}"
            )


def _place(what: str, given: Sequence[int], least: int) -> tuple[int, int]:
    numbers = items(given)
    if numbers is None or len(numbers) != 2:
        raise ConfigError(f"Parallel: {what} must be (row, column), got {shown(given)}")
    row, column = (whole("Parallel", what, number, least=least) for number in numbers)
    return row, column


@FAMILY.register("masked")
@dataclass(frozen=True)
class Masked(Layer):
    """Layers in a row that leave out the padding of sequences.

    The input is (time, ...); a step whose every element equals `value` is padding. Recurrent
    layers hold their state over it and attention gives it no weight; what they and MaskedSoftmax
    make of padding is zeros. Layers that work on each step by itself compute it like any other.

    Args:
        layers: A layer, or several in a row.
        value: What padding consists of.

    Raises:
        ConfigError: Something is no layer, or the value is not finite.

    Examples:
        >>> nn.Masked(nn.Dense(2), value=-1.0).value
        -1.0
    """

    layers: LayersLike
    value: float = 0.0
