"""Layers that draw at random while training: dropout and noise."""

from __future__ import annotations

from dataclasses import dataclass

from loom.nn._layer import FAMILY, Layer

__all__ = ["GaussianNoise", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"]


@FAMILY.register("gaussian_noise")
@dataclass(frozen=True)
class GaussianNoise(Layer):
    """Adds normal noise while training.

    Input and output have the same shape. At inference it changes nothing. Every element has a number
    of its own, with mean 0, which depends on the network's seed, the step, the layer and the element's place
    alone: not on threads, nor on how batches are cut.

    Args:
        standard_deviation: How large the noise is, at least 0.

    Raises:
        ConfigError: The standard deviation is out of range.

    Examples:
        >>> nn.GaussianNoise(0.1).standard_deviation
        0.1
    """

    standard_deviation: float


@dataclass(frozen=True)
class _SpatialDropout(Layer):
    rate: float


@FAMILY.register("spatial_dropout1d")
@dataclass(frozen=True)
class SpatialDropout1D(_SpatialDropout):
    """Zeroes whole channels at random while training; the others grow by 1 / (1 - rate).

    Input and output are (channels, length). At inference it changes nothing. What lies side by side in
    a channel says much the same, so that zeroing elements one by one would take little away (Tompson et al.
    2015). PyTorch's Dropout1d.

    Args:
        rate: The chance that a channel is zeroed; from 0 to below 1.

    Raises:
        ConfigError: The rate is out of range.

    Examples:
        >>> nn.SpatialDropout1D(0.25).rate
        0.25
    """


@FAMILY.register("spatial_dropout2d")
@dataclass(frozen=True)
class SpatialDropout2D(_SpatialDropout):
    """Zeroes whole channels at random while training; the others grow by 1 / (1 - rate).

    Input and output are (channels, height, width). At inference it changes nothing. What lies side by side in
    a channel says much the same, so that zeroing elements one by one would take little away (Tompson et al.
    2015). PyTorch's Dropout2d.

    Args:
        rate: The chance that a channel is zeroed; from 0 to below 1.

    Raises:
        ConfigError: The rate is out of range.

    Examples:
        >>> nn.SpatialDropout2D(0.25).rate
        0.25
    """


@FAMILY.register("spatial_dropout3d")
@dataclass(frozen=True)
class SpatialDropout3D(_SpatialDropout):
    """Zeroes whole channels at random while training; the others grow by 1 / (1 - rate).

    Input and output are (channels, depth, height, width). At inference it changes nothing. What lies side
    by side in a channel says much the same, so that zeroing elements one by one would take little away
    (Tompson et al. 2015). PyTorch's Dropout3d.

    Args:
        rate: The chance that a channel is zeroed; from 0 to below 1.

    Raises:
        ConfigError: The rate is out of range.

    Examples:
        >>> nn.SpatialDropout3D(0.25).rate
        0.25
    """
