"""What passes between the layers of a Keras model, and how it lies here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loom.models.branches import Row

__all__ = ["Mask", "Unsupported", "Value", "extents", "moved", "name_of", "refuse"]


class Unsupported(Exception):  # noqa: N818 - collected, and told all at once
    """Something that no layer of loom is for."""


@dataclass(frozen=True)
class Mask:
    """Which steps of a value are padding, as Keras hands it on beside the value.

    Args:
        origin: The value whose steps tell padding.
        value: What padding consists of there.
        row: What computes the masked value from it; None where several values were brought together since.
        differs: Whether steps of padding hold something else here than in Keras.
    """

    origin: str
    value: float
    row: Row | None
    differs: bool = False


@dataclass(frozen=True)
class Value:
    """What passes between layers.

    Args:
        rank: How many axes it has in Keras, without the batch; one that has none is (1,) here.
        first: Whether its channels are the first axis, as loom's convolutions have them, and not the last.
        shape: Its extents here, without the batch; None where they are open, or not known.
        mask: Which of its steps are padding, where Keras says so.
    """

    rank: int
    first: bool
    shape: tuple[int, ...] | None = None
    mask: Mask | None = None

    def extents(self, what: str) -> tuple[int, ...]:
        """Returns the extents; an Unsupported that says what needs them where they are not known."""
        if self.shape is None:
            raise Unsupported(f"{what} of a value whose extents are open: give the model's Input a shape")
        return self.shape

    def laid(self, *, first: bool) -> Value:
        """Returns the value in another layout, as what `moved` returns makes it."""
        if self.first == first or self.rank < 2:
            return self
        shape = self.shape
        if shape is not None:
            shape = (shape[-1], *shape[:-1]) if first else (*shape[1:], shape[0])
        return replace(self, first=first, shape=shape)


def moved(value: Value, *, first: bool) -> Row:
    """Returns what brings a value's channels to the front, or to the end; nothing where they are there."""
    if value.first == first or value.rank < 2:
        return []
    last = value.rank - 1
    return [{"type": "permute", "axes": [last, *range(last)] if first else [*range(1, last + 1), 0]}]


def refuse(condition: bool, why: str) -> None:
    """Raises Unsupported where a condition holds."""
    if condition:
        raise Unsupported(why)


def name_of(setting: Any) -> str:  # noqa: ANN401 - of JSON
    """What a function is called."""
    if isinstance(setting, dict):
        inner = setting.get("config")
        return inner if isinstance(inner, str) else str(setting.get("class_name"))
    return str(setting)


def extents(value: Any, axes: int | None = None) -> list[int]:  # noqa: ANN401 - of JSON
    """A setting of each axis, which may be one number for all."""
    if isinstance(value, Sequence):
        return list(value)
    return [value] * (axes or 1)
