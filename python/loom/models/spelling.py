"""Names and layouts that other frameworks have for layers and parameters, as loom has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import activations
from loom.errors import ConfigError, ShapeError
from loom.nn._layer import FAMILY

__all__ = ["activation_name", "inferred", "layer_kind", "own_parameters", "setting_name"]

Arrays = Mapping[str, NDArray[Any]]

# Kinds of layers by what others call them, in lower case and without separators.
_KINDS = {
    "linear": "dense",
    "batchnormalization": "batch_norm",
    "batchnorm1d": "batch_norm",
    "batchnorm2d": "batch_norm",
    "batchnorm3d": "batch_norm",
    "layernormalization": "layer_norm",
    "groupnormalization": "group_norm",
    "rmsnormalization": "rms_norm",
    "maxpooling1d": "max_pool1d",
    "maxpooling2d": "max_pool2d",
    "maxpooling3d": "max_pool3d",
    "averagepooling1d": "avg_pool1d",
    "averagepooling2d": "avg_pool2d",
    "averagepooling3d": "avg_pool3d",
    "globalaveragepooling1d": "global_avg_pool1d",
    "globalaveragepooling2d": "global_avg_pool2d",
    "globalaveragepooling3d": "global_avg_pool3d",
    "globalmaxpooling1d": "global_max_pool1d",
    "globalmaxpooling2d": "global_max_pool2d",
    "globalmaxpooling3d": "global_max_pool3d",
    "conv1dtranspose": "conv_transpose1d",
    "conv2dtranspose": "conv_transpose2d",
    "conv3dtranspose": "conv_transpose3d",
    "simplernn": "rnn",
    "attention": "multi_head_attention",
}
_SETTINGS = {
    "out_features": "units",
    "out_channels": "filters",
    "hidden_size": "units",
    "num_embeddings": "vocabulary",
    "embedding_dim": "width",
    "input_dim": "vocabulary",
    "output_dim": "width",
    "num_heads": "heads",
    "num_groups": "groups",
    "num_layers": "layers",
    "eps": "epsilon",
    "strides": "stride",
    "use_bias": "bias",
    "p": "rate",
}
_ACTIVATIONS = {
    "gelunew": "gelu_tanh",
    "gelupytorchtanh": "gelu_tanh",
    "gelufast": "gelu_tanh",
    "hardsilu": "hardswish",
    "relusquared": "relu_squared",
    "relu2": "relu_squared",
}
_NORMS = {
    "gamma": "weight",
    "scale": "weight",
    "gain": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "moving_var": "running_var",
}
_GATED = {
    **{f"{short}.weight": f"{name}_weight" for short, name in (("w1", "gate"), ("w3", "up"), ("w2", "down"))},
    **{
        f"{name}_proj.{what}": f"{name}_{what}"
        for name in ("gate", "up", "down")
        for what in ("weight", "bias")
    },
}
_HEADS = {
    **{
        f"{short}_proj.{what}": f"{name}_{what}"
        for short, name in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"), ("out", "output"))
        for what in ("weight", "bias")
    },
    "out_proj_weight": "output_weight",
    "out_proj_bias": "output_bias",
    "q_norm.weight": "query_gain",
    "k_norm.weight": "key_gain",
}
_TABLES = {"embeddings": "weight", "embedding": "weight"}
_RENAMED: dict[str, Mapping[str, str]] = {
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm", "batch_norm"), _NORMS),
    **dict.fromkeys(("swiglu", "geglu"), _GATED),
    **dict.fromkeys(("embedding", "positional_embedding", "tied_head"), _TABLES),
    "multi_head_attention": _HEADS,
    "kmeans": {"cluster_centers": "centroids", "cluster_centers_": "centroids"},
    "prelu": {"alpha": "weight"},
}


def layer_kind(name: str) -> str:
    """Returns loom's kind of a layer by what it is called elsewhere; the name itself where that is unknown.

    Examples:
        >>> layer_kind("BatchNormalization"), layer_kind("Linear"), layer_kind("MaxPool2d")
        ('batch_norm', 'dense', 'max_pool2d')
    """
    if name in FAMILY.kinds:
        return name
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    own = {kind.replace("_", ""): kind for kind in FAMILY.kinds}
    return _KINDS.get(bare, own.get(bare, name))


def activation_name(name: str) -> str | None:
    """Returns loom's name of an activation function by what it is called elsewhere, if there is one.

    Examples:
        >>> activation_name("ReLU"), activation_name("SiLU"), activation_name("dense")
        ('relu', 'silu', None)
    """
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    known = {own.replace("_", ""): own for own in (*activations.FAMILY.plain, *activations.FAMILY.kinds)}
    return {**known, **activations.FAMILY.aliases, **_ACTIVATIONS}.get(bare)


def setting_name(name: str) -> str:
    """Returns loom's name of a setting by what it is called elsewhere; else the name itself."""
    return _SETTINGS.get(name, name)


def own_parameters(
    kind: str, arrays: Arrays, settings: Mapping[str, Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Returns a layer's parameters with loom's names and layouts.

    Names and layouts of loom, which are PyTorch's, stay; `kernel`, `gamma` and their like are taken as
    Keras has them, with outputs as the last axis.

    Args:
        kind: The kind of layer.
        arrays: The parameters by the names that they came with.
        settings: What the layer is told beside them, where that says how they are meant.

    Returns:
        Arrays by name.

    Raises:
        ConfigError: A parameter is given twice, in two spellings; or has a layout that loom cannot have.
        ShapeError: An array has another number of axes than its spelling has.
    """
    made: dict[str, NDArray[Any]] = {}
    pieces = _PIECES.get(kind)
    for given, array in arrays.items():
        if given.rpartition(".")[2] == "num_batches_tracked":
            continue
        for name, value in (pieces(given, array) if pieces else None) or [(given, array)]:
            name = _RENAMED.get(kind, {}).get(name, name)
            if name in made:
                raise ConfigError(f'"{name}" is given twice, the second time as "{given}"')
            made[name] = value
    one_bias = kind == "gru" and "bias" in arrays and arrays["bias"].ndim == 1
    if one_bias and (settings or {}).get("reset_after", True):
        raise ConfigError(
            "a GRU of one bias resets its state before the product: say reset_after=False, as Keras does"
        )
    if kind in ("rnn", "lstm", "gru") and "bias_ih_l0" in made and "bias_hh_l0" not in made:
        # Keras adds one bias where PyTorch adds two.
        made["bias_hh_l0"] = np.zeros_like(made["bias_ih_l0"])
    return made


Pieces = list[tuple[str, NDArray[Any]]]


def _dense(name: str, array: NDArray[Any]) -> Pieces | None:
    return [("weight", _of(name, array, 2).T)] if name == "kernel" else None


def _convolution(axes: int) -> Callable[[str, NDArray[Any]], Pieces | None]:
    def pieces(name: str, array: NDArray[Any]) -> Pieces | None:
        if name != "kernel":
            return None
        _of(name, array, axes + 2)
        return [("weight", array.transpose(axes + 1, axes, *range(axes)))]

    return pieces


def _recurrent(gates: list[int]) -> Callable[[str, NDArray[Any]], Pieces | None]:
    def ordered(array: NDArray[Any]) -> NDArray[Any]:
        parts = np.split(array, len(gates))
        return np.concatenate([parts[gate] for gate in gates])

    def pieces(name: str, array: NDArray[Any]) -> Pieces | None:
        own = {"kernel": "weight_ih_l0", "recurrent_kernel": "weight_hh_l0"}
        if name in own:
            return [(own[name], ordered(_of(name, array, 2).T))]
        if name == "bias" and array.ndim == 2:
            return [("bias_ih_l0", ordered(array[0])), ("bias_hh_l0", ordered(array[1]))]
        return [("bias_ih_l0", ordered(array))] if name == "bias" else None

    return pieces


def _attention(name: str, array: NDArray[Any]) -> Pieces | None:
    if name in ("in_proj_weight", "in_proj_bias"):
        parts = ("query", "key", "value")
        end = name.removeprefix("in_proj_")
        return [(f"{part}_{end}", piece) for part, piece in zip(parts, np.split(array, 3), strict=True)]
    part, _, end = name.rpartition("_")
    if end != "kernel" or array.ndim not in (2, 3):
        return None
    flat = array.reshape(-1, array.shape[-1]) if part == "output" else array.reshape(array.shape[0], -1)
    return [(f"{part}_weight", flat.T)]


def _gated(name: str, array: NDArray[Any]) -> Pieces | None:
    part, _, end = name.rpartition("_")
    return [(f"{part}_weight", _of(name, array, 2).T)] if end == "kernel" else None


_PIECES: dict[str, Callable[[str, NDArray[Any]], Pieces | None]] = {
    "dense": _dense,
    **{f"{kind}{axes}d": _convolution(axes) for kind in ("conv", "conv_transpose") for axes in (1, 2, 3)},
    "rnn": _recurrent([0]),
    "lstm": _recurrent([0, 1, 2, 3]),
    "gru": _recurrent([1, 0, 2]),
    "multi_head_attention": _attention,
    "swiglu": _gated,
    "geglu": _gated,
}


def _of(name: str, array: NDArray[Any], axes: int) -> NDArray[Any]:
    if array.ndim != axes:
        raise ShapeError(f'"{name}" must have {axes} axes, got shape {array.shape}')
    return array


def inferred(kind: str, parameters: Arrays) -> dict[str, Any]:
    """Returns the settings of a layer that its parameters tell: extents, and whether there is a bias.

    Args:
        kind: The kind of layer.
        parameters: Its parameters, named and laid out as loom has them; none tell nothing.

    Returns:
        Settings by name.

    Examples:
        >>> inferred("dense", {"weight": np.zeros((3, 4))})
        {'units': 3, 'bias': False}
    """
    if not parameters:
        return {}
    found: dict[str, Any] = {}
    for name, setting, axis in _EXTENTS.get(kind, ()):
        if name in parameters and parameters[name].ndim > axis:
            found[setting] = parameters[name].shape[axis]
    weight = parameters.get("weight")
    if kind.startswith("conv") and weight is not None and weight.ndim > 2:
        found["kernel_size"] = weight.shape[2:]
    if kind in ("rnn", "lstm", "gru"):
        names = [re.fullmatch(r"weight_ih_l(\d+)(_reverse)?", name) for name in parameters]
        found["layers"] = 1 + max((int(name[1]) for name in names if name), default=0)
        found["bidirectional"] = any(name is not None and name[2] is not None for name in names)
    settings = _fields(kind)
    if "bias" in settings:
        found["bias"] = any("bias" in name for name in parameters)
    if "gain" in settings:
        found["gain"] = "weight" in parameters
    if kind == "multi_head_attention":
        found["qk_norm"] = "query_gain" in parameters
        found["bias"], biased = "query_bias" in parameters, "output_bias" in parameters
        if found["bias"] != biased:
            found["output_bias"] = biased
    if kind == "prelu" and weight is not None:
        found["per_channel"] = weight.size > 1
    return found


_EXTENTS: dict[str, list[tuple[str, str, int]]] = {
    "dense": [("weight", "units", 0)],
    **{f"conv{axes}d": [("weight", "filters", 0)] for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": [("weight", "filters", 1)] for axes in (1, 2, 3)},
    "embedding": [("weight", "vocabulary", 0), ("weight", "width", 1)],
    "tied_head": [("weight", "vocabulary", 0)],
    "positional_embedding": [("weight", "max_time", 0)],
    "swiglu": [("gate_weight", "hidden", 0)],
    "geglu": [("gate_weight", "hidden", 0)],
    "rnn": [("weight_hh_l0", "units", 1)],
    "lstm": [("weight_hh_l0", "units", 1)],
    "gru": [("weight_hh_l0", "units", 1)],
    "kmeans": [("centroids", "clusters", 0)],
}


def _fields(kind: str) -> set[str]:
    cls = FAMILY.kinds.get(kind)
    return set(getattr(cls, "__dataclass_fields__", ()))
