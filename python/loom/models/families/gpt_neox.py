"""GPT-NeoX and Pythia: attention and feed-forward side by side, rotary embedding on part of a head."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, grouped
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import (
    Piece,
    dense,
    layer_norm,
    mixed,
    residual,
    weight_and_bias,
)
from loom.models.families.rotary import longest, rotary_of

__all__ = ["GPT_NEOX"]


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    width, heads = settings.whole("hidden_size"), settings.whole("num_attention_heads")
    epsilon = settings.real("layer_norm_eps", 1e-5)
    hidden = settings.whole("intermediate_size")
    activation = settings.one_of("hidden_act", ACTIVATIONS, "gelu")
    bias = settings.flag("attention_bias", True)
    parallel = settings.flag("use_parallel_residual", True)
    layer = nn.MultiHeadAttention(
        heads,
        causal=True,
        bias=bias,
        rotary=rotary_of(folder, width // heads or 1, base="rotary_emb_base", share="rotary_pct"),
    )
    pieces = []
    for place in range(settings.layers()):
        at = f"layers.{place}"
        together = weight_and_bias(f"{at}.attention.query_key_value", bias, 3 * width)
        tensors = grouped(together, heads, heads, weight_and_bias(f"{at}.attention.dense", bias))
        attention = [layer_norm(f"{at}.input_layernorm", epsilon), Piece(layer, tensors)]
        feed_forward = [
            layer_norm(f"{at}.post_attention_layernorm", epsilon),
            dense(f"{at}.mlp.dense_h_to_4h", hidden, activation=activation),
            dense(f"{at}.mlp.dense_4h_to_h", width),
        ]
        if parallel:
            pieces.append(mixed([], attention, feed_forward))
        else:
            pieces += [residual(*attention), residual(*feed_forward)]
    pieces.append(layer_norm("final_layer_norm", epsilon))
    return language_model(folder, width, longest(settings), "embed_in", pieces, tied=False, head="embed_out")


GPT_NEOX = Family(
    "GPT-NeoX",
    ("gpt_neox",),
    _compose,
    base=("gpt_neox.",),
    unused=(r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
)
