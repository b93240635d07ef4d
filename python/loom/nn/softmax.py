"""Softmax and its kin."""

from __future__ import annotations

from dataclasses import dataclass

from loom._checks import real
from loom.nn._layer import FAMILY, Layer

__all__ = ["Softmax"]


@FAMILY.register("softmax")
@dataclass(frozen=True)
class Softmax(Layer):
    """Softmax over the class axis (the last; the channels of images): the shape stays.

    Args:
        temperature: What the logits are divided by; above zero.

    Raises:
        ConfigError: The temperature is out of range.

    Examples:
        >>> nn.Softmax(temperature=0.5).temperature
        0.5
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        self._set(temperature=real("Softmax", "temperature", self.temperature, above=0.0))
