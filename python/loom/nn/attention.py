"""Attention over sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from loom._settings.checks import items
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer
from loom.nn.position_bias import BIASES, PositionBiasLike, RelativeBias
from loom.nn.rotary import Rotary

__all__ = ["MultiHeadAttention", "Rotary"]


@FAMILY.register("multi_head_attention")
@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Scaled dot-product attention of several heads.

    Input and output are (time, width). The weights are `query_weight`
    (heads * head_dim, width), `key_weight` and `value_weight`
    (key_value_heads * head_dim, width of what is looked at) and `output_weight`
    (width, heads * head_dim), each with a bias where there is one
    (`query_bias` and so on), and with `qk_norm` the gains `query_gain` and
    `key_gain`, (head_dim,) or as wide as queries and keys, and with a `RelativeBias`
    its table `relative_bias` (buckets, heads). PyTorch's
    `nn.MultiheadAttention` keeps three of them in one: its `in_proj_weight` is
    `query_weight`, `key_weight` and `value_weight` one below the other, its `in_proj_bias` likewise, and its
    `out_proj` is the output. Memory grows with the time, not with its square.
    Inside `Masked` steps of padding neither look nor are looked at, and their
    output is zeros.

    Args:
        heads: Heads of the queries.
        key_value_heads: Heads of keys and values, which divide `heads`
            (grouped-query attention); as many as `heads` by default.
        head_dim: Extent of a head; width / heads by default.
        causal: Whether a step sees none after its own.
        window: Steps see only those nearer than this: the last `window`, their
            own among them, where causal, and as many ahead where not.
        rotary: Turns queries and keys by their places.
        qk_norm: Whether each head of queries and keys is divided by its root
            mean square, times a trained gain (as in Qwen 3 and Gemma 3); with
            "width" all heads of a step together (as in OLMo 2).
        bias: Whether trained numbers are added to queries, keys, values and output.
        cross: Whether keys and values come from a second input, which
            `net.link(source, target, combine="context")` connects.
        mask: Who may see whom: a row for each step that asks, with 1 (or True)
            for each step it may look at.
        weight_initializer: The weights' first values; Xavier normal by default.
        scale: What scores, the products of queries and keys, are multiplied by;
            1 / sqrt(head_dim) by default.
        soft_cap: Scores become `soft_cap * tanh(score / soft_cap)` before any is
            hidden, as in Gemma 2.
        qk_norm_epsilon: Added to the mean square by `qk_norm`.
        output_bias: Whether trained numbers are added to the output; as `bias`
            says by default (Qwen 2 has biases on queries, keys and values only).
        dropout: Probability with which training leaves out a weight, the share
            that a step has in another's result, of each head by itself; the
            others are divided by `1 - dropout`.
        position_bias: What is added to scores, before they are capped, by how far
            a step is from another: `ALiBi()` or `RelativeBias()`.

    Raises:
        ConfigError: A setting is out of range, or settings contradict each other.

    Examples:
        >>> nn.MultiHeadAttention(8, key_value_heads=2, causal=True, rotary=nn.Rotary()).heads
        8
    """

    heads: int
    _: KW_ONLY
    key_value_heads: int | None = None
    head_dim: int | None = None
    causal: bool = False
    window: int | None = None
    rotary: Rotary | Mapping[str, Any] | None = None
    qk_norm: bool | str = False
    bias: bool = True
    cross: bool = False
    mask: Sequence[Sequence[int]] | None = None
    weight_initializer: InitializerLike | None = None
    scale: float | None = None
    soft_cap: float | None = None
    qk_norm_epsilon: float = 1e-6
    output_bias: bool | None = None
    dropout: float = 0.0
    position_bias: PositionBiasLike | None = None

    def __post_init__(self) -> None:
        name = "MultiHeadAttention"
        rotary = self.rotary
        if rotary is not None and not isinstance(rotary, Rotary):
            rotary = Rotary.from_config(rotary)
        self._set(rotary=rotary, mask=_mask(name, self.mask))
        if self.position_bias is not None:
            try:
                self._set(position_bias=BIASES.resolve(self.position_bias))
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
        super().__post_init__()
        if self.heads % (self.key_value_heads or self.heads):
            raise ConfigError(
                f"{name}: heads ({self.heads}) must be a multiple of key_value_heads ({self.key_value_heads})"
            )
        if rotary is not None and self.cross:
            raise ConfigError(
                f"{name}: rotary embedding has no places in another sequence; leave out rotary or cross"
            )
        bias = self.position_bias
        if bias is not None and self.cross:
            raise ConfigError(
                f"{name}: steps of another sequence are at no distance; leave out position_bias or cross"
            )
        if isinstance(bias, RelativeBias) and (refused := bias.check(self.causal)) is not None:
            raise ConfigError(f"{name}: {refused}")


def _mask(where: str, mask: object) -> tuple[tuple[int, ...], ...] | None:
    """Returns rows of 0 and 1 of equal length."""
    if mask is None:
        return None
    to_list = getattr(mask, "tolist", None)
    rows = items(to_list() if to_list is not None else mask)
    cells = [items(row) for row in rows or ()]
    if not cells or any(row is None or not row or len(row) != len(cells[0] or ()) for row in cells):
        raise ConfigError(f"{where}: mask must be rows of equal length, got {shown(mask)}")
    if any(cell not in (0, 1) for row in cells for cell in row or ()):
        raise ConfigError(
            f"{where}: mask must hold 1 for what may be seen and 0 for what may not, got {shown(mask)}"
        )
    return tuple(tuple(1 if cell else 0 for cell in row or ()) for row in cells)
