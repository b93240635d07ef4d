"""Training of networks with named inputs and outputs: data as rows, losses and metrics by output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses, metrics
from loom._settings.suggestions import shown, unknown
from loom._typing import TargetKind
from loom.convert import DividedWeights
from loom.data import Classes, Data, TrainingBatch
from loom.data.batches import is_single
from loom.data.foreign import adopted
from loom.engine import Engine
from loom.engine.ports import Ports, apart, by_name
from loom.errors import ConfigError, DataError
from loom.training.config import TrainingConfig, by_output
from loom.training.labelling import tabled

__all__ = [
    "LossOfOutput",
    "OutputParts",
    "loss_metrics",
    "metrics_as_given",
    "metrics_under",
    "packed",
    "row_weights",
    "settled_outputs",
    "target_kinds",
]


def settled_outputs(engine: Engine, config: TrainingConfig) -> TrainingConfig:
    """Returns the config with a loss for each named output, and its metrics as functions of whole rows.

    Args:
        engine: The network's; it is built where it has named outputs.
        config: The config.

    Raises:
        ConfigError: A name is not that of an output; an output has no loss; or the config names outputs
            and the network has none with names.
    """
    ports = engine.ports
    if ports is None or not ports.outputs:
        named = isinstance(config.loss, Mapping) or isinstance(config.metrics, Mapping)
        if named or config.loss_weights is not None or by_output(config.class_weight):
            raise ConfigError(
                "losses, metrics and class weights by name are of a network with named outputs; this one has "
                'a single output: give loss="...", metrics=[...] and class_weight={...} as they are'
            )
        return config
    engine.build()
    names = ports.output_names
    if isinstance(config.loss, str) and config.loss == losses.AUTO:
        raise ConfigError(
            f"the network has several outputs; say what is minimised of each: loss={{{_example(names)}}}"
        )
    given = config.loss
    chosen = dict(given) if isinstance(given, Mapping) else dict.fromkeys(names, given)
    weights = dict(config.loss_weights or {})
    for what, mapping in (("loss", chosen), ("loss_weights", weights), ("metrics", config.metrics)):
        if isinstance(mapping, Mapping):
            for name in mapping:
                if name not in names:
                    raise unknown(f"{what}: output", name, names)
    missing = [name for name in names if name not in chosen]
    if missing:
        raise ConfigError(f'loss: output "{missing[0]}" has none; give one for each of {", ".join(names)}')
    return replace(
        config,
        class_weight=_class_weights(ports, config.class_weight, chosen),
        loss={name: chosen[name] for name in names},
        loss_weights={name: weights.get(name, 1.0) for name in names},
        metrics=_by_output(ports, config.metrics, chosen),
    )


def _example(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}": "mse"' for name in names)


def _class_weights(ports: Ports, given: object, chosen: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the weights of the classes of outputs that have some; `weighed` says of what class each is."""
    if given is None:
        return None
    if not by_output(given):
        raise ConfigError(
            "the network has named outputs: give class_weight by output, "
            f'class_weight={{"{ports.output_names[0]}": {{0: 1.0, 1: 5.0}}}}'
        )
    found = {}
    for name, weights in cast("Mapping[str, Any]", given).items():
        if name not in ports.output_names:
            raise unknown("class_weight: output", name, ports.output_names)
        if losses.target_kind(chosen[name]) != "classes":
            raise ConfigError(
                f'class_weight: output "{name}" has the loss "{losses.name_of(chosen[name])}"; classes '
                "are of cross_entropy and nll"
            )
        found[name] = weights
    return found


@dataclass(frozen=True)
class OutputParts:
    """Outputs and targets by name; of those that have the samples' extents each real place as a sample.

    Args:
        outputs: (rows, ...) of each output.
        targets: Likewise, as they lay in rows of targets.
        counts: How much each row counts in an output's loss, or each place: all of a sample's together as
            much as those of another.
        divisor: What the mean is over: how many samples there are, or what all of them together count.
        labelled: Whether targets that may be class indices are.
    """

    outputs: Mapping[str, NDArray[Any]]
    targets: Mapping[str, NDArray[Any]]
    counts: Mapping[str, NDArray[np.float64]]
    divisor: float
    labelled: bool

    @classmethod
    def of(
        cls,
        ports: Ports,
        kinds: Mapping[str, TargetKind],
        opened: Iterable[str],
        steps: Mapping[str, NDArray[np.int64]],
        outputs: NDArray[Any],
        targets: NDArray[Any],
        weight: NDArray[Any] | None = None,
    ) -> OutputParts:
        """Takes rows apart, by the extents that the network has now.

        Args:
            ports: The network's names.
            kinds: What the loss of each output takes.
            opened: The outputs that have the samples' extents.
            steps: How many steps of each row are real, of outputs that have some.
            outputs: (rows, elements) of all outputs.
            targets: (rows, elements) of all outputs.
            weight: (rows, ...) a weight for each output, and for each step of one that has some.
        """
        labelled, rows = ports.is_labelled(targets.shape[1], kinds), len(outputs)
        given = apart(outputs, ports.output_shapes())
        wanted = apart(targets, ports.target_shapes(kinds, labelled=labelled))
        counts: dict[str, NDArray[np.float64]] = {}
        start, opened = 0, set(opened)
        for name in ports.output_names:
            columns = given[name].shape[1] if name in steps else 1
            mine = np.ones((rows, 1)) if weight is None else weight[:, start : start + columns].astype(float)
            start += columns
            if name not in opened:
                counts[name] = mine[:, 0]
                continue
            told = wanted[name].ndim < given[name].ndim
            output = _by_place(given[name])
            places = output.shape[1]
            target = wanted[name].reshape(rows, places) if told else _by_place(wanted[name])
            real = np.arange(places) < steps.get(name, np.full(rows, places))[:, None]
            given[name], wanted[name] = output[real], target[real]
            # The engine divides by all places that there is room for.
            counts[name] = np.broadcast_to(mine / places, (rows, places))[real]
        divisor = weight.divisor if isinstance(weight, DividedWeights) else float(rows)
        return cls(given, wanted, counts, divisor, labelled)

    @classmethod
    def joined(cls, parts: Sequence[OutputParts]) -> OutputParts:
        """Puts those of several batches one behind the other."""

        def together(what: str) -> dict[str, NDArray[Any]]:
            names = getattr(parts[0], what)
            return {name: np.concatenate([getattr(part, what)[name] for part in parts]) for name in names}

        divisor, labelled = sum(part.divisor for part in parts), parts[0].labelled
        return cls(together("outputs"), together("targets"), together("counts"), divisor, labelled)


def _by_place(array: NDArray[Any]) -> NDArray[Any]:
    """Returns (rows, places, classes) of outputs; classes are the last axis, or the channels of images."""
    turned = np.moveaxis(array, 1, -1) if array.ndim == 4 else array
    return turned.reshape(len(array), -1, turned.shape[-1])


class _OfOutput:
    """A figure of one output, computed from rows of all of them."""

    def __init__(self, ports: Ports, output: str, chosen: Mapping[str, Any], name: str) -> None:
        self._ports, self._output = ports, output
        self._loss = chosen[output]
        self._kinds = target_kinds(chosen)
        self._shapes = ports.output_shapes()
        self._classes = losses.class_count(self._shapes[output])
        self.__name__ = f"{output}_{name}"

    def under(self, chosen: Mapping[str, Any]) -> _OfOutput:
        """Returns the same figure where outputs have these losses."""
        made = copy(self)
        made._loss, made._kinds = chosen[self._output], target_kinds(chosen)
        return made

    def _parts(
        self, outputs: NDArray[Any] | OutputParts, targets: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], bool]:
        """Returns the output's part of rows, and of targets, and whether the latter are class indices."""
        kind = self._kinds[self._output]
        if isinstance(outputs, OutputParts):
            given, wanted = outputs.outputs[self._output], outputs.targets[self._output]
            labelled = outputs.labelled
        else:
            assert targets is not None
            labelled = self._ports.is_labelled(targets.shape[1], self._kinds)
            shapes = self._ports.target_shapes(self._kinds, labelled=labelled)
            given, wanted = _part(outputs, self._shapes, self._output), _part(targets, shapes, self._output)
        labelled = kind in {"indices", "labels"} or (kind == "classes" and labelled)
        return given, wanted.astype(np.int64) if labelled else wanted, labelled


def metrics_under(given: Iterable[Any], chosen: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns metrics of named outputs that know what losses take, once that is settled.

    Args:
        given: The metrics of a config that `settled_outputs` has made.
        chosen: The losses by output.
    """
    return tuple(metric.under(chosen) if isinstance(metric, _OfOutput) else metric for metric in given)


def metrics_as_given(given: Any) -> Any:  # noqa: ANN401 - of either form
    """Returns metrics as a config is given them: of named outputs lists by output.

    Args:
        given: The metrics of any config.
    """
    if isinstance(given, Mapping) or not any(isinstance(metric, _MetricOfOutput) for metric in given):
        return given
    found: dict[str, list[Any]] = {}
    for metric in given:
        found.setdefault(metric.output, []).append(metric.metric)
    return found


def target_kinds(chosen: Mapping[str, Any]) -> dict[str, TargetKind]:
    """Returns what the loss of each output takes as targets.

    Args:
        chosen: The losses by output.
    """
    return {name: losses.target_kind(loss) for name, loss in chosen.items()}


def _part(rows: NDArray[Any], shapes: Mapping[str, tuple[int, ...]], output: str) -> NDArray[Any]:
    before = list(shapes)[: list(shapes).index(output)]
    start = sum(math.prod(shapes[name]) for name in before)
    columns = slice(start, start + math.prod(shapes[output]))
    return np.ascontiguousarray(rows[:, columns]).reshape(len(rows), *shapes[output])


class LossOfOutput(_OfOutput):
    """One output's mean loss: its part of the whole, without the output's weight, but with those of rows.

    Args:
        ports: The network's named inputs and outputs.
        output: The output's name.
        chosen: The losses by output.
        label_smoothing: What it is under losses of classes.
        class_weight: A factor for each class; None for none.
    """

    def __init__(
        self,
        ports: Ports,
        output: str,
        chosen: Mapping[str, Any],
        label_smoothing: float,
        class_weight: Sequence[float] | None,
    ) -> None:
        super().__init__(ports, output, chosen, "loss")
        self._smoothing = label_smoothing if losses.target_kind(self._loss) == "classes" else 0.0
        self._weights = class_weight

    def __call__(
        self,
        outputs: NDArray[Any] | OutputParts,
        targets: NDArray[Any] | None,
        weights: NDArray[np.float64] | None = None,
    ) -> float:
        """Computes the mean loss.

        Args:
            outputs: (rows, elements) of all outputs; or these apart, with what places count.
            targets: (rows, elements) likewise.
            weights: What `row_weights` has made; all rows count alike where None.
        """
        given, wanted, labelled = self._parts(outputs, targets)
        mine, divisor = None, float(len(given))
        if isinstance(outputs, OutputParts):
            mine, divisor = outputs.counts[self._output], outputs.divisor
        elif weights is not None:
            mine = weights[:, self._ports.output_names.index(self._output)]
            divisor = float(weights[:, -1].sum())
        count = np.ones(len(given)) if mine is None else mine
        if self._weights is not None and labelled:
            count = count * np.asarray(self._weights)[wanted].reshape(len(wanted), -1).mean(axis=1)
        if not count.any():
            # Nothing of it counts.
            return 0.0
        loss, _ = losses.value_and_gradient(self._loss, given, wanted, mine, self._smoothing, self._weights)
        # By itself it is divided by all its weights; here by what the whole loss is divided by.
        return loss * float(count.sum()) / divisor


def row_weights(weight: NDArray[Any] | None, rows: int, outputs: int) -> NDArray[np.float64]:
    """Returns how much each row counts, of every output, and in what the sum of losses is divided by.

    Args:
        weight: (rows,) or (rows, outputs), or None.
        rows: How many rows there are.
        outputs: How many outputs there are.

    Returns:
        (rows, outputs + 1) with the share in the divisor last: weights by output leave that at one a row.
    """
    found = np.ones((rows, outputs + 1))
    if weight is not None and weight.ndim == 1:
        found[:] = weight[:, None]
    elif weight is not None:
        found[:, :-1] = weight
    return found


class _MetricOfOutput(_OfOutput):
    """A metric of one output, which sees class indices where its loss takes them."""

    def __init__(
        self,
        ports: Ports,
        output: str,
        chosen: Mapping[str, Any],
        metric: metrics.Metric | Callable[..., float],
    ) -> None:
        super().__init__(ports, output, chosen, metrics.name_of(metric))
        self.output, self.metric = output, metric

    def __call__(self, outputs: NDArray[Any] | OutputParts, targets: NDArray[Any] | None = None) -> float:
        given, wanted, labelled = self._parts(outputs, targets)
        shares = not labelled and losses.target_kind(self._loss) == "classes"
        if shares and bool(np.isin(wanted, (0.0, 1.0)).all()):
            wanted = wanted.argmax(axis=1 if wanted.ndim == 4 else -1)
        zero, several = losses.decides_at_zero(self._loss), self._classes > 1
        if isinstance(self.metric, (metrics.Accuracy, metrics.Counted)) and (zero or not several):
            return self.metric(given, wanted, threshold=0.0 if zero else 0.5)
        return float(self.metric(given, wanted))


def _by_output(ports: Ports, given: object, loss: Mapping[str, Any]) -> tuple[Callable[..., float], ...]:
    if not isinstance(given, Mapping):
        listed = tuple(cast("Iterable[Any]", given))
        if listed and not all(isinstance(metric, _OfOutput) for metric in listed):
            raise ConfigError(
                'metrics: the network has named outputs; give metrics by name, metrics={"...": ["accuracy"]}'
            )
        return listed
    found: list[Callable[..., float]] = []
    for name, entries in given.items():
        resolved = metrics.resolve_all(entries, losses.read_as(loss[name]))
        found += [_MetricOfOutput(ports, name, loss, metric) for metric in resolved]
    return tuple(found)


def loss_metrics(engine: Engine, config: TrainingConfig) -> list[Callable[..., float]]:
    """Returns the loss of each named output as a metric; the config is a settled one."""
    ports = engine.ports
    if ports is None or not isinstance(config.loss, Mapping):
        return []
    weights = cast("Mapping[str, Any]", config.class_weight or {})
    return [
        LossOfOutput(ports, name, config.loss, config.label_smoothing, weights.get(name))
        for name in config.loss
    ]


def packed(engine: Engine, config: TrainingConfig, data: Data | None, *, learns: bool = False) -> Data | None:
    """Returns data as the engine takes it: of named inputs and outputs one row for each sample.

    Args:
        engine: The network's; it is built where it has names.
        config: A settled config.
        data: (x, y) or (x, y, weight), a `TrainingBatch`, or an iterable of either, with dictionaries or data
            frames as x and y; data sets of other packages are dealt out in batches.
        learns: Whether it is learned from, so that data sets are shuffled where the config says so, and the
            network keeps the encoder of a table.

    Raises:
        DataError, ConfigError, ShapeError, DTypeError, InvalidValueError: As `Ports.pack` and
            `Ports.pack_targets`.
    """
    ports = engine.ports
    if ports is None or data is None:
        return data
    engine.build()
    data = tabled(engine, data, learns=learns)
    data = adopted(data, batch_size=config.batch_size, shuffle=learns and config.shuffle, seed=config.seed)
    # As they are known now: who looks at a network for a while may have it forget them.
    labels = ports.labels()
    if is_single(data):
        return _batch(engine, ports, config, data, labels)
    # An array of no axes says that it can be iterated, and cannot.
    alone = isinstance(data, np.ndarray) and data.ndim == 0
    if isinstance(data, (str, bytes, Mapping)) or alone or not isinstance(data, Iterable):
        raise DataError(
            "data must be a tuple (x, y) or (x, y, weight), a TrainingBatch, or an iterable of them, "
            f"got {type(data).__name__}"
        )
    if iter(data) is data:
        return (_batch(engine, ports, config, item, labels) for item in data)
    return cast("Data", _Batches(data, lambda item: _batch(engine, ports, config, item, labels)))


def _batch(
    engine: Engine, ports: Ports, config: TrainingConfig, item: object, labels: Mapping[str, Classes]
) -> TrainingBatch:
    if isinstance(item, (tuple, list)) and len(item) in {2, 3}:
        item = TrainingBatch(*item)
    if not isinstance(item, TrainingBatch):
        raise DataError(f"expected a TrainingBatch, (x, y) or (x, y, weight), got {shown(item)}")
    # By name these are dictionaries.
    target, weight, given = item.target, cast("Any", item.weight), item.input
    sizing = engine.sizing
    if sizing is not None and ports.inputs:
        given = cast("Any", by_name("input", given, ports.input_names))
    if sizing is not None and sizing.has_open_outputs:
        # What has the samples' extents is put into rows with them.
        return TrainingBatch(given, target, weight)
    if ports.outputs:
        kinds = target_kinds(cast("Mapping[str, Any]", config.loss))
        target = ports.pack_targets(target, kinds, engine.precision, labels=labels)
        if isinstance(weight, Mapping):
            weight = ports.pack_weights(weight, len(target), engine.precision)
    elif isinstance(weight, Mapping):
        raise DataError(
            "weights by name are of named outputs, and this network has one output: give an array"
        )
    # Samples of open extents are put into rows of like ones afterwards; those of one input are rows.
    if sizing is None and ports.inputs:
        given = ports.pack(given, engine.precision)
    return TrainingBatch(given, target, weight)


class _Batches:
    """Batches that are packed as they come, of data that is iterated anew for every epoch."""

    def __init__(self, batches: Iterable[Any], pack: Callable[[Any], TrainingBatch]) -> None:
        self._batches, self._pack = batches, pack

    def __iter__(self) -> Iterator[TrainingBatch]:
        return map(self._pack, self._batches)

    def __len__(self) -> int:
        return len(cast("Any", self._batches))

    @property
    def is_at_hand(self) -> bool:
        """Whether going through it changes nothing, and gives the same each time."""
        return isinstance(self._batches, (list, tuple))

    def __getattr__(self, name: str) -> object:
        # What the data says of its epochs and its position.
        if name in {"set_epoch", "state_dict", "load_state_dict"}:
            return getattr(self._batches, name)
        raise AttributeError(name)
