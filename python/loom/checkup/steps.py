"""What only computing shows of a network of one input and one output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom.checkup.dry_run import dry_run
from loom.checkup.layers import look_at_gradients, look_at_units
from loom.data import ArraySource, Source, TrainingBatch
from loom.diagnosis import thresholds
from loom.diagnosis.case import Case
from loom.diagnosis.names import finding
from loom.engine import Engine, engine_of
from loom.engine.endings import judging
from loom.engine.told import forget_classes
from loom.network import Network
from loom.network.pickling import bare_copy
from loom.reports.findings import Finding
from loom.schedules import OneCycle, Warmup
from loom.training.config import TrainingConfig
from loom.training.form import Examples
from loom.training.rehearsal import Rehearsal, batches, chosen_rows

__all__ = ["BY_STEPS", "by_steps"]

BY_STEPS = (
    "start-loss",
    "dead-units",
    "saturated-units",
    "vanishing-gradients",
    "exploding-gradients",
    "learning-rate-explodes",
    "learning-rate-too-low",
)


def by_steps(
    net: Network, engine: Engine, case: Case, source: Source, config: TrainingConfig
) -> Iterator[Finding]:
    """Finds what only computing shows: one pass over a sample, and some steps, each on a copy."""
    chosen = config
    if config.device == "auto":
        chosen = replace(config, device=engine.device)
    steps = 1
    if isinstance(source, ArraySource):
        steps = -(-source.rows // config.batch_size) * config.epochs
    rehearsal = Rehearsal(_copy(net, source), chosen, max(steps, thresholds.DRY_STEPS))
    stream = batches(source, replace(config, shuffle=True))
    sample = _wide(source, next(stream), case, config)
    yield from _pass(_copy(net, source), engine, case, sample, rehearsal.prepare(sample), config)
    warm = isinstance(config.schedule, (Warmup, OneCycle)) or not any(stage.moves for stage in case.stages)
    yield from dry_run(rehearsal, rehearsal.prepare(next(stream)), config.rate, warm=warm)


def _copy(net: Network, source: Source) -> Network:
    """Returns a copy that takes targets as they are by now: those of arrays are class indices."""
    copy = bare_copy(net)
    if isinstance(source, ArraySource):
        forget_classes(engine_of(copy).native)
    return copy


def _wide(source: Source, batch: TrainingBatch, case: Case, config: TrainingConfig) -> TrainingBatch:
    """Rows enough to tell a unit that never answers; the batch, where there are no more at hand."""
    if not isinstance(source, ArraySource):
        return batch
    shapes = [case.output_shape, *(stage.input_shape for stage in case.stages)]
    widest = max(int(np.prod(shape)) for shape in shapes)
    room = max(thresholds.PASS_ELEMENTS // max(widest, 1), config.batch_size)
    places = np.linspace(0, source.rows - 1, min(source.rows, thresholds.SAMPLE_ROWS, room))
    return chosen_rows(source, places.astype(np.intp))


def _pass(
    copy: Network,
    engine: Engine,
    case: Case,
    sample: TrainingBatch,
    examples: Examples,
    config: TrainingConfig,
) -> Iterator[Finding]:
    _, y, weight = examples
    copy.reset_states()
    output = copy.forward(sample.input)
    loss, gradient = judging(engine)(
        config.loss,
        output,
        _shaped(y, case),
        weight,
        config.label_smoothing,
        cast("Any", config.class_weight),
    )
    if not engine.native.training_state()["updates"]:
        yield from _start(case, loss, output, y)
    yield from look_at_units(copy)
    copy.backward(gradient)
    yield from look_at_gradients(copy)


def _shaped(y: NDArray[Any], case: Case) -> NDArray[Any]:
    if y.dtype.kind != "i":
        return y
    shape = case.output_shape
    return y.reshape(len(y), *(shape[1:] if len(shape) == 3 else shape[:-1]))


def _start(case: Case, loss: float, output: NDArray[Any], y: NDArray[Any]) -> Iterator[Finding]:
    if case.regresses:
        # What the mean of the targets, the best constant, would come to.
        target = np.asarray(y, np.float64).reshape(len(y), -1)
        expected = float(np.mean((target - target.mean(axis=0)) ** 2))
        best = "answering with the targets' mean"
        if case.loss != "mse" or expected == 0:
            return
        limit = thresholds.START_REGRESSION
    elif case.classifies or case.loss == "binary_cross_entropy":
        classes = case.classes if case.classifies else 2
        expected, best = float(np.log(classes)), f"guessing among {classes} classes"
        limit = thresholds.START_LOSS
    else:
        return
    if expected and loss > limit * expected:
        yield finding(
            "start-loss",
            f"The loss begins at {loss:.4g}; {best} would be {expected:.4g}. Outputs go from "
            f"{float(output.min()):.3g} to {float(output.max()):.3g}.",
            "Scale inputs and targets to about 1, and keep the initial weights as they are drawn by default.",
            loss=loss,
            expected=expected,
        )
