"""Findings about samples that are both learned from and measured on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loom.diagnosis import thresholds
from loom.diagnosis.case import Rows
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["look_at_overlap"]


def look_at_overlap(rows: Rows, held_out: Rows) -> Iterator[Finding]:
    """Finds validation samples that are in the training data as well."""
    if not (rows.complete and held_out.complete) or rows.x.shape[1:] != held_out.x.shape[1:]:
        return
    kind = np.result_type(rows.x, held_out.x)
    known = set(_hashes(rows.x, kind))
    shared = sum(row in known for row in _hashes(held_out.x, kind))
    share = shared / len(held_out)
    if share > thresholds.DUPLICATES:
        yield finding(
            "validation-overlap",
            f"{shared:,} of {len(held_out):,} validation samples ({share:.1%}) are in the training data, "
            "too.",
            "Leave repeated samples out before the data is split; a measure on what was learned says nothing "
            "of what is new.",
            rows=shared,
            share=share,
        )


def _hashes(values: NDArray[np.generic], kind: np.dtype[np.generic]) -> list[int]:
    flat = np.ascontiguousarray(values.reshape(len(values), -1), dtype=kind)
    return [hash(row.tobytes()) for row in flat]
