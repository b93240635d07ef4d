"""Losses, by name or, where they have a parameter, as a small object.

The names: mse, mae, huber, cross_entropy, nll, binary_cross_entropy.
`cross_entropy` takes logits and `nll` probabilities; both take class indices,
one-hot rows or soft rows. `binary_cross_entropy` takes logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loom._checks import real
from loom._config import Named, NamedFamily

__all__ = ["Huber", "Loss", "LossLike", "is_classification", "name_of", "names", "resolve"]


class Loss(Named):
    """Base of the losses that have a parameter."""

    __slots__ = ()


LossLike: TypeAlias = "str | Loss | Mapping[str, Any]"

_FAMILY: NamedFamily[Loss] = NamedFamily(
    "loss",
    plain=("mse", "mae", "cross_entropy", "nll", "binary_cross_entropy"),
    aliases={"crossentropy": "cross_entropy", "cross-entropy": "cross_entropy"},
)


@_FAMILY.register("huber")
@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic up to `delta` away from the target, linear beyond; the mean over all elements.

    Args:
        delta: Where the two meet; above zero.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", real("Huber", "delta", self.delta, above=0.0))


def resolve(value: LossLike) -> str | Loss:
    """Returns the bare name or the object that a `loss=` argument means.

    Args:
        value: A name, an object, or the JSON form of one.

    Returns:
        The name where it has no parameter, otherwise the object.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    return _FAMILY.resolve(value)


def name_of(value: LossLike) -> str:
    """Returns the canonical name of a loss."""
    loss = resolve(value)
    return loss if isinstance(loss, str) else loss.kind


def is_classification(value: LossLike) -> bool:
    """Returns whether the loss takes class indices as targets."""
    return name_of(value) in {"cross_entropy", "nll"}


def names() -> list[str]:
    """Returns every loss's name, sorted."""
    return _FAMILY.names()
