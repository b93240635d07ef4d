"""Activations of Keras, in layers and as layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.models.branches import Row
from loom.models.keras.values import Value, moved, name_of, refuse
from loom.models.spelling import activation_name

__all__ = ["activation", "elu", "leaky", "prelu", "relu", "softmax"]

Config = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]

_BENT = {
    "relu6": "clip(x, 0, 6)",
    "hard_sigmoid of Keras 2": "clip(0.2 * x + 0.5, 0, 1)",
    "softsign": "x / (1 + abs(x))",
    "exponential": "exp(x)",
}
"""Activations that are expressions here."""


def activation(setting: Any, value: Value) -> Row:  # noqa: ANN401 - of JSON
    """An activation as layers."""
    name = name_of(setting)
    if name in ("linear", "None"):
        return []
    if name == "softmax":
        return softmax({}, (), value, {})
    if name == "leaky_relu":
        return [{"type": "activation", "function": {"leaky_relu": {"slope": 0.2}}}]
    if name in _BENT:
        return [{"type": "expr", "expression": _BENT[name]}]
    own = activation_name(name)
    refuse(own is None, f"the activation {name}")
    return [{"type": "activation", "function": own}]


def softmax(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A softmax over the last axis that Keras has."""
    axis = config.get("axis", -1)
    refuse(axis not in (-1, value.rank), f"a softmax over axis {axis}")
    # Loom's goes over the channels of images, and over the last axis of everything else.
    first = value.rank == 3
    back = moved(Value(value.rank, first), first=value.first)
    return [*moved(value, first=first), {"type": "softmax"}, *back]


def prelu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A PReLU, with a slope for all, for each channel or for each element."""
    alpha = arrays[0]
    if alpha.size not in (1, alpha.shape[-1]):
        turned = np.moveaxis(alpha, -1, 0) if value.first else alpha
        slopes = {"name": "a", "shape": list(turned.shape)}
        return [
            {"type": "expr", "expression": "max(x, 0) + a * min(x, 0)", "parameters": [slopes], "a": turned}
        ]
    return [{"type": "prelu", "per_channel": alpha.size > 1, "weight": alpha.reshape(-1)}]


def relu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A ReLU with a slope, a threshold and a bound."""
    slope, threshold, most = (
        float(config.get(name) or 0) for name in ("negative_slope", "threshold", "max_value")
    )
    if config.get("max_value") is None and not threshold:
        return [{"type": "activation", "function": {"leaky_relu": {"slope": slope}} if slope else "relu"}]
    above = "x" if config.get("max_value") is None else f"min(x, {most!r})"
    text = f"where(x < {threshold!r}, {slope!r} * (x - {threshold!r}), {above})"
    return [{"type": "expr", "expression": text}]


def leaky(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A LeakyReLU."""
    slope = config.get("negative_slope", config.get("alpha", 0.3))
    return [{"type": "activation", "function": {"leaky_relu": {"slope": float(slope)}}}]


def elu(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """An ELU."""
    return [{"type": "activation", "function": {"elu": {"alpha": float(config.get("alpha", 1.0))}}}]
