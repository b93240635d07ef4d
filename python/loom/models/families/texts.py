"""What encoders of text that are made like BERT have in common: embeddings, blocks, and heads by name."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from loom import nn
from loom.models.families.encoder import Encoder
from loom.models.families.family import Composition, Folder
from loom.models.families.pieces import (
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

__all__ = ["HEADS", "Head", "Text", "head_of", "text_encoder"]

Head = Callable[["Text"], list[Piece]]


@dataclass(frozen=True)
class Text:
    """An encoder of text with what its heads ask for."""

    settings: Settings
    encoder: Encoder
    vocabulary: int
    names: Container[str]

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

    def words(
        self, name: str, norm: str, scores: str, bias: str, activation: str, width: int | None = None
    ) -> list[Piece]:
        """Returns a head that guesses words, with the embedding's table once more or one of its own."""
        tied = self.settings.flag("tie_word_embeddings", True)
        table = "embeddings.word_embeddings" if tied else scores
        if not tied and f"{scores}.bias" in self.names:
            # transformers 5 has a bias of its own there, and what has the usual name is not used.
            bias = f"{scores}.bias"
        tensors = {"weight": take(f"{table}.weight", self.vocabulary), "bias": take(bias)}
        return [
            dense(name, width or self.encoder.width, activation=activation),
            layer_norm(norm, self.encoder.epsilon),
            Piece(nn.Dense(self.vocabulary), tensors),
        ]


def text_encoder(
    folder: Folder,
    encoder: Encoder,
    count: int,
    at: str,
    places: Source,
    most: int,
    heads: Mapping[str, Head],
    table_width: int | None = None,
) -> Composition:
    """Returns embeddings, blocks and a head; padding is left out.

    Args:
        folder: What config.json and the tensors say.
        encoder: The blocks.
        count: How many there are.
        at: What their names begin with before their number.
        places: The table of places, without those that no step has.
        most: How many steps have a place.
        heads: What stands on the blocks, by the end of the architecture's name.
        table_width: Extent of the embeddings, where it is not the blocks'.
    """
    settings = folder.settings
    steps = usual_steps(folder, most)
    vocabulary = settings.whole("vocab_size")
    pieces = [
        embedding("embeddings.word_embeddings", vocabulary, table_width or encoder.width),
        Piece(nn.PositionalEmbedding(most), {"weight": places}),
        layer_norm("embeddings.LayerNorm", encoder.epsilon),
        *([dense("embeddings_project", encoder.width)] if table_width not in (None, encoder.width) else []),
        *encoder.blocks(at, count),
    ]
    pooled = pooling(folder)
    if pooled is None:
        pieces += head_of(folder, heads)(Text(settings, encoder, vocabulary, folder.shapes))
    else:
        pieces += pooled
    if "pad_token_id" in settings:
        pieces = [masked(settings.whole("pad_token_id", least=0), *pieces)]
    return Composition((steps,), pieces, _OTHER_HEADS)


def head_of(folder: Folder, heads: Mapping[str, Head]) -> Head:
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
    r"(discriminator|generator)_predictions\..*",
    r"generator_lm_head\..*",
)
"""Tensors of heads that a folder may have beside the one that its architecture names."""
HEADS: dict[str, Head] = {
    "ForTokenClassification": lambda text: text.each_step("classifier"),
    "ForQuestionAnswering": lambda text: text.each_step("qa_outputs"),
    "Model": lambda text: [],
}
"""Those that all have, under the same names."""
