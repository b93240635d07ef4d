"""Steps of training on a copy, which leave the network as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from loom import _native
from loom.data import ArraySource, Source, TrainingBatch
from loom.engine import HasEngine, engine_of
from loom.errors import DataError
from loom.training.config import TrainingConfig
from loom.training.form import Examples, Form
from loom.training.settings import engine_config, with_own_losses

__all__ = ["Rehearsal", "batches", "chosen_rows"]

CopyT = TypeVar("CopyT", bound=HasEngine)


class Rehearsal:
    """Steps on a copy of a network, with a fresh optimizer, as `loom.train` would take them.

    Args:
        copy: The copy; it learns.
        config: How the training goes.
        total_steps: How many steps there are for its schedule.
    """

    def __init__(self, copy: HasEngine, config: TrainingConfig, total_steps: int) -> None:
        # A step that is not finite is to be heard of.
        alone = with_own_losses(config)
        self._config = replace(alone, on_nonfinite="raise", track_perf=False, metrics=())
        self._engine = engine_of(copy)
        # What stateful layers carry has the rows of the batches before.
        self._engine.native.reset_states()
        self.form = Form.of(self._engine, self._config)
        self._settings = engine_config(self._config, self.form.output_shape)
        self._total = max(total_steps, 1)
        self._trainer: _native.Trainer | None = None

    def prepare(self, batch: TrainingBatch) -> Examples:
        """Converts a batch, and refuses what training refuses."""
        examples = self.form.examples(batch)
        _native.check_examples(self._engine.native, self._settings, examples)
        return examples

    def step(self, examples: Examples) -> tuple[float, float]:
        """Learns from one batch; returns its loss before, NaN of a step that was left out, and the rate.

        Raises:
            NonFiniteError: The loss or a gradient is not finite.
        """
        if self._trainer is None:
            self._engine.place_for_training(self._config.device)
            self._trainer = _native.Trainer(
                self._engine.native, self._settings, examples, self._total, False, 0
            )
        report = self._trainer.step([examples])
        return (report.loss_sum / report.weight if report.weight else float("nan")), report.rate


def chosen_rows(source: ArraySource, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> TrainingBatch:
    """Returns some rows of a data set."""
    whole = source.batch
    weight = None if whole.weight is None else np.asarray(whole.weight)[rows]
    return TrainingBatch(np.asarray(whole.input)[rows], np.asarray(whole.target)[rows], weight)


def batches(source: Source, config: TrainingConfig) -> Iterator[TrainingBatch]:
    """Yields batches without end, epoch after epoch; those of arrays in an order of their own.

    Raises:
        DataError: The data can be iterated only once.
    """
    if not isinstance(source, ArraySource):
        if not source.reusable:
            raise DataError(
                f"{type(source.batches).__name__} can be iterated only once, and training needs what it "
                "gives; give arrays, or a list of batches"
            )
        while True:
            yield from source
    draw = np.random.default_rng(config.seed)
    size = min(config.batch_size, source.rows)
    while True:
        order = draw.permutation(source.rows) if config.shuffle else np.arange(source.rows)
        # A last batch of another size would be a step of another kind.
        for start in range(0, source.rows - size + 1, size):
            yield chosen_rows(source, order[start : start + size])
