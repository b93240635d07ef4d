"""Falcon 1 and 2: attention and two Dense layers, mostly side by side; heads share keys and values."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, grouped
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import Piece, dense, layer_norm, mixed, residual, weight_and_bias
from loom.models.families.rotary import longest, rotary_of

__all__ = ["FALCON"]


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    # What it adds to scores is divided with them, which nn.ALiBi does not do.
    settings.only(alibi=False)
    width, heads = settings.whole("hidden_size"), settings.whole("num_attention_heads")
    epsilon = settings.real("layer_norm_epsilon", 1e-5)
    hidden = settings.whole("ffn_hidden_size", 4 * width)
    activation = settings.one_of("activation", ACTIVATIONS, "gelu")
    bias = settings.flag("bias", False)
    newer, parallel = settings.flag("new_decoder_architecture", False), settings.flag("parallel_attn", True)
    norms = settings.whole("num_ln_in_parallel_attn", 2 if newer else 1)
    if newer and not parallel:
        raise settings.unsupported("parallel_attn", False, [True])
    if norms > (2 if newer else 1):
        raise settings.unsupported("num_ln_in_parallel_attn", norms, [1, 2] if newer else [1])
    shared = settings.whole("num_kv_heads", heads)
    if not newer and settings.flag("multi_query", True):
        shared = 1
    extent = width // heads or 1
    layer = nn.MultiHeadAttention(
        heads, key_value_heads=shared, causal=True, bias=bias, rotary=rotary_of(folder, extent)
    )
    pieces = []
    for place in range(settings.layers()):
        at = f"h.{place}"
        together = weight_and_bias(
            f"{at}.self_attention.query_key_value", bias, (heads + 2 * shared) * extent
        )
        tensors = grouped(together, heads, shared, weight_and_bias(f"{at}.self_attention.dense", bias))
        attention = Piece(layer, tensors)
        layers = [
            dense(f"{at}.mlp.dense_h_to_4h", hidden, bias=bias, activation=activation),
            dense(f"{at}.mlp.dense_4h_to_h", width, bias=bias),
        ]
        if not parallel:
            pieces += [
                residual(layer_norm(f"{at}.input_layernorm", epsilon), attention),
                residual(layer_norm(f"{at}.post_attention_layernorm", epsilon), *layers),
            ]
        elif norms == 2:
            first, second = (layer_norm(f"{at}.{name}", epsilon) for name in ("ln_attn", "ln_mlp"))
            pieces.append(mixed([], [first, attention], [second, *layers]))
        else:
            pieces.append(residual(layer_norm(f"{at}.input_layernorm", epsilon), mixed([attention], layers)))
    pieces.append(layer_norm("ln_f", epsilon))
    return language_model(folder, width, longest(settings), "word_embeddings", pieces, tied=True)


FALCON = Family(
    "Falcon",
    ("falcon",),
    _compose,
    base=("transformer.",),
    unused=(r"h\.\d+\.self_attention\.rotary_emb\.inv_freq",),
)
