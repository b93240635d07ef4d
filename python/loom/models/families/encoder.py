"""What encoders of the Hub have in common: blocks with norms before or behind, class tokens, pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loom import nn
from loom.models.families.decoder import separate
from loom.models.families.pieces import (
    Array,
    Piece,
    Source,
    convolution,
    dense,
    layer_norm,
    plain,
    residual,
    take,
)

__all__ = ["Encoder", "class_token", "patches", "places"]


@dataclass(frozen=True)
class Encoder:
    """Blocks of attention and two Dense layers, with layer norms.

    Args:
        width: Extent of what flows from block to block.
        heads: Heads of attention.
        hidden: Extent between the two Dense layers.
        activation: What stands between them.
        epsilon: Of the norms.
        names: Within a block: the four projections, the two Dense layers, the norm of attention and that of
            the Dense layers.
        biases: Whether the four projections have biases.
        norm_first: Whether norms stand before attention and Dense layers, or behind them and their skips.
        causal: Whether a step sees none after its own.
        slope: What stands in for `x * sigmoid(slope * x)`, whose slope goes into the weights around silu.
        distances: What is added to scores by distance, and its table.
    """

    width: int
    heads: int
    hidden: int
    activation: str
    epsilon: float
    names: Sequence[str]
    biases: Sequence[bool] = (True, True, True, True)
    norm_first: bool = False
    causal: bool = False
    slope: float = 1.0
    distances: tuple[nn.RelativeBias, Source] | None = None

    def block(self, at: str) -> list[Piece]:
        """Returns the block whose tensors' names begin so."""
        *projections, grow, shrink, before, behind = self.names
        *inputs, output = self.biases
        bias, table = self.distances or (None, None)
        layer = nn.MultiHeadAttention(
            self.heads, causal=self.causal, bias=all(inputs), output_bias=output, position_bias=bias
        )
        tensors = separate(at, self.biases, 4 * (self.width,), projections)
        seen = Piece(layer, tensors | ({"relative_bias": table} if table else {}))
        grown = dense(f"{at}.{grow}", self.hidden, activation=self.activation)
        shrunk = dense(f"{at}.{shrink}", self.width)
        if self.slope != 1.0:
            grown = Piece(
                grown.layer, {name: source.times(self.slope) for name, source in grown.tensors.items()}
            )
            weight = shrunk.tensors["weight"].times(1.0 / self.slope)
            shrunk = Piece(shrunk.layer, {**shrunk.tensors, "weight": weight})
        first, second = (layer_norm(f"{at}.{name}", self.epsilon) for name in (before, behind))
        if self.norm_first:
            return [residual(first, seen), residual(second, grown, shrunk)]
        return [residual(seen), first, residual(grown, shrunk), second]

    def blocks(self, at: str, count: int) -> list[Piece]:
        """Returns so many blocks, `at` being what their names begin with before their number."""
        return [piece for place in range(count) for piece in self.block(f"{at}.{place}")]


def patches(name: str, width: int, image: int, patch: int, *, bias: bool = True) -> tuple[int, list[Piece]]:
    """Returns how many steps a square image becomes, and what makes them of it, patch by patch."""
    side = image // patch
    made = [
        convolution(name, width, patch, bias=bias, stride=patch),
        plain(nn.Reshape((width, side * side))),
        plain(nn.Permute((1, 0))),
    ]
    return side * side, made


def class_token(name: str) -> Piece:
    """Returns the trained step that stands before others."""
    return Piece(nn.ClassToken(), {"weight": take(name).then(_rows)})


def places(name: str, steps: int) -> Piece:
    """Returns trained places, as many as there are steps."""
    return Piece(nn.PositionalEmbedding(steps), {"weight": take(name).then(_rows)})


def _rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])
