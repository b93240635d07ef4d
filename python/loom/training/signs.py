"""What training sees of common mistakes before it begins, and warns of."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from loom import losses
from loom.data import ArraySource, Source
from loom.diagnosis import DoctorWarning, look
from loom.diagnosis.case import Case, Rows, ending, stages
from loom.engine import Engine
from loom.training.config import TrainingConfig
from loom.training.feed import Examples

__all__ = ["case_of", "warn_of_mistakes"]

_PACKAGE = str(Path(__file__).parents[1])


def case_of(
    engine: Engine,
    config: TrainingConfig,
    first: ArraySource | Examples,
    held_out: Source | None,
    *,
    chosen: bool,
) -> Case:
    """Returns what findings are read from.

    Args:
        engine: The network's.
        config: How the training goes.
        first: The data; of what comes in batches the first one, converted.
        held_out: What is validated on.
        chosen: Whether the targets have chosen the loss.
    """
    found = stages(engine)
    return Case(
        stages=found,
        ending=ending(engine, found),
        output_shape=tuple(engine.native.output_shape()),
        loss=losses.name_of(config.loss),
        rows=_rows(first) if isinstance(first, ArraySource) else Rows(first[0], first[1], complete=False),
        held_out=_rows(held_out) if isinstance(held_out, ArraySource) else None,
        indices=engine.reads_indices,
        batch_size=config.batch_size,
        shuffle=config.shuffle,
        validation_split=config.validation_split,
        weighted=config.class_weight is not None,
        chosen=chosen,
    )


def _rows(source: ArraySource) -> Rows:
    return Rows(np.asarray(source.batch.input), np.asarray(source.batch.target))


def warn_of_mistakes(case: Case, ignored: Sequence[str]) -> None:
    """Warns of what is most likely a mistake; what training refuses by itself is left to that.

    Args:
        case: What is looked at.
        ignored: Names of what nobody wants to hear of.
    """
    for found in look(replace(case, hints=False)):
        if found.severity == "warning" and found.name not in ignored:
            warnings.warn(str(found), DoctorWarning, stacklevel=_depth())


def _depth() -> int:
    """How far up, from whoever warns, the first line is that is not loom's."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return depth
