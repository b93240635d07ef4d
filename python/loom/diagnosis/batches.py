"""Findings about how data is cut into batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from loom import nn
from loom.diagnosis.case import Case, Stage
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["batch_of_one", "look_at_batches"]


def look_at_batches(case: Case) -> Iterator[Finding]:
    """Finds batches that are too large, or too small for layers that take their statistics."""
    rows, size = len(case.rows), case.batch_size
    if not case.rows.complete:
        return
    alone = batch_of_one(case.stages, rows, size)
    if alone is not None:
        yield alone
    if size > rows:
        yield finding(
            "batch-larger-than-data",
            f"batch_size={size}, but there are {rows} samples: an epoch is one step.",
            "Take a smaller batch, or more epochs.",
            rows=rows,
        )


def batch_of_one(stages: Iterable[Stage], rows: int, size: int) -> Finding | None:
    """Finds a batch of one sample that a layer can take no statistics of.

    Args:
        stages: The layers.
        rows: How many samples there are.
        size: How many make a batch.

    Returns:
        What is told of it; None where there is no such batch.
    """
    if size > 1 and rows % size != 1:
        return None
    alone = next((stage for stage in stages if _needs_several(stage)), None)
    if alone is None:
        return None
    if size == 1 or rows == 1:
        return finding(
            "batchnorm-batch-of-one",
            f"BatchNorm takes mean and variance over a batch, but batches have one sample (of {rows}, at "
            f"batch_size={size}).",
            "Use batches of 16 and more; or `nn.LayerNorm()`, which looks at each sample by itself.",
            layer=alone.path,
            rows=rows,
        )
    return finding(
        "last-batch-of-one",
        f"{rows:,} samples in batches of {size} leave a last one with a single sample, of which "
        "BatchNorm can take no variance.",
        f"Leave a sample out, as with `x[:-1]`, or take another batch size: {_other(rows, size)} fits.",
        layer=alone.path,
        rows=rows,
    )


def _other(rows: int, size: int) -> int:
    return next(other for other in range(size + 1, size + 4) if rows % other != 1)


def _needs_several(stage: Stage) -> bool:
    """Whether a layer needs more than one sample: BatchNorm over features, without places to average over."""
    return isinstance(stage.config, nn.BatchNorm) and math.prod(stage.input_shape[1:]) == 1
