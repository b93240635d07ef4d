"""Signals, images and volumes with more elements along every axis, and channels as places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loom._settings.checks import ExtentsLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["PixelShuffle", "PixelUnshuffle", "UpSampling1D", "UpSampling2D", "UpSampling3D"]


@dataclass(frozen=True)
class _UpSampling(Layer):
    scale: ExtentsLike
    mode: Literal["nearest", "linear", "bilinear", "trilinear"] = "nearest"


@FAMILY.register("up_sampling1d")
@dataclass(frozen=True)
class UpSampling1D(_UpSampling):
    """More elements along every axis: input (channels, length), output (channels, scale length).

    As PyTorch's Upsample with align_corners=False, and Keras' layer of the same name.

    Args:
        scale: How many elements each becomes along each axis: one number.
        mode: "nearest", which repeats elements, or "linear", which goes in straight
            lines from the centre of one to that of the next; before the first centre
            and after the last one it stays what it is there.

    Raises:
        ConfigError: A setting is out of range, or the mode unknown.

    Examples:
        >>> net = loom.Sequential([nn.UpSampling1D(2, mode="linear")], input_shape=(1, 2))
        >>> net.predict(np.array([[[0.0, 4.0]]])).tolist()
        [[[0.0, 1.0, 3.0, 4.0]]]
    """


@FAMILY.register("up_sampling2d")
@dataclass(frozen=True)
class UpSampling2D(_UpSampling):
    """More elements along every axis: input (channels, height, width), output (channels, height', width').

    Each extent is multiplied by its scale. As PyTorch's Upsample with align_corners=False, and Keras' layer
    of the same name.

    Args:
        scale: How many elements each becomes along each axis: one number or (height, width).
        mode: "nearest", which repeats elements, or "bilinear", which goes in straight
            lines from the centre of one to that of the next; before the first centre
            and after the last one it stays what it is there.

    Raises:
        ConfigError: A setting is out of range, or the mode unknown.

    Examples:
        >>> net = loom.Sequential([nn.UpSampling2D((1, 2))], input_shape=(1, 2, 2))
        >>> net.predict(np.array([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
        [[[[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]]]
    """


@FAMILY.register("up_sampling3d")
@dataclass(frozen=True)
class UpSampling3D(_UpSampling):
    """More elements along every axis: input (channels, depth, height, width), output (channels, depth', ...).

    Each extent is multiplied by its scale. As PyTorch's Upsample with align_corners=False, and Keras' layer
    of the same name.

    Args:
        scale: How many elements each becomes along each axis: one number or
            (depth, height, width).
        mode: "nearest", which repeats elements, or "trilinear", which goes in straight
            lines from the centre of one to that of the next; before the first centre
            and after the last one it stays what it is there.

    Raises:
        ConfigError: A setting is out of range, or the mode unknown.

    Examples:
        >>> loom.Sequential([nn.UpSampling3D(2)], input_shape=(2, 3, 4, 5)).output_shape
        (2, 6, 8, 10)
    """


@FAMILY.register("pixel_shuffle")
@dataclass(frozen=True)
class PixelShuffle(Layer):
    """Channels as places: each factor² channels become one that is factor times as high and wide.

    Input (factor² channels, height, width), output (channels, factor height, factor width).
    What a sub-pixel convolution ends in (Shi et al. 2016): element (c, factor y + i, factor x + j) of the
    output is element (factor² c + factor i + j, y, x) of the input.

    Args:
        factor: How many times larger height and width become; its square divides the
            channels.

    Raises:
        ConfigError: The factor is out of range.
        ShapeError: Its square does not divide the channels.

    Examples:
        >>> layers = [nn.Conv2D(4 * 3, 3, padding="same"), nn.PixelShuffle(2)]
        >>> loom.Sequential(layers, input_shape=(3, 8, 8)).output_shape
        (3, 16, 16)
    """

    factor: int


@FAMILY.register("pixel_unshuffle")
@dataclass(frozen=True)
class PixelUnshuffle(Layer):
    """Places as channels, which undoes PixelShuffle.

    Input (channels, factor height, factor width), output (factor² channels, height, width).

    Args:
        factor: How many times smaller height and width become; it divides both.

    Raises:
        ConfigError: The factor is out of range.
        ShapeError: It does not divide height and width.

    Examples:
        >>> loom.Sequential([nn.PixelUnshuffle(2)], input_shape=(3, 8, 6)).output_shape
        (12, 4, 3)
    """

    factor: int
