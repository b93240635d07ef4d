"""The architectures of llama.cpp's that are read: how each is named and described on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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
        whole: The Hub's names of what is there once, where they are not the usual ones.
        settings: config.json's names of further settings, by those of the metadata.
        pairs: Whether rows of queries and keys are in the order in which neighbours turn together.
        offset: What was added to the gains of norms.
        partial: Whether config.json means part of a head where it does not say how much of one turns.
        config: Settings that follow from the architecture, given its metadata.
    """

    model_type: str
    model: str
    names: Mapping[str, str] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    pairs: bool = False
    offset: float = 0.0
    partial: bool = False
    config: Callable[[Metadata], dict[str, Any]] = lambda metadata: {}


class Metadata:
    """The metadata of an architecture.

    Args:
        metadata: The file's.
        tensors: The names of its tensors.
    """

    def __init__(self, metadata: Mapping[str, Any], tensors: Container[str] = ()) -> None:
        name = metadata.get("general.architecture")
        if not isinstance(name, str):
            raise SerializationError("the GGUF file does not say its architecture; it holds no model")
        self.architecture = name
        self.values = metadata
        self._tensors = tensors

    def has(self, name: str) -> bool:
        """Whether the first block has a tensor."""
        return f"blk.0.{name}" in self._tensors

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


def _olmo(metadata: Metadata) -> dict[str, Any]:
    if metadata.has("attn_q.bias"):
        # llama.cpp's converter orders the weights' rows, and not those of biases.
        raise ConfigError("loom does not read olmo from GGUF with biases of attention")
    return {"clip_qkv": metadata.get("attention.clamp_kqv") or None}


def _olmoe(metadata: Metadata) -> dict[str, Any]:
    return {"num_experts": metadata.whole("expert_count"), "norm_topk_prob": False, **_chosen(metadata)}


def _slides(metadata: Metadata) -> dict[str, Any]:
    """Returns which blocks have a window: told one by one, or all but every so manieth."""
    told = metadata.get("attention.sliding_window_pattern")
    blocks = _blocks(metadata)
    if isinstance(told, bool):
        slides = [told for _ in blocks]
    elif isinstance(told, list):
        slides = [bool(each) for each in told]
    else:
        every = told if isinstance(told, int) and told > 0 else 4
        slides = [(place + 1) % every != 0 for place in blocks]
    return {"layer_types": ["sliding_attention" if each else "full_attention" for each in slides]}


def _exaone4(metadata: Metadata) -> dict[str, Any]:
    """The largest has a window where nothing is said of one."""
    window = metadata.get("attention.sliding_window")
    if not window and metadata.whole("block_count") == 64:
        window = 4096
    if not window:
        return {"layer_types": ["full_attention" for _ in _blocks(metadata)], "sliding_window": None}
    return {**_slides(metadata), "sliding_window": window}


def _glm4(metadata: Metadata) -> dict[str, Any]:
    return {"attention_bias": metadata.has("attn_q.bias")}


def _stablelm(metadata: Metadata) -> dict[str, Any]:
    return {
        "use_qkv_bias": metadata.has("attn_q.bias"),
        "use_parallel_residual": not metadata.has("ffn_norm.weight"),
    }


def _biased(metadata: Metadata) -> dict[str, Any]:
    """Returns what says of StarCoder 2 and ERNIE 4.5 that there are biases."""
    return {"use_bias": metadata.has("attn_output.bias")}


def _seed_oss(metadata: Metadata) -> dict[str, Any]:
    return {
        "attention_bias": metadata.has("attn_q.bias"),
        "attention_out_bias": metadata.has("attn_output.bias"),
    }


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

_OLMO3 = Architecture("olmo3", "Olmo3ForCausalLM", _NORMS_BEHIND, config=_slides)
"""What llama.cpp calls an OLMo 2 with windows."""

_EPSILON = {"attention.layer_norm_epsilon": "layer_norm_eps"}
_GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_PHI2 = {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}

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
    "granite": Architecture("granite", "GraniteForCausalLM", settings=_GRANITE, pairs=True),
    "granitemoe": Architecture(
        "granitemoe", "GraniteMoeForCausalLM", _MIXTRAL.names, settings=_GRANITE, pairs=True, config=_mixtral
    ),
    "olmo": Architecture("olmo", "OlmoForCausalLM", pairs=True, config=_olmo),
    "olmoe": Architecture("olmoe", "OlmoeForCausalLM", _QWEN_MOE, config=_olmoe),
    "command-r": Architecture(
        "cohere", "CohereForCausalLM", settings={**_EPSILON, "logit_scale": "logit_scale"}
    ),
    "cohere2": Architecture(
        "cohere2", "Cohere2ForCausalLM", settings={**_EPSILON, "logit_scale": "logit_scale"}, config=_slides
    ),
    "glm4": Architecture(
        "glm4",
        "Glm4ForCausalLM",
        {
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
        partial=True,
        config=_glm4,
    ),
    "stablelm": Architecture(
        "stablelm", "StableLmForCausalLM", settings=_EPSILON, partial=True, config=_stablelm
    ),
    "starcoder2": Architecture(
        "starcoder2",
        "Starcoder2ForCausalLM",
        {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        settings={"attention.layer_norm_epsilon": "norm_epsilon"},
        config=_biased,
    ),
    "phi2": Architecture(
        "phi",
        "PhiForCausalLM",
        _PHI2,
        {"output_norm": "model.final_layernorm"},
        settings=_EPSILON,
        partial=True,
    ),
    "arcee": Architecture("arcee", "ArceeForCausalLM", pairs=True),
    "ernie4_5": Architecture("ernie4_5", "Ernie4_5ForCausalLM", config=_biased),
    "seed_oss": Architecture(
        "seed_oss",
        "SeedOssForCausalLM",
        {"post_attention_norm": "post_attention_layernorm"},
        config=_seed_oss,
    ),
    "nemotron": Architecture(
        "nemotron",
        "NemotronForCausalLM",
        settings={"attention.layer_norm_epsilon": "norm_eps"},
        offset=1.0,
        partial=True,
    ),
    "exaone4": Architecture("exaone4", "Exaone4ForCausalLM", _NORMS_BEHIND, config=_exaone4),
}
"""The architectures of llama.cpp's that are read, by its names."""


def architecture_of(file: TensorFile) -> tuple[Metadata, Architecture]:
    """Returns the metadata of a file's architecture, and what is known of it."""
    metadata = Metadata(file.metadata, file)
    known = ARCHITECTURES.get(metadata.architecture)
    if known is None:
        raise ConfigError(
            f'loom does not read the architecture "{metadata.architecture}" from GGUF. '
            f"Known: {', '.join(ARCHITECTURES)}"
        )
    if metadata.architecture == "llama" and metadata.get("expert_count"):
        known = _MIXTRAL
    elif metadata.architecture == "olmo2" and metadata.get("attention.sliding_window"):
        known = _OLMO3
    return metadata, known
