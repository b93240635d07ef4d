"""GLM-4: half of each head turns, neighbours together; since 0414 with norms on both sides."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, residual

__all__ = ["GLM", "GLM4"]


def _composed(folder: Folder, both_sides: bool) -> Composition:
    decoder = Decoder(folder, usual_epsilon=1.5625e-7)
    rotary = decoder.rotary(layout="interleaved", usual_share=0.5)
    bias = folder.settings.flag("attention_bias", True)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias, output_bias=False)
        feed_forward = decoder.half_fused(f"{at}.mlp")
        if not both_sides:
            return decoder.block(at, attention, feed_forward)
        rows = (
            ("input_layernorm", attention, "post_self_attn_layernorm"),
            ("post_attention_layernorm", feed_forward, "post_mlp_layernorm"),
        )
        return [
            residual(decoder.norm(f"{at}.{before}"), piece, decoder.norm(f"{at}.{behind}"))
            for before, piece, behind in rows
        ]

    return decoder.model(block)


def _compose(folder: Folder) -> Composition:
    return _composed(folder, both_sides=False)


def _compose4(folder: Folder) -> Composition:
    return _composed(folder, both_sides=True)


GLM = Family("GLM", ("glm",), _compose, base=("model.",))
GLM4 = Family("GLM-4 0414", ("glm4",), _compose4, base=("model.",))
