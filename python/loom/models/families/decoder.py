"""What decoders of the Hub have in common: blocks of attention and a feed-forward layer, and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loom import nn
from loom.models.families.family import Composition, Folder
from loom.models.families.heads import language_model
from loom.models.families.pieces import (
    Array,
    Piece,
    Source,
    dense,
    gated,
    mixed,
    plain,
    residual,
    rms_norm,
    take,
    weight_and_bias,
)
from loom.models.families.rotary import longest, rotary_of
from loom.models.families.settings import Settings

__all__ = ["ACTIVATIONS", "PROJECTIONS", "Decoder", "fused", "grouped", "separate"]

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


def fused(weight: dict[str, Source], queries: int, keys: int, output: dict[str, Source]) -> dict[str, Source]:
    """Returns the sources of attention whose queries, keys and values stand below each other in one tensor.

    Args:
        weight: The tensor and perhaps its bias.
        queries: Rows of the queries.
        keys: Rows of the keys, and of the values.
        output: The output's tensors.
    """
    ends = (0, queries, queries + keys, queries + 2 * keys)
    return {
        f"{projection}_{name}": source.part(ends[place], ends[place + 1])
        for place, projection in enumerate(PROJECTIONS[:3])
        for name, source in weight.items()
    } | {f"output_{name}": source for name, source in output.items()}


def grouped(
    weight: dict[str, Source], heads: int, shared: int, output: dict[str, Source]
) -> dict[str, Source]:
    """Returns the sources of attention of which one tensor has heads together that share keys and values.

    Args:
        weight: The tensor and perhaps its bias: each group's queries, its key and its value.
        heads: Heads of the queries.
        shared: Heads of keys and values, which are as many groups.
        output: The output's tensors.
    """
    parts = (slice(0, -2), slice(-2, -1), slice(-1, None))

    def part(source: Source, places: slice) -> Source:
        def parted(array: Array) -> Array:
            each = array.reshape(shared, heads // shared + 2, -1, *array.shape[1:])[:, places]
            return np.ascontiguousarray(each).reshape(-1, *array.shape[1:])

        return source.then(parted)

    return {
        f"{projection}_{name}": part(source, places)
        for projection, places in zip(PROJECTIONS[:3], parts, strict=True)
        for name, source in weight.items()
    } | {f"output_{name}": source for name, source in output.items()}


@dataclass(frozen=True)
class Decoder:
    """The settings that nearly all decoders have, under their usual names.

    Args:
        folder: What config.json and the tensors say.
        offset: What is added to the gains of norms.
        epsilons: What config.json calls the epsilon of norms.
        usual_epsilon: That epsilon where config.json does not say one.
        normalize: Makes a norm of its name and epsilon; a root-mean-square norm by default.
        branch: What the output of a block's halves is multiplied by before it is added.
    """

    folder: Folder
    offset: float = 0.0
    epsilons: str = "rms_norm_eps"
    usual_epsilon: float = 1e-6
    normalize: Callable[[str, float], Piece] | None = None
    branch: float = 1.0

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
        return self.settings.real(self.epsilons, self.usual_epsilon)

    @property
    def rows(self) -> tuple[int, int]:
        """Rows of the queries' weight, and of the keys' and the values'."""
        return self.heads * self.head_dim, self.shared_heads * self.head_dim

    def norm(self, name: str) -> Piece:
        """Returns a norm."""
        if self.normalize is not None:
            return self.normalize(name, self.epsilon)
        return rms_norm(name, self.epsilon, self.offset)

    def attention(
        self,
        at: str,
        *,
        rotary: nn.Rotary | None,
        bias: bool = False,
        output_bias: bool | None = None,
        tensors: dict[str, Source] | None = None,
        names: Sequence[str] = SEPARATE,
        norms: bool | str = False,
        causal: bool = True,
        **settings: Any,  # noqa: ANN401 - of nn.MultiHeadAttention
    ) -> Piece:
        """Returns attention, causal unless said otherwise, from four projections unless tensors are given."""
        layer = nn.MultiHeadAttention(
            self.heads,
            key_value_heads=self.shared_heads,
            head_dim=self.head_dim,
            causal=causal,
            rotary=rotary,
            bias=bias,
            output_bias=output_bias,
            qk_norm=norms,
            qk_norm_epsilon=self.epsilon,
            **settings,
        )
        if tensors is None:
            queries, keys = self.rows
            biases = (bias, bias, bias, bias if output_bias is None else output_bias)
            tensors = separate(at, biases, (queries, keys, keys, self.width), names)
        if norms:
            for projection, name in (("query", "q_norm"), ("key", "k_norm")):
                gain = take(f"{at}.{name}.weight")
                tensors[f"{projection}_gain"] = gain.plus(self.offset) if self.offset else gain
        return Piece(layer, tensors)

    def rotary(self, kind: str | None = None, **usual: Any) -> nn.Rotary:  # noqa: ANN401 - of rotary_of
        """Returns the rotary embedding that config.json tells of, for a type of blocks or for all."""
        return rotary_of(self.folder, self.head_dim, kind=kind, **usual)

    def feed_forward(self, at: str, activation: str = "hidden_act", bias: bool | None = None) -> Piece:
        """Returns a gated layer of three projections, with biases where "mlp_bias" or `bias` says so."""
        if bias is None:
            bias = self.settings.flag("mlp_bias", False)
        return gated(self._gated(activation, bias), at, bias)

    def half_fused(self, at: str, activation: str = "hidden_act") -> Piece:
        """Returns a gated layer whose gate and up stand below each other in one tensor."""
        layer = self._gated(activation, False)
        both = take(f"{at}.gate_up_proj.weight", 2 * layer.hidden)
        return Piece(
            layer,
            {
                "gate_weight": both.part(0, layer.hidden),
                "up_weight": both.part(layer.hidden, 2 * layer.hidden),
                "down_weight": take(f"{at}.down_proj.weight"),
            },
        )

    def _gated(self, activation: str, bias: bool) -> nn.SwiGLU | nn.GeGLU:
        function = self.settings.one_of(activation, ACTIVATIONS, "silu")
        hidden = self.settings.whole("intermediate_size")
        return (nn.GeGLU if "gelu" in function else nn.SwiGLU)(hidden, bias=bias, activation=function)

    def two_layers(self, names: Sequence[str], usual: str, bias: bool) -> list[Piece]:
        """Returns two Dense layers, between them an activation, which is `usual` where none is said."""
        function = self.settings.one_of("hidden_act", ACTIVATIONS, usual)
        hidden = self.settings.whole("intermediate_size")
        return [
            dense(names[0], hidden, bias=bias, activation=function),
            dense(names[1], self.width, bias=bias),
        ]

    def half(self, *pieces: Piece) -> Piece:
        """Returns half a block: pieces in a row with a skip around them."""
        return residual(*pieces, *([plain(nn.Scale(self.branch))] if self.branch != 1.0 else []))

    def block(
        self, at: str, attention: Piece, feed_forward: Piece | Sequence[Piece] | None = None
    ) -> list[Piece]:
        """Returns the usual block: norms before attention and before the feed-forward layer."""
        feed_forward = feed_forward or self.feed_forward(f"{at}.mlp")
        return [
            self.half(self.norm(f"{at}.input_layernorm"), attention),
            self.half(self.norm(f"{at}.post_attention_layernorm"), *_row(feed_forward)),
        ]

    def behind(self, at: str, attention: Piece, feed_forward: Piece | None = None) -> list[Piece]:
        """Returns a block with norms behind attention and behind the feed-forward layer, as OLMo 2 has."""
        feed_forward = feed_forward or self.feed_forward(f"{at}.mlp")
        return [
            self.half(attention, self.norm(f"{at}.post_attention_layernorm")),
            self.half(feed_forward, self.norm(f"{at}.post_feedforward_layernorm")),
        ]

    def beside(
        self, attention: Piece, feed_forward: Piece | Sequence[Piece], first: str, second: str | None = None
    ) -> list[Piece]:
        """Returns a block whose halves are side by side, behind one norm, or behind one each."""
        if second is None:
            return [residual(self.norm(first), mixed([attention], _row(feed_forward)))]
        return [mixed([], [self.norm(first), attention], [self.norm(second), *_row(feed_forward)])]

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
        self,
        block: Callable[[int, str], Iterable[Piece]],
        tied: bool = False,
        scale: float = 1.0,
        norm: str = "norm",
        **head: Any,  # noqa: ANN401 - of language_model
    ) -> Composition:
        """Returns the whole: an embedding, blocks, a norm and a head.

        Args:
            block: Makes the block of a number, whose tensors' names begin as is said.
            tied: Whether the head has the embedding's table where config.json is silent.
            scale: What the embedding is multiplied by.
            norm: What the norm behind the blocks is called.
            head: What else `language_model` is told of the head.
        """
        count = self.settings.layers()
        blocks = [piece for place in range(count) for piece in block(place, f"layers.{place}")]
        pieces = [*blocks, self.norm(norm)]
        if scale != 1.0:
            pieces.insert(0, plain(nn.Scale(scale)))
        most = longest(self.settings)
        return language_model(self.folder, self.width, most, "embed_tokens", pieces, tied=tied, **head)


def _row(pieces: Piece | Sequence[Piece]) -> Sequence[Piece]:
    return [pieces] if isinstance(pieces, Piece) else pieces
