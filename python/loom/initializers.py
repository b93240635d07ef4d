"""How parameters get their first values, by name or as a small object.

The names: zeros, ones, xavier_normal, xavier_uniform, he_normal, he_uniform,
lecun_normal, orthogonal. Those with parameters that must be given are objects:
`Constant`, `Normal`, `TruncatedNormal`, `Uniform`. All draw from the network's
seed. A layer that names none uses its own default: Xavier normal for `Dense`,
He normal for convolutions, zeros for biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom._settings.checks import real
from loom._settings.encoding import Named, NamedFamily
from loom._settings.spellings import attribute_error
from loom._typing import InitializerName
from loom.errors import ConfigError

__all__ = [
    "Constant",
    "Initializer",
    "InitializerLike",
    "Normal",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "names",
    "resolve",
]


class Initializer(Named):
    """Base of the initialisers that have a parameter."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(cast(Any, self)):
            least = 0.0 if field.name == "std" else None
            value = real(type(self).__name__, field.name, getattr(self, field.name), least=least)
            object.__setattr__(self, field.name, value)


InitializerLike: TypeAlias = "InitializerName | Initializer | Mapping[str, Any]"

FAMILY: NamedFamily[Initializer] = NamedFamily(
    "initializer",
    plain=("zeros", "ones", "xavier_normal", "xavier_uniform", "he_normal", "he_uniform", "lecun_normal"),
    aliases={
        "glorot_normal": "xavier_normal",
        "glorot_uniform": "xavier_uniform",
        "kaiming_normal": "he_normal",
        "kaiming_uniform": "he_uniform",
    },
)


@FAMILY.register("constant")
@dataclass(frozen=True)
class Constant(Initializer):
    """Every element the same.

    Args:
        value: What every element is set to.
    """

    value: float


@FAMILY.register("normal")
@dataclass(frozen=True)
class Normal(Initializer):
    """Independent normal draws with mean 0.

    Args:
        std: Their standard deviation.
    """

    std: float


@FAMILY.register("truncated_normal")
@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal draws with mean 0; those beyond two standard deviations are drawn again.

    Args:
        std: The standard deviation before the cut.
    """

    std: float


@FAMILY.register("uniform")
@dataclass(frozen=True)
class Uniform(Initializer):
    """Independent uniform draws from low (included) to high (excluded).

    Args:
        low: The lower end.
        high: The upper end.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise ConfigError(f"Uniform: low must not be above high, got {self.low:g} and {self.high:g}")


@FAMILY.register("orthogonal")
@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns, whichever are fewer.

    Args:
        gain: What the orthonormal matrix is multiplied by.
    """

    gain: float = 1.0


def resolve(value: InitializerLike | str | None) -> str | Initializer | None:
    """Returns the bare name or the object that an initialiser argument means.

    Args:
        value: A name, an object, the JSON form of one, or None for the layer's
            own default.

    Returns:
        The name where it has no parameter, otherwise the object; None stays.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    return None if value is None else FAMILY.resolve(value)


def names() -> list[str]:
    """Returns every initialiser's name, sorted."""
    return FAMILY.names()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
