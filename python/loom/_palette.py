"""The colours of pictures: told apart whatever one's eyes, on light pages and on dark ones."""

from __future__ import annotations

__all__ = ["COLORS", "FAINT", "INK", "MANY_POINTS", "MARKERS", "PANEL", "PAPER", "SOFT"]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b5a900", "#7f7f7f")
"""Colours that people tell apart whatever their eyes (Okabe and Ito 2008), the yellow darker than theirs."""
MARKERS = ("o", "s", "^")
"""What points of further kinds have, once every colour is taken."""

MANY_POINTS = 150
"""Above so many points a file in SVG holds them as an image, which stays small."""

# What files in SVG show in other colours where the page around them is dark, so these stand for nothing else.
INK, PAPER, PANEL = "#1f2328", "#fefefe", "#f5f6f8"
"""Of words and lines; of the ground; of boxes on it."""
SOFT, FAINT = "#777777", "#bdbdbd"
"""Of what is said beside, and of what is hardly there; on light and on dark."""
