"""How good a network is on data: loss and metrics, dropout off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native, metrics
from loom.data import ArraySource, BatchSource, Data, Source, as_source
from loom.engine import HasEngine, engine_of
from loom.errors import StateError
from loom.losses import LossLike
from loom.metrics import MetricLike
from loom.training.config import TrainingConfig, check_training
from loom.training.feed import Examples, Form
from loom.training.record import record_of
from loom.training.settings import engine_config
from loom.training.trainable import TrainableNetwork

__all__ = ["Evaluation", "evaluate"]


def evaluate(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    loss: LossLike | None = None,
    metrics: Sequence[MetricLike] | None = None,
    batch_size: int | None = None,
) -> dict[str, float]:
    """Measures the mean loss and the metrics over data, dropout off.

    Args:
        network: The network.
        data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either.
        config: Its loss, metrics, class weights and batch size are used; those of the
            last training where None.
        loss: Instead of the config's.
        metrics: Instead of the config's.
        batch_size: How many samples are computed at a time.

    Returns:
        "loss", and each metric by name.

    Raises:
        StateError: The network was never trained in this process, and neither a config
            nor a loss is given; or it is training in another thread.
        DataError: The data is empty, of unequal length, or of no known form.
        ShapeError: It does not fit the network.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> found = loom.evaluate(net, (np.eye(3), [0, 1, 0]), loss="cross_entropy", metrics=["accuracy"])
        >>> sorted(found)
        ['accuracy', 'loss']
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
        changes["loss"] = loss
    if metrics is not None:
        changes["metrics"] = metrics
    if batch_size is not None:
        changes["validation_batch_size"] = batch_size
    return Evaluation(network, replace(chosen, **changes), as_source(data)).run()


class Evaluation:
    """Data that a network is measured on, as often as wanted.

    Args:
        network: The network.
        config: What is measured.
        source: The data.
    """

    def __init__(self, network: HasEngine, config: TrainingConfig, source: Source) -> None:
        self._engine = engine_of(network)
        self._form = Form.of(self._engine, config)
        self._config = engine_config(config, self._form.output_shape)
        self._metrics = metrics.resolve_all(config.metrics)
        self._batch_size = config.validation_batch_size or config.batch_size
        self._source = source
        self._arrays = self._form.examples(source.batch) if isinstance(source, ArraySource) else None

    def check(self) -> None:
        """Refuses data in arrays that does not fit, before anything is computed."""
        if self._arrays is not None:
            _native.check_examples(self._engine.native, self._config, self._arrays)

    def run(self) -> dict[str, float]:
        """Measures loss and metrics."""
        network = self._engine.native
        evaluator = _native.Evaluator(network, self._config)
        functions = [metric for metric in self._metrics if not isinstance(metric, metrics.Metric)]
        seen: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for examples in self._batches():
            evaluator.update(examples, self._batch_size)
            if functions:
                # The next batch may be written where this one was.
                seen.append((network.predict(examples[0], self._batch_size), examples[1].copy()))
        loss, known = evaluator.finish()
        return {"loss": loss, **in_order(self._metrics, known, seen)}

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
    seen: Sequence[tuple[NDArray[Any], NDArray[Any]]],
) -> dict[str, float]:
    """Puts the engine's metrics, `known`, and the user's own, which take what was `seen`, in order."""
    measured = iter([value for _, value in known])
    whole: tuple[NDArray[Any], ...] | None = None
    found: dict[str, float] = {}
    for metric in chosen:
        name = metrics.name_of(metric)
        if isinstance(metric, metrics.Metric):
            found[name] = next(measured)
        elif seen:
            whole = whole or tuple(map(np.concatenate, zip(*seen, strict=True)))
            found[name] = float(metric(*whole))
        else:
            found[name] = float("nan")
    return found
