"""Layers with options drawn at random, for an input of a given shape."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from loom import nn
from loom.activations import ActivationLike, names, resolve
from trials.chance import Chance

Shape = tuple[int, ...]
Draw = Callable[[Chance, Shape], "nn.Layer | None"]

# What a sample may hold anywhere, so that a network takes milliseconds; the second where it is wide.
_MOST_ELEMENTS = (160, 1500)
# How often a layer is drawn anew that does not suit.
_TRIES = 200
_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1D, 2: nn.Conv2D, 3: nn.Conv3D}
_TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1D, 2: nn.ConvTranspose2D, 3: nn.ConvTranspose3D}
_MAX_POOLS: dict[int, Any] = {1: nn.MaxPool1D, 2: nn.MaxPool2D, 3: nn.MaxPool3D}
_AVG_POOLS: dict[int, Any] = {1: nn.AvgPool1D, 2: nn.AvgPool2D, 3: nn.AvgPool3D}
_PADDINGS: dict[int, Any] = {1: nn.ZeroPadding1D, 2: nn.ZeroPadding2D, 3: nn.ZeroPadding3D}
_CROPS: dict[int, Any] = {1: nn.Crop1D, 2: nn.Crop2D, 3: nn.Crop3D}
_UP_SAMPLINGS: dict[int, Any] = {1: nn.UpSampling1D, 2: nn.UpSampling2D, 3: nn.UpSampling3D}
_ADAPTIVE_POOLS: dict[int, Any] = {
    1: (nn.AdaptiveMaxPool1D, nn.AdaptiveAvgPool1D),
    2: (nn.AdaptiveMaxPool2D, nn.AdaptiveAvgPool2D),
    3: (nn.AdaptiveMaxPool3D, nn.AdaptiveAvgPool3D),
}
_SPATIAL_DROPOUTS: dict[int, Any] = {
    1: nn.SpatialDropout1D,
    2: nn.SpatialDropout2D,
    3: nn.SpatialDropout3D,
}
_GLOBAL_POOLS: dict[int, Any] = {
    1: (nn.GlobalMaxPool1D, nn.GlobalAvgPool1D),
    2: (nn.GlobalMaxPool2D, nn.GlobalAvgPool2D),
    3: (nn.GlobalMaxPool3D, nn.GlobalAvgPool3D),
}


def activation(chance: Chance) -> ActivationLike:
    """Draws an activation function, with a parameter where it has one."""
    name = chance.one(names())
    if name == "leaky_relu":
        return nn.LeakyReLU(chance.real(-0.5, 1.5))
    if name == "elu":
        return nn.ELU(chance.real(0.2, 2.0))
    return name


def dense(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a dense layer."""
    return nn.Dense(
        chance.whole(1, 40 if chance.wide else 7), activation=activation(chance), bias=chance.happens(0.8)
    )


def function(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws an activation as a layer."""
    if chance.happens(0.2):
        if chance.happens(0.5):
            start = {"shape": shape[-1:] if chance.happens(0.5) else (), "initial": chance.real(0.5, 1.5)}
            text = chance.one(["a * x + b", "x * sigmoid(a * x) - b", "a * tanh(x) / (1 + (x - b) ** 2)"])
            return nn.Expr(text, a=start, b=chance.real(-0.5, 0.5))
        return nn.PReLU(per_channel=chance.happens(0.5), initial=chance.real(-0.5, 1.5))
    return nn.Activation(activation(chance))


def convolution(chance: Chance, shape: Shape) -> nn.Layer | None:
    """Draws a convolution with every option."""
    axes = len(shape) - 1
    groups = chance.divisor(shape[0]) if chance.happens(0.4) else 1
    kernel = tuple(chance.whole(1, min(5 if chance.wide else 3, extent)) for extent in shape[1:])
    dilation = tuple(chance.whole(1, 2) if chance.happens(0.3) else 1 for _ in kernel)
    padding: Any = tuple(chance.whole(0, 2) for _ in kernel)
    if chance.happens(0.35):
        padding = chance.one(["same", "valid"])
    rims = (0,) * axes if isinstance(padding, str) else padding
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if padding != "same" and any(
        r > extent + 2 * p for r, p, extent in zip(reach, rims, shape[1:], strict=True)
    ):
        return None
    return _CONVOLUTIONS[axes](  # type: ignore[no-any-return]
        groups * chance.whole(1, 9 if chance.wide else 2),
        kernel_size=kernel,
        stride=tuple(chance.whole(1, 3) if chance.happens(0.4) else 1 for _ in kernel),
        padding=padding,
        dilation=dilation,
        groups=groups,
        activation=activation(chance),
        bias=chance.happens(0.8),
    )


def transposed(chance: Chance, shape: Shape) -> nn.Layer | None:
    """Draws a transposed convolution with every option."""
    axes = len(shape) - 1
    groups = chance.divisor(shape[0]) if chance.happens(0.4) else 1
    kernel = tuple(chance.whole(1, 3) for _ in shape[1:])
    stride = tuple(chance.whole(1, 2) for _ in kernel)
    dilation = tuple(chance.whole(1, 2) if chance.happens(0.3) else 1 for _ in kernel)
    extra = tuple(chance.whole(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    padding: Any = tuple(chance.whole(0, 1) for _ in kernel)
    if chance.happens(0.35):
        padding = chance.one(["same", "valid"])
    if padding == "same":
        extra = (0,) * axes
    rims = (0,) * axes if isinstance(padding, str) else padding
    made = [
        (extent - 1) * s - 2 * p + d * (k - 1) + e + 1
        for extent, s, p, d, k, e in zip(shape[1:], stride, rims, dilation, kernel, extra, strict=True)
    ]
    if padding != "same" and min(made) < 1:
        return None
    return _TRANSPOSED[axes](  # type: ignore[no-any-return]
        groups * chance.whole(1, 9 if chance.wide else 2),
        kernel_size=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        activation=activation(chance),
        bias=chance.happens(0.8),
        output_padding=extra,
    )


def pool(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a pooling layer, or zeros around its input."""
    axes = len(shape) - 1
    if chance.happens(0.15):
        before, after = (tuple(chance.whole(0, 2) for _ in shape[1:]) for _ in range(2))
        return _PADDINGS[axes](before, chance.one([None, after]))  # type: ignore[no-any-return]
    if chance.happens(0.2):
        return chance.one(_GLOBAL_POOLS[axes])()  # type: ignore[no-any-return]
    window = tuple(chance.whole(1, min(3, extent)) for extent in shape[1:])
    settings: dict[str, Any] = {"pool_size": window}
    if chance.happens(0.6):
        settings["stride"] = tuple(chance.whole(1, 3) for _ in window)
    if chance.happens(0.5):
        settings["padding"] = tuple(chance.whole(0, extent // 2) for extent in window)
    settings["ceil_mode"] = chance.happens(0.3)
    if chance.happens(0.5):
        return _MAX_POOLS[axes](**settings)  # type: ignore[no-any-return]
    # Where windows may end beyond the padding, none of that counts.
    counted = chance.happens(0.5) and not (settings["ceil_mode"] and any(settings.get("padding", ())))
    return _AVG_POOLS[axes](count_include_pad=counted, **settings)  # type: ignore[no-any-return]


def resizing(chance: Chance, shape: Shape) -> nn.Layer | None:
    """Draws a layer that changes how many places a channel has, or zeroes whole channels."""
    axes = len(shape) - 1
    kind = chance.whole(0, 5)
    if kind == 0:
        scale = tuple(chance.whole(1, 3) for _ in shape[1:])
        linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[axes]
        return _UP_SAMPLINGS[axes](scale, mode=chance.one(["nearest", linear]))  # type: ignore[no-any-return]
    if kind == 1:
        size = tuple(chance.whole(1, extent + 1) for extent in shape[1:])
        return chance.one(_ADAPTIVE_POOLS[axes])(size)  # type: ignore[no-any-return]
    if kind == 2:
        before = tuple(chance.whole(0, min(2, extent - 1)) for extent in shape[1:])
        left = [extent - less for extent, less in zip(shape[1:], before, strict=True)]
        return _CROPS[axes](before, tuple(chance.whole(0, min(2, extent - 1)) for extent in left))  # type: ignore[no-any-return]
    if kind == 3:
        rate = 0.0 if chance.happens(0.7) else chance.real(0.1, 0.8)
        return _SPATIAL_DROPOUTS[axes](rate)  # type: ignore[no-any-return]
    if kind == 4:
        return ranged(chance, shape)
    if axes != 2:
        return None
    factor = chance.whole(1, 3)
    if shape[0] % factor**2 == 0 and chance.happens(0.7):
        return nn.PixelShuffle(factor)
    return None if any(extent % factor for extent in shape[1:]) else nn.PixelUnshuffle(factor)


def ranged(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a range of an axis, of which something is left."""
    axis = chance.whole(0, len(shape) - 1)
    start = chance.whole(0, shape[axis] - 1)
    stop = chance.one([None, chance.whole(start + 1, shape[axis] + 2)])
    from_behind = chance.happens(0.5)
    return nn.Slice(
        start - shape[axis] if from_behind else start,
        stop,
        step=chance.whole(1, 3),
        axis=axis - len(shape) if chance.happens(0.5) else axis,
    )


def recurrent(chance: Chance, shape: Shape, context: int | None = None) -> nn.Layer | None:
    """Draws a recurrent layer.

    Args:
        chance: What is drawn from.
        shape: The input's.
        context: Numbers of the second input that gives the first state, where there is one.
    """
    kind = chance.one([nn.RNN, nn.LSTM, nn.GRU])
    layers = chance.one([1, 1, 2, 3])
    bidirectional = chance.happens(0.35)
    units = chance.whole(1, 18 if chance.wide else 4)
    initial = chance.one(["zeros", "zeros", "learned"])
    stateful = initial == "zeros" and not bidirectional and chance.happens(0.15)
    if context is not None:
        share = layers * (2 if bidirectional else 1) * (2 if kind is nn.LSTM else 1)
        if context % share or not 1 <= context // share <= 6:
            return None
        units, initial, stateful = context // share, "context", False
    settings: dict[str, Any] = {
        "layers": layers,
        "bidirectional": bidirectional,
        "return_sequences": chance.happens(0.6),
        "bias": chance.happens(0.8),
        "initial_state": initial,
        "stateful": stateful,
    }
    if kind is nn.RNN and chance.happens(0.4):
        settings["activation"] = "relu"
    if kind is nn.GRU:
        settings["reset_after"] = chance.happens(0.6)
    if layers > 1 and chance.happens(0.1):
        settings["dropout"] = chance.real(0.1, 0.6)
    made: nn.Layer = kind(units, **settings)
    return made


def attention(chance: Chance, shape: Shape, cross: bool = False, other: int = 0) -> nn.Layer | None:
    """Draws an attention layer.

    Args:
        chance: What is drawn from.
        shape: The input's.
        cross: Whether it looks at a second input.
        other: Steps of that one.
    """
    time, width = shape
    heads = chance.whole(1, 4)
    head_dim: int | None = chance.whole(1, 20 if chance.wide else 4)
    if width % heads == 0 and chance.happens(0.5):
        head_dim = None
    extent = width // heads if head_dim is None else head_dim
    rotary = None
    if not cross and extent % 2 == 0 and chance.happens(0.4):
        rotary = nn.Rotary(
            base=chance.one([10_000.0, 100.0, 500_000.0]),
            scaling=chance.one([1.0, 2.0, 0.5]),
            layout=chance.one(["interleaved", "half_split"]),
            dim=2 * chance.whole(1, extent // 2) if chance.happens(0.3) else None,
        )
    mask = None
    if chance.happens(0.25):
        steps = other if cross else time
        mask = [[int(chance.happens(0.7)) for _ in range(steps)] for _ in range(time)]
    qk_norm: bool | str = False
    if chance.happens(0.3):
        qk_norm = "width" if chance.happens(0.5) else True
    position_bias: nn.PositionBias | None = None
    if not cross and chance.happens(0.3):
        relative = nn.RelativeBias(2 * chance.whole(2, 6), chance.whole(7, 20))
        position_bias = relative if chance.happens(0.6) else nn.ALiBi()
    return nn.MultiHeadAttention(
        heads,
        key_value_heads=chance.divisor(heads) if chance.happens(0.4) else None,
        head_dim=head_dim,
        causal=chance.happens(0.4),
        window=chance.whole(1, 4) if chance.happens(0.3) else None,
        rotary=rotary,
        qk_norm=qk_norm,
        bias=chance.happens(0.7),
        cross=cross,
        mask=mask,
        scale=chance.one([0.2, 1.0]) if chance.happens(0.2) else None,
        soft_cap=chance.one([0.5, 5.0]) if chance.happens(0.2) else None,
        qk_norm_epsilon=chance.one([1e-6, 1e-3]),
        output_bias=chance.happens(0.5) if chance.happens(0.2) else None,
        position_bias=position_bias,
    )


def normalization(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a norm."""
    gain, bias = chance.happens(0.8), chance.happens(0.8)
    epsilon = chance.one([1e-5, 1e-3, 0.1])
    kind = chance.whole(0, 3)
    if kind == 0:
        return nn.LayerNorm(axes=chance.whole(1, len(shape)), epsilon=epsilon, gain=gain, bias=bias)
    if kind == 1:
        return nn.RMSNorm(epsilon=epsilon, gain=gain)
    if kind == 2:
        if prod(shape[1:]) > 1 and chance.happens(0.3):
            return nn.InstanceNorm(epsilon=epsilon, gain=gain, bias=bias)
        return nn.GroupNorm(chance.divisor(shape[0]), epsilon=epsilon, gain=gain, bias=bias)
    return nn.BatchNorm(momentum=chance.real(0.0, 1.0), epsilon=epsilon, gain=gain, bias=bias)


def softmax(chance: Chance, shape: Shape) -> nn.Layer | None:
    """Draws a softmax or one of its kin."""
    classes = shape[-1]
    kind = chance.whole(0, 8)
    if kind == 0:
        return nn.Softmax(temperature=chance.one([1.0, 0.5, 2.0]))
    if kind == 1:
        rows = chance.divisor(classes)
        return nn.GridSoftmax(rows, classes // rows)
    if kind == 2:
        groups = chance.whole(1, 3)
        if classes < 2 * groups:
            return None
        leaves = classes - groups
        if leaves % groups == 0 and chance.happens(0.5):
            return nn.HierarchicalSoftmax(groups, leaves)
        counts = [1] * groups
        for _ in range(leaves - groups):
            counts[chance.whole(0, groups - 1)] += 1
        return nn.HierarchicalSoftmax(groups, counts)
    if kind == 3:
        clusters = chance.whole(1, 2)
        words = classes - clusters
        if words < clusters + 1:
            return None
        return nn.AdaptiveSoftmax(sorted(chance.shuffled(range(1, words))[:clusters]))
    if kind == 4:
        components = chance.whole(1, 3)
        return None if classes % components or classes == components else nn.MixtureSoftmax(components)
    if kind == 5:
        axis = chance.one([-1, -1, 0])
        mask = None
        if chance.happens(0.7):
            mask = [chance.happens(0.7) for _ in range(shape[axis])]
        return nn.MaskedSoftmax(mask, axis=axis)
    if kind == 6:
        return nn.Sparsemax()
    if kind == 7:
        return nn.Entmax(chance.one([1.5, 2.0, 1.2, 1.8, 3.0]))
    return nn.GumbelSoftmax(temperature=chance.one([1.0, 0.5])) if chance.happens(0.3) else None


def feed_forward(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a gated layer, or a mixture of experts."""
    if chance.happens(0.5):
        experts = chance.whole(1, 5)
        shared = chance.whole(1, 6) if chance.happens(0.4) else None
        return nn.MixtureOfExperts(
            experts,
            chance.whole(1, experts),
            chance.whole(1, 35 if chance.wide else 8),
            activation=chance.one(["silu", "gelu", "tanh", "relu"]),
            gated=chance.happens(0.7),
            normalize=chance.happens(0.5),
            shared_units=shared,
            shared_gate=shared is not None and chance.happens(0.5),
        )
    kind, usual = chance.one([(nn.SwiGLU, "silu"), (nn.GeGLU, "gelu")])
    return kind(
        chance.whole(1, 35 if chance.wide else 8),
        bias=chance.happens(0.5),
        activation=resolve(usual if chance.happens(0.6) else chance.one(["gelu_tanh", "relu", "sigmoid"])),
    )


def table(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws clusters, or scores by a table of the layer's own."""
    if chance.happens(0.6):
        return nn.KMeans(chance.whole(1, 20 if chance.wide else 5), temperature=chance.one([1.0, 0.5, 3.0]))
    return nn.TiedHead(chance.whole(1, 7))


def positions(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws positions."""
    longest = shape[0] + chance.whole(0, 3)
    if chance.happens(0.5):
        return nn.PositionalEmbedding(longest)
    return nn.SinusoidalPositions(longest, base=chance.one([10_000.0, 50.0]))


def sequence(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a layer that adds steps to a sequence, or makes one vector of it."""
    if chance.happens(0.5):
        return nn.ClassToken(chance.whole(1, 3))
    return nn.SequencePool(chance.one(["first", "mean", "last"]))


def element(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a layer of one fixed number."""
    return chance.one([nn.Scale(chance.real(-2.0, 2.0)), nn.SoftCap(chance.real(0.3, 4.0)), nn.L2Norm(0.01)])


def structure(chance: Chance, shape: Shape) -> nn.Layer:
    """Draws a layer that rearranges elements, or leaves some out."""
    kind = chance.whole(0, 3)
    if kind == 0:
        return nn.Flatten()
    if kind == 1:
        axes = chance.shuffled(range(len(shape)))
        return nn.Permute(axes)
    if kind == 2:
        if chance.happens(0.2):
            return nn.GaussianNoise(0.0 if chance.happens(0.7) else chance.real(0.1, 0.8))
        return nn.Dropout(0.0 if chance.happens(0.7) else chance.real(0.1, 0.8))
    elements = prod(shape)
    extents = []
    for _ in range(chance.whole(0, 3)):
        extents.append(chance.divisor(elements))
        elements //= extents[-1]
    extents.append(elements)
    extents = chance.shuffled(extents)
    if chance.happens(0.5):
        extents[chance.whole(0, len(extents) - 1)] = -1
    return nn.Reshape(extents)


def any_layer(chance: Chance, shape: Shape, depth: int = 0) -> nn.Layer:
    """Draws a layer of any kind for an input of this shape.

    Args:
        chance: What is drawn from.
        shape: The input's, without the batch.
        depth: How many layers made of layers it stands in.
    """
    # The weights say how often a kind is tried; a kind that does not suit the shape is drawn again.
    kinds: list[tuple[int, Draw]] = [
        (3, dense),
        (1, function),
        (3, normalization),
        (3, softmax),
        (1, feed_forward),
        (1, table),
        (1, element),
        (2, structure),
    ]
    if len(shape) in (2, 3, 4):
        kinds += [(3, convolution), (2, transposed), (3, pool), (2, resizing)]
    if len(shape) == 2:
        kinds += [(5, recurrent), (5, attention), (1, positions)]
        if depth == 0:
            kinds.append((1, sequence))
    if depth < 2:
        from trials.drawing_composites import composite

        kinds.append((4, lambda chance, shape: composite(chance, shape, depth + 1)))
    choices = [draw for weight, draw in kinds for _ in range(weight)]
    for _ in range(_TRIES):
        layer = chance.one(choices)(chance, shape)
        if layer is not None and prod(output_shape(layer, shape)) <= _MOST_ELEMENTS[chance.wide]:
            return layer
    # Of an input that is as large as anything may be, hardly a layer makes less.
    return nn.Dense(1)


def row(chance: Chance, shape: Shape, most: int, depth: int = 0) -> list[nn.Layer]:
    """Draws one to `most` layers in a row."""
    layers: list[nn.Layer] = []
    for _ in range(chance.whole(1, most)):
        layers.append(any_layer(chance, shape, depth))
        shape = output_shape(layers[-1], shape)
    return layers


def output_shape(layer: nn.Layer, shape: Shape) -> Shape:
    """Returns what a layer makes of an input of this shape; the comparison proves it right."""
    import loom

    return loom.Sequential([layer], input_shape=shape).output_shape
