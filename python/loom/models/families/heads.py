"""What stands on a decoder: scores of words, scores of classes, or a vector of a whole text."""

from __future__ import annotations

from collections.abc import Iterable

from loom import nn
from loom.models.families.family import Composition, Folder
from loom.models.families.pieces import Piece, dense, embedding, masked, plain
from loom.models.families.sentences import classes, pooling, usual_steps

__all__ = ["language_model"]


def language_model(
    folder: Folder,
    width: int,
    most: int,
    table: str,
    pieces: Iterable[Piece],
    *,
    tied: bool,
    head: str = "lm_head",
    bias: bool = False,
    factor: float = 1.0,
) -> Composition:
    """Returns an embedding, pieces, and what stands on them.

    That is a score for each word after each step, where the folder's architecture is a causal language
    model's; scores of classes, of a text or of each step; or the vector of a text that modules.json tells of.

    Args:
        folder: What config.json and the tensors say.
        width: Extent of the table's rows.
        most: The most steps that the model knows.
        table: What the embedding is called.
        pieces: What stands between the embedding and the head.
        tied: Whether the head has the embedding's table where config.json is silent.
        head: What the head is called.
        bias: Whether the head has a bias.
        factor: What the scores are multiplied by.
    """
    settings = folder.settings
    vocabulary = settings.whole("vocab_size")
    layers = [embedding(table, vocabulary, width), *pieces]
    whole = _of_texts(folder)
    if whole is not None:
        pooled = _without_padding(folder, [*layers, *whole])
        return Composition((usual_steps(folder, most),), pooled, (rf"{head}\.(weight|bias)",))
    tied = settings.flag("tie_word_embeddings", tied)
    unused: tuple[str, ...] = ()
    scores = _has_head(folder, head, tied)
    if scores and tied and not bias:
        layers.append(Piece(nn.TiedHead(vocabulary, tied_to=(0, 0, 0, 0))))
        unused = (rf"{head}\.weight",)
    elif scores and tied:
        # A tied head has no bias, so that the two would have to train apart.
        raise settings.unsupported("tie_word_embeddings", True, [False])
    elif scores:
        layers.append(dense(head, vocabulary, bias=bias))
    if scores and factor != 1.0:
        layers.append(plain(nn.Scale(factor)))
    if scores and "final_logit_softcapping" in settings:
        layers.append(plain(nn.SoftCap(settings.real("final_logit_softcapping"))))
    return Composition((folder.steps(most),), layers, unused)


def _has_head(folder: Folder, head: str, tied: bool) -> bool:
    """Returns whether a decoder's folder has scores for words on top."""
    architecture = folder.architecture
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return True
    if not architecture:
        return tied or f"{head}.weight" in folder.shapes
    if architecture.endswith("Model"):
        return False
    known = [
        "one of a causal language model",
        "one of a base model",
        "one that classifies sequences or tokens",
    ]
    raise folder.settings.unsupported("architectures", architecture, known)


def _of_texts(folder: Folder) -> list[Piece] | None:
    """Returns what makes a vector of a text, or scores of classes; None where it is scores of words."""
    pooled = pooling(folder)
    if pooled is not None:
        return pooled
    if folder.architecture.endswith("ForSequenceClassification"):
        return [plain(nn.SequencePool("last")), dense("score", classes(folder.settings), bias=False)]
    if folder.architecture.endswith("ForTokenClassification"):
        name = "score" if "score.weight" in folder.shapes else "classifier"
        return [dense(name, classes(folder.settings))]
    return None


def _without_padding(folder: Folder, pieces: list[Piece]) -> list[Piece]:
    """Returns pieces that leave out padding, where something tells what it is.

    Of some encoders of sentences the padding token is the one that ends every text, too, whose step makes the
    vector: they read texts as long as they are.
    """
    settings = folder.settings
    if "pad_token_id" not in settings:
        return pieces
    padding = settings.whole("pad_token_id", least=0)
    ends = settings.get("eos_token_id")
    if folder.modules("modules.json") and padding in (ends if isinstance(ends, list) else [ends]):
        return pieces
    return [masked(padding, *pieces)]
