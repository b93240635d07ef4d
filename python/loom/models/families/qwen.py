"""Qwen 2 and 2.5, which have biases on queries, keys and values, and Qwen 3, which has norms of heads."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["QWEN2", "QWEN3"]


def windows(decoder: Decoder) -> list[int | None]:
    """Returns each block's window: none, or the same from one block on."""
    settings = decoder.settings
    first = settings.whole("max_window_layers", 28, least=0)
    used = settings.flag("use_sliding_window", False)
    return decoder.windows(lambda place: used and place >= first)


def _compose2(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, seen = decoder.rotary(), windows(decoder)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn", rotary=rotary, window=seen[place], bias=True, output_bias=False
        )
        return decoder.block(at, attention)

    return decoder.model(block)


def _compose3(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    rotary, seen = decoder.rotary(), windows(decoder)
    bias = folder.settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn", rotary=rotary, window=seen[place], bias=bias, norms=True
        )
        return decoder.block(at, attention)

    return decoder.model(block)


QWEN2 = Family("Qwen 2", ("qwen2",), _compose2, base=("model.",))
QWEN3 = Family("Qwen 3", ("qwen3",), _compose3, base=("model.",))
