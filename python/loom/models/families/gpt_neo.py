"""GPT-Neo, which does not scale scores and has windows; GPT-J, with the halves of blocks side by side."""

from __future__ import annotations

from itertools import islice

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, separate
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import Piece, dense, layer_norm, mixed, residual, take
from loom.models.families.settings import MOST_LAYERS, Settings

__all__ = ["GPTJ", "GPT_NEO"]

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def _compose_neo(folder: Folder) -> Composition:
    settings = folder.settings
    width, most = settings.whole("hidden_size"), settings.whole("max_position_embeddings", 2048)
    epsilon = settings.real("layer_norm_epsilon", 1e-5)
    hidden = settings.whole("intermediate_size", 4 * width)
    activation = settings.one_of("activation_function", ACTIVATIONS, "gelu_new")
    pieces = [Piece(nn.PositionalEmbedding(most), {"weight": take("wpe.weight", most)})]
    for place, kind in enumerate(_kinds(settings)):
        at = f"h.{place}"
        layer = nn.MultiHeadAttention(
            settings.whole("num_heads"),
            causal=True,
            bias=False,
            output_bias=True,
            scale=1.0,
            window=settings.whole("window_size", 256) if kind == "local" else None,
        )
        tensors = separate(f"{at}.attn.attention", (False, False, False, True), 4 * (width,), _NAMES)
        pieces += [
            residual(layer_norm(f"{at}.ln_1", epsilon), Piece(layer, tensors)),
            residual(
                layer_norm(f"{at}.ln_2", epsilon),
                dense(f"{at}.mlp.c_fc", hidden, activation=activation),
                dense(f"{at}.mlp.c_proj", width),
            ),
        ]
    pieces.append(layer_norm("ln_f", epsilon))
    return language_model(folder, width, most, "wte", pieces, tied=True)


def _kinds(settings: Settings) -> list[str]:
    """Returns each block's kind of attention, said one by one or as lists that repeat."""
    count = settings.layers("num_layers")
    kinds = settings.list_of("attention_layers", count)
    if not kinds:
        items = settings.items("attention_types") or [[["global", "local"], count]]
        if not all(_repeats(item) for item in items):
            raise settings.unsupported("attention_types", items, ["lists of kinds, with how often they come"])
        each = (kind for of, times in items for _ in range(times) for kind in of)
        kinds = list(islice(each, count))
    for kind in kinds:
        if kind not in ("global", "local"):
            raise settings.unsupported("attention_types", kind, ["global", "local"])
    if len(kinds) < count:
        raise settings.unsupported("attention_types", kinds, [f"kinds of {count} blocks"])
    return kinds


def _repeats(item: object) -> bool:
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], list) or not item[0]:
        return False
    return isinstance(item[1], int) and 0 < item[1] <= MOST_LAYERS


def _compose_j(folder: Folder) -> Composition:
    settings = folder.settings
    width, most = settings.whole("n_embd"), settings.whole("n_positions", 2048)
    heads = settings.whole("n_head")
    epsilon = settings.real("layer_norm_epsilon", 1e-5)
    hidden = settings.whole("n_inner", 4 * width)
    activation = settings.one_of("activation_function", ACTIVATIONS, "gelu_new")
    turning = settings.whole("rotary_dim", width // heads or 1)
    layer = nn.MultiHeadAttention(
        heads, causal=True, bias=False, rotary=nn.Rotary(layout="interleaved", dim=turning)
    )
    pieces = []
    for place in range(settings.layers("n_layer")):
        at = f"h.{place}"
        attention = Piece(layer, separate(f"{at}.attn", 4 * (False,), 4 * (width,), _NAMES))
        layers = [dense(f"{at}.mlp.fc_in", hidden, activation=activation), dense(f"{at}.mlp.fc_out", width)]
        pieces.append(residual(layer_norm(f"{at}.ln_1", epsilon), mixed([attention], layers)))
    pieces.append(layer_norm("ln_f", epsilon))
    return language_model(folder, width, most, "wte", pieces, tied=False, bias=True)


_MASKS = (r"h\.\d+\.attn\.(attention\.)?(bias|masked_bias)",)
GPT_NEO = Family("GPT-Neo", ("gpt_neo",), _compose_neo, base=("transformer.",), unused=_MASKS)
GPTJ = Family("GPT-J", ("gptj",), _compose_j, base=("transformer.",), unused=_MASKS)
