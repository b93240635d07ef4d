"""Activation functions as layers of their own, and one that learns."""

from __future__ import annotations

from dataclasses import dataclass

from loom.activations import ActivationLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Activation", "PReLU"]


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


@FAMILY.register("prelu")
@dataclass(frozen=True)
class PReLU(Layer):
    """A rectifier with learned slopes below 0: `max(0, x) + weight * min(0, x)`; the shape stays.

    The slopes, `weight`, are (1,), or (channels,) where every channel has its own: the first axis of
    (features,) or (channels, ...). Weight decay, also with `decay_exempt`, draws them towards 0, which makes
    it `"relu"`; He et al., who introduced it, trained them without. As PyTorch's PReLU.

    Args:
        per_channel: Whether every channel has a slope of its own; otherwise all elements share one.
        initial: What slopes start at.

    Raises:
        ConfigError: A setting is of the wrong type.

    Examples:
        >>> net = loom.Sequential([nn.PReLU(per_channel=True)], input_shape=(3, 8, 8))
        >>> net.layers[0].parameters["weight"].tolist()
        [0.25, 0.25, 0.25]
    """

    per_channel: bool = False
    initial: float = 0.25
