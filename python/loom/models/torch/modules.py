"""Modules of PyTorch as layers with their parameters, in the form that `loom.import_model` reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loom.models.branches import Row
from loom.models.torch.arrays import array

__all__ = ["Unsupported", "activation", "averaged", "known", "pooled", "row_of", "softmax"]

Shape = tuple[int, ...]


class Unsupported(Exception):  # noqa: N818 - collected, and told all at once
    """Something that no layer of loom is for."""


def row_of(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401 - of PyTorch
    """Returns the layers that a module becomes.

    Args:
        module: The module, in eval mode.
        before: The shape of what it reads, the batch first.
        after: The shape of what it makes.

    Raises:
        Unsupported: There is none, or it has an option that loom's has not.
    """
    for cls in type(module).__mro__:
        if cls.__name__ in _MODULES and cls.__module__.startswith("torch."):
            return _MODULES[cls.__name__](module, before, after)
    raise Unsupported(f"{type(module).__name__} is of no layer that loom has")


def known(module: Any) -> bool:  # noqa: ANN401 - of PyTorch
    """Returns whether a module, as a whole, becomes layers."""
    return type(module).__name__ in _MODULES and type(module).__module__.startswith("torch.")


def refuse(condition: bool, why: str) -> None:
    """Raises Unsupported where a condition holds."""
    if condition:
        raise Unsupported(why)


def parameters(module: Any, **names: str) -> dict[str, Any]:  # noqa: ANN401 - of PyTorch
    """Returns a module's parameters by loom's names, without those that it has not."""
    names = names or {"weight": "weight", "bias": "bias"}
    found = {name: getattr(module, theirs, None) for name, theirs in names.items()}
    return {name: array(tensor) for name, tensor in found.items() if tensor is not None}


def _dense(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    return [{"type": "dense", "~tensor": module.weight.data_ptr(), **parameters(module)}]


def _convolution(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(module.padding_mode != "zeros", f"padding_mode {module.padding_mode!r} of a convolution")
    axes = len(module.kernel_size)
    layer = {
        "type": f"conv_transpose{axes}d" if module.transposed else f"conv{axes}d",
        "filters": module.out_channels,
        "stride": module.stride,
        "padding": module.padding,
        "dilation": module.dilation,
        "groups": module.groups,
        **parameters(module),
    }
    if module.transposed:
        layer["output_padding"] = module.output_padding
    return [layer]


def _batch_norm(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(module.running_mean is None, "track_running_stats=False of a BatchNorm")
    refuse(len(before) == 3 and "1d" not in type(module).__name__, "a BatchNorm over another layout")
    names = {name: name for name in ("weight", "bias", "running_mean", "running_var")}
    refuse(module.momentum is None, "momentum=None of a BatchNorm, which is a mean over all batches")
    flags = {"gain": module.affine, "bias": module.affine}
    held = parameters(module, **names)
    return [{"type": "batch_norm", "momentum": module.momentum, "epsilon": module.eps, **flags, **held}]


def _layer_norm(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    held = parameters(module)
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    axes = len(module.normalized_shape)
    return [{"type": "layer_norm", "axes": axes, "epsilon": module.eps, **flags, **held}]


def _rms_norm(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(len(module.normalized_shape) != 1, "an RMSNorm over several axes")
    held = parameters(module, weight="weight")
    # Without one it is that of the numbers' type, which the graph tells.
    return [{"type": "rms_norm", "epsilon": module.eps, "gain": bool(held), **held}]


def _group_norm(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    held = parameters(module)
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    return [{"type": "group_norm", "groups": module.num_groups, "epsilon": module.eps, **flags, **held}]


def _instance_norm(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(module.track_running_stats, "track_running_stats=True of an InstanceNorm")
    held = parameters(module)
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    return [{"type": "instance_norm", "epsilon": module.eps, **flags, **held}]


def _embedding(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(module.max_norm is not None, "max_norm of an Embedding")
    held = parameters(module, weight="weight")
    return [{"type": "embedding", "~tensor": module.weight.data_ptr(), **held}]


def _recurrent(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    name = type(module).__name__
    refuse(
        not module.batch_first, f"batch_first=False of {name}: loom's sequences are (batch, time, features)"
    )
    refuse(getattr(module, "proj_size", 0) != 0, "proj_size of an LSTM")
    layer = {
        "type": name.lower(),
        "units": module.hidden_size,
        "layers": module.num_layers,
        "bidirectional": module.bidirectional,
        "return_sequences": True,
        "bias": module.bias,
        "dropout": module.dropout,
        **{name: array(tensor) for name, tensor in module.named_parameters()},
    }
    if name == "RNN":
        layer["activation"] = module.nonlinearity
    return [layer]


def attention(module: Any, causal: bool = False, mask: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """Returns a MultiheadAttention of one sequence as a layer."""
    refuse(not module.batch_first, "batch_first=False of MultiheadAttention: loom's are (batch, time, width)")
    refuse(module.bias_k is not None or module.add_zero_attn, "add_bias_kv or add_zero_attn of attention")
    refuse(module.in_proj_weight is None, "kdim or vdim of MultiheadAttention")
    held = parameters(module, in_proj_weight="in_proj_weight", in_proj_bias="in_proj_bias")
    output = parameters(module.out_proj, output_weight="weight", output_bias="bias")
    layer = {"type": "multi_head_attention", "heads": module.num_heads, "causal": causal, **held, **output}
    if mask is not None:
        layer["mask"] = mask
    if 0 < module.dropout < 1:
        layer["dropout"] = module.dropout
    return layer


def encoder_layer(module: Any, causal: bool = False, mask: Any = None) -> Row:  # noqa: ANN401
    """Returns a TransformerEncoderLayer as two sums with their norms."""
    parts: list[tuple[Any, Row]] = [
        (module.norm1, [attention(module.self_attn, causal, mask), *_dropout(module.dropout1, (), ())]),
        (
            module.norm2,
            [
                *_with_activation(_dense(module.linear1, (), ()), _called(module.activation)),
                *_dropout(module.dropout, (), ()),
                *_dense(module.linear2, (), ()),
                *_dropout(module.dropout2, (), ()),
            ],
        ),
    ]
    row: Row = []
    for norm, inner in parts:
        normed = _layer_norm(norm, (), ())
        if module.norm_first:
            row.append({"type": "residual", "layers": [*normed, *inner]})
        else:
            row += [{"type": "residual", "layers": inner}, *normed]
    return row


def _called(function: Any) -> Row:  # noqa: ANN401 - a module, or a function of PyTorch
    """What stands between the two products of an encoder layer, whose function may be any."""
    name = getattr(function, "__name__", type(function).__name__)
    if known(function):
        return row_of(function, (), ())
    refuse(
        name not in _FUNCTIONS or not str(getattr(function, "__module__", "")).startswith("torch"),
        f"the activation {name} of a TransformerEncoderLayer",
    )
    return activation(name)


def _with_activation(row: Row, function: Row) -> Row:
    """A layer and what follows it, in one where that is an activation by itself."""
    if [layer["type"] for layer in function] != ["activation"]:
        return [*row, *function]
    return [{**row[0], "activation": function[0]["function"]}]


def encoder(module: Any, causal: bool = False, mask: Any = None) -> Row:  # noqa: ANN401
    """Returns a TransformerEncoder."""
    row = [layer for each in module.layers for layer in encoder_layer(each, causal, mask)]
    return [*row, *([] if module.norm is None else row_of(module.norm, (), ()))]


def _dropout(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    return [{"type": "dropout", "rate": module.p}] if 0 < module.p < 1 else []


def activation(function: Any) -> Row:  # noqa: ANN401 - a name, or one with settings
    """Returns an activation as a layer."""
    return [{"type": "activation", "function": function}]


"""Self-normalising units (Klambauer et al. 2017)."""


def expression(text: str) -> Row:
    """Returns a function of single elements as a layer."""
    return [{"type": "expr", "expression": text}]


_FUNCTIONS = {
    *("relu", "gelu", "silu", "tanh", "sigmoid", "mish", "selu", "hardswish", "hardsigmoid", "softplus"),
    *("leaky_relu", "elu"),
}
"""Functions that are an activation of that name, with the settings that it has by itself."""


def _activations(name: str) -> Callable[[Any, Shape, Shape], Row]:
    return lambda module, before, after: activation(name)


def softmax(axis: int, before: Shape) -> Row:
    """Returns a softmax over an axis; where that is not the one of loom's, it is brought there and back."""
    axis = axis % len(before) - 1
    refuse(axis < 0, "a softmax over the batch")
    own = 0 if len(before) == 4 else len(before) - 2
    order = list(range(len(before) - 1))
    order[own], order[axis] = axis, own
    turn: Row = [] if axis == own else [{"type": "permute", "axes": order}]
    return [*turn, {"type": "softmax"}, *turn]


def pooled(kind: str, before: Shape, after: Shape, **settings: Any) -> Row:  # noqa: ANN401
    """Returns a pooling layer, with as many windows as the module has."""
    axes = len(before) - 2
    settings = {name: _extents(value, axes) for name, value in settings.items() if value is not None}
    stride = settings.get("stride") or settings["pool_size"]
    padding = settings.get("padding", (0,) * axes)
    own = [
        (extent + 2 * rim - window) // step + 1
        for extent, rim, window, step in zip(before[2:], padding, settings["pool_size"], stride, strict=True)
    ]
    if tuple(own) != tuple(after[2:]):
        settings["ceil_mode"] = True
    return [{"type": f"{kind}{axes}d", **settings}]


def averaged(before: Shape, after: Shape, *, counted: bool, **settings: Any) -> Row:  # noqa: ANN401
    """Returns an average pooling layer, and what stands around it where padding counts beside cut windows.

    Args:
        before: What comes in, the batch with it.
        after: What goes out.
        counted: Whether padding counts in the divisor.
        **settings: The window's.
    """
    row = pooled("avg_pool", before, after, **settings)
    row[0]["count_include_pad"] = counted
    rims = row[0].get("padding", ())
    if not (counted and row[0].get("ceil_mode") and any(rims)):
        return row
    # In the layer padding counts or windows are cut. Zeros of their own count, and windows are cut behind
    # them; those that begin in the last zeros, which PyTorch leaves out, are left out afterwards.
    axes = len(rims)
    row[0]["padding"] = (0,) * axes
    stride = row[0].get("stride") or row[0]["pool_size"]
    more = [
        max(-(-(extent + 2 * rim - window) // step), 0) + 1
        for extent, rim, window, step in zip(before[2:], rims, row[0]["pool_size"], stride, strict=True)
    ]
    # One that begins behind everything is left out by the layer.
    made = [
        windows - ((windows - 1) * step >= extent + 2 * rim)
        for windows, extent, rim, step in zip(more, before[2:], rims, stride, strict=True)
    ]
    row = [{"type": f"zero_padding{axes}d", "before": list(rims), "after": list(rims)}, *row]
    beyond = [windows - kept for windows, kept in zip(made, after[2:], strict=True)]
    if any(beyond):
        row.append({"type": f"crop{axes}d", "before": [0] * axes, "after": beyond})
    return row


def _extents(value: Any, axes: int) -> tuple[int, ...]:  # noqa: ANN401
    several = tuple(value) if isinstance(value, Sequence) else (value,)
    return several * axes if len(several) == 1 else several


def _max_pool(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(set(_extents(module.dilation, 1)) != {1}, "dilation of a MaxPool")
    refuse(module.return_indices, "return_indices of a MaxPool")
    sizes = {"pool_size": module.kernel_size, "stride": module.stride, "padding": module.padding}
    return pooled("max_pool", before, after, **sizes)


def _avg_pool(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    refuse(getattr(module, "divisor_override", None) is not None, "divisor_override of an AvgPool")
    sizes = {"pool_size": module.kernel_size, "stride": module.stride, "padding": module.padding}
    return averaged(before, after, counted=module.count_include_pad, **sizes)


def adaptive_pool(kind: str, before: Shape, after: Shape) -> Row:
    """Returns pooling to given extents: global where these are 1, even windows where they divide."""
    axes = len(before) - 2
    if set(after[2:]) == {1}:
        shape = [before[1], *[1] * axes]
        return [{"type": f"global_{kind}_pool{axes}d"}, {"type": "reshape", "shape": shape}]
    divides = all(extent % made == 0 for extent, made in zip(before[2:], after[2:], strict=True))
    if not divides:
        return [{"type": f"adaptive_{kind}_pool{axes}d", "size": list(after[2:])}]
    size = [extent // made for extent, made in zip(before[2:], after[2:], strict=True)]
    return [{"type": f"{kind}_pool{axes}d", "pool_size": size}]


def _up_sampling(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    return up_sampled(module.mode, module.scale_factor, bool(module.align_corners), before, after)


def up_sampled(mode: str, factor: Any, corners: bool, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    """Returns neighbours repeated, or straight lines between them, by whole factors."""
    refuse(corners, "align_corners=True of an Upsample")
    axes = len(before) - 2
    scale = [made // extent for extent, made in zip(before[2:], after[2:], strict=True)]
    whole = [extent * times for extent, times in zip(before[2:], scale, strict=True)]
    factors = _extents(factor, axes) if factor is not None else tuple(scale)
    refuse(whole != list(after[2:]) or factors != tuple(scale), f"upsampling of {before[2:]} to {after[2:]}")
    known = ("nearest", ["linear", "bilinear", "trilinear"][axes - 1])
    refuse(mode not in known, f"mode {mode} of an Upsample")
    return [{"type": f"up_sampling{axes}d", "scale": scale, "mode": mode}]


def _spatial_dropout(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    if len(before) < 3:
        return _dropout(module, before, after)
    return [{"type": f"spatial_dropout{len(before) - 2}d", "rate": module.p}] if 0 < module.p < 1 else []


def reshaped(before: Shape, after: Shape) -> Row:
    """Returns what gives samples another shape."""
    if before[1:] == after[1:] and before[0] == after[0]:
        return []
    refuse(before[0] != after[0], f"a view of {before} as {after}, which changes the batch")
    return [{"type": "flatten"} if len(after) == 2 else {"type": "reshape", "shape": list(after[1:])}]


def padded(rims: Sequence[int], before: Shape) -> Row:
    """Returns zeros around axes, named as PyTorch does from the last on."""
    axes = len(before) - 2
    refuse(len(rims) > 2 * axes or min(rims) < 0, f"padding {tuple(rims)} of an input of {len(before)} axes")
    rims = [*rims, *[0] * (2 * axes - len(rims))]
    ends = [rims[2 * axis : 2 * axis + 2] for axis in reversed(range(axes))]
    return [
        {
            "type": f"zero_padding{axes}d",
            "before": [first for first, _ in ends],
            "after": [last for _, last in ends],
        }
    ]


def softplus(beta: float) -> Row:
    """Returns a softplus of some steepness; PyTorch's threshold is where both sides are the same number."""
    if beta == 1:
        return activation("softplus")
    return expression(f"softplus({float(beta)!r} * x) / {float(beta)!r}")


def celu(alpha: float) -> Row:
    """Returns an exponential linear unit that is smooth at zero, whatever it tends to."""
    return expression(f"max(x, 0) + min({float(alpha)!r} * (exp(min(x, 0) / {float(alpha)!r}) - 1), 0)")


def shrunk(bound: float, *, hard: bool) -> Row:
    """Returns what is zero between two bounds, and outside as it is, or nearer to zero by as much."""
    bound = float(bound)
    if hard:
        return expression(f"where(abs(x) > {bound!r}, x, 0)")
    return expression(f"sign(x) * max(abs(x) - {bound!r}, 0)")


def gated(axis: int, before: Shape) -> Row:
    """Returns the first half of an axis times the logistic function of the second."""
    axis = axis % len(before) - 1
    refuse(axis < 0, "a GLU over the batch")
    half = before[axis + 1] // 2
    halves = [
        {"type": "slice", "axis": axis, "start": start, "stop": stop}
        for start, stop in ((0, half), (half, 2 * half))
    ]
    opened = [halves[1], *activation("sigmoid")]
    return [{"type": "parallel", "combine": "multiply", "branches": [[halves[0]], opened]}]


def _prelu(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    return [
        {"type": "prelu", "per_channel": module.num_parameters > 1, **parameters(module, weight="weight")}
    ]


def _nothing(module: Any, before: Shape, after: Shape) -> Row:  # noqa: ANN401
    return []


_MODULES: dict[str, Callable[[Any, Shape, Shape], Row]] = {
    "Linear": _dense,
    **{f"Conv{axes}d": _convolution for axes in (1, 2, 3)},
    **{f"ConvTranspose{axes}d": _convolution for axes in (1, 2, 3)},
    **{f"BatchNorm{axes}d": _batch_norm for axes in (1, 2, 3)},
    **{f"InstanceNorm{axes}d": _instance_norm for axes in (1, 2, 3)},
    "LayerNorm": _layer_norm,
    "RMSNorm": _rms_norm,
    "GroupNorm": _group_norm,
    "Embedding": _embedding,
    "RNN": _recurrent,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "MultiheadAttention": lambda module, before, after: [attention(module)],
    "TransformerEncoderLayer": lambda module, before, after: encoder_layer(module),
    "TransformerEncoder": lambda module, before, after: encoder(module),
    **{f"MaxPool{axes}d": _max_pool for axes in (1, 2, 3)},
    **{f"AvgPool{axes}d": _avg_pool for axes in (1, 2, 3)},
    **{
        f"AdaptiveAvgPool{n}d": lambda module, before, after: adaptive_pool("avg", before, after)
        for n in (1, 2, 3)
    },
    **{
        f"AdaptiveMaxPool{n}d": lambda module, before, after: adaptive_pool("max", before, after)
        for n in (1, 2, 3)
    },
    **{f"ZeroPad{n}d": lambda module, before, after: padded(module.padding, before) for n in (1, 2, 3)},
    "Flatten": lambda module, before, after: reshaped(before, after),
    "Unflatten": lambda module, before, after: reshaped(before, after),
    "Identity": _nothing,
    "Dropout": _dropout,
    **dict.fromkeys(("Dropout1d", "Dropout2d", "Dropout3d"), _spatial_dropout),
    **dict.fromkeys(("Upsample", "UpsamplingNearest2d"), _up_sampling),
    "PixelShuffle": lambda module, before, after: [
        {"type": "pixel_shuffle", "factor": module.upscale_factor}
    ],
    "PixelUnshuffle": lambda module, before, after: [
        {"type": "pixel_unshuffle", "factor": module.downscale_factor}
    ],
    "ReLU": _activations("relu"),
    "Sigmoid": _activations("sigmoid"),
    "Tanh": _activations("tanh"),
    "SiLU": _activations("silu"),
    "Mish": _activations("mish"),
    "Hardswish": _activations("hardswish"),
    "Hardsigmoid": _activations("hardsigmoid"),
    "SELU": _activations("selu"),
    "GELU": lambda module, before, after: activation("gelu" if module.approximate == "none" else "gelu_tanh"),
    "LeakyReLU": lambda module, before, after: activation({"leaky_relu": {"slope": module.negative_slope}}),
    "ELU": lambda module, before, after: activation({"elu": {"alpha": module.alpha}}),
    "Softplus": lambda module, before, after: softplus(module.beta),
    "CELU": lambda module, before, after: celu(module.alpha),
    "Tanhshrink": lambda module, before, after: expression("x - tanh(x)"),
    "Hardshrink": lambda module, before, after: shrunk(module.lambd, hard=True),
    "Softshrink": lambda module, before, after: shrunk(module.lambd, hard=False),
    "GLU": lambda module, before, after: gated(module.dim, before),
    "ReLU6": lambda module, before, after: expression("clip(x, 0, 6)"),
    "Hardtanh": lambda module, before, after: expression(f"clip(x, {module.min_val!r}, {module.max_val!r})"),
    "Softsign": lambda module, before, after: expression("x / (1 + abs(x))"),
    "LogSigmoid": lambda module, before, after: expression("-softplus(-x)"),
    "Threshold": lambda module, before, after: expression(
        f"where(x > {float(module.threshold)!r}, x, {float(module.value)!r})"
    ),
    "PReLU": _prelu,
    "Softmax": lambda module, before, after: softmax(module.dim, before),
    "Softmax2d": lambda module, before, after: softmax(1, before),
}
