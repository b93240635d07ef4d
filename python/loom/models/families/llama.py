"""Llama 2 and 3, and what is Llama but for a setting: Arcee, ERNIE 4.5, Helium, Seed-OSS."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["ARCEE", "ERNIE", "HELIUM", "LLAMA", "SEED_OSS"]


def _composed(
    decoder: Decoder,
    rotary: dict[str, Any],
    bias: bool,
    output_bias: bool | None = None,
    mlp_bias: bool | None = None,
    tied: bool = False,
) -> Composition:
    """Returns Llama's blocks with some of its settings."""
    turning = decoder.rotary(**rotary)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=turning, bias=bias, output_bias=output_bias)
        return decoder.block(at, attention, decoder.feed_forward(f"{at}.mlp", bias=mlp_bias))

    return decoder.model(block, tied=tied)


def _compose(folder: Folder) -> Composition:
    return _composed(Decoder(folder), {}, folder.settings.flag("attention_bias", False))


def _compose_ernie(folder: Folder) -> Composition:
    bias = folder.settings.flag("use_bias", False)
    rotary = {"layout": "interleaved", "usual_base": 500_000.0}
    return _composed(Decoder(folder, usual_epsilon=1e-5), rotary, bias, mlp_bias=bias, tied=True)


def _compose_helium(folder: Folder) -> Composition:
    rotary = {"layout": "interleaved", "usual_base": 100_000.0}
    bias = folder.settings.flag("attention_bias", False)
    return _composed(Decoder(folder, usual_epsilon=1e-8), rotary, bias, output_bias=False)


def _compose_seed(folder: Folder) -> Composition:
    settings = folder.settings
    bias, output_bias = settings.flag("attention_bias", True), settings.flag("attention_out_bias", False)
    return _composed(Decoder(folder), {}, bias, output_bias)


def _compose_arcee(folder: Folder) -> Composition:
    """Two Dense layers stand where Llama has a gated layer."""
    decoder = Decoder(folder, usual_epsilon=1e-5)
    settings = folder.settings
    rotary = decoder.rotary()
    bias, mlp_bias = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias)
        layers = decoder.two_layers((f"{at}.mlp.up_proj", f"{at}.mlp.down_proj"), "relu2", mlp_bias)
        return decoder.block(at, attention, layers)

    return decoder.model(block)


LLAMA = Family(
    "Llama",
    ("llama",),
    _compose,
    base=("model.",),
    unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
ARCEE = Family("Arcee", ("arcee",), _compose_arcee, base=("model.",))
ERNIE = Family("ERNIE 4.5", ("ernie4_5",), _compose_ernie, base=("model.",))
HELIUM = Family("Helium", ("helium",), _compose_helium, base=("model.",))
SEED_OSS = Family("Seed-OSS", ("seed_oss",), _compose_seed, base=("model.",))
