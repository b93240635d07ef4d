"""BLOOM: no places but ALiBi, and a norm behind the embedding."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import grouped
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import Piece, dense, layer_norm, residual, weight_and_bias

__all__ = ["BLOOM"]


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    settings.only(apply_residual_connection_post_layernorm=False)
    # Older folders have other names.
    widths, layers, heads = (
        older if older in settings else name
        for older, name in (
            ("n_embed", "hidden_size"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
        )
    )
    width, count = settings.whole(widths), settings.whole(heads)
    epsilon = settings.real("layer_norm_epsilon", 1e-5)
    layer = nn.MultiHeadAttention(count, causal=True, position_bias=nn.ALiBi())
    pieces = [layer_norm("word_embeddings_layernorm", epsilon)]
    for place in range(settings.layers(layers)):
        at = f"h.{place}"
        together = weight_and_bias(f"{at}.self_attention.query_key_value", True, 3 * width)
        tensors = grouped(together, count, count, weight_and_bias(f"{at}.self_attention.dense"))
        pieces += [
            residual(layer_norm(f"{at}.input_layernorm", epsilon), Piece(layer, tensors)),
            residual(
                layer_norm(f"{at}.post_attention_layernorm", epsilon),
                dense(f"{at}.mlp.dense_h_to_4h", 4 * width, activation="gelu_tanh"),
                dense(f"{at}.mlp.dense_4h_to_h", width),
            ),
        ]
    pieces.append(layer_norm("ln_f", epsilon))
    most = settings.whole("seq_length", 2048)
    return language_model(folder, width, most, "word_embeddings", pieces, tied=True)


BLOOM = Family("BLOOM", ("bloom",), _compose, base=("transformer.",))
