"""OPT: learned places, norms before or behind, perhaps words of another width than the blocks'."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, separate
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import Piece, bare_norm, dense, layer_norm, residual, take

__all__ = ["OPT"]

_SKIPPED = 2
"""Rows of the table of places that no step has."""


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    width, most = settings.whole("hidden_size"), settings.whole("max_position_embeddings", 2048)
    words = settings.whole("word_embed_proj_dim", width)
    hidden = settings.whole("ffn_dim")
    activation = settings.one_of("activation_function", ACTIVATIONS, "relu")
    first = settings.flag("do_layer_norm_before", True)
    bias = settings.flag("enable_bias", True)
    make = layer_norm if settings.flag("layer_norm_elementwise_affine", True) else bare_norm
    layer = nn.MultiHeadAttention(settings.whole("num_attention_heads"), causal=True, bias=bias)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    places = take("embed_positions.weight", most + _SKIPPED).part(_SKIPPED, most + _SKIPPED)
    pieces = [Piece(nn.PositionalEmbedding(most), {"weight": places})]
    if words != width:
        pieces.insert(0, dense("project_in", width, bias=False))
    for place in range(settings.layers()):
        at = f"layers.{place}"
        attention = Piece(layer, separate(f"{at}.self_attn", 4 * (bias,), 4 * (width,), names))
        layers = [
            dense(f"{at}.fc1", hidden, bias=bias, activation=activation),
            dense(f"{at}.fc2", width, bias=bias),
        ]
        norms = [make(f"{at}.{name}", 1e-5) for name in ("self_attn_layer_norm", "final_layer_norm")]
        if first:
            pieces += [residual(norms[0], attention), residual(norms[1], *layers)]
        else:
            pieces += [residual(attention), norms[0], residual(*layers), norms[1]]
    if first and not settings.flag("_remove_final_layer_norm", False):
        pieces.append(make("final_layer_norm", 1e-5))
    if words != width:
        pieces.append(dense("project_out", words, bias=False))
    return language_model(folder, words, most, "embed_tokens", pieces, tied=True)


OPT = Family("OPT", ("opt",), _compose, base=("model.decoder.", "decoder.", "model."))
