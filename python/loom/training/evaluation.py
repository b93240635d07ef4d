"""How good a network is on data: loss and metrics, dropout off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from loom import _native, losses, metrics
from loom._settings.calls import explained
from loom._settings.checks import flag
from loom._settings.suggestions import shown
from loom.data import ArraySource, BatchSource, Data, Source, as_source
from loom.data.buckets import Buckets
from loom.engine import HasEngine, engine_of
from loom.errors import ConfigError, StateError
from loom.losses import LossLike
from loom.metrics import MetricLike
from loom.training.automatic import settled_by_source
from loom.training.config import TrainingConfig, by_output, check_training
from loom.training.feed import counted_share
from loom.training.form import Examples, Form, Seen
from loom.training.labelling import as_known, weighed
from loom.training.named_targets import settled_by_targets
from loom.training.output_figures import OfOutput, OutputParts, OutputWeights
from loom.training.ported import loss_metrics, packed, settled_outputs
from loom.training.record import record_of
from loom.training.settings import engine_config, with_own_losses
from loom.training.sized import dealt
from loom.training.trainable import TrainableNetwork

if TYPE_CHECKING:
    from loom.reports import DeviationReport

__all__ = ["Evaluation", "evaluate"]


@overload
def evaluate(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    loss: LossLike | Mapping[str, LossLike] | None = None,
    metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None = None,
    batch_size: int | None = None,
    deviation: Literal[False] = False,
) -> dict[str, float]: ...
@overload
def evaluate(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    loss: LossLike | Mapping[str, LossLike] | None = None,
    metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None = None,
    batch_size: int | None = None,
    deviation: bool,
) -> dict[str, Any]: ...
@explained()
def evaluate(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    loss: LossLike | Mapping[str, LossLike] | None = None,
    metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None = None,
    batch_size: int | None = None,
    deviation: bool = False,
) -> dict[str, Any]:
    """Measures the mean loss and the metrics over data, dropout off.

    Args:
        network: The network.
        data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either; or a frame, where
            the network has learned from a table.
        config: Its loss, metrics, class weights, label smoothing and batch size are used; those of the
            last training where None.
        loss: Instead of the config's; class weights and label smoothing count where it is one of classes.
        metrics: Instead of the config's.
        batch_size: How many samples are computed at a time.
        deviation: Whether to tell how far outputs are from targets, too. Under cross_entropy and nll
            the classes are compared; under binary_cross_entropy the probabilities that logits mean;
            otherwise the outputs. Weights do not count there, but what has a weight of 0 is left out.

    Returns:
        "loss", and each metric by name; of named outputs "kind_loss" and "kind_accuracy", say; with
        `deviation` also "deviation", an `analysis.DeviationReport`.

    Raises:
        StateError: The network was never trained in this process, and neither a config
            nor a loss is given; or it is training in another thread.
        DataError: The data is empty, of unequal length, or of no known form; or no sample counts, by its
            weight and those of its classes.
        ShapeError: It does not fit the network.
        ConfigError: A setting is out of range, or a metric is called "deviation", too.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> found = loom.evaluate(net, (np.eye(3), [0, 1, 0]), loss="cross_entropy", metrics=["accuracy"])
        >>> sorted(found)
        ['accuracy', 'loss']
        >>> data = (np.eye(3), [0, 1, 0])
        >>> loom.evaluate(net, data, loss="cross_entropy", deviation=True)["deviation"].compared
        'classes'
    """
    engine_of(network).check_thread()
    chosen = record_of(network).judged_by if config is None else check_training(config)
    if chosen is None:
        if loss is None:
            raise StateError(
                "evaluate has no loss to measure: the network was not trained here; give a config, or "
                'loss= and metrics=, such as loss="cross_entropy", metrics=["accuracy"]'
            )
        chosen = TrainingConfig(loss=loss)
    changes: dict[str, Any] = {}
    if loss is not None:
        changes |= {"loss": loss, **_without_classes(chosen, loss)}
    if isinstance(loss, Mapping) and metrics is None and chosen.metrics:
        # Those of the config are of the losses that it had.
        changes["metrics"] = ()
    if metrics is not None:
        changes["metrics"] = metrics
    if batch_size is not None:
        changes["validation_batch_size"] = batch_size
    engine = engine_of(network)
    settled = weighed(engine, settled_outputs(engine, replace(chosen, **changes)))
    settled, seen = settled_by_targets(engine, settled, data)
    given = cast("Data", packed(engine, settled, seen))
    if engine.sizing is not None:
        given = cast("Data", dealt(engine, settled, given)[0])
    known = as_known(engine, given, settled)
    judged, source = settled_by_source(network, settled, as_source(known))
    evaluation = Evaluation(network, judged, source)
    deviates = flag("evaluate", "deviation", deviation)
    if deviates and isinstance(settled.loss, Mapping):
        raise ConfigError("evaluate: deviation is of a single output; compare what predict gives for each")
    if not deviates:
        return evaluation.run()
    found, report = evaluation.run_with_deviation()
    if "deviation" in found:
        raise ConfigError('evaluate: a metric called "deviation" stands where the deviation does; rename it')
    return {**found, "deviation": report}


def _without_classes(config: TrainingConfig, loss: LossLike | Mapping[str, LossLike]) -> dict[str, Any]:
    """Returns what changes in a config where another loss counts, which may know no classes."""
    resolved = TrainingConfig(loss=loss).loss
    if isinstance(resolved, Mapping):
        if not by_output(config.class_weight):
            return {}
        weights = cast("Mapping[str, Any]", config.class_weight)
        kept = {
            name: weight
            for name, weight in weights.items()
            if name not in resolved or losses.is_classification(resolved[name])
        }
        return {"class_weight": kept or None}
    if resolved == losses.AUTO or losses.is_classification(resolved):
        return {}
    return {"class_weight": None, "label_smoothing": 0.0}


class Evaluation:
    """Data that a network is measured on, as often as wanted.

    Args:
        network: The network.
        config: What is measured.
        source: The data.
    """

    def __init__(self, network: HasEngine, config: TrainingConfig, source: Source) -> None:
        self._engine = engine_of(network)
        config = with_own_losses(config)
        self._form = Form.of(self._engine, config)
        self._config = engine_config(config, self._form.output_shape)
        named = isinstance(config.loss, Mapping)
        self._loss = "mse" if named else losses.read_as(config.loss)
        of_outputs = loss_metrics(self._engine, config)
        self.loss_names = [metrics.name_of(metric) for metric in of_outputs]
        """What the losses of named outputs are called."""
        listed = cast("Sequence[MetricLike]", config.metrics)
        self._metrics = (*of_outputs, *metrics.resolve_all(listed, self._loss))
        self._batch_size = config.validation_batch_size or config.batch_size
        self._source = source
        self._arrays = self._form.examples(source.batch) if isinstance(source, ArraySource) else None

    def check(self) -> None:
        """Refuses data in arrays that does not fit, before anything is computed."""
        if self._arrays is not None:
            _native.check_examples(self._engine.native, self._config, self._arrays)
            if not self._form.counts(self._arrays):
                raise self._form.nothing_counts("validation")

    def run(self) -> dict[str, float]:
        """Measures loss and metrics."""
        return self._measure(keep=False)[0]

    def run_with_deviation(self) -> tuple[dict[str, float], DeviationReport]:
        """Measures loss and metrics, and how far outputs are from targets."""
        from loom.reports.deviation import deviation_under

        found, seen = self._measure(keep=True)
        outputs, targets, _ = cast("Any", joined(seen))
        batches = getattr(self._source, "batches", None)
        if isinstance(batches, Buckets) and len(batches.order) == len(outputs):
            # Those of one size come together; the report is of the samples as they were given.
            places = np.argsort(batches.order)
            outputs, targets = outputs[places], targets[places]
        return found, deviation_under(self._loss, outputs, targets)

    def _measure(self, *, keep: bool) -> tuple[dict[str, float], list[Seen]]:
        """Returns what was measured, and where they are kept or asked for, outputs and targets."""
        network = self._engine.native
        evaluator = _native.Evaluator(network, self._config)
        keep = keep or not all(map(metrics.in_engine, self._metrics))
        seen: list[Seen] = []
        rows = counted = 0.0
        counts = False
        for examples in self._batches():
            counts = counts or self._form.counts(examples)
            rows += len(examples[0])
            counted += len(examples[0]) * counted_share([examples])
            sizing = self._form.sizing
            if sizing is not None:
                sizing.take(examples[0])
            evaluator.update(examples, self._batch_size)
            if keep:
                # The next batch may be written where this one was.
                outputs = network.predict(examples[0], self._batch_size)
                seen.append(self._form.seen(examples[0], outputs, examples[1].copy(), examples[2]))
        if not counts:
            raise self._form.nothing_counts("data")
        loss, known = evaluator.finish()
        loss *= rows / counted
        return {"loss": loss, **in_order(self._metrics, known, seen)}, seen

    def _batches(self) -> Iterator[Examples]:
        if isinstance(self._source, BatchSource):
            yield from map(self._form.examples, self._source)
        if self._arrays is None:
            return
        x, y, weight = self._arrays
        # One call a batch, so that Ctrl-C is heard between them.
        for start in range(0, len(x), self._batch_size):
            rows = slice(start, start + self._batch_size)
            yield x[rows], y[rows], None if weight is None else weight[rows]


def in_order(
    chosen: Iterable[metrics.Metric | Callable[..., float]],
    known: Iterable[tuple[str, float]],
    seen: Sequence[Seen],
) -> dict[str, float]:
    """Puts the engine's metrics, `known`, and the user's own, which take what was `seen`, in order.

    Losses and metrics of named outputs take the weights of rows, too.
    """
    measured = iter([value for _, value in known])
    whole: Seen | None = None
    found: dict[str, float] = {}
    for metric in chosen:
        name = metrics.name_of(metric)
        if metrics.in_engine(metric):
            found[name] = next(measured)
        elif seen:
            whole = whole or joined(seen)
            if isinstance(metric, OfOutput):
                found[name] = metric(*whole)
            else:
                found[name] = _measured(metric, name, *whole[:2])
        else:
            found[name] = float("nan")
    return found


def joined(seen: Sequence[Seen]) -> Seen:
    """Returns outputs, targets and weights of several batches one behind the other.

    Args:
        seen: Those of each batch.
    """
    # A shard in which no sample counts has targets of no kind.
    outputs, targets, weights = zip(*([each for each in seen if _holds(each)] or seen[:1]), strict=True)
    if isinstance(outputs[0], OutputParts):
        return OutputParts.joined(outputs), None, None
    known = None if weights[0] is None else OutputWeights.joined(weights)
    return np.concatenate(outputs), np.concatenate(targets), known


def _holds(seen: Seen) -> bool:
    """Whether a batch has anything that counts; of outputs that are apart nobody leaves rows out."""
    return isinstance(seen[0], OutputParts) or len(seen[0]) > 0


def _measured(metric: Callable[..., float], name: str, outputs: object, targets: object) -> float:
    """What somebody's own metric makes of outputs and targets; errors from inside of it are its own."""
    try:
        measured = metric(outputs, targets)
    except TypeError as error:
        # With nothing of the metric below this call, it was refused at the door.
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            problem = f"metric {shown(name)} cannot be called with outputs and targets: {error}"
            raise ConfigError(problem) from error
        raise
    try:
        return float(measured)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"metric {shown(name)} must return a number, got {shown(measured)}") from error
