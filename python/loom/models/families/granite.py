"""Granite: Llama's blocks with four multipliers, and its mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterable

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.mixtures import experts_of
from loom.models.families.pieces import Piece, Source, take

__all__ = ["GRANITE", "GRANITE_MOE"]


def _composed(folder: Folder, *, rotary: bool = True, experts: bool = False) -> Composition:
    settings = folder.settings
    decoder = Decoder(folder, branch=settings.real("residual_multiplier", 1.0))
    turning = decoder.rotary() if rotary else None
    scale = settings.real("attention_multiplier", 1.0, above=0.0)
    bias = settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=turning, bias=bias, scale=scale)
        return decoder.block(at, attention, _experts(decoder, at) if experts else None)

    return decoder.model(
        block,
        scale=settings.real("embedding_multiplier", 1.0),
        factor=1.0 / settings.real("logits_scaling", 1.0, above=0.0),
    )


def _experts(decoder: Decoder, at: str) -> Piece:
    """Returns experts, with one that every step goes through, or that one alone."""
    settings = decoder.settings
    count = settings.whole("num_local_experts", 8, least=0)
    shared = settings.whole("shared_intermediate_size", least=0) if _shares(settings.get("model_type")) else 0
    units = settings.whole("intermediate_size")
    activation = settings.one_of("hidden_act", ACTIVATIONS, "silu")
    if not shared and f"{at}.block_sparse_moe.gate.weight" in decoder.folder.shapes:
        # In GGUF each part is a tensor of its own, as in Mixtral.
        return experts_of(decoder, f"{at}.block_sparse_moe", count, units, ("w1", "w3", "w2"))
    tensors: dict[str, Source] = {}
    if shared:
        both = take(f"{at}.shared_mlp.input_linear.weight", 2 * shared)
        prefix = "shared_" if count else ""
        tensors = {
            f"{prefix}gate_weight": both.part(0, shared),
            f"{prefix}up_weight": both.part(shared, 2 * shared),
            f"{prefix}down_weight": take(f"{at}.shared_mlp.output_linear.weight"),
        }
    if not count:
        if not shared:
            raise settings.unsupported("num_local_experts", count, ["at least 1"])
        gated = nn.GeGLU if "gelu" in activation else nn.SwiGLU
        return Piece(gated(shared, activation=activation), tensors)
    both = take(f"{at}.block_sparse_moe.input_linear.weight", count, 2 * units)
    tensors |= {
        "router_weight": take(f"{at}.block_sparse_moe.router.layer.weight", count),
        "gate_weight": both.part(0, units, axis=1),
        "up_weight": both.part(units, 2 * units, axis=1),
        "down_weight": take(f"{at}.block_sparse_moe.output_linear.weight", count),
    }
    chosen = settings.whole("num_experts_per_tok", 2)
    layer = nn.MixtureOfExperts(count, chosen, units, activation=activation, shared_units=shared or None)
    return Piece(layer, tensors)


def _shares(model_type: object) -> bool:
    return model_type in ("granitemoeshared", "granitemoehybrid")


def _compose(folder: Folder) -> Composition:
    return _composed(folder)


def _compose_moe(folder: Folder) -> Composition:
    """Those of the hybrids are read that have attention in every block."""
    settings = folder.settings
    if settings.get("model_type") != "granitemoehybrid":
        return _composed(folder, experts=True)
    for kind in settings.list_of("layer_types", settings.layers()) or ["mamba"]:
        # transformers 5 writes the longer name.
        if kind not in ("attention", "full_attention"):
            raise settings.unsupported("layer_types", kind, ["attention"])
    rotary = settings.one_of("position_embedding_type", {"rope": True, "nope": False}, "nope")
    return _composed(folder, rotary=rotary, experts=True)


GRANITE = Family("Granite", ("granite",), _compose, base=("model.",))
GRANITE_MOE = Family(
    "Granite MoE", ("granitemoe", "granitemoeshared", "granitemoehybrid"), _compose_moe, base=("model.",)
)
