"""Rotary position embedding, a setting of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from loom._settings.checks import flag, items, real
from loom._settings.encoding import Named, NamedFamily, Plain
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.nn._schema import read, schema

__all__ = ["DynamicRule", "Llama3Rule", "LongRopeRule", "Rotary", "RotaryRule", "YarnRule"]


class RotaryRule(Named):
    """Base of the rules that change a rotary embedding's rates for longer sequences than in training."""

    __slots__ = ()

    def _real(self, *names: str, above: float = 0.0) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None:
                value = real(type(self).__name__, name, value, above=above)
                object.__setattr__(self, name, value)


RotaryRuleLike: TypeAlias = "RotaryRule | Mapping[str, Any]"

RULES: NamedFamily[RotaryRule] = NamedFamily("Rotary rule")


@RULES.register("llama3")
@dataclass(frozen=True)
class Llama3Rule(RotaryRule):
    """Llama 3.1's rule, "llama3" on the Hub.

    Pairs that turn fewer than `low_factor` times within `original_length` places turn more slowly, by
    `Rotary`'s `scaling` ("factor" on the Hub); those that turn more than `high_factor` times stay; those
    between are mixed of both.

    Args:
        original_length: How long sequences of training were
            ("original_max_position_embeddings" on the Hub).
        low_factor: "low_freq_factor" on the Hub.
        high_factor: "high_freq_factor" on the Hub.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.Rotary(base=500_000, scaling=8, rule=nn.Llama3Rule(8192)).rule.high_factor
        4.0
    """

    original_length: float
    low_factor: float = 1.0
    high_factor: float = 4.0

    def __post_init__(self) -> None:
        self._real("original_length", "low_factor", "high_factor")
        if self.high_factor <= self.low_factor:
            raise ConfigError(
                f"Llama3Rule: high_factor ({self.high_factor}) must be above low_factor ({self.low_factor})"
            )


@RULES.register("yarn")
@dataclass(frozen=True)
class YarnRule(RotaryRule):
    """YaRN (Peng et al. 2023), "yarn" on the Hub.

    Pairs that turn more than `beta_fast` times within `original_length` places stay; those that turn fewer
    than `beta_slow` times turn more slowly, by `Rotary`'s `scaling`; a ramp over the pairs leads from one to
    the other. Queries and keys are multiplied by `attention_factor`.

    Args:
        original_length: How long sequences of training were.
        beta_fast: Turns above which a pair stays as it is.
        beta_slow: Turns below which a pair is slowed.
        attention_factor: `0.1 * log(scaling) + 1` by default, 1 where scaling is at most 1. With "mscale" and
            "mscale_all_dim" on the Hub it is the quotient of `0.1 * mscale * log(scaling) + 1` and the same
            with mscale_all_dim.
        whole_pairs: Whether the ramp begins and ends at whole pairs ("truncate" on the Hub).

    Raises:
        ConfigError: A setting is out of range.
    """

    original_length: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    whole_pairs: bool = True

    def __post_init__(self) -> None:
        self._real("original_length", "beta_fast", "beta_slow", "attention_factor")
        object.__setattr__(self, "whole_pairs", flag("YarnRule", "whole_pairs", self.whole_pairs))


@RULES.register("dynamic")
@dataclass(frozen=True)
class DynamicRule(RotaryRule):
    """Dynamic NTK scaling, "dynamic" on the Hub, for sequences of one length.

    The base is multiplied by `(scaling * length / original_length - (scaling - 1)) ** (dim / (dim - 2))`
    where `length` is beyond `original_length`, and stays where not. On the Hub the length is that of the
    sequence at hand, so that rates change while it grows and keys that are cached no longer fit; here it is
    fixed.

    Args:
        original_length: How long sequences of training were ("max_position_embeddings" on the Hub).
        length: How long they are to be.

    Raises:
        ConfigError: A setting is out of range.
    """

    original_length: float
    length: float

    def __post_init__(self) -> None:
        self._real("original_length", "length")


@RULES.register("long_rope")
@dataclass(frozen=True)
class LongRopeRule(RotaryRule):
    """LongRoPE (Ding et al. 2024), "longrope" or "su" on the Hub: each pair is slowed by a factor of its own.

    The Hub has two lists of factors, for sequences up to `original_length` ("short_factor") and beyond
    ("long_factor"); a network here has one of them. Queries and keys are multiplied by `attention_factor`.

    Args:
        original_length: How long sequences of training were.
        factors: One for each pair.
        attention_factor: `sqrt(1 + log(scaling) / log(original_length))` by default, 1 where scaling is at
            most 1. Scaling is "max_position_embeddings" over "original_max_position_embeddings" on the Hub.

    Raises:
        ConfigError: A setting is out of range.
    """

    original_length: float
    factors: Sequence[float]
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        self._real("original_length", above=1.0)
        self._real("attention_factor")
        to_list = getattr(self.factors, "tolist", None)
        given = items(to_list() if to_list is not None else self.factors)
        if not given:
            raise ConfigError(f"LongRopeRule: factors must be a list of numbers, got {shown(self.factors)}")
        factors = tuple(real("LongRopeRule", "factors", factor, above=0.0) for factor in given)
        object.__setattr__(self, "factors", factors)


@dataclass(frozen=True)
class Rotary(Plain):
    """Rotary position embedding, a setting of `MultiHeadAttention`.

    Pair i of the first `dim` elements of each head of queries and keys turns by the angle
    `place * base ** (-2 * i / dim) / scaling`, or as a rule says.

    Args:
        base: How much slower the last pair turns than the first.
        scaling: How much longer sequences may be than those that a model was trained with: divides the
            places ("linear" on the Hub), or does what the rule says.
        layout: Which elements of a head are a pair: "interleaved" (2 i and
            2 i + 1, as in Llama's own code and llama2.c) or "half_split" (i and
            i + dim / 2, as in GPT-NeoX and Hugging Face's Llama).
        dim: How many elements of a head turn, from the first on, as in GPT-NeoX and Phi; all by default.
        rule: How rates are made of base and scaling: `Llama3Rule`, `YarnRule`, `DynamicRule` or
            `LongRopeRule`.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.Rotary(base=500_000).layout
        'interleaved'
        >>> nn.Rotary(scaling=4, rule={"yarn": {"original_length": 4096}}).rule.beta_fast
        32.0
    """

    base: float = 10_000.0
    scaling: float = 1.0
    layout: Literal["interleaved", "half_split"] = "interleaved"
    dim: int | None = None
    rule: RotaryRuleLike | None = None

    def __post_init__(self) -> None:
        (rotary,) = (of for of in schema()["multi_head_attention"] if of["name"] == "rotary")
        for setting in rotary["settings"]:
            name = setting["name"]
            object.__setattr__(self, name, read("Rotary", setting, getattr(self, name)))
        if self.rule is not None:
            object.__setattr__(self, "rule", RULES.resolve(self.rule))
        if self.dim is not None and self.dim % 2:
            raise ConfigError(f"Rotary: dim must be even, as elements turn in pairs, got {self.dim}")
        if isinstance(self.rule, DynamicRule) and self.scaling < 1:
            raise ConfigError(f"Rotary: a dynamic rule needs a scaling of at least 1, got {self.scaling}")
        if isinstance(self.rule, YarnRule) and self.base <= 1:
            raise ConfigError(f"Rotary: YaRN needs a base above 1, got {self.base}")
