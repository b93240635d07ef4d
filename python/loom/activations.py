"""Activation functions, by name or, where they have a parameter, as a small object.

The names stand anywhere that an `activation=` does; `names` lists them, relu,
silu and gelu among them. `relu_squared` is max(0, x)^2, `scaled_relu` 1.1 max(0, x);
`gelu` is the exact form and `gelu_tanh` its tanh approximation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom import _native
from loom._settings.checks import real
from loom._settings.encoding import Named, NamedFamily
from loom._settings.spellings import attribute_error
from loom._typing import ActivationName

__all__ = ["ELU", "ActivationFunction", "ActivationLike", "LeakyReLU", "names", "resolve"]


class ActivationFunction(Named):
    """Base of the activation functions that have a parameter."""

    __slots__ = ()


ActivationLike: TypeAlias = "ActivationName | ActivationFunction | Mapping[str, Any]"

FAMILY: NamedFamily[ActivationFunction] = NamedFamily(
    "activation",
    plain=(name for name, parameters in _native.activations() if not parameters),
    aliases={"swish": "silu", "identity": "linear"},
)


@FAMILY.register("leaky_relu")
@dataclass(frozen=True)
class LeakyReLU(ActivationFunction):
    """`x` where x > 0, otherwise `slope * x`.

    Args:
        slope: The slope below zero.

    Examples:
        >>> nn.Dense(128, activation=nn.LeakyReLU(0.2)).activation
        LeakyReLU(slope=0.2)
    """

    slope: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope", real("LeakyReLU", "slope", self.slope))


@FAMILY.register("elu")
@dataclass(frozen=True)
class ELU(ActivationFunction):
    """`x` where x > 0, otherwise `alpha * (exp(x) - 1)`.

    Args:
        alpha: Minus the value approached far below zero.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", real("ELU", "alpha", self.alpha))


def resolve(value: ActivationLike | str | None) -> ActivationName | ActivationFunction:
    """Returns the bare name or the object that an `activation=` argument means.

    Args:
        value: A name, an object, the JSON form of one, or None for linear.

    Returns:
        The name where it has no parameter, otherwise the object.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    return "linear" if value is None else cast("ActivationName | ActivationFunction", FAMILY.resolve(value))


def names() -> list[ActivationName]:
    """Returns every activation's name, sorted."""
    return cast("list[ActivationName]", FAMILY.names())


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
