"""What loom notes at nodes beside what they compute, so that it finds its own layers again."""

from __future__ import annotations

__all__ = ["HINT", "HINTED"]

HINT = "loom layer: "
"""What the doc string of a node begins with that ends a layer; the layer's JSON follows."""
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
