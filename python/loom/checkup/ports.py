"""Networks of named inputs or outputs: each of them is looked at, and steps of all together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom.checkup.dry_run import dry_run
from loom.checkup.layers import look_at_gradients, look_at_units
from loom.checkup.steps import BY_STEPS
from loom.convert import as_numpy
from loom.data import ArraySource, Data, Source, as_source
from loom.data.batches import as_batch, check_iterable, is_single
from loom.diagnosis import thresholds
from loom.diagnosis.arrays import look_at_arrays, not_finite
from loom.diagnosis.batches import look_at_batches
from loom.diagnosis.case import Rows, stages
from loom.diagnosis.labels import look_at_labels
from loom.diagnosis.layout import look_at_layout
from loom.diagnosis.names import finding
from loom.diagnosis.output import look_at_output
from loom.diagnosis.overlap import look_at_overlap
from loom.engine import Engine
from loom.engine.endings import judging
from loom.engine.labels import indexed
from loom.errors import DataError, LoomError
from loom.network import Network
from loom.network.pickling import bare_copy
from loom.reports.findings import Finding
from loom.schedules import OneCycle, Warmup
from loom.training.automatic import settled_by_target
from loom.training.config import TrainingConfig
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.rehearsal import Rehearsal, batches
from loom.training.signs import cases_of_ports

__all__ = ["of_ports"]


def of_ports(
    net: Network, engine: Engine, data: Data, config: TrainingConfig, validation: Data | None
) -> tuple[list[Finding], dict[str, str]]:
    """Looks at a network of named inputs or outputs: at each of them, and at steps of all together."""
    ports = engine.ports
    assert ports is not None
    config = settled_outputs(engine, config)
    remembered = engine.native.card()
    try:
        # What the network would remember of labels; it is as it was afterwards.
        settled, seen = settled_by_targets(engine, config, data, learns=True)
        return _of_settled(net, engine, cast("Data", seen), settled, validation)
    finally:
        engine.native.set_card(remembered)


def _of_settled(
    net: Network, engine: Engine, data: Data, config: TrainingConfig, validation: Data | None
) -> tuple[list[Finding], dict[str, str]]:
    ports = engine.ports
    assert ports is not None
    whole_set, given = _given(data)
    x = {name: as_numpy(given.input[name]) for name in _named(given.input, ports.input_names)}
    if not ports.inputs:
        x = {"": as_numpy(given.input)}
    if ports.outputs:
        labels = ports.labels()
        y = {
            name: as_numpy(indexed(given.target[name], labels.get(name)))
            for name in _named(given.target, ports.output_names)
        }
    else:
        y = {"": as_numpy(given.target)}
        config = settled_by_target(engine, config, y[""])
    found: list[Finding] = []
    for what, arrays in (("input", x), ("targets", y)):
        for name, values in arrays.items():
            found += not_finite(values, f'{what} "{name}"' if name else what)
    whole = dict(zip(ports.input_names, engine.native.index_limits(), strict=True))
    floats = {name: values for name, values in x.items() if whole.get(name) is None}
    if not ports.inputs and engine.reads_indices:
        floats = {}
    inputs, outputs = cases_of_ports(engine, config, floats, y, complete=whole_set)
    called = ports.labels() if ports.outputs else {}
    outputs = {
        name: replace(case, labels=called[name].names) if name in called else case
        for name, case in outputs.items()
    }
    with np.errstate(all="ignore"):
        for name, case in inputs.items():
            found += _told(look_at_arrays(case), f'Input "{name}": ' if name else "")
        for name, case in outputs.items():
            told = [
                *look_at_arrays(case),
                *look_at_labels(case),
                *look_at_layout(case),
                *look_at_output(case),
            ]
            # What concerns all outputs is told once.
            known = {entry.name for entry in found}
            told = [entry for entry in told if entry.name != "everything-frozen" or entry.name not in known]
            found += _told(told, f'Output "{name}": ' if name else "")
        found += look_at_batches(next(iter(outputs.values())))
    if any(entry.severity == "error" for entry in found):
        return found, dict.fromkeys(BY_STEPS, "training refuses what there is")
    try:
        source = as_source(cast("Data", packed(engine, config, data)))
        held_out = None if validation is None else as_source(cast("Data", packed(engine, config, validation)))
        if isinstance(source, ArraySource) and isinstance(held_out, ArraySource):
            pair = [
                Rows(np.asarray(each.batch.input), np.asarray(each.batch.target))
                for each in (source, held_out)
            ]
            found += look_at_overlap(pair[0], pair[1])
        found += _steps_of_ports(net, engine, source, config, x, y)
    except LoomError as error:
        found.append(finding("training-refuses", f"Training would raise: {error}.", "Do as it says."))
    return found, {}


def _given(data: object) -> tuple[bool, Any]:
    """Returns whether data is one batch in all, and the batch, or the first of several."""
    if is_single(data):
        return True, as_batch(data)
    given = check_iterable(data)
    batches = iter(given)
    if batches is given:
        raise DataError(
            f"{type(data).__name__} can be iterated only once, and training needs what it gives; give "
            "arrays, or a list of batches"
        )
    for first in batches:
        return False, as_batch(first)
    raise DataError("the data set has no batches")


def _named(given: Any, names: Sequence[str]) -> Sequence[str]:  # noqa: ANN401 - a dictionary or a frame
    for name in names:
        if name not in given:
            raise DataError(f'"{name}" is missing; the network has {", ".join(names)}')
    return names


def _told(found: Iterable[Finding], of: str) -> list[Finding]:
    return [replace(entry, seen=of + entry.seen) for entry in found]


def _steps_of_ports(
    net: Network,
    engine: Engine,
    source: Source,
    config: TrainingConfig,
    x: Mapping[str, NDArray[Any]],
    y: Mapping[str, NDArray[Any]],
) -> Iterator[Finding]:
    """Finds what only computing shows of all inputs and outputs together."""
    chosen = replace(config, device=engine.device) if config.device == "auto" else config
    steps = 1
    if isinstance(source, ArraySource):
        steps = -(-source.rows // config.batch_size) * config.epochs
    rehearsal = Rehearsal(bare_copy(net), chosen, max(steps, thresholds.DRY_STEPS))
    rows = len(next(iter(y.values())))
    places = np.linspace(0, rows - 1, min(rows, thresholds.SAMPLE_ROWS)).astype(np.intp)
    copy = bare_copy(net)
    copy.reset_states()
    sample: Any = {name: values[places] for name, values in x.items()}
    output: Any = copy.forward(sample.get("", sample))
    outputs = output if isinstance(output, dict) else {"": output}
    by_name: Any = config.loss if isinstance(config.loss, Mapping) else {"": config.loss}
    class_weight: Any = config.class_weight
    gradients = {}
    for name, values in outputs.items():
        weights = class_weight.get(name) if name and class_weight is not None else class_weight
        smoothing = config.label_smoothing if losses.target_kind(by_name[name]) == "classes" else 0.0
        target = y[name][places]
        _, gradient = judging(engine, name)(by_name[name], values, target, None, smoothing, weights)
        gradients[name] = gradient * (config.loss_weights or {}).get(name, 1.0)
    yield from look_at_units(copy)
    copy.backward(gradients.get("", gradients))
    yield from look_at_gradients(copy)
    stream = batches(source, replace(config, shuffle=True))
    moves = any(stage.moves for stage in stages(engine))
    warm = isinstance(config.schedule, (Warmup, OneCycle)) or not moves
    yield from dry_run(rehearsal, rehearsal.prepare(next(stream)), config.rate, warm=warm)
