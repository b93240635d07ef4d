"""Models in GGUF, as the Hugging Face Hub would name and describe them.

llama.cpp's names and metadata become those of a config.json and of the tensors beside it, so that one table a
family, in `loom.models.families`, serves both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom.card import ModelCard
from loom.errors import ConfigError, SerializationError
from loom.models.gguf.architectures import BLOCK, WHOLE, Metadata, architecture_of
from loom.models.gguf.rotations import llama3_settings, to_halves
from loom.models.hub import from_tensors
from loom.tensors import TensorEntry, TensorFile, open_tensors

if TYPE_CHECKING:
    from loom.network import Network

__all__ = ["hub_config", "hub_tensors", "load"]


_SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}
"""config.json's names of settings, by those of the architecture's metadata."""

_TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}

_FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""Tensors that say how places turn, which config.json says instead."""


def load(path: str | PathLike[str], dtype: str | None = None, *, length: int | None = None) -> Network:
    """Reads a model from a GGUF file, as `loom.load` does.

    Weights in a block format that loom computes from stay in the file, which is mapped: they are read as the
    network is used. Others are decoded one at a time.

    Args:
        path: The file.
        dtype: The numeric type of the weights, as in `Network.morph`; float32 where None.
        length: How many steps `predict` reads; the most that the model knows by default.

    Returns:
        The network. `net.card` has under `metadata["gguf"]` what the Hub calls the model's type.

    Raises:
        SerializationError: The file is damaged, or holds no model.
        ConfigError: Its architecture, or a setting of it, is not supported; the message names it.
    """
    with open_tensors(path) as file:
        config = hub_config(file)
        network = from_tensors(config, hub_tensors(file), dtype, length=length)
    network.card = ModelCard(metadata={"gguf": {"model_type": config["model_type"]}})
    return network


def hub_config(file: TensorFile) -> dict[str, Any]:
    """Returns what config.json would say of a GGUF file's model.

    Args:
        file: The file, as `loom.open_tensors` opens it.

    Returns:
        The settings by name.

    Raises:
        SerializationError: The file holds no model, or says nonsense of it.
        ConfigError: Its architecture, or how it scales places, is not supported.
    """
    metadata, known = architecture_of(file)
    config: dict[str, Any] = {"model_type": known.model_type, "architectures": [known.model]}
    for key, name in {**_SETTINGS, **known.settings}.items():
        if metadata.get(key) is not None:
            config[name] = metadata.get(key)
    for key in ("embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        metadata.whole(key)
    for key, name in _TOKENS.items():
        token = file.metadata.get(f"tokenizer.ggml.{key}")
        if token is not None:
            config[name] = token
    if "token_embd.weight" not in file:
        raise SerializationError("the GGUF file has no token_embd.weight, so it holds no whole model")
    config["vocab_size"] = file["token_embd.weight"].shape[0]
    config["head_dim"] = metadata.head_dim()
    config["tie_word_embeddings"] = "output.weight" not in file
    # Qwen 2 has biases in any case, and no setting of them.
    config["attention_bias"] = "blk.0.attn_output.bias" in file
    if "blk.0.ffn_down.bias" in file:
        config["mlp_bias"] = True
    turning = metadata.get("rope.dimension_count")
    if isinstance(turning, int) and turning != config["head_dim"]:
        # What is made of the share, a whole number again, must not come out just below it.
        config["partial_rotary_factor"] = math.nextafter(turning / config["head_dim"], math.inf)
    elif known.partial:
        config["partial_rotary_factor"] = 1.0
    scaling = _scaling(file, metadata, config)
    if scaling is not None:
        config["rope_scaling"] = scaling
    return {**config, **known.config(metadata)}


def _scaling(file: TensorFile, metadata: Metadata, config: dict[str, Any]) -> dict[str, Any] | None:
    """Returns how places are scaled; None where they are not."""
    original = metadata.get("rope.scaling.original_context_length")
    if "rope_freqs.weight" in file:
        return llama3_settings(file["rope_freqs.weight"].numpy(np.float64), config, original)
    if "rope_factors_long.weight" in file:
        if original is not None:
            config["original_max_position_embeddings"] = original
        factors = {
            f"{kind}_factor": file[f"rope_factors_{kind}.weight"].numpy().tolist()
            for kind in ("long", "short")
        }
        attention = metadata.get("rope.scaling.attn_factor")
        return {
            "rope_type": "longrope",
            **factors,
            **({} if attention is None else {"attention_factor": attention}),
        }
    kind = metadata.get("rope.scaling.type")
    # Files of old say the factor alone.
    factor = metadata.get("rope.scaling.factor") or metadata.get("rope.scale_linear")
    if kind == "none" or not factor or factor == 1:
        return None
    if kind not in (None, "linear", "yarn"):
        raise ConfigError(f'loom does not know the scaling of places "{kind}" of a GGUF file')
    scaling = {"rope_type": kind or "linear", "factor": factor}
    if kind == "yarn":
        names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
        scaling |= {
            name: metadata.get(f"rope.scaling.{key}")
            for name, key in names.items()
            if metadata.get(f"rope.scaling.{key}") is not None
        }
        if original is not None:
            scaling["original_max_position_embeddings"] = original
    return scaling


def hub_tensors(file: TensorFile) -> dict[str, TensorEntry]:
    """Returns the tensors of a GGUF file's model as the Hub names and lays them out; none is read.

    Args:
        file: The file, as `loom.open_tensors` opens it.

    Returns:
        The tensors by the names of the model's class on the Hub.

    Raises:
        SerializationError: The file holds no model.
        ConfigError: Its architecture is not supported, or it has a tensor of which loom does not know the
            use.
    """
    metadata, known = architecture_of(file)
    heads = metadata.whole("attention.head_count")
    shared = "attention.head_count_kv"
    key_heads = heads if metadata.get(shared) is None else metadata.whole(shared)
    tensors: dict[str, TensorEntry] = {}
    names = {**BLOCK, **known.names}
    for name, entry in file.items():
        stem, _, kind = name.rpartition(".")
        if stem in _FACTORS:
            continue
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        called = {**WHOLE, **known.whole}.get(stem) if block is None else names.get(block[2])
        if called is None or kind not in ("weight", "bias"):
            raise ConfigError(f'loom does not know what "{name}" of {metadata.architecture} in GGUF is for')
        whole = f"{called}.{kind}" if block is None else f"model.layers.{block[1]}.{called}.{kind}"
        change: Callable[[NDArray[Any]], NDArray[Any]] | None = None
        if known.pairs and block is not None and block[2] in ("attn_q", "attn_k"):
            change = _halved(heads if block[2] == "attn_q" else key_heads)
        elif known.offset and kind == "weight" and stem.endswith("norm"):
            change = _less(known.offset)
        elif "{}" in whole:
            tensors |= _experts(entry, whole)
            continue
        elif stem.endswith("ffn_gate_inp_shexp") and len(entry.shape) == 1:
            entry = _shaped(entry, (1, *entry.shape))
        tensors[whole] = _renamed(entry, whole, change)
    return tensors


def _shaped(entry: TensorEntry, shape: tuple[int, ...]) -> TensorEntry:
    def read() -> NDArray[Any]:
        return entry.numpy().reshape(shape)

    return TensorEntry(entry.name, shape, entry.dtype, entry.nbytes, read, entry.raw)


def _experts(entry: TensorEntry, name: str) -> dict[str, TensorEntry]:
    """Returns the tensors of experts that stand in one, each decoded on its own."""
    if len(entry.shape) != 3:
        raise SerializationError(f"{entry.name} should hold a matrix for each expert, got {entry.shape}")
    count, *shape = entry.shape

    def expert(place: int) -> TensorEntry:
        def raw() -> NDArray[np.uint8]:
            of_expert: NDArray[np.uint8] = entry.raw().reshape(count, -1)[place]
            return of_expert

        def read() -> NDArray[Any]:
            return _native.decode_tensor(entry.dtype, raw()).reshape(shape)

        named = name.format(place)
        stored = entry.stored
        if stored is not None:
            rows = stored.count // count
            stored = replace(stored, count=rows, first=place * rows)
        return TensorEntry(named, tuple(shape), entry.dtype, entry.nbytes // count, read, raw, stored)

    return {name.format(place): expert(place) for place in range(count)}


def _halved(heads: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def halved(rows: NDArray[Any]) -> NDArray[Any]:
        if heads < 1 or rows.shape[0] % (2 * heads):
            raise SerializationError(f"{rows.shape[0]} rows of queries or keys are not {heads} heads")
        return to_halves(rows, heads)

    return halved


def _less(offset: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda gains: np.asarray(gains, np.float32) - np.float32(offset)


def _renamed(
    entry: TensorEntry, name: str, change: Callable[[NDArray[Any]], NDArray[Any]] | None
) -> TensorEntry:
    if change is None:
        return TensorEntry(name, entry.shape, entry.dtype, entry.nbytes, entry.numpy, entry.raw, entry.stored)
    stored = None if entry.stored is None else replace(entry.stored, change=change)
    return TensorEntry(
        name, entry.shape, "float32", 4 * entry.size, lambda: change(entry.numpy(np.float32)), stored=stored
    )
