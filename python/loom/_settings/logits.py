"""Which losses take scores on both sides of zero; what their outputs are measured by has to know."""

from __future__ import annotations

from typing import Final

__all__ = ["OF_LOGITS", "OF_MARGINS"]

OF_MARGINS: Final = ("hinge", "squared_hinge")
"""Names of losses whose targets are -1 and 1, where others have 0 and 1."""

OF_LOGITS: Final = ("binary_cross_entropy", "binary_focal", *OF_MARGINS)
"""Names of losses under which an output above zero means class 1."""
