"""A range of one axis."""

from __future__ import annotations

from dataclasses import dataclass

from loom.nn._layer import FAMILY, Layer

__all__ = ["Slice"]


@FAMILY.register("slice")
@dataclass(frozen=True)
class Slice(Layer):
    """A range of one axis, counted as Python's slices count: x[..., start:stop:step, ...].

    Numbers below 0 count from the axis's end, and a range goes no further than the axis does. Sequences of
    different lengths pass through it together, and it runs in sessions, where the axis is counted from the
    first and is not time: axis=1 for the features of steps.

    Args:
        start: The first element that is taken.
        stop: The first that is not any more; the axis's end where None.
        step: How far elements that are taken lie apart; at least 1.
        axis: Which axis, without the batch; from the last where negative.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: The input has no such axis, or nothing of it would be left.

    Examples:
        >>> net = loom.Sequential([nn.Slice(1, -1, step=2)], input_shape=(3, 6))
        >>> net.predict(np.arange(18).reshape(1, 3, 6))[0, 0].tolist()
        [1.0, 3.0]
        >>> loom.Sequential([nn.Slice(-1, axis=0)], input_shape=(3, 6)).output_shape
        (1, 6)
    """

    start: int = 0
    stop: int | None = None
    step: int = 1
    axis: int = -1
