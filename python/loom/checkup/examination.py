"""`loom.doctor`: what is seen of data, layers and settings, then what steps on a copy show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from loom._settings.calls import explained
from loom.checkup.ports import of_ports
from loom.checkup.steps import BY_STEPS, by_steps
from loom.data import ArraySource, Data, Source, as_source
from loom.data.splitting import hold_out
from loom.diagnosis import look
from loom.diagnosis.arrays import not_finite
from loom.diagnosis.names import ALL, finding, ignored
from loom.diagnosis.overlap import look_at_overlap
from loom.engine import engine_of
from loom.engine.labels import known_classes
from loom.errors import LoomError
from loom.network import Network
from loom.reports.findings import DoctorReport, Finding
from loom.training.automatic import is_open, settled_by_target
from loom.training.config import TrainingConfig, check_training
from loom.training.labelling import as_known, learn_classes, with_indices
from loom.training.rehearsal import batches
from loom.training.signs import case_of

__all__ = ["doctor"]

_ORDER = ("error", "warning", "hint")


@explained(data="loom.doctor(net, (x, y), config)", more="samples and targets go in as one argument, (x, y)")
def doctor(
    net: Network,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    validation: Data | None = None,
    ignore: str | Sequence[str] = (),
) -> DoctorReport:
    """Looks for what is most likely a mistake in a network, its data and its settings.

    Training warns by itself (`loom.DoctorWarning`) of what is seen without computing anything; this looks at
    all of the data for NaN and repeated rows, and takes some steps on a copy. The network stays as it is, bit
    for bit: weights, optimizer's state, and what random numbers are drawn next. docs/doctor.md explains every
    finding.

    Args:
        net: The network, as it is to be trained.
        data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either that can be
            iterated more than once, of which the first batches are looked at.
        config: How the training is to go; the defaults where None.
        validation: What it is to be measured on.
        ignore: Names of findings that are left out; "all" leaves nothing.

    Returns:
        The findings, the gravest first. It is empty, and false, where nothing was found.

    Raises:
        ConfigError: A name is unknown.
        DataError: The data is empty, of unequal length, of no known form, or can be iterated only once.
        ShapeError: The network's layers do not fit together.
        StateError: The network is being trained.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3, activation="sigmoid")], input_shape=4)
        >>> data = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
        >>> report = loom.doctor(net, data, loom.TrainingConfig(loss="cross_entropy"))
        >>> report.names
        ('sigmoid-before-loss',)
    """
    config = check_training(config)
    left_out = ignored("doctor: ignore", ignore)
    engine = engine_of(net)
    engine.check_idle("doctor")
    engine.check_fixed("doctor")
    engine.build()
    if engine.ports is not None:
        return _report(*of_ports(net, engine, data, config, validation), left_out)
    data = as_known(engine, data, config)
    validation = None if validation is None else as_known(engine, validation, config)
    told = engine.native.card()
    try:
        # What the network would remember of labels; it is as it was afterwards.
        config = learn_classes(engine, config, data, refuses=False)
        classes = known_classes(engine).get("")
    finally:
        engine.native.set_card(told)
    source, held_out = _sources(data, validation, config)
    source = with_indices(source, classes)
    held_out = None if held_out is None else with_indices(held_out, classes)
    first = source if isinstance(source, ArraySource) else with_indices(_first(source), classes)
    chosen = is_open(config)
    config = settled_by_target(engine, config, first.batch.target)
    # As `split` leaves it: the last rows are held out.
    case = case_of(engine, config, first, held_out, chosen=chosen)
    if classes is not None:
        case = replace(case, labels=classes.names)
    if first is not source:
        case = replace(case, rows=replace(case.rows, complete=False))
    found = [*_unusable(first, held_out), *look(case)]
    skipped: dict[str, str] = {}
    if all(entry.severity != "error" for entry in found):
        if case.held_out is not None:
            found += look_at_overlap(case.rows, case.held_out)
        try:
            found += by_steps(net, engine, case, source, config)
        except LoomError as error:
            found.append(finding("training-refuses", f"Training would raise: {error}.", "Do as it says."))
    if any(entry.severity == "error" for entry in found):
        skipped = dict.fromkeys(BY_STEPS, "training refuses what there is")
    return _report(found, skipped, left_out)


def _report(found: list[Finding], skipped: dict[str, str], left_out: Sequence[str]) -> DoctorReport:
    kept = [entry for entry in found if entry.name not in left_out and ALL not in left_out]
    # Of one severity data and settings come before what they bring about.
    kept.sort(key=lambda entry: _ORDER.index(entry.severity))
    return DoctorReport(tuple(kept), {name: why for name, why in skipped.items() if name not in left_out})


def _sources(data: Data, validation: Data | None, config: TrainingConfig) -> tuple[Source, Source | None]:
    source = as_source(data)
    if validation is not None:
        return source, as_source(validation)
    if config.validation_split > 0 and isinstance(source, ArraySource):
        return hold_out(source, config.validation_split)
    return source, None


def _first(source: Source) -> ArraySource:
    batch = next(batches(source, TrainingConfig()))
    return ArraySource(batch, len(np.asarray(batch.input)))


def _unusable(first: ArraySource, held_out: Source | None) -> Iterator[Finding]:
    for source, what in ((first, ""), (held_out, "validation ")):
        if isinstance(source, ArraySource):
            yield from not_finite(np.asarray(source.batch.input), f"{what}input")
            yield from not_finite(np.asarray(source.batch.target), f"{what}targets")
