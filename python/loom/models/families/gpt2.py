"""GPT-2: learned places, layer norms, and weights that stand the other way round."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, fused
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import Piece, Source, dense, layer_norm, residual, take

__all__ = ["GPT2"]


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    settings.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width, most = settings.whole("n_embd"), settings.whole("n_positions")
    epsilon = settings.real("layer_norm_epsilon", 1e-5)
    hidden = settings.whole("n_inner", 4 * width)
    activation = settings.one_of("activation_function", ACTIVATIONS, "gelu_new")
    steps = folder.steps(most)
    pieces = [Piece(nn.PositionalEmbedding(most), {"weight": take("wpe.weight", most)})]
    for place in range(settings.layers("n_layer")):
        at = f"h.{place}"
        output = {
            "weight": take(f"{at}.attn.c_proj.weight").transposed(),
            "bias": take(f"{at}.attn.c_proj.bias"),
        }
        together = {
            "weight": take(f"{at}.attn.c_attn.weight").transposed(),
            "bias": take(f"{at}.attn.c_attn.bias"),
        }
        tensors = fused(together, width, width, output)
        attention = Piece(nn.MultiHeadAttention(settings.whole("n_head"), causal=True), tensors)
        pieces += [
            residual(layer_norm(f"{at}.ln_1", epsilon), attention),
            residual(
                layer_norm(f"{at}.ln_2", epsilon),
                dense(f"{at}.mlp.c_fc", hidden, activation=activation, change=Source.transposed),
                dense(f"{at}.mlp.c_proj", width, change=Source.transposed),
            ),
        ]
    pieces.append(layer_norm("ln_f", epsilon))
    return language_model(folder, width, steps, "wte", pieces, tied=True)


GPT2 = Family(
    "GPT-2", ("gpt2",), _compose, base=("transformer.",), unused=(r"h\.\d+\.attn\.(bias|masked_bias)",)
)
