"""Fully connected layers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from loom.activations import ActivationLike
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Dense"]


@FAMILY.register("dense")
@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer: `activation(x @ weight.T + bias)`.

    Works on the last axis: input (..., features), output (..., units). The
    weight is (units, features), the bias (units,).

    Args:
        units: How many outputs.
        activation: A name, or an object such as `LeakyReLU(0.2)`.
        bias: Whether a bias is added.
        weight_initializer: The weight's first values; Xavier normal by default.
        bias_initializer: The bias's first values; zeros by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Dense(10, activation="relu").units
        10
    """

    units: int
    activation: ActivationLike = "linear"
    _: KW_ONLY
    bias: bool = True
    weight_initializer: InitializerLike | None = None
    bias_initializer: InitializerLike | None = None
