"""BERT, RoBERTa and DistilBERT, with their heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from loom import nn
from loom.models.families.decoder import ACTIVATIONS
from loom.models.families.encoder import Encoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import (
    Array,
    Piece,
    Source,
    dense,
    embedding,
    layer_norm,
    masked,
    plain,
    take,
)
from loom.models.families.sentences import classes, pooling, usual_steps
from loom.models.families.settings import Settings

__all__ = ["BERT", "DISTILBERT", "ROBERTA"]

Head = Callable[["Text"], list[Piece]]


@dataclass(frozen=True)
class Text:
    """An encoder of text with what its heads ask for."""

    settings: Settings
    encoder: Encoder
    vocabulary: int

    @property
    def classes(self) -> int:
        """How many classes a classifier tells apart."""
        return classes(self.settings)

    def each_step(self, name: str) -> list[Piece]:
        """Returns a head that judges every step."""
        return [dense(name, self.classes)]

    def first(self, name: str, activation: str, out: str) -> list[Piece]:
        """Returns a head that judges the first step."""
        return [
            plain(nn.SequencePool("first")),
            dense(name, self.encoder.width, activation=activation),
            dense(out, self.classes),
        ]

    def words(self, name: str, norm: str, bias: str, activation: str) -> list[Piece]:
        """Returns a head that guesses words, with the embedding's table once more."""
        scores = {"weight": take("embeddings.word_embeddings.weight"), "bias": take(bias)}
        return [
            dense(name, self.encoder.width, activation=activation),
            layer_norm(norm, self.encoder.epsilon),
            Piece(nn.Dense(self.vocabulary), scores),
        ]


def _compose(
    folder: Folder,
    encoder: Encoder,
    count: int,
    at: str,
    places: Source,
    most: int,
    heads: Mapping[str, Head],
) -> Composition:
    """Returns embeddings, blocks and a head; padding is left out."""
    settings = folder.settings
    steps = usual_steps(folder, most)
    vocabulary = settings.whole("vocab_size")
    pieces = [
        embedding("embeddings.word_embeddings", vocabulary, encoder.width),
        Piece(nn.PositionalEmbedding(most), {"weight": places}),
        layer_norm("embeddings.LayerNorm", encoder.epsilon),
        *encoder.blocks(at, count),
    ]
    pooled = pooling(folder)
    if pooled is None:
        pieces += _head(folder, heads)(Text(settings, encoder, vocabulary))
    else:
        pieces += pooled
    if "pad_token_id" in settings:
        pieces = [masked(settings.whole("pad_token_id", least=0), *pieces)]
    return Composition((steps,), pieces, _OTHER_HEADS)


def _head(folder: Folder, heads: Mapping[str, Head]) -> Head:
    """Returns the head that the folder's architecture names; none where it names none."""
    for kind, head in heads.items():
        if (folder.architecture or "Model").endswith(kind):
            return head
    raise folder.settings.unsupported("architectures", folder.architecture, [f"...{kind}" for kind in heads])


_OTHER_HEADS = (
    r"pooler\..*",
    r"cls\.seq_relationship\..*",
    r"cls\.predictions\.(decoder\..*|bias)",
    r"cls\.predictions\.transform\..*",
    r"lm_head\..*",
    r"vocab_(transform|layer_norm|projector)\..*",
)
"""Tensors of heads that a folder may have beside the one that its architecture names."""
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
    "ForSequenceClassification": lambda text: text.first("pooler.dense", "tanh", "classifier"),
    "ForTokenClassification": lambda text: text.each_step("classifier"),
    "ForQuestionAnswering": lambda text: text.each_step("qa_outputs"),
    "ForMaskedLM": lambda text: text.words(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        text.encoder.activation,
    ),
    "Model": lambda text: [],
}
_ROBERTA_HEADS: dict[str, Head] = {
    **_BERT_HEADS,
    "ForSequenceClassification": lambda text: text.first("classifier.dense", "tanh", "classifier.out_proj"),
    "ForMaskedLM": lambda text: text.words("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "gelu"),
}
_DISTILBERT_HEADS: dict[str, Head] = {
    **_BERT_HEADS,
    "ForSequenceClassification": lambda text: text.first("pre_classifier", "relu", "classifier"),
    "ForMaskedLM": lambda text: text.words(
        "vocab_transform", "vocab_layer_norm", "vocab_projector.bias", text.encoder.activation
    ),
}


def _compose_bert(folder: Folder) -> Composition:
    settings = folder.settings
    most = settings.whole("max_position_embeddings", 512)
    count = settings.layers()
    return _compose(folder, _encoder(settings), count, "encoder.layer", _places(), most, _BERT_HEADS)


def _compose_roberta(folder: Folder) -> Composition:
    """Places begin behind the padding token's number."""
    settings = folder.settings
    skipped = settings.whole("pad_token_id", 1, least=0) + 1
    most = settings.whole("max_position_embeddings", 514) - skipped
    count = settings.layers()
    return _compose(
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
    return _compose(folder, encoder, count, "transformer.layer", places, most, _DISTILBERT_HEADS)


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
