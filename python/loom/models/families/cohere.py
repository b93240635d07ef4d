"""Cohere's Command: attention and the feed-forward layer side by side, norms without bias, scaled scores."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, layer_norm

__all__ = ["COHERE", "COHERE2"]


def _composed(folder: Folder, windows: list[int | None] | None) -> Composition:
    """Returns the model; where there are windows, blocks without one have no places."""
    decoder = Decoder(
        folder, epsilons="layer_norm_eps", usual_epsilon=1e-5, normalize=partial(layer_norm, bias=False)
    )
    settings = folder.settings
    rotary = decoder.rotary(layout="interleaved")
    bias = settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        window = windows[place] if windows else None
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary if windows is None or window is not None else None,
            window=window,
            bias=bias,
        )
        feed_forward = decoder.feed_forward(f"{at}.mlp", bias=False)
        return decoder.beside(attention, feed_forward, f"{at}.input_layernorm")

    return decoder.model(block, tied=True, factor=settings.real("logit_scale", 0.0625))


def _compose(folder: Folder) -> Composition:
    folder.settings.only(use_qk_norm=False)
    return _composed(folder, None)


def _compose2(folder: Folder) -> Composition:
    every = folder.settings.whole("sliding_window_pattern", 4)
    return _composed(folder, Decoder(folder).windows(lambda place: (place + 1) % every != 0))


COHERE = Family("Cohere", ("cohere",), _compose, base=("model.",))
COHERE2 = Family("Cohere 2", ("cohere2",), _compose2, base=("model.",))
