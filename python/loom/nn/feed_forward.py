"""Gated feed-forward layers, as transformers have them."""

from __future__ import annotations

from dataclasses import dataclass

from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["GeGLU", "SwiGLU"]


@dataclass(frozen=True)
class _Gated(Layer):
    hidden: int
    bias: bool = False
    weight_initializer: InitializerLike | None = None


@FAMILY.register("swiglu")
@dataclass(frozen=True)
class SwiGLU(_Gated):
    """A gated layer (Shazeer 2020): `down(silu(gate(x)) * up(x))`.

    Works on the last axis: input and output (..., width). The weights are
    `gate_weight` and `up_weight` (hidden, width) and `down_weight`
    (width, hidden), named as in Llama, each with a bias where there is one.

    Args:
        hidden: Extent between the products.
        bias: Whether trained numbers are added after each product.
        weight_initializer: The weights' first values; Xavier normal by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.SwiGLU(682).bias
        False
    """


@FAMILY.register("geglu")
@dataclass(frozen=True)
class GeGLU(_Gated):
    """A gated layer (Shazeer 2020): `down(gelu(gate(x)) * up(x))`.

    Works on the last axis: input and output (..., width). The weights are
    `gate_weight` and `up_weight` (hidden, width) and `down_weight`
    (width, hidden), each with a bias where there is one.

    Args:
        hidden: Extent between the products.
        bias: Whether trained numbers are added after each product.
        weight_initializer: The weights' first values; Xavier normal by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.GeGLU(682).hidden
        682
    """
