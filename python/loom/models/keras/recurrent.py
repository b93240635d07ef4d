"""Layers of Keras that go over steps: recurrent ones and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from loom.models.branches import Row
from loom.models.keras.values import Value, name_of, refuse
from loom.models.spelling import layer_kind, own_parameters

__all__ = ["attention", "bidirectional", "recurrent"]

Config = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]
Make = Callable[[Config, Arrays, Value, Config], Row]
_MERGES = {"sum": "add", "mul": "multiply", "ave": "average"}
"""What both directions become, where they do not stand side by side."""


def recurrent(kind: str) -> Make:
    """Returns what makes a recurrent layer of one kind."""

    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        refuse(bool(config.get("go_backwards")), "go_backwards of a recurrent layer")
        return [_recurrence(kind, config, arrays)]

    return make


def _recurrence(kind: str, config: Config, arrays: Arrays) -> dict[str, Any]:
    refuse(bool(config.get("return_state")), "return_state of a recurrent layer")
    gates = name_of(config.get("recurrent_activation", "sigmoid"))
    refuse(gates != "sigmoid", f"recurrent_activation {gates}")
    function = name_of(config["activation"])
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


def bidirectional(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A recurrent layer in both directions."""
    merge = config["merge_mode"]
    refuse(merge not in ("concat", *_MERGES), f"merge_mode {merge} of Bidirectional")
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
    layer = {**settings, "bidirectional": True, "bias": half == 3, **both[0], **reverse}
    if merge == "concat":
        return [layer]
    units = both[0]["weight_hh_l0"].shape[1]
    halves = [[{"type": "slice", "start": begin, "stop": begin + units, "axis": -1}] for begin in (0, units)]
    return [layer, {"type": "parallel", "branches": halves, "combine": _MERGES[merge]}]


def attention(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A MultiHeadAttention of one sequence."""
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
