"""What training sees of common mistakes before it begins, and warns of."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import losses, metrics
from loom.data import ArraySource, Source
from loom.diagnosis import DoctorWarning, look
from loom.diagnosis.batches import batch_of_one
from loom.diagnosis.case import Case, Rows, ending, ending_at, stages
from loom.diagnosis.output import look_at_output
from loom.engine import Engine
from loom.errors import ConfigError
from loom.metrics import MetricLike
from loom.training.config import TrainingConfig
from loom.training.form import Examples

__all__ = ["case_of", "cases_of_ports", "refuse_batches_of_one", "warn_of_endings", "warn_of_mistakes"]

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
        metrics=() if isinstance(config.metrics, Mapping) else _names(config.metrics),
    )


def cases_of_ports(
    engine: Engine,
    config: TrainingConfig,
    x: Mapping[str, NDArray[Any]],
    y: Mapping[str, NDArray[Any]],
    *,
    complete: bool,
) -> tuple[dict[str, Case], dict[str, Case]]:
    """Returns what findings about inputs and about outputs are read from, by name.

    Args:
        engine: The network's, which has names for inputs or outputs.
        config: How the training goes.
        x: The inputs that are no whole numbers.
        y: The targets; of a single output without a name under "".
        complete: Whether that is all data.
    """
    ports, found = engine.ports, stages(engine)
    assert ports is not None
    cells = [tuple(map(int, stage.path.split(".")[:3])) for stage in found]
    begins = {entry.name: tuple(entry.cell or (0, 0, 0)) for entry in ports.inputs}
    ends = {entry.name: tuple(entry.cell) for entry in ports.outputs}
    shapes = ports.output_shapes() if ports.outputs else {"": tuple(engine.native.output_shape())}
    by_name = config.loss if isinstance(config.loss, Mapping) else dict.fromkeys(shapes, config.loss)
    weights = config.class_weight if isinstance(config.class_weight, Mapping) else {}
    first_target = next(iter(y.values()))
    some = next(iter(x.values()), np.zeros((len(first_target), 1)))

    def case(rows: Rows, **more: Any) -> Case:  # noqa: ANN401 - fields of a Case
        usual: dict[str, Any] = {
            "stages": found,
            "ending": None,
            "output_shape": (1,),
            "loss": "",
            "batch_size": config.batch_size,
            "shuffle": config.shuffle,
            "validation_split": config.validation_split,
        }
        return Case(rows=rows, **{**usual, **more})

    inputs = {
        name: case(
            Rows(values, first_target, complete),
            stages=tuple(s for s, cell in zip(found, cells, strict=True) if cell >= begins.get(name, cell)),
        )
        for name, values in x.items()
    }
    outputs = {}
    for name, shape in shapes.items():
        outputs[name] = case(
            Rows(some, y[name], complete),
            ending=ending_at(engine, ends[name]) if name in ends else ending(engine, found),
            output_shape=shape,
            loss=losses.name_of(by_name[name]),
            # Inputs are looked at by themselves.
            indices=True,
            weighted=name in weights or (not name and config.class_weight is not None),
        )
    return inputs, outputs


def _names(measured: Iterable[MetricLike]) -> tuple[str, ...]:
    return tuple(map(metrics.name_of, metrics.resolve_all(measured)))


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


_ENDINGS = (
    "softmax-before-loss",
    "sigmoid-before-loss",
    "relu-before-loss",
    "bounded-logits",
    "logits-with-nll",
)


def warn_of_endings(engine: Engine, config: TrainingConfig) -> None:
    """Warns of outputs with names that end in what their losses do by themselves.

    Args:
        engine: The network's.
        config: How the training goes.
    """
    ports = engine.ports
    if ports is None or not ports.outputs:
        return
    # What outputs end in has nothing to do with their targets.
    nothing = {name: np.zeros((1, 1)) for name in ports.output_names}
    for name, case in cases_of_ports(engine, config, {}, nothing, complete=False)[1].items():
        for found in look_at_output(case):
            if found.name in _ENDINGS and found.name not in config.ignore_findings:
                told = replace(found, seen=f'Output "{name}": {found.seen}')
                warnings.warn(str(told), DoctorWarning, stacklevel=_depth())


def refuse_batches_of_one(engine: Engine, rows: int, size: int) -> None:
    """Refuses what the engine would refuse when it comes to that batch, which may be after hours.

    Args:
        engine: The network's.
        rows: How many samples there are.
        size: How many make a batch.

    Raises:
        ConfigError: A batch has one sample, and a layer takes statistics over batches.
    """
    found = batch_of_one(stages(engine), rows, size)
    if found is not None:
        raise ConfigError(
            f"batch normalisation needs more than one value a channel in training, and there is a {found}"
        )


def _depth() -> int:
    """How far up, from whoever warns, the first line is that is not loom's."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return depth
