"""Looking into networks and data: what they are, what they do, how to put them together.

Each tool is usable alone. What they return are reports: frozen, with `to_dict`, `to_json` and
`from_json`, `to_frame` where a table comes out, and a picture in `loom.plot`.
"""

from __future__ import annotations

from loom.reports import Report
from loom.reports.blueprint import Blueprint

__all__ = ["Blueprint", "Report"]
