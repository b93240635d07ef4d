"""How far directions are from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from loom.losses.own import Loss

__all__ = ["Cosine"]


def _inverse(x: str) -> str:
    """One divided by the length of a vector, 0 where there is none; nor does its slope divide by zero."""
    square = f"sum({x} * {x}, axis=-1)"
    return f"where({square} > 0, 1 / sqrt(where({square} > 0, {square}, 1)), 0)"


_ANGLE: Final = f"1 - sum(y * t, axis=-1) * {_inverse('y')} * {_inverse('t')}"


@dataclass(frozen=True)
class Cosine(Loss):
    """One less the cosine of the angle between output and target, vectors along the last axis.

    1 - sum(o t) / (|o| |t|), the mean over all vectors: 0 where they point the same way, 2 where they point
    opposite ways, whatever their lengths (`CosineEmbeddingLoss` of PyTorch for pairs that belong together).
    A vector of zeros has no direction: it costs 1 and moves nothing.

    It is an expression, as those of `losses.Expr`, and computed where the network is.

    Examples:
        >>> loss, gradient = loom.losses.value_and_gradient(loom.losses.Cosine(), [[3.0, 4.0]], [[1.0, 0.0]])
        >>> round(loss, 6), gradient.round(6).tolist()
        (0.4, [[-0.128, 0.096]])
    """

    expression: ClassVar[str] = _ANGLE
    """What is computed, as `losses.Expr` has it."""
