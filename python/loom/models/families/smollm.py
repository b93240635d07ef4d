"""SmolLM 3: Llama's blocks, some of them without places; SmolLM 2 is a Llama."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["SMOLLM3"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder)
    settings = folder.settings
    count = settings.layers()
    every = settings.whole("no_rope_layer_interval", 4)
    turns = settings.list_of("no_rope_layers", count) or [(place + 1) % every != 0 for place in range(count)]
    slides = settings.flag("use_sliding_window", False)
    windows = decoder.windows(lambda place: slides and not turns[place])
    bias = settings.flag("attention_bias", False)
    rotary = decoder.rotary()

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary if turns[place] else None,
            window=windows[place] if slides else None,
            bias=bias,
        )
        return decoder.block(at, attention)

    return decoder.model(block, tied=True)


SMOLLM3 = Family("SmolLM 3", ("smollm3",), _compose, base=("model.",))
