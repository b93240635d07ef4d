"""Layers that normalise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from loom.nn._layer import FAMILY, Layer

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "L2Norm", "LayerNorm", "RMSNorm"]


@FAMILY.register("layer_norm")
@dataclass(frozen=True)
class LayerNorm(Layer):
    """Layer normalisation: `(x - mean) / sqrt(variance + epsilon) * weight + bias`.

    Mean and (biased) variance are those of the last axes of each row, or of each
    place in it: input and output (..., features). Weight, which is the gain, and
    bias have the extents of the normalised axes, as PyTorch's `normalized_shape`.

    Args:
        axes: How many axes, counted from the last, are normalised together.
        epsilon: Added to the variance; above zero.
        gain: Whether a trained gain multiplies every element.
        bias: Whether a trained bias is added to every element.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.LayerNorm().epsilon
        1e-05
    """

    _: KW_ONLY
    axes: int = 1
    epsilon: float = 1e-5
    gain: bool = True
    bias: bool = True


@FAMILY.register("rms_norm")
@dataclass(frozen=True)
class RMSNorm(Layer):
    """Root-mean-square normalisation: `x / sqrt(mean(x ** 2) + epsilon) * weight`.

    Over the last axis: input and output (..., features). The weight, which is the
    gain, is (features,).

    Args:
        epsilon: Added to the mean square; above zero.
        gain: Whether a trained gain multiplies every feature.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.RMSNorm().epsilon
        1e-06
    """

    _: KW_ONLY
    epsilon: float = 1e-6
    gain: bool = True


@FAMILY.register("l2_norm")
@dataclass(frozen=True)
class L2Norm(Layer):
    """Vectors of unit length: `x / sqrt(sum(x ** 2) + epsilon)` over the last axis.

    Input and output (..., features). As PyTorch's `functional.normalize`, which
    divides by the length or, where that is smaller, by its own epsilon.

    Args:
        epsilon: Added to the sum of squares; above zero.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.L2Norm()], input_shape=2, precision="float64")
        >>> net.predict(np.array([[3.0, 4.0]])).round(9).tolist()
        [[0.6, 0.8]]
    """

    epsilon: float = 1e-12


@FAMILY.register("group_norm")
@dataclass(frozen=True)
class GroupNorm(Layer):
    """Group normalisation: channels of each row are normalised group by group.

    Input and output (channels, ...): each group of channels, with all its places,
    gets mean 0 and variance 1; then every channel is multiplied by its weight and
    its bias added, (channels,) each. One group normalises the whole row; as many
    groups as channels make it an instance normalisation.

    Args:
        groups: How many groups; divides the channels.
        epsilon: Added to the variance; above zero.
        gain: Whether a trained gain multiplies every channel.
        bias: Whether a trained bias is added to every channel.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.GroupNorm(8).groups
        8
    """

    groups: int
    _: KW_ONLY
    epsilon: float = 1e-5
    gain: bool = True
    bias: bool = True


@FAMILY.register("instance_norm")
@dataclass(frozen=True)
class InstanceNorm(Layer):
    """Instance normalisation: each channel of each row is normalised over its places.

    Input and output (channels, ...): every channel gets mean 0 and variance 1, then
    is multiplied by its weight and its bias added, (channels,) each (Ulyanov, Vedaldi
    and Lempitsky 2016). The same at training and inference. As PyTorch's
    InstanceNorm1d, 2d and 3d with affine=True; without weight and bias, which is their
    default, with gain=False and bias=False.

    Args:
        epsilon: Added to the variance; above zero.
        gain: Whether a trained gain multiplies every channel.
        bias: Whether a trained bias is added to every channel.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: A channel has one place alone.

    Examples:
        >>> net = loom.Sequential([nn.InstanceNorm(epsilon=1e-12)], input_shape=(1, 2))
        >>> net.predict(np.array([[[1.0, 5.0]]])).tolist()
        [[[-1.0, 1.0]]]
    """

    _: KW_ONLY
    epsilon: float = 1e-5
    gain: bool = True
    bias: bool = True


@FAMILY.register("batch_norm")
@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalisation: every channel gets mean 0 and variance 1 over the batch.

    Input and output (features,), each feature a channel, or (channels, ...). In
    training mean and (biased) variance are those of the batch and all places, and
    the states `running_mean` and `running_var` move towards them, the variance in
    its unbiased form; at inference these are used. A training batch needs more
    than one value a channel. As PyTorch's BatchNorm1d, 2d and 3d.

    Where a training cuts its steps into shards, which several processes share, each shard has statistics of
    its own, as in PyTorch's DistributedDataParallel; `synchronized` takes those of all, as its SyncBatchNorm.

    Frozen, it goes on by the batch, and its running statistics move: `Network.freeze` says what to do.

    Args:
        momentum: The share of a batch in the running statistics, from 0, which keeps them, to 1.
        epsilon: Added to the variance; above zero.
        gain: Whether a trained gain multiplies every channel.
        bias: Whether a trained bias is added to every channel.
        synchronized: Whether the statistics of a step that is cut into shards are those of all its rows, for
            which the processes of a training meet twice a layer and step.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.BatchNorm(momentum=0.05).momentum
        0.05
    """

    _: KW_ONLY
    momentum: float = 0.1
    epsilon: float = 1e-5
    gain: bool = True
    bias: bool = True
    synchronized: bool = False
