"""Models in GGUF, as the Hugging Face Hub would name and describe them.

llama.cpp's names and metadata become those of a config.json and of the tensors beside it, so that one table a
family, in `loom.models.families`, serves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom.errors import ConfigError, SerializationError
from loom.models.hub import from_tensors
from loom.tensors import TensorEntry, TensorFile, open_tensors

if TYPE_CHECKING:
    from loom.network import Network

__all__ = [
    "ARCHITECTURES",
    "BLOCK",
    "WHOLE",
    "hub_config",
    "hub_tensors",
    "llama3_factors",
    "load",
    "to_halves",
    "to_pairs",
]

WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
"""The Hub's names of what is there once, by llama.cpp's."""

BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""The Hub's names of what each block has, by llama.cpp's."""

_NORMS_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True)
class Architecture:
    """What sets an architecture of llama.cpp's apart.

    Args:
        model_type: What config.json calls it.
        model: The class that the Hub has for it.
        names: The Hub's names of what a block has, where they are not the usual ones.
        pairs: Whether rows of queries and keys are in the order in which neighbours turn together.
        offset: What was added to the gains of norms.
        config: Settings that follow from the architecture, given its metadata.
    """

    model_type: str
    model: str
    names: Mapping[str, str] = field(default_factory=dict)
    pairs: bool = False
    offset: float = 0.0
    config: Callable[[_Metadata], dict[str, Any]] = lambda metadata: {}


class _Metadata:
    """The metadata of an architecture."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        name = metadata.get("general.architecture")
        if not isinstance(name, str):
            raise SerializationError("the GGUF file does not say its architecture; it holds no model")
        self.architecture = name
        self.values = metadata

    def get(self, key: str) -> Any:  # noqa: ANN401 - of any kind
        """Returns a value of the architecture's; None where there is none."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, float) and float(np.float32(value)) == value:
            # As it was written before it became a float32: 1e-06, not 9.999999974752427e-07.
            return float(str(np.float32(value)))
        return value

    def whole(self, key: str) -> int:
        """Returns a whole number that must be there."""
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise SerializationError(
                f"the GGUF file's {self.architecture}.{key} should be a whole number, got {value!r:.60}"
            )
        return value

    def head_dim(self) -> int:
        """Returns the extent of a head."""
        heads = self.whole("attention.head_count")
        if self.get("attention.key_length") is not None:
            extent = self.whole("attention.key_length")
        else:
            extent = self.whole("embedding_length") // max(heads, 1)
        if extent < 1:
            raise SerializationError(f"the GGUF file's heads have an extent of {extent}")
        return extent


def _gemma(metadata: _Metadata, largest: int) -> dict[str, Any]:
    """Returns what both Gemmas have; the largest scales attention by another width than the others."""
    blocks, heads = metadata.whole("block_count"), metadata.whole("attention.head_count")
    by_width = metadata.whole("embedding_length") // max(heads, 1)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": by_width if blocks == largest else metadata.head_dim(),
    }


def _gemma1(metadata: _Metadata) -> dict[str, Any]:
    return {"hidden_act": "gelu_pytorch_tanh"}


def _gemma3(metadata: _Metadata) -> dict[str, Any]:
    kinds = ["full_attention" if (place + 1) % 6 == 0 else "sliding_attention" for place in _blocks(metadata)]
    return {**_gemma(metadata, 62), "rope_local_base_freq": 10_000.0, "layer_types": kinds}


def _gemma2(metadata: _Metadata) -> dict[str, Any]:
    kinds = ["full_attention" if place % 2 else "sliding_attention" for place in _blocks(metadata)]
    return {**_gemma(metadata, 46), "layer_types": kinds}


def _blocks(metadata: _Metadata) -> range:
    return range(min(metadata.whole("block_count"), 4096))


def _mixtral(metadata: _Metadata) -> dict[str, Any]:
    return {"num_local_experts": metadata.whole("expert_count"), **_chosen(metadata)}


def _qwen_moe(metadata: _Metadata) -> dict[str, Any]:
    config = {
        "num_experts": metadata.whole("expert_count"),
        "moe_intermediate_size": metadata.whole("expert_feed_forward_length"),
        "norm_topk_prob": metadata.architecture == "qwen3moe",
        **_chosen(metadata),
    }
    if metadata.architecture == "qwen2moe":
        config["shared_expert_intermediate_size"] = metadata.whole("expert_shared_feed_forward_length")
    return config


def _chosen(metadata: _Metadata) -> dict[str, Any]:
    return {"num_experts_per_tok": metadata.whole("expert_used_count")}


_OF_GEMMA = {**_NORMS_BEHIND, "ffn_norm": "pre_feedforward_layernorm"}

_QWEN_MOE = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}

_MIXTRAL = Architecture(
    "mixtral",
    "MixtralForCausalLM",
    {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    pairs=True,
    config=_mixtral,
)
"""What llama.cpp calls a Llama with experts."""

ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", pairs=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM"),
    "qwen2moe": Architecture("qwen2_moe", "Qwen2MoeForCausalLM", _QWEN_MOE, config=_qwen_moe),
    "qwen3moe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM", _QWEN_MOE, config=_qwen_moe),
    "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM", pairs=True),
    "olmo2": Architecture("olmo2", "Olmo2ForCausalLM", _NORMS_BEHIND),
    "phi3": Architecture(
        "phi3", "Phi3ForCausalLM", {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
    ),
    "gemma": Architecture("gemma", "GemmaForCausalLM", offset=1.0, config=_gemma1),
    "gemma2": Architecture("gemma2", "Gemma2ForCausalLM", _OF_GEMMA, offset=1.0, config=_gemma2),
    "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM", _OF_GEMMA, offset=1.0, config=_gemma3),
}
"""The architectures of llama.cpp's that are read, by its names."""

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
        The network.

    Raises:
        SerializationError: The file is damaged, or holds no model.
        ConfigError: Its architecture, or a setting of it, is not supported; the message names it.
    """
    with open_tensors(path) as file:
        return from_tensors(hub_config(file), hub_tensors(file), dtype, length=length)


def architecture_of(file: TensorFile) -> tuple[_Metadata, Architecture]:
    """Returns the metadata of a file's architecture, and what is known of it."""
    metadata = _Metadata(file.metadata)
    known = ARCHITECTURES.get(metadata.architecture)
    if known is None:
        raise ConfigError(
            f'loom does not read the architecture "{metadata.architecture}" from GGUF. '
            f"Known: {', '.join(ARCHITECTURES)}"
        )
    if metadata.architecture == "llama" and metadata.get("expert_count"):
        known = _MIXTRAL
    return metadata, known


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
    for key, name in _SETTINGS.items():
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
    turning = metadata.get("rope.dimension_count")
    if isinstance(turning, int) and turning != config["head_dim"]:
        config["partial_rotary_factor"] = turning / config["head_dim"]
    scaling = _scaling(file, metadata, config)
    if scaling is not None:
        config["rope_scaling"] = scaling
    return {**config, **known.config(metadata)}


def _scaling(file: TensorFile, metadata: _Metadata, config: dict[str, Any]) -> dict[str, Any] | None:
    """Returns how places are scaled; None where they are not."""
    original = metadata.get("rope.scaling.original_context_length")
    if "rope_freqs.weight" in file:
        return _llama3(file["rope_freqs.weight"].numpy(np.float64), config, original)
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


def llama3_factors(
    base: float, head_dim: int, factor: float, low: float, high: float, original: float
) -> NDArray[np.float64]:
    """Returns what Llama 3 divides the rates by with which pairs of a head turn.

    Args:
        base: The base of the rates.
        head_dim: The extent of a head.
        factor: What slow rates are divided by.
        low: Turns in the length of training below which a rate is slow.
        high: Turns above which a rate is left as it is.
        original: The length of training.
    """
    turns = original * base ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    divided: NDArray[np.float64] = 1 / ((1 - smooth) / factor + smooth)
    return divided


def _llama3(factors: NDArray[np.float64], config: Mapping[str, Any], original: object) -> dict[str, Any]:
    """Finds the settings of which factors come: all of Llama 3 have them, but for two; else as they are."""
    low, high = 1.0, 4.0
    lengths = [original] if isinstance(original, int) else [8192]
    for length in lengths:
        for factor in (float(factors.max()), 8.0, 32.0):
            base, head_dim = config.get("rope_theta", 10_000.0), config["head_dim"]
            expected = llama3_factors(base, head_dim, factor, low, high, length)
            if expected.shape == factors.shape and np.allclose(expected, factors, rtol=1e-4):
                return {
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": length,
                }
    divided = factors.tolist()
    return {"rope_type": "longrope", "long_factor": divided, "short_factor": divided, "attention_factor": 1.0}


def to_halves(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Orders rows of queries or keys so that halves of a head turn together, where neighbours did.

    Args:
        rows: A weight or a bias.
        heads: How many heads it has.
    """
    split = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def to_pairs(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Orders rows of queries or keys so that neighbours turn together, where halves of a head did.

    Args:
        rows: A weight or a bias.
        heads: How many heads it has.
    """
    split = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


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
        called = WHOLE.get(stem) if block is None else names.get(block[2])
        if called is None or kind not in ("weight", "bias"):
            raise ConfigError(f'loom does not know what "{name}" of {metadata.architecture} in GGUF is for')
        whole = f"{called}.{kind}" if block is None else f"model.layers.{block[1]}.{called}.{kind}"
        change: Callable[[NDArray[Any]], NDArray[Any]] | None = None
        if known.pairs and block is not None and block[2] in ("attn_q", "attn_k"):
            change = _halved(heads if block[2] == "attn_q" else key_heads)
        elif known.offset and stem.endswith("norm"):
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
