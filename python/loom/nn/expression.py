"""A function of one's own as a layer, written as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom import _native
from loom._settings.checks import items, real, whole
from loom._settings.suggestions import shown, unknown
from loom.errors import ConfigError, LoomError
from loom.nn._layer import FAMILY, Layer

__all__ = ["Expr"]

ParameterLike: TypeAlias = "float | Sequence[int] | Mapping[str, Any]"
"""The number that one starts at, the shape of an array, or both by name."""


@FAMILY.register("expr")
@dataclass(frozen=True, init=False)
class Expr(Layer):
    """A function of one's own, written as text: of every element `x`, and of sums and means over axes.

    Text is read as Python's arithmetic is: `+ - * / **`, the comparisons `< <= > >= == !=`, which are 1 where
    they hold and 0 elsewhere, numbers, `pi`, and calls of every activation by its name (`gelu(x)`,
    `leaky_relu(x, 0.2)`) and of `exp expm1 log log1p sqrt abs sign erf sin cos`, `max(a, b)`, `min(a, b)`,
    `clip(a, low, high)` and `where(condition, a, b)`. `sum(a, axis=-1)` and `mean(a, axis=(1, 2))` go over
    axes of a sample, counted from 0 without the batch or from the last back, `sum(a)` over all of them; such
    an axis has one element then, which goes with each of the others: `x - mean(x, axis=-1)`. The shape stays,
    but where all that is left of an axis is its sum or mean it has the extent 1.

    Derivatives are made by rule from the text; at a corner they are what those of `"relu"` are, 0 on the flat
    side. What stands twice is computed once. Files hold the text, so that nothing but loom is needed to load
    them.

    Args:
        expression: The text, of at most 2,000 characters.
        parameters: What else the text names and is trained, as files have it; by name is shorter.
        **trained: The same by name, at most four: a number for one number that starts there, seen as (1,); a
            shape for an array whose elements start at 1; or both, `{"shape": (8,), "initial": 0.0}`. Arrays
            broadcast from the right, as NumPy's do: `(features,)`, or `(channels, 1, 1)` for images.

    Raises:
        ConfigError: The text is no expression, with a caret below the place; or a parameter is not used, or
            named as a function is.
        ShapeError: In a network, an array does not broadcast to the input, or an axis is not there.

    Examples:
        >>> swish = nn.Expr("a * x * sigmoid(b * x)", a=(4,), b=1.5)
        >>> net = loom.Sequential([swish], input_shape=4)
        >>> {name: array.tolist() for name, array in net.layers[0].parameters.items()}
        {'a': [1.0, 1.0, 1.0, 1.0], 'b': [1.5]}
        >>> loom.Sequential([nn.Expr("x / sqrt(sum(x * x, axis=-1))")], input_shape=2).predict([[3.0, 4.0]])
        array([[0.6, 0.8]], dtype=float32)
        >>> nn.Expr("x * tnh(x)")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        loom.errors.ConfigError: Expr: unknown function "tnh"; did you mean "tanh"?
    """

    expression: str
    parameters: tuple[Mapping[str, Any], ...] = ()

    def __init__(
        self, expression: str, parameters: Sequence[Mapping[str, Any]] = (), **trained: ParameterLike
    ) -> None:
        if not isinstance(expression, str):
            raise ConfigError(f"Expr: expression must be text, got {shown(expression)}")
        given = items(parameters)
        if given is None or not all(isinstance(each, Mapping) for each in given):
            raise ConfigError(f"Expr: parameters must be a list of mappings, got {shown(parameters)}")
        read = [_from_mapping(cast("Mapping[str, Any]", each)) for each in given]
        read += [_parameter(name, value) for name, value in trained.items()]
        self._set(expression=expression, parameters=tuple(read))
        try:
            _native.check_layer(json.dumps(self.to_config()))
        except LoomError as error:
            raise ConfigError(str(error).replace('layer "expr"', "Expr", 1)) from None

    if not TYPE_CHECKING:

        def __hash__(self) -> int:
            return hash((self.expression, json.dumps(self.parameters)))


def _from_mapping(given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given.get("name"), str):
        raise ConfigError(f'Expr: each of parameters needs a "name", got {shown(dict(given))}')
    return _parameter(given["name"], {key: value for key, value in given.items() if key != "name"})


def _parameter(name: str, value: object) -> dict[str, Any]:
    where = f'Expr parameter "{name}"'
    if isinstance(value, Mapping):
        for key in value:
            if key not in {"shape", "initial"}:
                raise unknown(f"{where} setting", key, ["shape", "initial"])
        shape, initial = value.get("shape", ()), value.get("initial", 1.0)
    elif items(value) is not None:
        shape, initial = value, 1.0
    else:
        shape, initial = (), value
    extents = items(shape)
    if extents is None:
        raise ConfigError(f"{where}: shape must be a list of extents, got {shown(shape)}")
    return {
        "name": name,
        "shape": [whole(where, "shape", extent, least=1) for extent in extents],
        "initial": real(where, "initial", initial),
    }
