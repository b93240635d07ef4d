"""OLMo: 1 with norms that have nothing trained, 2 and 3 with norms behind, and over all heads together."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, bare_norm

__all__ = ["OLMO", "OLMO2", "OLMO3"]


def _compose1(folder: Folder) -> Composition:
    decoder = Decoder(folder, normalize=lambda name, epsilon: bare_norm(name, 1e-5))
    folder.settings.only(clip_qkv=None)
    rotary = decoder.rotary()
    bias = folder.settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias)
        return decoder.block(at, attention, decoder.feed_forward(f"{at}.mlp", bias=False))

    return decoder.model(block)


def _later(folder: Folder, windows: list[int | None] | None) -> Composition:
    decoder = Decoder(folder, usual_epsilon=1e-5)
    rotary = decoder.rotary("full_attention")
    near = decoder.rotary("sliding_attention")
    bias = folder.settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        window = windows[place] if windows else None
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary if window is None else near,
            bias=bias,
            norms="width",
            window=window,
        )
        return decoder.behind(at, attention, decoder.feed_forward(f"{at}.mlp", bias=False))

    return decoder.model(block)


def _compose2(folder: Folder) -> Composition:
    return _later(folder, None)


def _compose3(folder: Folder) -> Composition:
    """Of every four blocks three have a window, and angles that no scaling changes."""
    return _later(folder, Decoder(folder).windows(lambda place: (place + 1) % 4 != 0))


OLMO = Family("OLMo", ("olmo",), _compose1, base=("model.",))
OLMO2 = Family("OLMo 2", ("olmo2",), _compose2, base=("model.",))
OLMO3 = Family("OLMo 3", ("olmo3",), _compose3, base=("model.",))
