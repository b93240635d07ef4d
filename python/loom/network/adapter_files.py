"""Adapters in files of the format that Hugging Face's peft reads and writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice, file_path
from loom._settings.files import text_of
from loom._settings.suggestions import shown, unknown
from loom.engine import HasEngine, NetworkT, engine_of
from loom.errors import ConfigError, FileError, SerializationError, ShapeError
from loom.network.adapter_names import NAMINGS, Module, Naming, llama_modules, own_modules
from loom.network.adapting import adapters, merge_adapters, put_adapter, remove_adapters
from loom.network.layers import LayerHandle
from loom.tensors import TensorEntry, open_tensors, write_safetensors

__all__ = ["load_adapter", "save_adapter"]

_CONFIG = "adapter_config.json"
_TENSORS = "adapter_model.safetensors"
_BEFORE = "base_model.model."
# What would have to be understood for the numbers to mean the same, and the values that mean nothing.
_REFUSED: dict[str, tuple[object, ...]] = {
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "lora_bias": (False, None),
    "layer_replication": (None, []),
    "megatron_config": (None,),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
    "kasa_config": (None,),
    "arrow_config": (None,),
    "monteclora_config": (None,),
}
_BEGINNINGS = (True, False, None, "gaussian", "orthogonal", "eva", "mica")
"""What a new adapter may begin as without the model's own weights being changed, as PiSSA and OLoRA do."""


def save_adapter(
    self: HasEngine,
    path: str | PathLike[str],
    name: str = "default",
    *,
    base: str = "",
    modules: Naming = "llama",
) -> None:
    """Writes an adapter, without the network, as a folder that peft's `PeftModel.from_pretrained` reads.

    The folder has adapter_config.json and adapter_model.safetensors.

    Args:
        path: The folder; it is made where it is not there, and older files of these names are replaced.
        name: Which adapter.
        base: What the configuration is to call the model that it belongs to (`base_model_name_or_path`).
        modules: What weights are called: "llama", as in transformers' Llama, Mistral, Qwen, Gemma and their
            kin: `model.layers.0.self_attn.q_proj`, of the attention and gated layers of the network in their
            order, and `lm_head`, of a dense layer at its end; or "loom", by the names of state dicts, for any
            network. Weights of models of the Hub whose modules are not called so, or hold several of them,
            have loom's names alone.

    Raises:
        ConfigError: There is no such adapter, or one of its weights has no name of that kind.
        FileError: The system refuses.
    """
    naming = choice("save_adapter", "modules", modules, NAMINGS)
    if not isinstance(base, str):
        raise ConfigError(f"save_adapter: base is the name of a model, got {shown(base)}")
    known = adapters(self)
    if name not in known:
        raise (
            unknown("adapter", name, known)
            if known
            else ConfigError(f'save_adapter: the network has no adapter "{name}", nor any')
        )
    told = known[name]
    named = {module.path: module for module in NAMINGS[naming](self)}
    tensors: dict[str, NDArray[Any]] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for path_of in told.weights:
        if path_of not in named:
            raise ConfigError(
                f'save_adapter: "{path_of}" has no name among those of "{naming}"; modules="loom" calls it '
                "by its own"
            )
        module = named[path_of]
        settings = _settings_of(module.layer, name)
        if bool(settings.get("decomposed")) != told.decomposed:
            raise ConfigError(
                f'save_adapter: "{name}" is decomposed beside some weights alone, which the format cannot say'
            )

        def part(of: str, module: Module = module) -> NDArray[Any]:
            return np.asarray(module.layer[f"{module.weight}.{name}.{of}"])

        tensors[f"{_BEFORE}{module.name}.lora_A.weight"] = part("lora_a")
        tensors[f"{_BEFORE}{module.name}.lora_B.weight"] = _theirs(module, part("lora_b"))
        if told.decomposed:
            tensors[f"{_BEFORE}{module.name}.lora_magnitude_vector"] = _theirs(module, part("lora_magnitude"))
        if settings["rank"] != told.rank:
            ranks[module.name] = settings["rank"]
        alpha = settings["alpha"]
        if settings["rank_stabilized"] != told.rank_stabilized:
            # The file says once for all how a scale is made: another alpha makes it the same.
            root = math.sqrt(settings["rank"])
            alpha = alpha / root if told.rank_stabilized else alpha * root
        if alpha != told.alpha:
            alphas[module.name] = alpha
    config = {
        "alpha_pattern": alphas,
        "base_model_name_or_path": base or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": told.alpha,
        "lora_dropout": told.dropout,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": told.rank,
        "rank_pattern": ranks,
        "target_modules": _targets(named, told.weights),
        "task_type": "CAUSAL_LM" if naming == "llama" else None,
        "use_dora": told.decomposed,
        "use_rslora": told.rank_stabilized,
    }
    folder = file_path("save_adapter", path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / _TENSORS, tensors, {"format": "pt"})
        (folder / _CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or error}") from error


def _theirs(module: Module, rows: NDArray[Any]) -> NDArray[Any]:
    """Returns rows of outputs in the order that the module has them in."""
    if module.order is None:
        return rows
    turned = np.empty_like(rows)
    turned[module.order] = rows
    return turned


def _targets(named: Mapping[str, Module], weights: tuple[str, ...]) -> list[str]:
    """Returns the modules that are adapted: by their last names where those are all, else by whole ones."""
    chosen = {named[path].name for path in weights}
    last = {name.rpartition(".")[2] for name in chosen}
    all_of = {module.name for module in named.values() if module.name.rpartition(".")[2] in last}
    return sorted(last if all_of == chosen else chosen)


def _settings_of(layer: LayerHandle, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(engine_of(layer).native.adapters(layer.at))
    return next(settings for settings in found if settings["name"] == name)


def load_adapter(
    self: NetworkT,
    path: str | PathLike[str],
    name: str = "default",
    *,
    trainable: bool = False,
    merge: bool = False,
) -> NetworkT:
    """Puts an adapter beside the network's weights that peft, or `save_adapter`, has written.

    Args:
        path: The folder with adapter_config.json and adapter_model.safetensors.
        name: What it is to be called here. Products of one layer that have other ranks or alphas there
            (peft's rank_pattern and alpha_pattern) get the largest of them, their factors zeros or a scale.
        trainable: Whether an optimizer may move it. The network's own parameters are left as they are:
            `net.freeze()` keeps them from being trained.
        merge: Whether what the adapter says goes into the weights, and nothing is put beside them.

    Returns:
        The network, which computes with the adapter from now on, beside those it had.

    Raises:
        FileError: A file is missing or cannot be read.
        SerializationError: They are damaged, or no adapter's.
        ConfigError: The adapter is of a kind that loom has not (LoRA, rsLoRA and DoRA alone, without
            biases), or of modules that the network does not have. Nothing has changed then.
        InvalidValueError: It is DoRA, and such an adapter is in use beside one of the weights already:
            `net.use_adapters()` puts that one out of use.
        ShapeError: A tensor does not fit.
    """
    folder = file_path("load_adapter", path)
    config = _config(folder / _CONFIG)
    decomposed = bool(config.get("use_dora"))
    pairs, lengths, bases = _pairs(folder / _TENSORS, dora=decomposed)
    named = {module.name: module for module in own_modules(self)}
    named |= {module.name: module for module in llama_modules(self)}
    chosen: dict[tuple[int, int, int, int], list[tuple[Module, NDArray[Any], NDArray[Any]]]] = {}
    for module_name, (down, up) in pairs.items():
        if module_name not in named:
            raise unknown(f"{folder}: module, which the network does not have,", module_name, named)
        module = named[module_name]
        _check_shapes(module, down, up)
        if decomposed and lengths.get(module_name, _NONE).shape != (len(up),):
            raise SerializationError(f"{module_name}: DoRA needs a lora_magnitude_vector of {len(up)}")
        if module_name in bases:
            _check_base(folder, module, bases[module_name])
        chosen.setdefault(module.layer.at, []).append((module, down, up))
    if merge:
        # Beside the weights first: packed ones without masters are read by who adds to them.
        name = next(each for each in (f"merged{number}" for number in count()) if each not in adapters(self))
    entries = []
    for at, group in chosen.items():
        # In the layer's order, whatever that of the file.
        order = engine_of(self).native.adaptable(at)
        group.sort(key=lambda entry: order.index(entry[0].weight))
        rank, alpha, chosen[at] = _alike(group, config)
        settings = {
            "name": name,
            "rank": rank,
            "alpha": alpha,
            "dropout": float(config.get("lora_dropout") or 0.0),
            "rank_stabilized": bool(config.get("use_rslora")),
            "decomposed": decomposed,
            # What is merged stands beside no other in use before.
            "active": not merge,
            "trainable": bool(trainable),
        }
        entries.append((group[0][0].layer, [module.weight for module, _, _ in group], settings))
    put_adapter(self, entries)
    try:
        for module, down, up in (each for group in list(chosen.values()) for each in group):
            own = slice(None) if module.order is None else module.order
            module.layer[f"{module.weight}.{name}.lora_a"] = down
            module.layer[f"{module.weight}.{name}.lora_b"] = up[own]
            if decomposed:
                module.layer[f"{module.weight}.{name}.lora_magnitude"] = lengths[module.name][own]
    except BaseException:
        remove_adapters(self, name)
        raise
    return merge_adapters(self, name) if merge else self


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(text_of(path))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SerializationError(f"{path}: this is not JSON: {error}") from error
    if not isinstance(config, dict) or "peft_type" not in config:
        raise SerializationError(f"{path}: this does not describe an adapter: it has no peft_type")
    if config["peft_type"] != "LORA":
        raise ConfigError(f"{path}: loom reads adapters of type LORA, not {config['peft_type']}")
    for key, meaningless in _REFUSED.items():
        if key in config and config[key] not in meaningless:
            raise ConfigError(f"{path}: loom has no adapters with {key}={shown(config[key])}")
    begun = config.get("init_lora_weights")
    if begun not in _BEGINNINGS:
        raise ConfigError(
            f"{path}: init_lora_weights={shown(begun)} has changed the model's own weights, too, which the "
            "file does not have: save the adapter with peft's path_initial_model_for_weight_conversion"
        )
    alpha, patterns = config.get("lora_alpha"), config.get("alpha_pattern") or {}
    numbers = [alpha, *patterns.values()] if isinstance(patterns, dict) else [None]
    if not all(isinstance(number, int | float) for number in numbers):
        raise SerializationError(f"{path}: lora_alpha and alpha_pattern must be numbers")
    return config


def _alpha(config: dict[str, Any], module: str) -> float:
    """Returns the alpha of a module: by its pattern, as peft matches those, or that of all."""
    for pattern, alpha in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return float(alpha)
    return float(config["lora_alpha"])


def _alike(
    group: list[tuple[Module, NDArray[Any], NDArray[Any]]], config: dict[str, Any]
) -> tuple[int, float, list[tuple[Module, NDArray[Any], NDArray[Any]]]]:
    """Gives the adapters of one layer one rank and one alpha, by what they add staying what it is.

    Smaller ranks are filled up with zeros, which training leaves; what another alpha scales by goes into B.

    Returns:
        The rank, the alpha, and the factors.
    """
    alphas = [_alpha(config, module.name) for module, _, _ in group]
    rank, alpha = max(len(down) for _, down, _ in group), max(alphas, key=abs)

    def scale(alpha: float, rank: int) -> float:
        return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)

    alike = []
    for (module, down, up), own in zip(group, alphas, strict=True):
        more = rank - len(down)
        if alpha and (more or own != alpha):
            up = np.pad(up * (scale(own, len(down)) / scale(alpha, rank)), ((0, 0), (0, more)))
            down = np.pad(down, ((0, more), (0, 0)))
        elif more:
            up, down = np.pad(up, ((0, 0), (0, more))), np.pad(down, ((0, more), (0, 0)))
        alike.append((module, down, up))
    return rank, alpha, alike


_KEY = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.[A-Za-z0-9_-]+)?\.weight")


_LENGTHS = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_magnitude_vector(?:\.[A-Za-z0-9_-]+)*")


_NONE = np.empty(0)
_BASE = re.compile(r"(?:base_model\.model\.)?(.+)\.base_layer\.weight")
_ROUNDED = 1e-2
"""How far weights may be from others, by their lengths, that they are but for rounding to sixteen bits."""


def _pairs(
    path: Path, *, dora: bool
) -> tuple[dict[str, tuple[NDArray[Any], NDArray[Any]]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Returns A and B of every module, the lengths that DoRA gives its outputs, and weights that lie beside.

    peft writes the weights of an adapted head so, in case that it has other words than the model had.
    """
    found: dict[str, dict[str, NDArray[Any]]] = {}
    lengths: dict[str, NDArray[Any]] = {}
    bases: dict[str, NDArray[Any]] = {}
    with open_tensors(path) as file:
        for key, entry in file.items():
            length = _LENGTHS.fullmatch(key) if dora else None
            if length is not None:
                lengths[length[1]] = _numbers(entry)
                continue
            match, base = _KEY.fullmatch(key), _BASE.fullmatch(key)
            if base is not None:
                bases[base[1]] = _numbers(entry)
                continue
            if match is None:
                raise ConfigError(
                    f'{path}: "{key}" is no factor of a LoRA adapter, and loom knows nothing else'
                )
            found.setdefault(match[1], {})[match[2]] = _numbers(entry)
    for module, parts in found.items():
        if set(parts) != {"A", "B"}:
            raise SerializationError(f"{path}: {module} has but one of lora_A and lora_B")
    if not found:
        raise SerializationError(f"{path}: there is no adapter in it")
    alone = sorted(bases.keys() - found.keys())
    if alone:
        raise ConfigError(f"{path}: it has weights of {alone[0]}, but no LoRA adapter of it")
    return {module: (parts["A"], parts["B"]) for module, parts in found.items()}, lengths, bases


def _numbers(entry: TensorEntry) -> NDArray[Any]:
    """Returns a tensor in float32, and one of float64, as networks of that precision write them, as it is."""
    return np.array(entry.numpy(np.float64 if entry.dtype == "float64" else np.float32))


def _check_base(folder: Path, module: Module, weight: NDArray[Any]) -> None:
    """Refuses an adapter that was trained beside another weight than the network's."""
    native, name = engine_of(module.layer).native, module.weight
    shape = tuple(native.parameter_shape(module.layer.at, name))
    if weight.shape != shape:
        raise ShapeError(f"{folder}: {module.name} has a weight of {weight.shape}, the network's is {shape}")
    stored = module.layer.weights
    if stored.dropped or module.layer.dtype not in ("float32", "float64", "float16", "bfloat16"):
        # Packed weights are not those that the adapter was trained beside, and are meant.
        return
    own = np.asarray(module.layer[name])
    rows = weight if module.order is None else weight[module.order]
    if np.linalg.norm(own - rows) > _ROUNDED * np.linalg.norm(own):
        raise ConfigError(
            f"{folder}: the adapter brings another weight of {module.name} than the network's: put "
            '"base_layer.weight" of it into the model that it belongs to'
        )


def _check_shapes(module: Module, down: NDArray[Any], up: NDArray[Any]) -> None:
    outputs, inputs = engine_of(module.layer).native.parameter_shape(module.layer.at, module.weight)
    fits = down.ndim == up.ndim == 2 and down.shape[1] == inputs and up.shape[0] == outputs
    if not fits or len(down) != up.shape[1] or not len(down):
        raise ShapeError(
            f"{module.name}: a weight of {(outputs, inputs)} takes lora_A of (rank, {inputs}) and lora_B of "
            f"({outputs}, rank), got {down.shape} and {up.shape}"
        )
