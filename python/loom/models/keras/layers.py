"""Layers of Keras as loom's, in the form that `loom.import_model` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom.models.branches import Row
from loom.models.spelling import activation_name, layer_kind, own_parameters

__all__ = ["Unsupported", "Value", "layers_of", "moved", "refuse"]

Config = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]


class Unsupported(Exception):  # noqa: N818 - collected, and told all at once
    """Something that no layer of loom is for."""


class Value(NamedTuple):
    """What passes between layers.

    Args:
        rank: How many axes it has, without the batch.
        first: Whether its channels are the first axis, as loom's convolutions have them, and not the last.
        shape: Its extents in Keras, the batch first, where they are known.
    """

    rank: int
    first: bool
    shape: Sequence[int | None] | None = None


def moved(value: Value, *, first: bool) -> Row:
    """Returns what brings a value's channels to the front, or to the end; nothing where they are there."""
    if value.first == first or value.rank < 2:
        return []
    last = value.rank - 1
    return [{"type": "permute", "axes": [last, *range(last)] if first else [*range(1, last + 1), 0]}]


def layers_of(kind: str, config: Config, arrays: Arrays, value: Value, options: Config) -> tuple[Row, Value]:
    """Returns the layers that one of Keras becomes, and what they make.

    Args:
        kind: Its class.
        config: Its settings.
        arrays: Its weights, in Keras's order.
        value: What it reads.
        options: With what it is called.

    Raises:
        Unsupported: There is none, or it has an option that loom's has not.
    """
    if kind not in _LAYERS:
        raise Unsupported(f"{kind} is of no layer that loom has")
    if config.get("data_format") == "channels_first":
        raise Unsupported(f"data_format channels_first of {kind}")
    refuse(_quantised(config), f"the quantised weights of {kind}: save the model before model.quantize()")
    refuse(
        config.get("lora_rank") is not None and len(arrays) > 2,
        f"a LoRA beside {kind}'s weights in an .h5 file: save the model as .keras, which puts it into them",
    )
    layout, make = _LAYERS[kind]
    first = {"first": True, "last": False, "any": value.first}[layout] and value.rank > 1
    row = moved(value, first=first)
    made = make(config, arrays, Value(value.rank, first), options)
    rank = _RANKS[kind](config, value.rank) if kind in _RANKS else value.rank
    return [*row, *made], Value(rank, first and rank > 1)


def _quantised(config: Config) -> bool:
    """Whether weights are codes, as `model.quantize` leaves them."""
    policy = config.get("dtype")
    told = policy.get("class_name", "") if isinstance(policy, Mapping) else str(policy)
    return config.get("quantization_mode") is not None or told.startswith(("Quantized", "int", "float8"))


def refuse(condition: bool, why: str) -> None:
    """Raises Unsupported where a condition holds."""
    if condition:
        raise Unsupported(why)


def _name(setting: Any) -> str:  # noqa: ANN401 - of JSON
    """What a function is called."""
    if isinstance(setting, Mapping):
        inner = setting.get("config")
        return inner if isinstance(inner, str) else str(setting.get("class_name"))
    return str(setting)


_BENT = {
    "relu6": "clip(x, 0, 6)",
    "hard_sigmoid of Keras 2": "clip(0.2 * x + 0.5, 0, 1)",
    "softsign": "x / (1 + abs(x))",
    "exponential": "exp(x)",
}
"""Activations that are expressions here."""


def _activation(setting: Any, value: Value) -> Row:  # noqa: ANN401 - of JSON
    """An activation as layers."""
    name = _name(setting)
    if name in ("linear", "None"):
        return []
    if name == "softmax":
        return _softmax({}, (), value, {})
    if name in _BENT:
        return [{"type": "expr", "expression": _BENT[name]}]
    own = activation_name(name)
    refuse(own is None or name == "leaky_relu", f"the activation {name}")
    return [{"type": "activation", "function": own}]


def _softmax(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    axis = config.get("axis", -1)
    refuse(axis not in (-1, value.rank), f"a softmax over axis {axis}")
    # Loom's goes over the channels of images, and over the last axis of everything else.
    first = value.rank == 3
    back = moved(Value(value.rank, first), first=value.first)
    return [*moved(value, first=first), {"type": "softmax"}, *back]


def _dense(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    named = dict(zip(("kernel", "bias"), arrays, strict=False))
    ends = _activation(config.get("activation"), Value(value.rank, False))
    return [{"type": "dense", **named}, *ends]


def _axes(kind: str) -> int:
    return int(next(letter for letter in kind if letter.isdigit()))


def _padding(config: Config, kernel: Sequence[int]) -> tuple[Row, Any]:
    """Zeros that go before a convolution, and its padding."""
    padding = config["padding"]
    if padding == "causal":
        reach = config["dilation_rate"][0] * (kernel[0] - 1)
        return [{"type": "zero_padding1d", "before": reach, "after": 0}], 0
    return [], padding


def _convolution(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    kernel, *bias = arrays
    before, padding = _padding(config, kernel.shape[:-2])
    layer = {
        "type": f"conv{kernel.ndim - 2}d",
        "stride": config["strides"],
        "padding": padding,
        "dilation": config.get("dilation_rate", 1),
        "groups": config.get("groups", 1),
        "kernel": kernel,
        **({"bias": bias[0]} if bias else {}),
    }
    return [*before, layer, *_activation(config.get("activation"), value)]


def _transposed(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    kernel, *bias = arrays
    refuse(config.get("output_padding") is not None, "output_padding of a transposed convolution")
    # Keras's kernels of these have outputs before inputs.
    layer = {
        "type": f"conv_transpose{kernel.ndim - 2}d",
        "stride": config["strides"],
        "padding": config["padding"],
        "dilation": config.get("dilation_rate", 1),
        "kernel": kernel,
        **({"bias": bias[0]} if bias else {}),
    }
    if config["padding"] == "valid":
        # No output is shorter than the input times the stride, however small windows are.
        axes = kernel.ndim - 2
        strides, dilations = (
            _extents(config.get(name, 1)) * (axes if isinstance(config.get(name, 1), int) else 1)
            for name in ("strides", "dilation_rate")
        )
        reaches = [
            distance * (size - 1) + 1 for distance, size in zip(dilations, kernel.shape[:axes], strict=True)
        ]
        added = [max(step - reach, 0) for step, reach in zip(strides, reaches, strict=True)]
        if any(added):
            layer["output_padding"] = added
    return [layer, *_activation(config.get("activation"), value)]


def _depthwise(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    kernel, *bias = arrays
    before, padding = _padding(config, kernel.shape[:-2])
    return [
        *before,
        _by_channel(config, kernel, padding, bias),
        *_activation(config.get("activation"), value),
    ]


def _by_channel(config: Config, kernel: NDArray[Any], padding: Any, bias: Arrays) -> dict[str, Any]:  # noqa: ANN401
    *window, channels, many = kernel.shape
    axes = len(window)
    weight = kernel.transpose(axes, axes + 1, *range(axes)).reshape(channels * many, 1, *window)
    settings = {"stride": config["strides"], "padding": padding, "dilation": config.get("dilation_rate", 1)}
    held = {"bias": bias[0]} if bias else {}
    return {"type": f"conv{axes}d", "groups": channels, **settings, "weight": weight, **held}


def _separable(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    by_channel, across, *bias = arrays
    before, padding = _padding(config, by_channel.shape[:-2])
    axes = by_channel.ndim - 2
    layer = {"type": f"conv{axes}d", "kernel": across, **({"bias": bias[0]} if bias else {})}
    first = _by_channel(config, by_channel, padding, ())
    return [*before, first, layer, *_activation(config.get("activation"), value)]


def _pool(kind: str) -> Callable[[Config, Arrays, Value, Config], Row]:
    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        window, stride = _extents(config["pool_size"]), _extents(config["strides"] or config["pool_size"])
        layer: dict[str, Any] = {"type": f"{kind}{value.rank - 1}d", "pool_size": window, "stride": stride}
        if config["padding"] == "same":
            shape = config["~shape"][1:-1] if config["~shape"] else None
            layer |= _same(kind, window, stride, shape)
        return [layer]

    return make


def _same(
    kind: str, window: Sequence[int], stride: Sequence[int], shape: Sequence[int] | None
) -> dict[str, Any]:
    """The padding that gives ceil(extent / stride), as much on each side, or one at the end."""
    rims, cut = [], False
    for axis, (size, step) in enumerate(zip(window, stride, strict=True)):
        if step == 1:
            total = size - 1
        elif size == 1 or size == step == 2:
            # Whatever the extent is, nothing stands before it, and the last window may be cut.
            total, cut = 0, True
        else:
            refuse(shape is None or shape[axis] is None, 'padding="same" of a pooling with strides')
            assert shape is not None
            total = max((-(-shape[axis] // step) - 1) * step + size - shape[axis], 0)
            cut = cut or total == 1
            total = 0 if total == 1 else total
        refuse(total % 2 == 1, 'padding="same" of a pooling that is wider on one side')
        rims.append(total // 2)
    settings: dict[str, Any] = {"padding": rims, **({"ceil_mode": True} if cut else {})}
    return {**settings, **({"count_include_pad": False} if kind.startswith("avg") else {})}


def _extents(value: Any) -> list[int]:  # noqa: ANN401 - of JSON
    return list(value) if isinstance(value, list | tuple) else [value]


def _global(kind: str) -> Callable[[Config, Arrays, Value, Config], Row]:
    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        axes = value.rank - 1
        if config.get("keepdims"):
            return [{"type": f"adaptive_{kind}_pool{axes}d", "size": [1] * axes}]
        return [{"type": f"global_{kind}_pool{axes}d"}]

    return make


def _batch_norm(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    axis = config["axis"][0] if isinstance(config["axis"], list) else config["axis"]
    refuse(axis not in (-1, value.rank), f"a BatchNormalization over axis {axis}")
    flags = {"gain": config["scale"], "bias": config["center"]}
    names = [*(["gamma"] if flags["gain"] else []), *(["beta"] if flags["bias"] else [])]
    named = dict(zip([*names, "moving_mean", "moving_variance"], arrays, strict=True))
    settings = {"momentum": 1 - config["momentum"], "epsilon": config["epsilon"], **flags}
    return [{"type": "batch_norm", **settings, **named}]


def _norm(kind: str, **settings: str) -> Callable[[Config, Arrays, Value, Config], Row]:
    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        axis = config["axis"][-1] if isinstance(config["axis"], list) else config["axis"]
        several = isinstance(config["axis"], list) and len(config["axis"]) > 1
        refuse(several or axis not in (-1, value.rank), f"a {kind} over axis {config['axis']}")
        refuse(bool(config.get("rms_scaling")), "rms_scaling of a LayerNormalization")
        flags = {} if kind == "rms_norm" else {"gain": config["scale"], "bias": config["center"]}
        gained = flags.get("gain", True)
        names = [*(["gamma"] if gained else []), *(["beta"] if flags.get("bias") else [])]
        own = {name: config[theirs] for name, theirs in settings.items()}
        named = dict(zip(names, arrays, strict=True))
        return [{"type": kind, "epsilon": config["epsilon"], **own, **flags, **named}]

    return make


def _embedding(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    refuse(bool(config.get("mask_zero")), "mask_zero of an Embedding, which masks what follows")
    return [{"type": "embedding", "embeddings": arrays[0]}]


def _recurrent(kind: str) -> Callable[[Config, Arrays, Value, Config], Row]:
    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        refuse(bool(config.get("go_backwards")), "go_backwards of a recurrent layer")
        return [_recurrence(kind, config, arrays)]

    return make


def _recurrence(kind: str, config: Config, arrays: Arrays) -> dict[str, Any]:
    refuse(bool(config.get("return_state")), "return_state of a recurrent layer")
    gates = _name(config.get("recurrent_activation", "sigmoid"))
    refuse(gates != "sigmoid", f"recurrent_activation {gates}")
    function = _name(config["activation"])
    refuse(
        function not in (("tanh", "relu") if kind == "rnn" else ("tanh",)), f"{function} of a recurrent layer"
    )
    named = dict(zip(("kernel", "recurrent_kernel", "bias"), arrays, strict=False))
    two = len(arrays) > 2 and arrays[2].ndim == 2
    refuse(kind == "gru" and two and config.get("reset_after") is False, "reset_after=False with two biases")
    # What Keras 1 and 2.0 wrote knew the older form alone, and did not say so.
    settings: dict[str, Any] = {}
    if kind == "rnn":
        settings = {"activation": function}
    elif kind == "gru":
        settings = {"reset_after": bool(config.get("reset_after", two))}
    sequences = bool(config.get("return_sequences"))
    return {"type": kind, "return_sequences": sequences, **settings, **named}


def _bidirectional(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    refuse(config["merge_mode"] != "concat", f"merge_mode {config['merge_mode']} of Bidirectional")
    inner = config["layer"]
    kind = layer_kind(inner["class_name"])
    refuse(kind not in ("rnn", "lstm", "gru"), f"Bidirectional of {inner['class_name']}")
    half = len(arrays) // 2
    # Keras 3 always tells the layer that goes backwards, Keras 2 where it is one of its own.
    other = config.get("backward_layer") or {**inner, "config": {**inner["config"], "go_backwards": True}}
    turned = [bool(layer["config"].get("go_backwards")) for layer in (inner, other)]
    refuse(turned != [False, True], "a Bidirectional whose first layer goes backwards")
    alike = ("units", "activation", "recurrent_activation", "use_bias", "reset_after", "return_sequences")
    refuse(
        inner["class_name"] != other["class_name"]
        or any(inner["config"].get(name) != other["config"].get(name) for name in alike),
        "a Bidirectional whose layers have different settings",
    )

    ahead, back = (_recurrence(kind, inner["config"], part) for part in (arrays[:half], arrays[half:]))
    names = ("kernel", "recurrent_kernel", "bias")
    settings = {name: value for name, value in ahead.items() if name not in names}
    both = [
        own_parameters(kind, {name: part[name] for name in names if name in part}, settings)
        for part in (ahead, back)
    ]
    reverse = {f"{name}_reverse": array for name, array in both[1].items()}
    return [{**settings, "bidirectional": True, "bias": half == 3, **both[0], **reverse}]


def _attention(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    heads, size = config["num_heads"], config["key_dim"]
    refuse((config.get("value_dim") or size) != size, "value_dim of a MultiHeadAttention")
    refuse(config.get("output_shape") is not None, "output_shape of a MultiHeadAttention")
    refuse(config.get("attention_axes") not in (None, [1]), "attention_axes of a MultiHeadAttention")
    refuse(bool(config.get("use_gate")), "use_gate of a MultiHeadAttention")
    refuse(options.get("attention_mask") is not None, "attention_mask of a MultiHeadAttention")
    refuse(bool(options.get("return_attention_scores")), "return_attention_scores of a MultiHeadAttention")
    parts = ("query", "key", "value", "output")
    biased = config.get("use_bias", True)
    names = [f"{part}_{what}" for part in parts for what in (("kernel", "bias") if biased else ("kernel",))]
    named = dict(zip(names, arrays, strict=True))
    flat = {name: array.reshape(-1) if name.endswith("bias") else array for name, array in named.items()}
    settings = {"head_dim": size, "causal": bool(options.get("use_causal_mask"))}
    if config.get("dropout"):
        settings["dropout"] = config["dropout"]
    return [{"type": "multi_head_attention", "heads": heads, **settings, **flat}]


def _prelu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    alpha = arrays[0]
    if alpha.size not in (1, alpha.shape[-1]):
        turned = np.moveaxis(alpha, -1, 0) if value.first else alpha
        slopes = {"name": "a", "shape": list(turned.shape)}
        return [
            {"type": "expr", "expression": "max(x, 0) + a * min(x, 0)", "parameters": [slopes], "a": turned}
        ]
    return [{"type": "prelu", "per_channel": alpha.size > 1, "weight": alpha.reshape(-1)}]


def _relu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    slope, threshold, most = (
        float(config.get(name) or 0) for name in ("negative_slope", "threshold", "max_value")
    )
    if config.get("max_value") is None and not threshold:
        return [{"type": "activation", "function": {"leaky_relu": {"slope": slope}} if slope else "relu"}]
    above = "x" if config.get("max_value") is None else f"min(x, {most!r})"
    text = f"where(x < {threshold!r}, {slope!r} * (x - {threshold!r}), {above})"
    return [{"type": "expr", "expression": text}]


def _leaky(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    slope = config.get("negative_slope", config.get("alpha", 0.3))
    return [{"type": "activation", "function": {"leaky_relu": {"slope": float(slope)}}}]


def _elu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return [{"type": "activation", "function": {"elu": {"alpha": float(config.get("alpha", 1.0))}}}]


def _dropout(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return [{"type": "dropout", "rate": config["rate"]}] if config["rate"] else []


def _spatial_dropout(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    kind = f"spatial_dropout{value.rank - 1}d"
    return [{"type": kind, "rate": config["rate"]}] if config["rate"] else []


def _noise(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    deviation = float(config["stddev"])
    return [{"type": "gaussian_noise", "standard_deviation": deviation}] if deviation else []


def _edges(kind: str, setting: str) -> Make:
    """What adds or takes away something before and after each axis."""

    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        given = config[setting]
        pairs = [given] if isinstance(given[0], int) else given
        ends = [list(side) for side in zip(*pairs, strict=True)]
        return [{"type": f"{kind}{value.rank - 1}d", "before": ends[0], "after": ends[1]}]

    return make


def _up_sampling(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    mode = config.get("interpolation", "nearest")
    refuse(mode not in ("nearest", "bilinear"), f"interpolation {mode} of an UpSampling2D")
    axes = value.rank - 1
    size = config["size"]
    scale = [size] * axes if isinstance(size, int) else list(size)
    return [{"type": f"up_sampling{axes}d", "scale": scale, "mode": mode}]


def _repeated(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return [
        {"type": "reshape", "shape": [-1, 1]},
        {"type": "up_sampling1d", "scale": config["n"]},
        {"type": "permute", "axes": [1, 0]},
    ]


def _rescaling(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    refuse(not config["~shape"], "a Rescaling in an .h5 file that is not the first layer")
    channels = config["~shape"][-1]
    scale, offset = (
        np.broadcast_to(np.asarray(config[name], np.float32), channels) for name in ("scale", "offset")
    )
    if value.rank == 1:
        return [{"type": "dense", "weight": np.diag(scale), "bias": offset}]
    axes = value.rank - 1
    weight = scale.reshape(channels, 1, *[1] * axes)
    return [{"type": f"conv{axes}d", "groups": channels, "weight": weight, "bias": offset}]


def _time_distributed(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    inner = config["layer"]
    allowed = ("Dense", "Dropout", "Activation", "LayerNormalization")
    refuse(inner["class_name"] not in allowed, f"TimeDistributed of {inner['class_name']}")
    row, _ = layers_of(inner["class_name"], inner["config"], arrays, value, options)
    return row


Make = Callable[[Config, Arrays, Value, Config], Row]


def _nothing(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return []


_LAYERS: dict[str, tuple[str, Make]] = {
    "Dense": ("last", _dense),
    **{f"Conv{n}D": ("first", _convolution) for n in (1, 2, 3)},
    **{f"Conv{n}DTranspose": ("first", _transposed) for n in (1, 2, 3)},
    **{f"DepthwiseConv{n}D": ("first", _depthwise) for n in (1, 2)},
    **{f"SeparableConv{n}D": ("first", _separable) for n in (1, 2)},
    **{f"MaxPooling{n}D": ("first", _pool("max_pool")) for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": ("first", _pool("avg_pool")) for n in (1, 2, 3)},
    **{f"GlobalMaxPooling{n}D": ("first", _global("max")) for n in (1, 2, 3)},
    **{f"GlobalAveragePooling{n}D": ("first", _global("avg")) for n in (1, 2, 3)},
    **{f"ZeroPadding{n}D": ("first", _edges("zero_padding", "padding")) for n in (1, 2, 3)},
    **{f"Cropping{n}D": ("first", _edges("crop", "cropping")) for n in (1, 2, 3)},
    **{f"UpSampling{n}D": ("first", _up_sampling) for n in (1, 2, 3)},
    "BatchNormalization": ("first", _batch_norm),
    "GroupNormalization": ("first", _norm("group_norm", groups="groups")),
    "LayerNormalization": ("last", _norm("layer_norm")),
    "RMSNormalization": ("last", _norm("rms_norm")),
    "Embedding": ("last", _embedding),
    "SimpleRNN": ("last", _recurrent("rnn")),
    "LSTM": ("last", _recurrent("lstm")),
    "GRU": ("last", _recurrent("gru")),
    "Bidirectional": ("last", _bidirectional),
    "TimeDistributed": ("last", _time_distributed),
    "MultiHeadAttention": ("last", _attention),
    "Flatten": ("last", lambda config, arrays, value, options: [{"type": "flatten"}]),
    "Reshape": (
        "last",
        lambda config, arrays, value, options: [{"type": "reshape", "shape": config["target_shape"]}],
    ),
    "Permute": (
        "last",
        lambda config, arrays, value, options: [
            {"type": "permute", "axes": [axis - 1 for axis in config["dims"]]}
        ],
    ),
    "Activation": ("any", lambda config, arrays, value, options: _activation(config["activation"], value)),
    "RepeatVector": ("last", _repeated),
    "ReLU": ("any", _relu),
    "LeakyReLU": ("any", _leaky),
    "ELU": ("any", _elu),
    "PReLU": ("first", _prelu),
    "Softmax": ("any", _softmax),
    "Rescaling": ("first", _rescaling),
    "Dropout": ("any", _dropout),
    **{f"SpatialDropout{n}D": ("first", _spatial_dropout) for n in (1, 2, 3)},
    "GaussianNoise": ("any", _noise),
    **dict.fromkeys(("GaussianDropout", "ActivityRegularization", "Identity"), ("any", _nothing)),
}
"""What each class becomes, and where it wants channels to be."""

_RANKS: dict[str, Callable[[Config, int], int]] = {
    "Flatten": lambda config, rank: 1,
    "RepeatVector": lambda config, rank: 2,
    "Reshape": lambda config, rank: len(config["target_shape"]),
    "Embedding": lambda config, rank: rank + 1,
    **dict.fromkeys(
        [f"Global{kind}Pooling{n}D" for kind in ("Max", "Average") for n in (1, 2, 3)],
        lambda config, rank: rank if config.get("keepdims") else 1,
    ),
    **dict.fromkeys(
        ("SimpleRNN", "LSTM", "GRU"), lambda config, rank: 2 if config.get("return_sequences") else 1
    ),
    "Bidirectional": lambda config, rank: 2 if config["layer"]["config"].get("return_sequences") else 1,
}
"""How many axes what it makes has, where not as many as what it reads."""
