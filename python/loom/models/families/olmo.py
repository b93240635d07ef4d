"""OLMo 2: norms behind attention and the feed-forward layer, and over all heads of queries and of keys."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, residual

__all__ = ["OLMO2"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary = decoder.rotary()
    bias = folder.settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias, norms="width")
        return [
            residual(attention, decoder.norm(f"{at}.post_attention_layernorm")),
            residual(decoder.feed_forward(f"{at}.mlp"), decoder.norm(f"{at}.post_feedforward_layernorm")),
        ]

    return decoder.model(block)


OLMO2 = Family("OLMo 2", ("olmo2",), _compose, base=("model.",))
