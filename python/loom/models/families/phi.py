"""Phi 1 and 2, whose blocks have their halves side by side; Phi-3 and Phi-4, Llama with fused projections."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder, fused
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, layer_norm, take

__all__ = ["PHI", "PHI3"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder, epsilons="layer_norm_eps", usual_epsilon=1e-5, normalize=layer_norm)
    folder.settings.only(qk_layernorm=False)
    rotary = decoder.rotary(usual_share=0.5)
    names = ("q_proj", "k_proj", "v_proj", "dense")

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=True, names=names)
        layers = decoder.two_layers((f"{at}.mlp.fc1", f"{at}.mlp.fc2"), "gelu_new", bias=True)
        return decoder.beside(attention, layers, f"{at}.input_layernorm")

    return decoder.model(block, norm="final_layernorm", bias=True)


def _compose3(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, windows = decoder.rotary(), decoder.windows()
    folder.settings.only(hidden_act="silu")
    queries, keys = decoder.rows

    def block(place: int, at: str) -> Iterable[Piece]:
        together = {"weight": take(f"{at}.self_attn.qkv_proj.weight", queries + 2 * keys)}
        tensors = fused(together, queries, keys, {"weight": take(f"{at}.self_attn.o_proj.weight")})
        attention = decoder.attention(at, rotary=rotary, window=windows[place], tensors=tensors)
        return decoder.block(at, attention, decoder.half_fused(f"{at}.mlp"))

    return decoder.model(block)


PHI = Family("Phi", ("phi",), _compose, base=("model.",))
PHI3 = Family("Phi-3", ("phi3",), _compose3, base=("model.",))
