"""Training of networks with named inputs and outputs: data as rows, losses and metrics by output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from loom import losses, metrics
from loom._settings.suggestions import shown, unknown
from loom.convert import as_numpy
from loom.data import Classes, Data, TrainingBatch
from loom.data.batches import is_single
from loom.data.foreign import adopted
from loom.data.labels import as_names
from loom.data.weights import counting
from loom.engine import Engine
from loom.engine.endings import judging
from loom.engine.ports import Ports, by_name
from loom.errors import ConfigError, DataError, LoomError
from loom.training.config import TrainingConfig, by_output
from loom.training.labelling import tabled
from loom.training.output_figures import LossOfOutput, MetricOfOutput, OfOutput, target_kinds

__all__ = [
    "counting_by_output",
    "loss_metrics",
    "metrics_as_given",
    "metrics_under",
    "packed",
    "settled_outputs",
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


def metrics_under(given: Iterable[Any], chosen: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns metrics of named outputs that know what losses take, once that is settled.

    Args:
        given: The metrics of a config that `settled_outputs` has made.
        chosen: The losses by output.
    """
    return tuple(metric.under(chosen) if isinstance(metric, OfOutput) else metric for metric in given)


def metrics_as_given(given: Any) -> Any:  # noqa: ANN401 - of either form
    """Returns metrics as a config is given them: of named outputs lists by output.

    Args:
        given: The metrics of any config.
    """
    if isinstance(given, Mapping) or not any(isinstance(metric, MetricOfOutput) for metric in given):
        return given
    found: dict[str, list[Any]] = {}
    for metric in given:
        found.setdefault(metric.output, []).append(metric.metric)
    return found


def _by_output(ports: Ports, given: object, loss: Mapping[str, Any]) -> tuple[Callable[..., float], ...]:
    if not isinstance(given, Mapping):
        listed = tuple(cast("Iterable[Any]", given))
        if listed and not all(isinstance(metric, OfOutput) for metric in listed):
            raise ConfigError(
                'metrics: the network has named outputs; give metrics by name, metrics={"...": ["accuracy"]}'
            )
        return listed
    found: list[Callable[..., float]] = []
    for name, entries in given.items():
        resolved = metrics.resolve_all(entries, losses.read_as(loss[name]))
        found += [MetricOfOutput(ports, name, loss, metric) for metric in resolved]
    return tuple(found)


def loss_metrics(engine: Engine, config: TrainingConfig) -> list[Callable[..., float]]:
    """Returns the loss of each named output as a metric; the config is a settled one."""
    ports = engine.ports
    if ports is None or not isinstance(config.loss, Mapping):
        return []
    weights = cast("Mapping[str, Any]", config.class_weight or {})
    return [
        LossOfOutput(
            ports, name, config.loss, config.label_smoothing, weights.get(name), judging(engine, name)
        )
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
    target, weight, given = cast("Any", item.target), cast("Any", item.weight), item.input
    sizing = engine.sizing
    if sizing is not None and ports.inputs:
        given = cast("Any", by_name("input", given, ports.input_names))
    if sizing is not None and sizing.has_open_outputs:
        # What has the samples' extents is put into rows with them.
        return TrainingBatch(given, target, weight)
    if ports.outputs:
        kinds = target_kinds(cast("Mapping[str, Any]", config.loss))
        if weight is not None:
            target = counting_by_output(ports, target, weight, cast("Mapping[str, Any]", config.loss), labels)
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


def counting_by_output(
    ports: Ports,
    target: object,
    weight: Any,  # noqa: ANN401 - of all outputs, or by name
    chosen: Mapping[str, Any],
    labels: Mapping[str, Classes],
) -> dict[str, Any]:
    """Returns targets by output; those of weight 0 are such as its loss takes.

    Args:
        ports: The network's names.
        target: Targets by output.
        weight: Weights of rows, of all outputs or one for each; or by output, of rows or places.
        chosen: The losses by output.
        labels: What the classes of outputs are called, where somebody has said so.
    """
    given = by_name("target", target, ports.output_names)
    made: dict[str, Any] = dict(given)
    for number, name in enumerate(ports.output_names):
        try:
            array = as_names(given[name])
            counts = as_numpy(weight.get(name, 1.0) if isinstance(weight, Mapping) else weight, what="weight")
        except LoomError:
            # Whoever takes them says what is wrong with them.
            continue
        if not isinstance(weight, Mapping) and counts.ndim == 2:
            if counts.shape[1] != len(ports.output_names):
                continue
            counts = counts[:, number]
        if counts.ndim:
            filled = counting(
                array,
                counts,
                labels=losses.target_kind(chosen[name]) != "numbers",
                own=losses.is_own(chosen[name]),
                classes=labels.get(name),
            )
            made[name] = given[name] if filled is array else filled
    return made


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
