"""How many multiplications with additions a layer takes for one sample."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from loom import nn

__all__ = ["multiply_adds"]

Shape = tuple[int, ...]


def multiply_adds(
    layer: nn.Layer,
    input_shape: Shape,
    output_shape: Shape,
    context: Shape | None,
    own: Mapping[str, Shape],
    used: Mapping[str, Shape] | None = None,
) -> int:
    """Counts a layer that holds no others, as `Network.blueprint` says.

    Args:
        layer: The layer.
        input_shape: One sample's extents as they come in.
        output_shape: One sample's extents as they go out.
        context: Those of the second input; None where there is none.
        own: The shapes of its parameters by name, without those of adapters.
        used: The shapes of the parameters of the adapters that are in use, by name.

    Returns:
        Multiply-adds of products and convolutions.
    """
    described: Any = layer
    kind = layer.kind
    rows = prod(input_shape[:-1])
    beside = {name: prod(shape) for name, shape in (used or {}).items()}
    if kind in ("dense", "tied_head", "kmeans"):
        return prod(output_shape) * input_shape[-1] + rows * sum(beside.values())
    if kind in ("swiglu", "geglu"):
        return 3 * rows * int(described.hidden) * input_shape[-1] + rows * sum(beside.values())
    if kind.startswith("conv_transpose"):
        # Every element that comes in meets every weight of its channel.
        return prod(input_shape) * prod(own["weight"][1:])
    if kind.startswith("conv"):
        return prod(output_shape) * prod(own["weight"][1:])
    if kind in ("rnn", "lstm", "gru"):
        weights = sum(
            prod(shape) for name, shape in own.items() if name.startswith(("weight_ih", "weight_hh"))
        )
        return input_shape[0] * (weights + sum(beside.values()))
    if kind == "multi_head_attention":
        steps, seen = input_shape[0], (context if described.cross and context else input_shape)[0]
        asked, looked_at = own["query_weight"], own["key_weight"]
        products = steps * 2 * prod(asked) + seen * 2 * prod(looked_at)
        for name, size in beside.items():
            products += (seen if name.startswith(("key_weight", "value_weight")) else steps) * size
        # Scores, and the sums of values that they weight: heads * head_dim each.
        return products + 2 * steps * seen * asked[0]
    return 0
