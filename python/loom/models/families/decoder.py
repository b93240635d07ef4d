"""What decoders of the Hub have in common: blocks of attention and a feed-forward layer, and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loom import nn
from loom.models.families.family import Composition, Folder
from loom.models.families.pieces import (
    Piece,
    Source,
    dense,
    embedding,
    gated,
    plain,
    residual,
    rms_norm,
    take,
    weight_and_bias,
)
from loom.models.families.rotary import longest, rotary_of
from loom.models.families.settings import Settings

__all__ = ["ACTIVATIONS", "PROJECTIONS", "Decoder", "has_head", "language_model", "separate"]

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""loom's names of the Hub's activations."""
PROJECTIONS = ("query", "key", "value", "output")
SEPARATE = ("q_proj", "k_proj", "v_proj", "o_proj")


def separate(
    at: str, biases: Sequence[bool], rows: Sequence[int], names: Sequence[str] = SEPARATE
) -> dict[str, Source]:
    """Returns the sources of attention whose four projections, of so many rows, have tensors of their own."""
    return {
        f"{projection}_{each}": source
        for projection, name, bias, count in zip(PROJECTIONS, names, biases, rows, strict=True)
        for each, source in weight_and_bias(f"{at}.{name}", bias, count).items()
    }


@dataclass(frozen=True)
class Decoder:
    """The settings that nearly all decoders have, under their usual names.

    Args:
        folder: What config.json and the tensors say.
        offset: What is added to the gains of norms.
    """

    folder: Folder
    offset: float = 0.0

    @property
    def settings(self) -> Settings:
        """Those of config.json."""
        return self.folder.settings

    @property
    def width(self) -> int:
        """Extent of what flows from block to block."""
        return self.settings.whole("hidden_size")

    @property
    def heads(self) -> int:
        """Heads of the queries."""
        return self.settings.whole("num_attention_heads")

    @property
    def shared_heads(self) -> int:
        """Heads of keys and values."""
        return self.settings.whole("num_key_value_heads", self.heads)

    @property
    def head_dim(self) -> int:
        """Extent of a head."""
        return self.settings.whole("head_dim", self.width // self.heads or 1)

    @property
    def epsilon(self) -> float:
        """That of the norms."""
        return self.settings.real("rms_norm_eps", 1e-6)

    def norm(self, name: str) -> Piece:
        """Returns a root-mean-square norm."""
        return rms_norm(name, self.epsilon, self.offset)

    def attention(
        self,
        at: str,
        *,
        rotary: nn.Rotary | None,
        bias: bool = False,
        output_bias: bool | None = None,
        tensors: dict[str, Source] | None = None,
        norms: bool | str = False,
        **settings: Any,  # noqa: ANN401 - of nn.MultiHeadAttention
    ) -> Piece:
        """Returns causal attention, from the usual four projections unless other tensors are given."""
        layer = nn.MultiHeadAttention(
            self.heads,
            key_value_heads=self.shared_heads,
            head_dim=self.head_dim,
            causal=True,
            rotary=rotary,
            bias=bias,
            output_bias=output_bias,
            qk_norm=norms,
            qk_norm_epsilon=self.epsilon,
            **settings,
        )
        if tensors is None:
            queries, keys = self.heads * self.head_dim, self.shared_heads * self.head_dim
            biases = (bias, bias, bias, bias if output_bias is None else output_bias)
            tensors = separate(at, biases, (queries, keys, keys, self.width))
        if norms:
            for projection, name in (("query", "q_norm"), ("key", "k_norm")):
                gain = take(f"{at}.{name}.weight")
                tensors[f"{projection}_gain"] = gain.plus(self.offset) if self.offset else gain
        return Piece(layer, tensors)

    def rotary(self, kind: str | None = None) -> nn.Rotary:
        """Returns the rotary embedding that config.json tells of, for a type of blocks or for all."""
        return rotary_of(self.folder, self.head_dim, kind=kind)

    def feed_forward(self, at: str, activation: str = "hidden_act") -> Piece:
        """Returns a gated layer of three projections."""
        bias = self.settings.flag("mlp_bias", False)
        function = self.settings.one_of(activation, ACTIVATIONS, "silu")
        hidden = self.settings.whole("intermediate_size")
        layer = (nn.GeGLU if "gelu" in function else nn.SwiGLU)(hidden, bias=bias, activation=function)
        return gated(layer, at, bias)

    def block(self, at: str, attention: Piece, feed_forward: Piece | None = None) -> list[Piece]:
        """Returns the usual block: norms before attention and before the feed-forward layer."""
        feed_forward = feed_forward or self.feed_forward(f"{at}.mlp")
        return [
            residual(self.norm(f"{at}.input_layernorm"), attention),
            residual(self.norm(f"{at}.post_attention_layernorm"), feed_forward),
        ]

    def windows(self, slides: Callable[[int], bool] = lambda place: True) -> list[int | None]:
        """Returns each block's window; `slides` says which blocks have one where config.json does not."""
        settings = self.settings
        count = settings.layers()
        kinds = settings.list_of("layer_types", count) or [
            "sliding_attention" if "sliding_window" in settings and slides(place) else "full_attention"
            for place in range(count)
        ]
        known = ("full_attention", "sliding_attention")
        for kind in kinds:
            if kind not in known:
                raise settings.unsupported("layer_types", kind, known)
        return [settings.whole("sliding_window") if kind == known[1] else None for kind in kinds]

    def model(
        self, block: Callable[[int, str], Iterable[Piece]], tied: bool = False, scale: float = 1.0
    ) -> Composition:
        """Returns the whole: an embedding, blocks, a norm and a head.

        Args:
            block: Makes the block of a number, whose tensors' names begin as is said.
            tied: Whether the head has the embedding's table where config.json is silent.
            scale: What the embedding is multiplied by.
        """
        count = self.settings.layers()
        blocks = [piece for place in range(count) for piece in block(place, f"layers.{place}")]
        pieces = [*blocks, self.norm("norm")]
        if scale != 1.0:
            pieces.insert(0, plain(nn.Scale(scale)))
        most = longest(self.settings)
        return language_model(self.folder, self.width, most, "embed_tokens", pieces, tied=tied)


def has_head(folder: Folder, head: str, tied: bool) -> bool:
    """Returns whether a decoder's folder has scores for words on top."""
    architecture = folder.architecture
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return True
    if not architecture:
        return tied or f"{head}.weight" in folder.shapes
    if architecture.endswith("Model"):
        return False
    raise folder.settings.unsupported(
        "architectures", architecture, ["one of a causal language model", "one of a base model"]
    )


def language_model(
    folder: Folder,
    width: int,
    most: int,
    table: str,
    pieces: Iterable[Piece],
    *,
    tied: bool,
    head: str = "lm_head",
) -> Composition:
    """Returns an embedding, pieces, and a head where there is one; `tied` says whether it is by default."""
    settings = folder.settings
    vocabulary = settings.whole("vocab_size")
    tied = settings.flag("tie_word_embeddings", tied)
    layers = [embedding(table, vocabulary, width), *pieces]
    unused: list[str] = []
    scores = has_head(folder, head, tied)
    if scores and tied:
        layers.append(Piece(nn.TiedHead(vocabulary, tied_to=(0, 0, 0, 0))))
        unused.append(rf"{head}\.weight")
    elif scores:
        layers.append(dense(head, vocabulary, bias=False))
    if scores and "final_logit_softcapping" in settings:
        layers.append(plain(nn.SoftCap(settings.real("final_logit_softcapping"))))
    return Composition((folder.steps(most),), layers, unused)
