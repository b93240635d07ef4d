"""Llama 2 and 3, and what is made like them."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["LLAMA"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    bias = folder.settings.flag("attention_bias", False)
    rotary = decoder.rotary()

    def block(place: int, at: str) -> Iterable[Piece]:
        return decoder.block(at, decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias))

    return decoder.model(block)


LLAMA = Family(
    "Llama",
    ("llama",),
    _compose,
    base=("model.",),
    unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
