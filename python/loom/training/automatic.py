"""The loss that suits targets, where a config leaves it open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from loom._typing import ArrayLike
from loom.data import ArraySource, BatchSource, Data, Source, TrainingBatch, as_source
from loom.data.labels import as_names
from loom.engine import Engine, HasEngine, engine_of
from loom.losses import AUTO, OwnLoss, suited
from loom.training.config import TrainingConfig

__all__ = ["is_open", "settled", "settled_by_source", "settled_by_target"]


def settled_by_target(engine: Engine, config: TrainingConfig, target: ArrayLike | None) -> TrainingConfig:
    """Returns the config with the loss that suits a target, where it leaves the loss open.

    Args:
        engine: The network's; it is built where the loss is open.
        config: The config.
        target: The targets, or some of them; None where none can be looked at, which means mse.

    Raises:
        ConfigError: A setting of classification stands beside a loss that is none.
    """
    if not is_open(config):
        return config
    own = config.loss if isinstance(config.loss, OwnLoss) else None
    if target is None:
        return replace(config, loss="mse" if own is None else own.of_classes(classes=False))
    engine.build()
    found = suited(engine.native.output_shape(), as_names(target))
    return replace(config, loss=found if own is None else own.of_classes(classes=found == "cross_entropy"))


def is_open(config: TrainingConfig) -> bool:
    """Whether targets have to be seen to know what the loss is.

    Args:
        config: The config.
    """
    return config.loss == AUTO or (isinstance(config.loss, OwnLoss) and config.loss.classes is None)


def _first_target(source: Source) -> ArrayLike | None:
    """Returns targets of data that can be looked at without being gone through; None for other data."""
    if isinstance(source, ArraySource):
        return source.batch.target
    if isinstance(source.batches, (list, tuple)) and source.batches:
        return next(iter(source)).target
    return None


def settled(network: HasEngine, config: TrainingConfig, data: Data) -> TrainingConfig:
    """Returns the config with the loss that suits data, where that can be told without going through it."""
    if not is_open(config):
        return config
    target = _first_target(as_source(data))
    return config if target is None else settled_by_target(engine_of(network), config, target)


def settled_by_source(
    network: HasEngine, config: TrainingConfig, source: Source
) -> tuple[TrainingConfig, Source]:
    """Returns the config with the loss that suits data, and the data, which is gone through once only."""
    if not is_open(config):
        return config, source
    target = _first_target(source)
    if target is None and isinstance(source, BatchSource):
        batches: Iterator[TrainingBatch] = iter(source)
        first = next(batches)
        target, source = first.target, BatchSource(chain([first], batches), reusable=False)
    return settled_by_target(engine_of(network), config, target), source
