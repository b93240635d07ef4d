"""ModernBERT: rotary places, gated layers, and blocks of which some see only what is near."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, fused
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import (
    Piece,
    dense,
    embedding,
    layer_norm,
    masked,
    plain,
    residual,
    take,
    weight_and_bias,
)
from loom.models.families.rotary import rotary_of
from loom.models.families.sentences import classes, pooling, usual_steps
from loom.models.families.settings import Settings

__all__ = ["MODERNBERT"]

_POOLED = {"cls": "first", "mean": "mean"}


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    settings.only(rope_scaling=None)
    width, vocabulary = settings.whole("hidden_size"), settings.whole("vocab_size")
    pieces = [embedding("embeddings.tok_embeddings", vocabulary, width), _norm(settings, "embeddings.norm")]
    every = settings.whole("global_attn_every_n_layers", 3)
    kinds = settings.list_of("layer_types", settings.layers()) or [
        "sliding_attention" if place % every else "full_attention" for place in range(settings.layers())
    ]
    for place, kind in enumerate(kinds):
        pieces += _block(folder, place, kind, width)
    pieces.append(_norm(settings, "final_norm"))
    pooled = pooling(folder)
    pieces += _head(folder, width, vocabulary) if pooled is None else pooled
    if "pad_token_id" in settings:
        pieces = [masked(settings.whole("pad_token_id", least=0), *pieces)]
    steps = usual_steps(folder, settings.whole("max_position_embeddings", 8192))
    return Composition((steps,), pieces, (r"head\..*", r"decoder\..*"))


def _norm(settings: Settings, name: str) -> Piece:
    return layer_norm(name, settings.real("norm_eps", 1e-5), settings.flag("norm_bias", False))


def _block(folder: Folder, place: int, kind: object, width: int) -> list[Piece]:
    """Returns a block; the first has no norm before attention."""
    settings, at = folder.settings, f"layers.{place}"
    heads = settings.whole("num_attention_heads")
    bias, mlp_bias = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)
    if kind not in ("full_attention", "sliding_attention"):
        raise settings.unsupported("layer_types", kind, ["full_attention", "sliding_attention"])
    everywhere = kind == "full_attention"
    own = "local_rope_theta" if "local_rope_theta" in settings else "global_rope_theta"
    base, usual = ("global_rope_theta", 160_000.0) if everywhere else (own, 10_000.0)
    layer = nn.MultiHeadAttention(
        heads,
        bias=bias,
        # Both sides together are told, and the farthest step is seen.
        window=None if everywhere else settings.whole("local_attention", 128) // 2 + 1,
        rotary=rotary_of(folder, width // heads or 1, base, kind=str(kind), near=own, usual_base=usual),
    )
    together = weight_and_bias(f"{at}.attn.Wqkv", bias, 3 * width)
    attention = Piece(layer, fused(together, width, width, weight_and_bias(f"{at}.attn.Wo", bias)))
    function = settings.one_of("hidden_activation", ACTIVATIONS, "gelu")
    hidden = settings.whole("intermediate_size")
    halves = {
        f"{half}_{name}": source.part(start, start + hidden)
        for half, start in (("gate", 0), ("up", hidden))
        for name, source in weight_and_bias(f"{at}.mlp.Wi", mlp_bias, 2 * hidden).items()
    }
    down = {f"down_{name}": source for name, source in weight_and_bias(f"{at}.mlp.Wo", mlp_bias).items()}
    gated = (nn.GeGLU if "gelu" in function else nn.SwiGLU)(hidden, bias=mlp_bias, activation=function)
    before = [_norm(settings, f"{at}.attn_norm")] if place else []
    return [
        residual(*before, attention),
        residual(_norm(settings, f"{at}.mlp_norm"), Piece(gated, halves | down)),
    ]


def _head(folder: Folder, width: int, vocabulary: int) -> list[Piece]:
    """Returns the head that the folder's architecture names; none where it names none."""
    settings, architecture = folder.settings, folder.architecture or "Model"
    if architecture.endswith("Model"):
        return []
    activation = settings.one_of("classifier_activation", ACTIVATIONS, "gelu")
    shared = [
        dense("head.dense", width, bias=settings.flag("classifier_bias", False), activation=activation),
        _norm(settings, "head.norm"),
    ]
    if architecture.endswith("ForMaskedLM"):
        bias = settings.flag("decoder_bias", True)
        tied = settings.flag("tie_word_embeddings", True)
        table = "embeddings.tok_embeddings" if tied else "decoder"
        tensors = {"weight": take(f"{table}.weight", vocabulary)}
        tensors |= {"bias": take("decoder.bias")} if bias else {}
        return [*shared, Piece(nn.Dense(vocabulary, bias=bias), tensors)]
    if architecture.endswith(("ForTokenClassification", "ForQuestionAnswering")):
        return [*shared, dense("classifier", classes(settings))]
    if architecture.endswith("ForSequenceClassification"):
        pool = nn.SequencePool(settings.one_of("classifier_pooling", _POOLED, "cls"))
        return [plain(pool), *shared, dense("classifier", classes(settings))]
    known = ("MaskedLM", "TokenClassification", "QuestionAnswering", "SequenceClassification")
    raise settings.unsupported(
        "architectures", architecture, [*(f"...For{kind}" for kind in known), "...Model"]
    )


MODERNBERT = Family("ModernBERT", ("modernbert",), _compose, base=("model.",))
