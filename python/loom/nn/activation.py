"""Activation functions as layers of their own, one that learns, and a fixed factor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from loom.activations import ActivationLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Activation", "PReLU", "Scale", "SoftCap"]


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
    _: KW_ONLY
    initial: float = 0.25


@FAMILY.register("scale")
@dataclass(frozen=True)
class Scale(Layer):
    """Multiplies every element by a fixed number; the shape stays.

    Args:
        factor: The number.

    Raises:
        ConfigError: The factor is no finite number.

    Examples:
        >>> nn.Scale(48**0.5).factor  # what Gemma multiplies embeddings of 48 features with
        6.928203230275509
    """

    factor: float


@FAMILY.register("soft_cap")
@dataclass(frozen=True)
class SoftCap(Layer):
    """Holds every element between plus and minus a cap: `cap * tanh(x / cap)`; the shape stays.

    Gemma 2 does so with its logits. Of attention's scores it is a setting of `MultiHeadAttention`.

    Args:
        cap: What no magnitude exceeds.

    Raises:
        ConfigError: The cap is not above 0.

    Examples:
        >>> nn.SoftCap(30).cap
        30.0
    """

    cap: float
