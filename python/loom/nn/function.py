"""Functions of one's own in Python as layers: values and gradients from NumPy arrays."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import initializers
from loom._settings.checks import items, real, whole
from loom._settings.encoding import encode
from loom._settings.suggestions import shown, unknown
from loom._typing import JSON
from loom.errors import ConfigError, ShapeError
from loom.nn._layer import FAMILY, Layer

__all__ = ["Function", "FunctionContext", "ParameterSpec", "made"]

ParameterSpec: TypeAlias = "float | Sequence[int] | Mapping[str, Any]"
"""The number that one starts at, the shape of an array, or {"shape": ..., "initializer": ...}."""

_FORMS = ("shape", "initializer")


class FunctionContext:
    """What a forward pass leaves for the backward one: whatever attributes `forward` sets."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401 - the user's own
        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401 - the user's own


@FAMILY.register("function")
@dataclass(frozen=True)
class Function(Layer):
    """Base of functions of one's own, written in Python on NumPy arrays.

    `forward(ctx, x)` gets a batch, (rows, *shape), and returns as many rows; what `backward(ctx, dy)` needs
    of it is kept as attributes of `ctx`. `backward` returns the gradient of the loss with respect to `x`, of
    x's shape, from that with respect to what `forward` returned. Both see arrays of the network's precision.
    `loom.check_gradients` compares the two.

    `output_shape(input_shape)` says one row's extents where they are not the input's. With parameters,
    `parameters(input_shape)` says them by name, each as the number that one starts at, the shape of an array,
    or {"shape": ..., "initializer": ...}; arrays of two axes and more start by "xavier_uniform", others at
    zero. They come to `forward(ctx, x, **parameters)` as arrays, and `backward` then returns (dx, gradients
    by name). They are trained, saved and shown as those of any layer.

    A subclass with settings is a frozen dataclass whose fields they are. Files hold the name and the settings
    and no code: whoever loads one has imported the module that defines the class.

    The function is called in the middle of each pass. On a GPU the command frame is cut there: its input is
    read back, and its output copied there, in every step. Training and prediction say so once. Where the text
    of a formula will do, `nn.Expr` runs on the device itself.

    Raises:
        ConfigError: The name is another class's.

    Examples:
        >>> class Cube(nn.Function):
        ...     def forward(self, ctx, x):
        ...         ctx.x = x
        ...         return x**3
        ...     def backward(self, ctx, dy):
        ...         return 3 * ctx.x**2 * dy
        >>> net = loom.Sequential([nn.Dense(4), Cube(), nn.Dense(1)], input_shape=2, seed=0)
        >>> net.predict(np.ones((3, 2))).shape
        (3, 1)
        >>> loom.check_gradients(Cube(), (4,)) < 1e-6
        True
    """

    names: ClassVar[dict[str, type[Function]]] = {}
    """The classes that are defined, by name."""
    name: ClassVar[str] = ""

    def __init_subclass__(cls, name: str | None = None, **others: object) -> None:
        """Enters the class under its name."""
        super().__init_subclass__(**others)
        name = cls.__name__ if name is None else name
        known = Function.names.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f'a function of the name "{name}" exists already, {known.__module__}.{known.__qualname__}; '
                f'give this one another: class {cls.__name__}(nn.Function, name="...")'
            )
        cls.name = name
        Function.names[name] = cls

    def __post_init__(self) -> None:
        """Leaves the settings to the class."""
        if type(self) is Function:
            raise ConfigError("nn.Function is a base: derive a class from it with forward and backward")

    def forward(self, ctx: FunctionContext, x: NDArray[Any], **parameters: NDArray[Any]) -> NDArray[Any]:
        """Returns the output, (rows, *output_shape), of a batch (rows, *input_shape)."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, ctx, x)")

    def backward(self, ctx: FunctionContext, dy: NDArray[Any]) -> Any:  # noqa: ANN401 - with or without parameters
        """Returns the input's gradient; with parameters (the input's gradient, gradients by name)."""
        raise NotImplementedError(f"{type(self).__name__} has no backward(self, ctx, dy)")

    def output_shape(self, input_shape: tuple[int, ...]) -> Sequence[int]:
        """Returns one row's extents of the output; the input's unless it is overridden."""
        return input_shape

    def parameters(self, input_shape: tuple[int, ...]) -> Mapping[str, ParameterSpec]:
        """Returns what is trained, by name; nothing unless it is overridden."""
        return {}

    def to_config(self) -> dict[str, JSON]:
        """Returns the name and the settings."""
        fields = dataclasses.fields(cast(Any, self))
        settings = {field.name: encode(getattr(self, field.name)) for field in fields if field.init}
        return {"type": self.kind, "name": self.name, "settings": settings}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the class that is named
        """Makes the function that a name and its settings stand for.

        Args:
            config: What `to_config` returned.

        Raises:
            ConfigError: No class of this name is defined.
        """
        name, settings = config.get("name"), config.get("settings") or {}
        if not isinstance(name, str) or not isinstance(settings, Mapping):
            raise ConfigError("Function: name must be text, and settings a mapping")
        found = Function.names.get(name)
        if found is None:
            raise ConfigError(
                f'"{name}" is a function of somebody\'s own, and files hold no code: import the module that '
                f"defines `class {name}(nn.Function)` first. Known: {', '.join(Function.names) or 'none'}"
            )
        return found(**settings)

    # What the engine calls.

    def _cut(self) -> None:
        if self.name in _TOLD:
            return
        _TOLD.add(self.name)
        warnings.warn(
            f"{self.name} is computed by Python on the CPU: on a GPU the frame of commands is cut there, and "
            "each pass waits until its input has been read back and its output copied there. Where a formula "
            'will do, nn.Expr("...") stays on the device; device="cpu" may be faster',
            UserWarning,
            stacklevel=2,
        )

    def _shape(self, input_shape: tuple[int, ...]) -> list[int]:
        where = f"{type(self).__name__}.output_shape"
        given = items(self.output_shape(input_shape))
        if given is None or not given:
            raise ConfigError(f"{where}: expected one row's extents such as (4,), got {shown(given)}")
        return [whole(where, "an extent", extent, least=1) for extent in given]

    def _asked(self, input_shape: tuple[int, ...]) -> list[tuple[str, list[int], str]]:
        where = f"{type(self).__name__}.parameters"
        given: object = self.parameters(input_shape)
        if not isinstance(given, Mapping) or len(given) > _MOST_PARAMETERS:
            raise ConfigError(f"{where}: expected at most {_MOST_PARAMETERS} by name, got {shown(given)}")
        return [(name, *_spec(where, name, value)) for name, value in given.items()]

    def _forward(
        self, x: NDArray[Any], parameters: list[NDArray[Any]], shape: tuple[int, ...]
    ) -> tuple[NDArray[Any], FunctionContext]:
        context = FunctionContext()
        names = [name for name, *_ in self._asked(x.shape[1:])]
        found = self.forward(context, x, **dict(zip(names, parameters, strict=True)))
        return _result(f"{type(self).__name__}.forward", found, (len(x), *shape), x.dtype), context

    def _backward(
        self,
        context: FunctionContext | None,
        dy: NDArray[Any],
        shape: tuple[int, ...],
        asked: list[list[int]],
    ) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        where = f"{type(self).__name__}.backward"
        found = self.backward(context or FunctionContext(), dy)
        gradients: Mapping[str, Any] = {}
        if asked:
            if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
                raise ConfigError(
                    f"{where}: with parameters it returns (dx, gradients by name), got {shown(found)}"
                )
            found, gradients = found
        names = [name for name, *_ in self._asked(shape)]
        for name in (*gradients, *names):
            if name not in names:
                raise unknown(f"{where}: parameter", name, names)
            if name not in gradients:
                raise ConfigError(f'{where}: the gradient of parameter "{name}" is missing')
        made = [
            _result(f'{where}, gradient of "{name}"', gradients[name], tuple(extents), dy.dtype)
            for name, extents in zip(names, asked, strict=True)
        ]
        return _result(where, found, (len(dy), *shape), dy.dtype), made


_MOST_PARAMETERS = 8
# Functions whose users know what they cost on a GPU.
_TOLD: set[str] = set()


def made(name: str, settings: str) -> Function:
    """Returns the function of this name and these settings, as JSON; the engine calls it.

    Args:
        name: The name of its class.
        settings: What it is made from.

    Raises:
        ConfigError: No class of this name is defined.
    """
    found: Function = Function.from_config({"name": name, "settings": json.loads(settings)})
    return found


def _spec(where: str, name: object, value: object) -> tuple[list[int], str]:
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{where}: a name must be one of Python's, got {shown(name)}")
    place = f'{where}, "{name}"'
    if isinstance(value, Mapping):
        for key in value:
            if key not in _FORMS:
                raise unknown(f"{place}: setting", key, _FORMS)
        shape, initializer = value.get("shape", ()), value.get("initializer")
    elif items(value) is not None:
        shape, initializer = value, None
    else:
        shape, initializer = (1,), {"constant": {"value": real(place, "what it starts at", value)}}
    extents = items(shape)
    if extents is None:
        raise ConfigError(f"{place}: shape must be a list of extents, got {shown(shape)}")
    checked = [whole(place, "an extent", extent, least=1) for extent in extents] or [1]
    if initializer is None:
        initializer = "xavier_uniform" if len(checked) > 1 else "zeros"
    return checked, json.dumps(encode(initializers.resolve(cast(Any, initializer))))


def _result(where: str, found: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        array = np.ascontiguousarray(found, dtype)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: expected an array of numbers, got {shown(found)}") from error
    if array.shape != shape:
        raise ShapeError(f"{where}: expected an array of shape {shape}, got {array.shape}")
    return array
