"""StableLM 2: layer norms, and part of each head turns."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, layer_norm

__all__ = ["STABLELM"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder, epsilons="layer_norm_eps", usual_epsilon=1e-5, normalize=layer_norm)
    settings = folder.settings
    settings.only(qk_layernorm=False)
    rotary = decoder.rotary(usual_share=0.25)
    bias = settings.flag("use_qkv_bias", False)
    parallel = settings.flag("use_parallel_residual", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias, output_bias=False)
        feed_forward = decoder.feed_forward(f"{at}.mlp", bias=False)
        if parallel:
            return decoder.beside(attention, feed_forward, f"{at}.input_layernorm")
        return decoder.block(at, attention, feed_forward)

    return decoder.model(block)


STABLELM = Family(
    "StableLM",
    ("stablelm",),
    _compose,
    base=("model.",),
    unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)
