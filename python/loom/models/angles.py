"""How fast pairs of a head turn, by every rule of `nn.Rotary`: for formats that hold angles as numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loom import nn

__all__ = ["turning_rates"]


def turning_rates(rotary: nn.Rotary, extent: int) -> tuple[NDArray[np.float64], float]:
    """Returns each pair's angle from one place to the next, and what queries and keys are multiplied by.

    Args:
        rotary: The setting; its `dim` does not count.
        extent: How many elements of a head turn.
    """
    pair = np.arange(extent // 2)
    rule, scaling, base = rotary.rule, rotary.scaling, rotary.base
    if isinstance(rule, nn.DynamicRule):
        if rule.length > rule.original_length:
            grown = scaling * rule.length / rule.original_length - (scaling - 1)
            base = base * grown ** (extent / (extent - 2))
        return base ** (-2.0 * pair / extent), 1.0
    rates: NDArray[np.float64] = base ** (-2.0 * pair / extent)
    if isinstance(rule, nn.Llama3Rule):
        turns = rule.original_length * rates / (2 * math.pi)
        stays = np.clip((turns - rule.low_factor) / (rule.high_factor - rule.low_factor), 0, 1)
        return rates * (stays + (1 - stays) / scaling), 1.0
    if isinstance(rule, nn.YarnRule):
        ends = [
            extent * math.log(rule.original_length / (beta * 2 * math.pi)) / (2 * math.log(base))
            for beta in (rule.beta_fast, rule.beta_slow)
        ]
        if rule.whole_pairs:
            ends = [math.floor(ends[0]), math.ceil(ends[1])]
        low, high = max(ends[0], 0), min(ends[1], extent - 1)
        slowed = np.clip((pair - low) / (high - low if high != low else 0.001), 0, 1)
        usual = 0.1 * math.log(scaling) + 1 if scaling > 1 else 1.0
        factor = usual if rule.attention_factor is None else rule.attention_factor
        return rates * (1 - slowed + slowed / scaling), factor
    if isinstance(rule, nn.LongRopeRule):
        longer = math.log(scaling) / math.log(rule.original_length) if scaling > 1 else 0.0
        factor = math.sqrt(1 + longer) if rule.attention_factor is None else rule.attention_factor
        return rates / np.array(rule.factors), factor
    return rates / scaling, 1.0
