"""Gemma 1, 2 and 3: gains that count from 1, scaled embeddings, and from 2 on more norms and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, residual

__all__ = ["GEMMA", "GEMMA2", "GEMMA3", "VAULT_GEMMA"]


def _compose1(folder: Folder) -> Composition:
    decoder = Decoder(folder, offset=1.0)
    rotary = decoder.rotary()
    bias = folder.settings.flag("attention_bias", False)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, bias=bias)
        return decoder.block(at, attention)

    return decoder.model(block, tied=True, scale=sqrt(decoder.width))


def _later(
    folder: Folder, slides: Callable[[int], bool], norms: bool = False, behind: bool = True
) -> Composition:
    """Returns Gemma 2 or 3, or VaultGemma: norms on both sides or before, some blocks with a window."""
    decoder = Decoder(folder, offset=1.0)
    settings = folder.settings
    windows = decoder.windows(slides)
    ahead = settings.flag("use_bidirectional_attention", False)
    if ahead:
        # What config.json says is the extent of both sides together.
        windows = [None if window is None else window // 2 + 1 for window in windows]
    bias = settings.flag("attention_bias", False)
    score = settings.real("query_pre_attn_scalar", 256.0, above=0.0) ** -0.5
    cap = settings.real("attn_logit_softcapping") if "attn_logit_softcapping" in settings else None
    rotary = decoder.rotary("full_attention")
    near = decoder.rotary("sliding_attention", near="rope_local_base_freq") if norms else rotary

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary if windows[place] is None else near,
            bias=bias,
            window=windows[place],
            norms=norms,
            scale=score,
            soft_cap=cap,
            causal=not ahead,
        )
        feed_forward = decoder.feed_forward(f"{at}.mlp", "hidden_activation")
        rows = (
            ("input_layernorm", attention, "post_attention_layernorm"),
            ("pre_feedforward_layernorm", feed_forward, "post_feedforward_layernorm"),
        )
        return [
            residual(
                decoder.norm(f"{at}.{before}"), piece, *([decoder.norm(f"{at}.{after}")] if behind else [])
            )
            for before, piece, after in rows
        ]

    return decoder.model(block, tied=True, scale=sqrt(decoder.width))


def _compose2(folder: Folder) -> Composition:
    return _later(folder, lambda place: place % 2 == 0)


def _compose_vault(folder: Folder) -> Composition:
    return _later(folder, lambda place: place % 2 == 0, behind=False)


def _compose3(folder: Folder) -> Composition:
    every = folder.settings.whole("sliding_window_pattern", 6)
    return _later(folder, lambda place: (place + 1) % every != 0, norms=True)


GEMMA = Family("Gemma", ("gemma",), _compose1, base=("model.",))
GEMMA2 = Family("Gemma 2", ("gemma2",), _compose2, base=("model.",))
GEMMA3 = Family("Gemma 3", ("gemma3_text",), _compose3, base=("model.",))
VAULT_GEMMA = Family("VaultGemma", ("vaultgemma",), _compose_vault, base=("model.",))
