"""The architectures of llama.cpp's that are read: how each is named and described on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loom.errors import ConfigError, SerializationError
from loom.tensors import TensorFile

__all__ = ["ARCHITECTURES", "BLOCK", "WHOLE", "Architecture", "Metadata", "architecture_of"]

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
    config: Callable[[Metadata], dict[str, Any]] = lambda metadata: {}


class Metadata:
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


def _gemma(metadata: Metadata, largest: int) -> dict[str, Any]:
    """Returns what both Gemmas have; the largest scales attention by another width than the others."""
    blocks, heads = metadata.whole("block_count"), metadata.whole("attention.head_count")
    by_width = metadata.whole("embedding_length") // max(heads, 1)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": by_width if blocks == largest else metadata.head_dim(),
    }


def _gemma1(metadata: Metadata) -> dict[str, Any]:
    return {"hidden_act": "gelu_pytorch_tanh"}


def _gemma3(metadata: Metadata) -> dict[str, Any]:
    kinds = ["full_attention" if (place + 1) % 6 == 0 else "sliding_attention" for place in _blocks(metadata)]
    return {**_gemma(metadata, 62), "rope_local_base_freq": 10_000.0, "layer_types": kinds}


def _gemma2(metadata: Metadata) -> dict[str, Any]:
    kinds = ["full_attention" if place % 2 else "sliding_attention" for place in _blocks(metadata)]
    return {**_gemma(metadata, 46), "layer_types": kinds}


def _blocks(metadata: Metadata) -> range:
    return range(min(metadata.whole("block_count"), 4096))


def _mixtral(metadata: Metadata) -> dict[str, Any]:
    return {"num_local_experts": metadata.whole("expert_count"), **_chosen(metadata)}


def _qwen_moe(metadata: Metadata) -> dict[str, Any]:
    config = {
        "num_experts": metadata.whole("expert_count"),
        "moe_intermediate_size": metadata.whole("expert_feed_forward_length"),
        "norm_topk_prob": metadata.architecture == "qwen3moe",
        **_chosen(metadata),
    }
    if metadata.architecture == "qwen2moe":
        config["shared_expert_intermediate_size"] = metadata.whole("expert_shared_feed_forward_length")
    return config


def _chosen(metadata: Metadata) -> dict[str, Any]:
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


def architecture_of(file: TensorFile) -> tuple[Metadata, Architecture]:
    """Returns the metadata of a file's architecture, and what is known of it."""
    metadata = Metadata(file.metadata)
    known = ARCHITECTURES.get(metadata.architecture)
    if known is None:
        raise ConfigError(
            f'loom does not read the architecture "{metadata.architecture}" from GGUF. '
            f"Known: {', '.join(ARCHITECTURES)}"
        )
    if metadata.architecture == "llama" and metadata.get("expert_count"):
        known = _MIXTRAL
    return metadata, known
