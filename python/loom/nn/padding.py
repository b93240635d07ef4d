"""Zeros around signals, images and volumes, and edges taken away."""

from __future__ import annotations

from dataclasses import dataclass

from loom._settings.checks import ExtentsLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["Crop1D", "Crop2D", "Crop3D", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"]


@dataclass(frozen=True)
class _Edges(Layer):
    before: ExtentsLike
    after: ExtentsLike | None = None


@FAMILY.register("zero_padding1d")
@dataclass(frozen=True)
class ZeroPadding1D(_Edges):
    """Zeros around each channel: input (channels, length), output (channels, before + length + after).

    Args:
        before: Zeros before the first element: one number.
        after: Zeros after the last one; as many as before by default.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> loom.Sequential([nn.ZeroPadding1D(2, after=0)], input_shape=(3, 5)).output_shape
        (3, 7)
    """


@FAMILY.register("zero_padding2d")
@dataclass(frozen=True)
class ZeroPadding2D(_Edges):
    """Zeros around each channel: input (channels, height, width), output (channels, height', width').

    Each extent grows by what stands before and after it.

    Args:
        before: Rows of zeros above and columns to the left: one number or (height, width).
        after: Rows below and columns to the right, likewise; as many as before by default.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> loom.Sequential([nn.ZeroPadding2D((1, 0), after=1)], input_shape=(3, 4, 4)).output_shape
        (3, 6, 5)
    """


@FAMILY.register("zero_padding3d")
@dataclass(frozen=True)
class ZeroPadding3D(_Edges):
    """Zeros around each channel: input (channels, depth, height, width), output (channels, depth', ...).

    Each extent grows by what stands before and after it.

    Args:
        before: Zeros before the first element of each axis: one number or (depth, height, width).
        after: Zeros after the last one, likewise; as many as before by default.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> loom.Sequential([nn.ZeroPadding3D(1)], input_shape=(2, 3, 4, 5)).output_shape
        (2, 5, 6, 7)
    """


@FAMILY.register("crop1d")
@dataclass(frozen=True)
class Crop1D(_Edges):
    """Each channel without its edges: input (channels, length), output (channels, length - before - after).

    Args:
        before: Elements left out at the start: one number.
        after: Elements left out at the end; as many as at the start by default.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: Nothing of the input would be left.

    Examples:
        >>> loom.Sequential([nn.Crop1D(2, after=0)], input_shape=(3, 5)).output_shape
        (3, 3)
    """


@FAMILY.register("crop2d")
@dataclass(frozen=True)
class Crop2D(_Edges):
    """Each channel without its edges: input (channels, height, width), output (channels, height', width').

    Each extent shrinks by what is left out before and after it.

    Args:
        before: Rows left out above and columns to the left: one number or (height, width).
        after: Rows below and columns to the right, likewise; as many as before by default.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: Nothing of the input would be left.

    Examples:
        >>> loom.Sequential([nn.Crop2D((1, 0), after=1)], input_shape=(3, 4, 4)).output_shape
        (3, 2, 3)
    """


@FAMILY.register("crop3d")
@dataclass(frozen=True)
class Crop3D(_Edges):
    """Each channel without its edges: input (channels, depth, height, width), output (channels, depth', ...).

    Each extent shrinks by what is left out before and after it.

    Args:
        before: Elements left out at the start of each axis: one number or (depth, height, width).
        after: Elements left out at the end, likewise; as many as at the start by default.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: Nothing of the input would be left.

    Examples:
        >>> loom.Sequential([nn.Crop3D(1)], input_shape=(2, 3, 4, 5)).output_shape
        (2, 1, 2, 3)
    """
