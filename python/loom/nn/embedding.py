"""Vectors for whole numbers and for places in a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from loom._settings.checks import items
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Embedding", "PositionalEmbedding", "SinusoidalPositions", "TiedHead"]


@FAMILY.register("embedding")
@dataclass(frozen=True)
class Embedding(Layer):
    """A trained vector for each whole number: input (...), output (..., width).

    Stands first in a network, or after layers that hand elements on as they
    are. The `weight` is (vocabulary, width), as PyTorch's `nn.Embedding` has it.

    Args:
        vocabulary: Numbers are below this.
        width: Extent of a vector.
        weight_initializer: The vectors' first values; normal with standard
            deviation 1 / sqrt(width) by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Embedding(512, 64).width
        64
    """

    vocabulary: int
    width: int
    _: KW_ONLY
    weight_initializer: InitializerLike | None = None


@FAMILY.register("tied_head")
@dataclass(frozen=True)
class TiedHead(Layer):
    """A score for each number of a vocabulary: input (..., width), output (..., vocabulary).

    Computes `x @ weight.T` with the table of an embedding, which both then train,
    or with a table of its own.

    Args:
        vocabulary: Extent of the output's last axis; the embedding's.
        tied_to: The embedding whose table is used: depth, row and column of its
            cell, and its place there. `None` for a table of its own.
        weight_initializer: The first values of a table of its own; as `Embedding`'s
            by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.TiedHead(512, tied_to=(0, 0, 0, 0)).tied_to
        (0, 0, 0, 0)
    """

    vocabulary: int
    tied_to: Sequence[int] | None = None
    _: KW_ONLY
    weight_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        place = self.tied_to
        if place is not None:
            numbers = items(place)
            if numbers is None or len(numbers) != 4:
                raise ConfigError(
                    f"TiedHead: tied_to must be depth, row, column and place of an embedding, "
                    f"got {shown(place)}"
                )
        super().__post_init__()


@FAMILY.register("positional_embedding")
@dataclass(frozen=True)
class PositionalEmbedding(Layer):
    """Adds a trained vector to each step of a sequence, by its place.

    Input and output are (time, width); the `weight` is (max_time, width). In a
    session places count from its first call.

    Args:
        max_time: The most steps that a sequence may have.
        weight_initializer: The vectors' first values; normal with standard
            deviation 1 / sqrt(width) by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.PositionalEmbedding(64).max_time
        64
    """

    max_time: int
    _: KW_ONLY
    weight_initializer: InitializerLike | None = None


@FAMILY.register("sinusoidal_positions")
@dataclass(frozen=True)
class SinusoidalPositions(Layer):
    """Adds waves to each step of a sequence (Vaswani et al. 2017).

    Input and output are (time, width). Element 2 i at place p gets
    `sin(p * base ** (-2 * i / width))`, element 2 i + 1 the cosine. In a session
    places count from its first call.

    Args:
        max_time: The most steps that a sequence may have.
        base: How much longer the last wave is than the first.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.SinusoidalPositions().base
        10000.0
    """

    max_time: int = 4096
    base: float = 10_000.0
