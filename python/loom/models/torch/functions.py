"""Functions and operators of PyTorch's graphs as layers, in the form that `loom.import_model` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loom.models.branches import Row
from loom.models.torch.arrays import array
from loom.models.torch.modules import (
    Unsupported,
    activation,
    adaptive_pool,
    averaged,
    celu,
    expression,
    gated,
    padded,
    pooled,
    refuse,
    reshaped,
    shrunk,
    softmax,
    softplus,
    up_sampled,
)

__all__ = ["JOINS", "row_of_call"]

Shape = tuple[int, ...]
Settings = Mapping[str, Any]
Call = Callable[[Settings, Shape, Shape], Row]

JOINS = {"add": "add", "iadd": "add", "cat": "concat", "concat": "concat", "concatenate": "concat"}
"""Functions that join several values, and how loom's Parallel calls it."""


def row_of_call(name: str, given: Settings, before: Shape, after: Shape) -> Row:
    """Returns the layers that a call becomes.

    Args:
        name: The function's, without what tells its overloads apart.
        given: Its arguments by their names, constants as tensors.
        before: The shape of the value that it reads.
        after: The shape of what it makes.

    Raises:
        Unsupported: There is none, or it has an option that loom's has not.
    """
    if name not in _CALLS:
        raise Unsupported(f"{name} is of no layer that loom has")
    return _CALLS[name](given, before, after)


def _held(given: Settings, **names: str) -> dict[str, Any]:
    """Constants by loom's names of parameters."""
    held = {own: given.get(name) for own, name in names.items()}
    return {own: array(tensor) for own, tensor in held.items() if tensor is not None}


def _linear(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight", bias="bias")
    return [{"type": "dense", "~tensor": given["weight"].data_ptr(), **held}]


def _convolution(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight", bias="bias")
    axes = held["weight"].ndim - 2
    names = ("stride", "padding", "dilation", "groups", "output_padding")
    settings = {name: given[name] for name in names if given.get(name) is not None}
    turned = given.get("transposed", False)
    if not turned:
        settings.pop("output_padding", None)
    return [{"type": f"conv{'_transpose' if turned else ''}{axes}d", **settings, **held}]


def _transposed(given: Settings, before: Shape, after: Shape) -> Row:
    row = _convolution({**given, "transposed": True}, before, after)
    row[0]["filters"] = row[0]["weight"].shape[1] * given.get("groups", 1)
    return row


def _batch_norm(given: Settings, before: Shape, after: Shape) -> Row:
    refuse(bool(given.get("training")), "a batch norm in training mode: call module.eval() first")
    held = _held(given, weight="weight", bias="bias", running_mean="running_mean", running_var="running_var")
    refuse("running_mean" not in held, "a batch norm without running statistics")
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    settings = {"epsilon": given.get("eps", 1e-5), "momentum": given.get("momentum", 0.1)}
    return [{"type": "batch_norm", **settings, **flags, **held}]


def _layer_norm(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight", bias="bias")
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    axes = len(given["normalized_shape"])
    return [{"type": "layer_norm", "axes": axes, "epsilon": given.get("eps", 1e-5), **flags, **held}]


def _rms_norm(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight")
    refuse(len(given["normalized_shape"]) != 1, "an RMS norm over several axes")
    return [{"type": "rms_norm", "epsilon": given.get("eps"), "gain": bool(held), **held}]


def _group_norm(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight", bias="bias")
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    return [
        {
            "type": "group_norm",
            "groups": given["num_groups"],
            "epsilon": given.get("eps", 1e-5),
            **flags,
            **held,
        }
    ]


def _instance_norm(given: Settings, before: Shape, after: Shape) -> Row:
    refuse(not given.get("use_input_stats", True), "an instance norm with running statistics")
    held = _held(given, weight="weight", bias="bias")
    flags = {"gain": "weight" in held, "bias": "bias" in held}
    return [{"type": "instance_norm", "epsilon": given.get("eps", 1e-5), **flags, **held}]


def _embedding(given: Settings, before: Shape, after: Shape) -> Row:
    return [{"type": "embedding", "~tensor": given["weight"].data_ptr(), **_held(given, weight="weight")}]


def _mean(given: Settings, before: Shape, after: Shape) -> Row:
    axes = given.get("dim")
    dims = sorted(
        axis % len(before) for axis in ([axes] if isinstance(axes, int) else axes or range(len(before)))
    )
    spatial = list(range(2, len(before)))
    if dims == spatial and spatial:
        return [{"type": f"global_avg_pool{len(spatial)}d"}, *reshaped(before[:2], after)]
    if dims == [1] and len(before) == 3:
        turned = {"type": "permute", "axes": [1, 0]}
        return [turned, {"type": "global_avg_pool1d"}, *reshaped((before[0], before[2]), after)]
    raise Unsupported(f"a mean over axes {dims} of {len(before)}")


def _permute(given: Settings, before: Shape, after: Shape) -> Row:
    axes = [axis % len(before) for axis in given["dims"]]
    refuse(axes[0] != 0, "a permutation that moves the batch")
    own = [axis - 1 for axis in axes[1:]]
    return [] if own == sorted(own) else [{"type": "permute", "axes": own}]


def _transpose(given: Settings, before: Shape, after: Shape) -> Row:
    axes = list(range(len(before)))
    first, second = given["dim0"] % len(before), given["dim1"] % len(before)
    axes[first], axes[second] = axes[second], axes[first]
    return _permute({"dims": axes}, before, after)


def _sizes(given: Settings) -> Settings:
    return {
        "pool_size": given["kernel_size"],
        "stride": given.get("stride") or None,
        "padding": given.get("padding"),
    }


def _max_pool(given: Settings, before: Shape, after: Shape) -> Row:
    refuse(given.get("dilation", 1) not in (1, [1], [1, 1], [1, 1, 1], (1, 1)), "dilation of a pooling")
    return pooled("max_pool", before, after, **_sizes(given))


def _avg_pool(given: Settings, before: Shape, after: Shape) -> Row:
    refuse(given.get("divisor_override") is not None, "divisor_override of an average pooling")
    return averaged(before, after, counted=given.get("count_include_pad", True), **_sizes(given))


def _pad(given: Settings, before: Shape, after: Shape) -> Row:
    mode, value = given.get("mode", "constant"), given.get("value")
    refuse(
        mode != "constant" or value not in (None, 0, 0.0), f"padding other than with zeros ({mode}, {value})"
    )
    return padded(given["pad"], before)


def _gelu(given: Settings, before: Shape, after: Shape) -> Row:
    return activation("gelu" if given.get("approximate", "none") == "none" else "gelu_tanh")


def _leaky(given: Settings, before: Shape, after: Shape) -> Row:
    return activation({"leaky_relu": {"slope": given.get("negative_slope", 0.01)}})


def _elu(given: Settings, before: Shape, after: Shape) -> Row:
    return activation({"elu": {"alpha": given.get("alpha", 1.0)}})


def _prelu(given: Settings, before: Shape, after: Shape) -> Row:
    held = _held(given, weight="weight")
    return [{"type": "prelu", "per_channel": held["weight"].size > 1, **held}]


def _clamp(given: Settings, before: Shape, after: Shape) -> Row:
    text = "x"
    for function, name in (("max", "min"), ("min", "max")):
        limit = given.get(name)
        refuse(
            limit is not None and not isinstance(limit, int | float), "a clamp whose limits are no numbers"
        )
        text = text if limit is None else f"{function}({text}, {float(limit)!r})"
    return expression(text) if text != "x" else []


def _plain(name: str) -> Call:
    return lambda given, before, after: expression(f"{name}(x)")


def _power(given: Settings, before: Shape, after: Shape) -> Row:
    exponent = given.get("exponent", given.get("other"))
    refuse(not isinstance(exponent, int | float), "a power whose exponent is no number")
    return expression(f"x ** {float(exponent)!r}")


def _dropout(given: Settings, before: Shape, after: Shape) -> Row:
    rate = given.get("p", 0.5)
    return [{"type": "dropout", "rate": rate}] if 0 < rate < 1 else []


def _channel_dropout(given: Settings, before: Shape, after: Shape) -> Row:
    if len(before) < 3:
        return _dropout(given, before, after)
    kind = f"spatial_dropout{len(before) - 2}d"
    return [{**layer, "type": kind} for layer in _dropout(given, before, after)]


def _threshold(given: Settings, before: Shape, after: Shape) -> Row:
    return expression(f"where(x > {float(given['threshold'])!r}, x, {float(given['value'])!r})")


def _extreme(name: str) -> Call:
    def make(given: Settings, before: Shape, after: Shape) -> Row:
        bound = given.get("other", given.get("input"))
        number = getattr(bound, "ndim", None) == 0 and not bound.requires_grad
        bound = bound.item() if number else bound
        refuse(not isinstance(bound, int | float), f"a {name}imum with what is no number")
        return expression(f"{name}(x, {float(bound)!r})")

    return make


def _interpolated(given: Settings, before: Shape, after: Shape) -> Row:
    return up_sampled(
        given.get("mode", "nearest"),
        given.get("scale_factor"),
        bool(given.get("align_corners")),
        before,
        after,
    )


def _left_out(given: Settings, before: Shape, after: Shape) -> Row:
    refuse(bool(given.get("training")), "branches that are left out at random while training")
    return []


def _nothing(given: Settings, before: Shape, after: Shape) -> Row:
    return []


def _reshape(given: Settings, before: Shape, after: Shape) -> Row:
    return reshaped(before, after)


def _function(name: str) -> Call:
    return lambda given, before, after: activation(name)


def _adaptive(kind: str) -> Call:
    return lambda given, before, after: adaptive_pool(kind, before, after)


_CALLS: dict[str, Call] = {
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **{f"conv_transpose{axes}d": _transposed for axes in (1, 2, 3)},
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "embedding": _embedding,
    "mean": _mean,
    "permute": _permute,
    "transpose": _transpose,
    **{f"max_pool{axes}d": _max_pool for axes in (1, 2, 3)},
    **{f"avg_pool{axes}d": _avg_pool for axes in (1, 2, 3)},
    **{f"adaptive_avg_pool{axes}d": _adaptive("avg") for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d": _adaptive("max") for axes in (1, 2, 3)},
    "pad": _pad,
    "gelu": _gelu,
    "leaky_relu": _leaky,
    "elu": _elu,
    "prelu": _prelu,
    "softmax": lambda given, before, after: softmax(given["dim"], before),
    **{
        name: _function(name)
        for name in ("relu", "sigmoid", "tanh", "silu", "mish", "hardswish", "hardsigmoid", "selu")
    },
    "softplus": lambda given, before, after: softplus(given.get("beta", 1)),
    "celu": lambda given, before, after: celu(given.get("alpha", 1.0)),
    "tanhshrink": lambda given, before, after: expression("x - tanh(x)"),
    "hardshrink": lambda given, before, after: shrunk(given.get("lambd", 0.5), hard=True),
    "softshrink": lambda given, before, after: shrunk(given.get("lambd", 0.5), hard=False),
    "glu": lambda given, before, after: gated(given.get("dim", -1), before),
    "threshold": _threshold,
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "interpolate": _interpolated,
    "relu6": lambda given, before, after: expression("clip(x, 0, 6)"),
    "hardtanh": lambda given, before, after: expression(
        f"clip(x, {float(given.get('min_val', -1))!r}, {float(given.get('max_val', 1))!r})"
    ),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "softsign": lambda given, before, after: expression("x / (1 + abs(x))"),
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), lambda given, before, after: expression("-softplus(-x)")),
    "square": lambda given, before, after: expression("x * x"),
    "neg": lambda given, before, after: expression("-x"),
    "reciprocal": lambda given, before, after: expression("1 / x"),
    "rsqrt": lambda given, before, after: expression("1 / sqrt(x)"),
    **{
        name: _plain(name)
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "abs", "sign", "erf", "sin", "cos")
    },
    "pow": _power,
    "instance_norm": _instance_norm,
    "stochastic_depth": _left_out,
    "drop_path": _left_out,
    **dict.fromkeys(("flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten"), _reshape),
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "alias", "to", "identity", "float"),
        _nothing,
    ),
    "dropout": _dropout,
    **dict.fromkeys(("feature_dropout", "dropout1d", "dropout2d", "dropout3d"), _channel_dropout),
}
