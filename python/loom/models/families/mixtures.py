"""Mixtral, OLMoE, and the mixtures of Qwen 2 and 3: experts instead of one feed-forward layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, stack, take
from loom.models.families.qwen import windows

__all__ = ["MIXTRAL", "OLMOE", "QWEN2_MOE", "QWEN3_MOE", "experts_of"]

_PARTS = ("gate", "up", "down")


def experts_of(
    decoder: Decoder,
    at: str,
    count: int,
    units: int,
    names: Sequence[str],
    **settings: Any,  # noqa: ANN401
) -> Piece:
    """Returns experts, `names` being what gate, up and down are called in each."""
    layer = nn.MixtureOfExperts(
        count,
        decoder.settings.whole("num_experts_per_tok"),
        units,
        activation=decoder.settings.one_of("hidden_act", ACTIVATIONS, "silu"),
        **settings,
    )
    tensors = {"router_weight": take(f"{at}.gate.weight", count)}
    for part, name in zip(_PARTS, names, strict=True):
        stacked = [f"{at}.experts.{each}.{name}.weight" for each in range(count)]
        tensors[f"{part}_weight"] = stack(stacked, *(() if part == "down" else (units,)))
    if layer.shared_units is not None:
        for part in _PARTS:
            tensors[f"shared_{part}_weight"] = take(f"{at}.shared_expert.{part}_proj.weight")
        tensors["shared_router_weight"] = take(f"{at}.shared_expert_gate.weight")
    return Piece(layer, tensors)


def _compose_mixtral(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, seen = decoder.rotary(), decoder.windows()
    count = folder.settings.whole("num_local_experts", 8)
    units = folder.settings.whole("intermediate_size")

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, window=seen[place])
        experts = experts_of(decoder, f"{at}.block_sparse_moe", count, units, ("w1", "w3", "w2"))
        return decoder.block(at, attention, experts)

    return decoder.model(block)


def _compose_olmoe(folder: Folder) -> Composition:
    decoder = Decoder(folder, usual_epsilon=1e-5)
    settings = folder.settings
    settings.only(clip_qkv=None)
    rotary = decoder.rotary()
    count, units = settings.whole("num_experts", 64), settings.whole("intermediate_size")
    bias, normalize = settings.flag("attention_bias", False), settings.flag("norm_topk_prob", False)
    names = [f"{part}_proj" for part in _PARTS]

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias, norms="width")
        experts = experts_of(decoder, f"{at}.mlp", count, units, names, normalize=normalize)
        return decoder.block(at, attention, experts)

    return decoder.model(block)


def _qwen(folder: Folder, *, shared: bool, bias: bool, output_bias: bool, norms: bool) -> Composition:
    decoder = Decoder(folder)
    settings = folder.settings
    rotary, seen = decoder.rotary(), windows(decoder)
    # transformers 5 calls it in Qwen 3 as Mixtral does.
    counted = "num_experts" if "num_experts" in settings.values else "num_local_experts"
    count = settings.whole(counted if counted in settings.values else "num_experts", least=0)
    units = settings.whole("moe_intermediate_size")
    every = settings.whole("decoder_sparse_step", 1)
    dense = settings.items("mlp_only_layers")
    more: dict[str, Any] = {"normalize": settings.flag("norm_topk_prob", False)}
    if shared:
        more |= {"shared_units": settings.whole("shared_expert_intermediate_size"), "shared_gate": True}

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary,
            window=seen[place],
            bias=bias,
            output_bias=output_bias,
            norms=norms,
        )
        experts = None
        if count and place not in dense and (place + 1) % every == 0:
            names = [f"{part}_proj" for part in _PARTS]
            experts = experts_of(decoder, f"{at}.mlp", count, units, names, **more)
        return decoder.block(at, attention, experts)

    return decoder.model(block)


def _compose_qwen2(folder: Folder) -> Composition:
    bias = folder.settings.flag("qkv_bias", True)
    return _qwen(folder, shared=True, bias=bias, output_bias=False, norms=False)


def _compose_qwen3(folder: Folder) -> Composition:
    bias = folder.settings.flag("attention_bias", False)
    return _qwen(folder, shared=False, bias=bias, output_bias=bias, norms=True)


MIXTRAL = Family("Mixtral", ("mixtral",), _compose_mixtral, base=("model.",))
OLMOE = Family("OLMoE", ("olmoe",), _compose_olmoe, base=("model.",))
QWEN2_MOE = Family("Qwen 2 MoE", ("qwen2_moe",), _compose_qwen2, base=("model.",))
QWEN3_MOE = Family("Qwen 3 MoE", ("qwen3_moe",), _compose_qwen3, base=("model.",))
