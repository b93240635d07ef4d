"""Nemotron and Minitron: layer norms whose gains count from 1, squared ReLU, half of each head turns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, layer_norm

__all__ = ["NEMOTRON"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(
        folder, epsilons="norm_eps", usual_epsilon=1e-5, normalize=partial(layer_norm, offset=1.0)
    )
    settings = folder.settings
    settings.only(rope_scaling=None)
    rotary = decoder.rotary(usual_share=0.5)
    bias, mlp_bias = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias)
        layers = decoder.two_layers((f"{at}.mlp.up_proj", f"{at}.mlp.down_proj"), "relu2", mlp_bias)
        return decoder.block(at, attention, layers)

    return decoder.model(block)


NEMOTRON = Family("Nemotron", ("nemotron",), _compose, base=("model.",))
