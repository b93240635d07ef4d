"""Layers of Keras as loom's, in the form that `loom.import_model` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.models.branches import Row
from loom.models.keras import windows
from loom.models.keras.activations import activation, elu, leaky, prelu, relu, softmax
from loom.models.keras.recurrent import attention, bidirectional, recurrent
from loom.models.keras.training import FIXED
from loom.models.keras.values import Unsupported, Value, moved, name_of, refuse

__all__ = ["Unsupported", "Value", "layers_of", "rank_after"]

Config = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]
Make = Callable[[Config, Arrays, Value, Config], Row]


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
    refuse(_quantised(config), f"the quantised weights of {kind}: save the model before model.quantize()")
    refuse(
        config.get("lora_rank") is not None and len(arrays) > 2,
        f"a LoRA beside {kind}'s weights in an .h5 file: save the model as .keras, which puts it into them",
    )
    layout, make = _LAYERS[kind]
    # Where Keras has channels first, they are where loom wants them, and stay there.
    as_it_is = layout == "first" and value.rank > 1 and _leads_with_channels(config, value.rank)
    if as_it_is:
        refuse(
            name_of(config.get("activation")) == "softmax",
            f"the activation softmax of a {kind} with channels_first",
        )
        config = {**config, "axis": -1}
    first = {"first": not as_it_is, "last": False, "any": value.first}[layout] and value.rank > 1
    row, laid = moved(value, first=first), value.laid(first=first)
    made = make(config, arrays, Value(value.rank, as_it_is or first, laid.shape), options)
    rank = rank_after(kind, config, value.rank)
    return [*row, *made], Value(rank, first and rank > 1)


def rank_after(kind: str, config: Config, rank: int) -> int:
    """Returns how many axes a layer makes of so many, without the batch."""
    return _RANKS[kind](config, rank) if kind in _RANKS else rank


def _leads_with_channels(config: Config, rank: int) -> bool:
    """Whether a layer takes the first axis of a sample for channels."""
    axis = config.get("axis")
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    return config.get("data_format") == "channels_first" or axis in (1, -rank)


def _quantised(config: Config) -> bool:
    """Whether weights are codes, as `model.quantize` leaves them."""
    policy = config.get("dtype")
    told = policy.get("class_name", "") if isinstance(policy, Mapping) else str(policy)
    return config.get("quantization_mode") is not None or told.startswith(("Quantized", "int", "float8"))


def _dense(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    named = dict(zip(("kernel", "bias"), arrays, strict=False))
    ends = activation(config.get("activation"), Value(value.rank, False))
    return [{"type": "dense", **named}, *ends]


def _batch_norm(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    axis = config["axis"][0] if isinstance(config["axis"], list) else config["axis"]
    refuse(axis not in (-1, value.rank), f"a BatchNormalization over axis {axis}")
    flags = {"gain": config["scale"], "bias": config["center"]}
    names = [*(["gamma"] if flags["gain"] else []), *(["beta"] if flags["bias"] else [])]
    named = dict(zip([*names, "moving_mean", "moving_variance"], arrays, strict=True))
    settings = {"momentum": 1 - config["momentum"], "epsilon": config["epsilon"], **flags}
    return [{"type": "batch_norm", **settings, **named}]


def _norm(kind: str) -> Make:
    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        given = config["axis"] if isinstance(config["axis"], list) else [config["axis"]]
        axes = sorted(axis if axis > 0 else axis + value.rank + 1 for axis in given)
        last = list(range(value.rank - len(axes) + 1, value.rank + 1))
        refuse(
            axes != last or (len(axes) > 1 and kind != "layer_norm"), f"a {kind} over axis {config['axis']}"
        )
        refuse(bool(config.get("rms_scaling")), "rms_scaling of a LayerNormalization")
        flags = {} if kind == "rms_norm" else {"gain": config["scale"], "bias": config["center"]}
        gained = flags.get("gain", True)
        names = [*(["gamma"] if gained else []), *(["beta"] if flags.get("bias") else [])]
        own = {"axes": len(axes)} if len(axes) > 1 else {}
        if kind == "group_norm":
            # All channels apart are -1.
            groups = config["groups"]
            own["groups"] = groups if groups > 0 else value.extents("groups=-1 of a GroupNormalization")[0]
        named = dict(zip(names, arrays, strict=True))
        return [{"type": kind, "epsilon": config["epsilon"], **own, **flags, **named}]

    return make


def _embedding(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    table = {"type": "embedding", "embeddings": arrays[0]}
    # A number without an axis is one of one element here.
    return [table, {"type": "flatten"}] if value.rank == 0 else [table]


def _dropout(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return [{"type": "dropout", "rate": config["rate"]}] if config["rate"] else []


def _spatial_dropout(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    kind = f"spatial_dropout{value.rank - 1}d"
    return [{"type": kind, "rate": config["rate"]}] if config["rate"] else []


def _noise(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    deviation = float(config["stddev"])
    return [{"type": "gaussian_noise", "standard_deviation": deviation}] if deviation else []


def _repeated(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return [
        {"type": "reshape", "shape": [-1, 1]},
        {"type": "up_sampling1d", "scale": config["n"]},
        {"type": "permute", "axes": [1, 0]},
    ]


def _affine(scale: Any, offset: Any, value: Value, what: str) -> Row:  # noqa: ANN401 - numbers or arrays
    """A product and a sum that are not trained, of all elements or of each channel."""
    scale, offset = (np.asarray(number, np.float32).squeeze() for number in (scale, offset))
    if scale.ndim == offset.ndim == 0:
        return [{"type": "expr", "expression": f"x * {float(scale)!r} + {float(offset)!r}"}]
    channels = value.extents(what)[-1]
    refuse(scale.ndim > 1 or offset.ndim > 1, f"{what} of several axes")
    named = {
        name: np.ascontiguousarray(np.broadcast_to(number, channels))
        for name, number in (("a", scale), ("b", offset))
    }
    parameters = [{"name": name, "shape": [channels]} for name in named]
    return [{"type": "expr", "expression": "x * a + b", "parameters": parameters, FIXED: True, **named}]


def _rescaling(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return _affine(config["scale"], config["offset"], value, "a Rescaling")


def _normalization(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A table's columns by means and variances that were adapted to data, or given."""
    axis = config.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    refuse(axis not in (None, [], -1, value.rank), f"a Normalization over axis {axis}")
    mean, variance = arrays[:2] if len(arrays) > 1 else (config.get("mean"), config.get("variance"))
    refuse(mean is None or variance is None, "a Normalization that was not adapted: call adapt before save")
    mean = np.asarray(mean, np.float64)
    deviation = np.maximum(np.sqrt(np.asarray(variance, np.float64)), 1e-7)
    scale, offset = (deviation, mean) if config.get("invert") else (1 / deviation, -mean / deviation)
    return _affine(scale, offset, value, "a Normalization")


def _unit_norm(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    refuse(config.get("axis", -1) not in (-1, value.rank), f"a UnitNormalization over axis {config['axis']}")
    return [{"type": "l2_norm"}]


def _reshape(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    shape = config["target_shape"]
    refuse(None in shape, "a Reshape to extents that are open: give the model's Input a shape")
    return [{"type": "reshape", "shape": shape}]


def _flat(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    leads = config.get("data_format") == "channels_first" and value.rank > 1
    turned = [{"type": "permute", "axes": [*range(1, value.rank), 0]}] if leads else []
    return [*turned, {"type": "flatten"}]


def _time_distributed(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    inner = config["layer"]
    allowed = ("Dense", "Dropout", "Activation", "LayerNormalization")
    refuse(inner["class_name"] not in allowed, f"TimeDistributed of {inner['class_name']}")
    row, _ = layers_of(inner["class_name"], inner["config"], arrays, value, options)
    return row


def _nothing(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    return []


_LAYERS: dict[str, tuple[str, Make]] = {
    "Dense": ("last", _dense),
    **{f"Conv{n}D": ("first", windows.convolution) for n in (1, 2, 3)},
    **{f"Conv{n}DTranspose": ("first", windows.transposed) for n in (1, 2, 3)},
    **{f"DepthwiseConv{n}D": ("first", windows.depthwise) for n in (1, 2)},
    **{f"SeparableConv{n}D": ("first", windows.separable) for n in (1, 2)},
    **{f"MaxPooling{n}D": ("first", windows.pool("max_pool")) for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": ("first", windows.pool("avg_pool")) for n in (1, 2, 3)},
    **{f"GlobalMaxPooling{n}D": ("first", windows.globally("max")) for n in (1, 2, 3)},
    **{f"GlobalAveragePooling{n}D": ("first", windows.globally("avg")) for n in (1, 2, 3)},
    **{f"ZeroPadding{n}D": ("first", windows.edges("zero_padding", "padding")) for n in (1, 2, 3)},
    **{f"Cropping{n}D": ("first", windows.edges("crop", "cropping")) for n in (1, 2, 3)},
    **{f"UpSampling{n}D": ("first", windows.up_sampling) for n in (1, 2, 3)},
    "BatchNormalization": ("first", _batch_norm),
    "GroupNormalization": ("first", _norm("group_norm")),
    "LayerNormalization": ("last", _norm("layer_norm")),
    "RMSNormalization": ("last", _norm("rms_norm")),
    "Embedding": ("last", _embedding),
    "SimpleRNN": ("last", recurrent("rnn")),
    "LSTM": ("last", recurrent("lstm")),
    "GRU": ("last", recurrent("gru")),
    "Bidirectional": ("last", bidirectional),
    "TimeDistributed": ("last", _time_distributed),
    "MultiHeadAttention": ("last", attention),
    "Flatten": ("last", _flat),
    "Reshape": ("last", _reshape),
    "Permute": (
        "last",
        lambda config, arrays, value, options: [
            {"type": "permute", "axes": [axis - 1 for axis in config["dims"]]}
        ],
    ),
    "Activation": ("any", lambda config, arrays, value, options: activation(config["activation"], value)),
    "RepeatVector": ("last", _repeated),
    "ReLU": ("any", relu),
    "LeakyReLU": ("any", leaky),
    "ELU": ("any", elu),
    "PReLU": ("first", prelu),
    "Softmax": ("any", softmax),
    "Rescaling": ("last", _rescaling),
    "Normalization": ("last", _normalization),
    "UnitNormalization": ("last", _unit_norm),
    "Dropout": ("any", _dropout),
    **{f"SpatialDropout{n}D": ("first", _spatial_dropout) for n in (1, 2, 3)},
    "GaussianNoise": ("any", _noise),
    **dict.fromkeys(
        ("GaussianDropout", "AlphaDropout", "ActivityRegularization", "Identity", "Masking"),
        ("any", _nothing),
    ),
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
