"""Which losses take scores on both sides of zero; what their outputs are measured by has to know."""

from __future__ import annotations

from typing import Final

__all__ = ["OF_LOGITS"]

OF_LOGITS: Final = ("binary_cross_entropy", "binary_focal", "hinge", "squared_hinge")
"""Names of losses under which an output above zero means class 1."""
