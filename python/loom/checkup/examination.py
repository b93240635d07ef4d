"""What is wrong with a training before it begins: `loom.doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._settings.calls import explained
from loom.convert import as_numpy
from loom.data import ArraySource, Data, Source, TrainingBatch, as_source
from loom.data.splitting import hold_out
from loom.diagnosis import look, thresholds
from loom.diagnosis.arrays import look_at_arrays, not_finite
from loom.diagnosis.batches import look_at_batches
from loom.diagnosis.case import Case, Rows, stages
from loom.diagnosis.labels import look_at_labels
from loom.diagnosis.layout import look_at_layout
from loom.diagnosis.names import ALL, finding, ignored
from loom.diagnosis.output import look_at_output
from loom.diagnosis.overlap import look_at_overlap
from loom.engine import Engine, engine_of
from loom.engine.labels import indexed, known_classes
from loom.engine.told import forget_classes
from loom.errors import DataError, LoomError, NonFiniteError
from loom.network import Network
from loom.network.layers import LayerHandle
from loom.network.pickling import bare_copy
from loom.reports.findings import DoctorReport, Finding
from loom.schedules import OneCycle, Warmup
from loom.training.automatic import is_open, settled_by_target
from loom.training.config import TrainingConfig, check_training
from loom.training.feed import Examples
from loom.training.labelling import as_known, learn_classes, with_indices
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.rehearsal import Rehearsal, batches, chosen_rows
from loom.training.signs import case_of, cases_of_ports

__all__ = ["doctor"]

_ORDER = ("error", "warning", "hint")
_BY_STEPS = (
    "start-loss",
    "dead-units",
    "saturated-units",
    "vanishing-gradients",
    "exploding-gradients",
    "learning-rate-explodes",
    "learning-rate-too-low",
)
_RECTIFIERS = frozenset({"relu", "relu_squared", "scaled_relu"})
_BOUNDS = {"sigmoid": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


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
        return _report(*_of_ports(net, engine, data, config, validation), left_out)
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
            found += _by_steps(net, engine, case, source, config)
        except LoomError as error:
            found.append(finding("training-refuses", f"Training would raise: {error}.", "Do as it says."))
    if any(entry.severity == "error" for entry in found):
        skipped = dict.fromkeys(_BY_STEPS, "training refuses what there is")
    return _report(found, skipped, left_out)


def _report(found: list[Finding], skipped: dict[str, str], left_out: Sequence[str]) -> DoctorReport:
    kept = [entry for entry in found if entry.name not in left_out and ALL not in left_out]
    # Of one severity data and settings come before what they bring about.
    kept.sort(key=lambda entry: _ORDER.index(entry.severity))
    return DoctorReport(tuple(kept), {name: why for name, why in skipped.items() if name not in left_out})


def _of_ports(
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
        return found, dict.fromkeys(_BY_STEPS, "training refuses what there is")
    try:
        source = as_source(cast("Data", packed(engine, config, data)))
        held_out = None if validation is None else as_source(cast("Data", packed(engine, config, validation)))
        if isinstance(source, ArraySource) and isinstance(held_out, ArraySource):
            pair = [
                Rows(np.asarray(each.batch.input), np.asarray(each.batch.target))
                for each in (source, held_out)
            ]
            found += look_at_overlap(pair[0], pair[1])
        found += _steps_of_ports(net, engine, given, source, config, x, y)
    except LoomError as error:
        found.append(finding("training-refuses", f"Training would raise: {error}.", "Do as it says."))
    return found, {}


def _given(data: object) -> tuple[bool, Any]:
    """Returns whether data is one batch in all, and the batch, or the first of several."""
    pair = isinstance(data, tuple) and not all(isinstance(each, TrainingBatch) for each in data)
    if isinstance(data, TrainingBatch) or pair:
        return True, data if isinstance(data, TrainingBatch) else TrainingBatch(
            *cast("tuple[Any, Any]", data)
        )
    if iter(cast("Any", data)) is data:
        raise DataError(
            f"{type(data).__name__} can be iterated only once, and training needs what it gives; give "
            "arrays, or a list of batches"
        )
    first = next(iter(cast("Any", data)))
    return False, first if isinstance(first, TrainingBatch) else TrainingBatch(*first)


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
    given: TrainingBatch,
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
        smoothing = config.label_smoothing if losses.is_classification(by_name[name]) else 0.0
        target = y[name][places]
        _, gradient = losses.value_and_gradient(by_name[name], values, target, None, smoothing, weights)
        gradients[name] = gradient * (config.loss_weights or {}).get(name, 1.0)
    yield from _units(copy)
    copy.backward(gradients.get("", gradients))
    yield from _gradients(copy)
    stream = batches(source, replace(config, shuffle=True))
    moves = any(stage.moves for stage in stages(engine))
    warm = isinstance(config.schedule, (Warmup, OneCycle)) or not moves
    yield from _dry_run(rehearsal, rehearsal.prepare(next(stream)), config.rate, warm=warm)


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


def _by_steps(
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
    yield from _dry_run(rehearsal, rehearsal.prepare(next(stream)), config.rate, warm=warm)


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
    judge = losses.behind_softmax if case.absorbs else losses.value_and_gradient
    loss, gradient = judge(
        config.loss,
        output,
        _shaped(y, case),
        weight,
        config.label_smoothing,
        cast("Any", config.class_weight),
    )
    if not engine.native.training_state()["updates"]:
        yield from _start(case, loss, output, y)
    yield from _units(copy)
    copy.backward(gradient)
    yield from _gradients(copy)


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


def _leaves(net: Network) -> Iterator[LayerHandle]:
    for layer in net.layers:
        yield from (each for each in layer.inner if not each.holds_layers)
        if not layer.holds_layers:
            yield layer


def _activation(layer: LayerHandle) -> str:
    config = layer.config
    found = getattr(config, "function" if config.kind == "activation" else "activation", "linear")
    return found if isinstance(found, str) else ""


def _units(net: Network) -> Iterator[Finding]:
    leaves = list(_leaves(net))
    for place, layer in enumerate(leaves):
        name = _activation(layer)
        if layer.kind in ("rnn", "lstm", "gru") or (name not in _RECTIFIERS and name not in _BOUNDS):
            continue
        # (samples, units): of images the channels, of anything else the last axis.
        values = layer.activation
        axis = 1 if values.ndim >= 4 or layer.kind.startswith("conv") else values.ndim - 1
        units = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])
        if name in _RECTIFIERS:
            dead = int((units <= 0).all(axis=0).sum())
            if dead > thresholds.PASSIVE_SHARE * units.shape[1]:
                yield finding(
                    "dead-units",
                    f"{dead} of {units.shape[1]} units ({name}) are 0 for all {len(values)} samples: they "
                    "neither say nor learn anything.",
                    "Scale the inputs, lower the learning rate, keep the bias at 0 to begin with; or use "
                    '"leaky_relu", "gelu" or "silu".',
                    layer=layer.path,
                    share=dead / units.shape[1],
                )
        elif place < len(leaves) - 1:
            low, high = _BOUNDS[name]
            near = thresholds.SATURATED * (high - low)
            ends = (units < low + near) | (units > high - near)
            stuck = int((ends.mean(axis=0) >= thresholds.SATURATED_SAMPLES).sum())
            if stuck > thresholds.PASSIVE_SHARE * units.shape[1]:
                yield finding(
                    "saturated-units",
                    f"{stuck} of {units.shape[1]} units ({name}) are at their bounds for nearly all "
                    f"{len(values)} samples, where the slope is about 0.",
                    "Scale the inputs to about 1, keep the initial weights small, or put `nn.LayerNorm()` "
                    "before the activation.",
                    layer=layer.path,
                    share=stuck / units.shape[1],
                )


def _gradients(net: Network) -> Iterator[Finding]:
    sizes: dict[str, float] = {}
    for layer in _leaves(net):
        if not layer.trainable:
            continue
        gradients = [values for values in layer.gradients.values() if values.size]
        if not gradients:
            continue
        whole = np.concatenate([np.asarray(values, np.float64).ravel() for values in gradients])
        norm = float(np.linalg.norm(whole))
        if not norm <= thresholds.EXPLODING:
            yield finding(
                "exploding-gradients",
                f"The gradient of layer {layer.path} ({layer.kind}) has a norm of {norm:.3g}.",
                "Scale inputs and targets to about 1; set `gradient_clip=1.0`; put norms between the layers.",
                layer=layer.path,
                norm=norm,
            )
        # Rows of an embedding that nobody asked for have none.
        touched = int(np.count_nonzero(whole))
        sizes[layer.path] = norm / max(touched, 1) ** 0.5
    largest = max(sizes.values(), default=0.0)
    weak = {path: size for path, size in sizes.items() if size < thresholds.VANISHING * largest}
    if weak and np.isfinite(largest):
        path, size = min(weak.items(), key=lambda entry: entry[1])
        strongest = max(sizes, key=lambda name: sizes[name])
        yield finding(
            "vanishing-gradients",
            f"{len(weak)} of {len(sizes)} layers get hardly any gradient: its root mean square is "
            f"{size:.2g} in layer {path}, and {largest:.2g} in layer {strongest}.",
            'Use "relu", "gelu" or "silu" instead of sigmoids in deep networks; put norms between layers, '
            "and `nn.Residual` around them.",
            layer=path,
            layers=len(weak),
            smallest=size,
            largest=largest,
        )


def _dry_run(rehearsal: Rehearsal, examples: Examples, rate: float, *, warm: bool) -> Iterator[Finding]:
    """Learns one batch; `warm` where no movement is to be expected of the first steps."""
    course: list[float] = []
    failed = ""
    for _ in range(thresholds.DRY_STEPS):
        try:
            loss, rate = rehearsal.step(examples)
        except NonFiniteError as error:
            failed = str(error)
            break
        if not np.isnan(loss):
            course.append(loss)
    start = course[0] if course else float("nan")
    end = float(np.mean(course[-3:])) if course else float("nan")
    if failed or end - start > (thresholds.DRY_GROWTH - 1) * abs(start):
        how = "was not finite any more" if failed else f"was {end:.3g}"
        yield finding(
            "learning-rate-explodes",
            f"On a copy the loss of one batch began at {start:.4g}, and after {len(course)} steps at a "
            f"learning rate of {rate:.3g} it {how}.",
            f"Take a smaller rate, {rate / 10:.2g} say, or ask `loom.find_rate(net, data, config)`; "
            "`gradient_clip=1.0` and `loom.schedules.Warmup` help, too.",
            rate=rate,
            start=start,
            end=end,
            steps=len(course),
        )
    elif not warm and start > 0 and max(course) - min(course) < thresholds.DRY_CHANGE * start:
        yield finding(
            "learning-rate-too-low",
            f"On a copy {len(course)} steps at a learning rate of {rate:.3g} changed the loss of one batch, "
            f"{start:.4g}, by {(max(course) - min(course)) / start:.1g} of itself.",
            "Ask `loom.find_rate(net, data, config)` for a rate.",
            rate=rate,
            start=start,
            end=end,
        )
