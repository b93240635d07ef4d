"""What attention adds to scores by the distance of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loom._settings.checks import whole
from loom._settings.encoding import Named, NamedFamily

__all__ = ["ALiBi", "PositionBias", "RelativeBias"]


class PositionBias(Named):
    """Base of what `MultiHeadAttention` adds to the score of two steps by how far one is from the other."""

    __slots__ = ()


PositionBiasLike: TypeAlias = "PositionBias | str | Mapping[str, Any]"

BIASES: NamedFamily[PositionBias] = NamedFamily("position_bias")


@BIASES.register("alibi")
@dataclass(frozen=True)
class ALiBi(PositionBias):
    """Attention with linear biases (Press et al. 2022): minus the distance times a slope of each head.

    Of a power of two of heads, head h (from 0) has the slope `2 ** (-8 * (h + 1) / heads)`; of another
    number the slopes of the largest power below it come first, then every second one of the next power.
    Steps before and after are at the same distance. Nothing is trained, and sequences may be longer than
    those of training.

    Examples:
        >>> nn.MultiHeadAttention(8, causal=True, position_bias=nn.ALiBi()).position_bias
        ALiBi()
    """


@BIASES.register("relative")
@dataclass(frozen=True)
class RelativeBias(PositionBias):
    """Relative position bias as in T5 (Raffel et al. 2020): a trained number for each bucket of distances.

    The layer's parameter `relative_bias` is (buckets, heads), T5's `relative_attention_bias.weight`. Of a
    `causal` layer all buckets are of steps before; otherwise the second half is of steps after. Half of
    either are of one distance each, from 0 on, the rest of ranges that grow in proportion up to
    `max_distance`; what is farther is in the last. T5 does not divide scores by the root of head_dim:
    `scale=1.0`.

    Args:
        buckets: Rows of the table; even where the layer is not causal.
        max_distance: From which distance on there are no more buckets.

    Raises:
        ConfigError: A setting is no whole number above 0. Of the layer: there are fewer than 2 buckets (4
            where it is not causal), or `max_distance` is not above the distances with a bucket of their own.

    Examples:
        >>> nn.MultiHeadAttention(8, scale=1.0, position_bias=nn.RelativeBias(16)).position_bias.max_distance
        128
    """

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        for name in ("buckets", "max_distance"):
            value = whole("RelativeBias", name, getattr(self, name), least=1)
            object.__setattr__(self, name, value)

    def check(self, causal: bool) -> str | None:
        """Returns what a layer cannot do with these settings; nothing where it can."""
        ways = 1 if causal else 2
        single = self.buckets // ways // 2
        if self.buckets < 2 * ways or self.buckets % ways:
            least = "at least 2" if causal else "even and at least 4, for steps before and after"
            return f"position_bias buckets must be {least}, got {self.buckets}"
        if self.max_distance <= single:
            return (
                f"position_bias max_distance must be above {single}, the distances with their own bucket, "
                f"got {self.max_distance}"
            )
        return None
