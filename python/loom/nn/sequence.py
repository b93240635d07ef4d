"""Layers that add steps to a sequence, or make one vector of it."""

from __future__ import annotations

from dataclasses import dataclass

from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["ClassToken", "SequencePool"]


@FAMILY.register("class_token")
@dataclass(frozen=True)
class ClassToken(Layer):
    """Puts trained steps before a sequence, as vision transformers and CLIP do.

    Input (time, width), output (count + time, width). The `weight` is
    (count, width), the same steps for every sequence.

    Args:
        count: How many steps.
        weight_initializer: The steps' first values; normal with a standard
            deviation of 0.02 by default.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> loom.Sequential([nn.ClassToken()], input_shape=(16, 8)).output_shape
        (17, 8)
    """

    count: int = 1
    weight_initializer: InitializerLike | None = None


@FAMILY.register("sequence_pool")
@dataclass(frozen=True)
class SequencePool(Layer):
    """One vector of a whole sequence: its first step, its last one, or the mean of all.

    Input (time, width), output (width,). Inside `Masked` steps of padding do not
    count; of a sequence of nothing else zeros are made.

    Args:
        steps: "first", "mean" or "last".

    Raises:
        ConfigError: The name is unknown.

    Examples:
        >>> net = loom.Sequential([nn.SequencePool("mean")], input_shape=(3, 2))
        >>> net.predict(np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]])).tolist()
        [[3.0, 5.0]]
    """

    steps: str
