"""What can be told about data, outputs and weights: plain figures, computed from arrays.

Nothing here knows networks; `loom.analysis` is the public face.
"""

from __future__ import annotations

from loom.reports.base import Report, TabularReport

__all__ = ["Report", "TabularReport"]
