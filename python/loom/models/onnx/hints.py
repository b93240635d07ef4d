"""What loom notes at nodes beside what they compute, so that it finds its own layers again."""

from __future__ import annotations

__all__ = ["HINT", "HINTED", "HOLDING"]

HINT = "loom layer: "
"""What the doc string of a node begins with that ends a layer; JSON follows, of the layer and its path."""
HINTED = {
    "adaptive_softmax",
    "entmax",
    "grid_softmax",
    "hierarchical_softmax",
    "masked_softmax",
    "mixture_softmax",
    "sparsemax",
}
"""Layers of many operators and no parameters."""
HOLDING = {"expr", "masked", "mixture_of_experts", "multi_head_attention"}
"""Layers with parameters, which are the tensors whose names begin with the layer's path."""
