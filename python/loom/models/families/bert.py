"""BERT, RoBERTa, DistilBERT, ELECTRA and MPNet, with their heads."""

from __future__ import annotations

import numpy as np

from loom import nn
from loom.models.families.decoder import ACTIVATIONS
from loom.models.families.encoder import Encoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Array, Source, dense, take
from loom.models.families.settings import Settings
from loom.models.families.texts import HEADS, Head, text_encoder

__all__ = ["BERT", "DISTILBERT", "ELECTRA", "MPNET", "ROBERTA"]

_SKIPPED = 2
"""Places that no step has of MPNet's: those up to the padding token's."""
_BLOCK = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
    "attention.output.LayerNorm",
    "output.LayerNorm",
)


def _encoder(settings: Settings) -> Encoder:
    settings.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return Encoder(
        settings.whole("hidden_size"),
        settings.whole("num_attention_heads"),
        settings.whole("intermediate_size"),
        settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        settings.real("layer_norm_eps", 1e-12),
        _BLOCK,
    )


def _places(skipped: int = 0) -> Source:
    """Returns the table of places, with the first segment's vector in it: all text is of that segment."""

    def made(rows: Array, segments: Array) -> Array:
        return np.asarray(rows[skipped:] + segments[0])

    return Source(("embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"), made)


_BERT_HEADS: dict[str, Head] = {
    **HEADS,
    "ForSequenceClassification": lambda text: text.first("pooler.dense", "tanh", "classifier"),
    "ForMaskedLM": lambda text: text.words(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
        text.encoder.activation,
    ),
}
_ROBERTA_HEADS: dict[str, Head] = {
    **HEADS,
    "ForSequenceClassification": lambda text: text.first("classifier.dense", "tanh", "classifier.out_proj"),
    "ForMaskedLM": lambda text: text.words(
        "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", "gelu"
    ),
}
_DISTILBERT_HEADS: dict[str, Head] = {
    **HEADS,
    "ForSequenceClassification": lambda text: text.first("pre_classifier", "relu", "classifier"),
    "ForMaskedLM": lambda text: text.words(
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector",
        "vocab_projector.bias",
        text.encoder.activation,
    ),
}
_ELECTRA_HEADS: dict[str, Head] = {
    **HEADS,
    "ForSequenceClassification": lambda text: text.first("classifier.dense", "gelu", "classifier.out_proj"),
    "ForPreTraining": lambda text: [
        dense("discriminator_predictions.dense", text.encoder.width, activation=text.encoder.activation),
        dense("discriminator_predictions.dense_prediction", 1),
    ],
    "ForMaskedLM": lambda text: text.words(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head",
        "generator_lm_head.bias",
        "gelu",
        text.settings.whole("embedding_size", 128),
    ),
}


def _compose_bert(folder: Folder) -> Composition:
    settings = folder.settings
    most = settings.whole("max_position_embeddings", 512)
    count = settings.layers()
    return text_encoder(folder, _encoder(settings), count, "encoder.layer", _places(), most, _BERT_HEADS)


def _compose_electra(folder: Folder) -> Composition:
    """Embeddings may be narrower than blocks."""
    settings = folder.settings
    most, narrow = settings.whole("max_position_embeddings", 512), settings.whole("embedding_size", 128)
    encoder, count = _encoder(settings), settings.layers()
    return text_encoder(folder, encoder, count, "encoder.layer", _places(), most, _ELECTRA_HEADS, narrow)


def _compose_mpnet(folder: Folder) -> Composition:
    """What is added to scores by distance is one table's for all blocks, here each block's own."""
    settings = folder.settings
    # The reference has these numbers in its code.
    settings.only(pad_token_id=1, relative_attention_num_buckets=32)
    encoder = Encoder(
        settings.whole("hidden_size"),
        settings.whole("num_attention_heads"),
        settings.whole("intermediate_size"),
        settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        settings.real("layer_norm_eps", 1e-12),
        (
            *(f"attention.attn.{name}" for name in ("q", "k", "v", "o")),
            "intermediate.dense",
            "output.dense",
            "attention.LayerNorm",
            "output.LayerNorm",
        ),
        distances=(nn.RelativeBias(32, 128), take("encoder.relative_attention_bias.weight")),
    )
    most = settings.whole("max_position_embeddings", 512) - _SKIPPED
    places = take("embeddings.position_embeddings.weight").then(lambda rows: rows[_SKIPPED:])
    return text_encoder(folder, encoder, settings.layers(), "encoder.layer", places, most, _ROBERTA_HEADS)


def _compose_roberta(folder: Folder) -> Composition:
    """Places begin behind the padding token's number."""
    settings = folder.settings
    skipped = settings.whole("pad_token_id", 1, least=0) + 1
    most = settings.whole("max_position_embeddings", 514) - skipped
    count = settings.layers()
    return text_encoder(
        folder, _encoder(settings), count, "encoder.layer", _places(skipped), most, _ROBERTA_HEADS
    )


def _compose_distilbert(folder: Folder) -> Composition:
    settings = folder.settings
    encoder = Encoder(
        settings.whole("dim"),
        settings.whole("n_heads"),
        settings.whole("hidden_dim"),
        settings.one_of("activation", ACTIVATIONS, "gelu"),
        1e-12,
        (
            *(f"attention.{name}_lin" for name in ("q", "k", "v", "out")),
            "ffn.lin1",
            "ffn.lin2",
            "sa_layer_norm",
            "output_layer_norm",
        ),
    )
    most = settings.whole("max_position_embeddings", 512)
    places = take("embeddings.position_embeddings.weight")
    count = settings.layers("n_layers")
    return text_encoder(folder, encoder, count, "transformer.layer", places, most, _DISTILBERT_HEADS)


_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_IDS = r"embeddings\.(position_ids|token_type_ids)"
BERT = Family("BERT", ("bert",), _compose_bert, base=("bert.",), renamed=_NORMS, unused=(_IDS,))
ROBERTA = Family(
    "RoBERTa",
    ("roberta", "xlm-roberta", "camembert"),
    _compose_roberta,
    base=("roberta.",),
    renamed=_NORMS,
    unused=(_IDS,),
)
DISTILBERT = Family("DistilBERT", ("distilbert",), _compose_distilbert, base=("distilbert.",), unused=(_IDS,))
ELECTRA = Family("ELECTRA", ("electra",), _compose_electra, base=("electra.",), unused=(_IDS,))
MPNET = Family("MPNet", ("mpnet",), _compose_mpnet, base=("mpnet.",), unused=(_IDS,))
