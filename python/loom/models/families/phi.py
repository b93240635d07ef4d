"""Phi-3 and Phi-4: Llama's blocks, with projections that stand in one tensor."""

from __future__ import annotations

from collections.abc import Iterable

from loom import nn
from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, take

__all__ = ["PHI3"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, windows = decoder.rotary(), decoder.windows()
    settings = folder.settings
    settings.only(hidden_act="silu")
    hidden = settings.whole("intermediate_size")
    queries, keys = decoder.heads * decoder.head_dim, decoder.shared_heads * decoder.head_dim

    def block(place: int, at: str) -> Iterable[Piece]:
        fused = take(f"{at}.self_attn.qkv_proj.weight", queries + 2 * keys)
        attention = decoder.attention(
            at,
            rotary=rotary,
            window=windows[place],
            tensors={
                "query_weight": fused.part(0, queries),
                "key_weight": fused.part(queries, queries + keys),
                "value_weight": fused.part(queries + keys, queries + 2 * keys),
                "output_weight": take(f"{at}.self_attn.o_proj.weight"),
            },
        )
        both = take(f"{at}.mlp.gate_up_proj.weight", 2 * hidden)
        parts = {
            "gate_weight": both.part(0, hidden),
            "up_weight": both.part(hidden, 2 * hidden),
            "down_weight": take(f"{at}.mlp.down_proj.weight"),
        }
        return decoder.block(at, attention, Piece(nn.SwiGLU(hidden), parts))

    return decoder.model(block)


PHI3 = Family("Phi-3", ("phi3",), _compose, base=("model.",))
