"""Mistral and Ministral: Llama's blocks, with a window."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["MISTRAL"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, windows = decoder.rotary(), decoder.windows()

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, window=windows[place])
        return decoder.block(at, attention)

    return decoder.model(block)


MISTRAL = Family("Mistral", ("mistral", "ministral"), _compose, base=("model.",))
