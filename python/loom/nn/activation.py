"""Activation functions as layers of their own."""

from __future__ import annotations

from dataclasses import dataclass

from loom.activations import ActivationLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Activation"]


@FAMILY.register("activation")
@dataclass(frozen=True)
class Activation(Layer):
    """An activation function as a layer of its own; the shape stays.

    Args:
        function: A name, or an object such as `LeakyReLU(0.2)`.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.

    Examples:
        >>> nn.Activation("gelu").function
        'gelu'
    """

    function: ActivationLike
