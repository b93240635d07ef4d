"""Data on its way into the engine: converted, checked, and dealt out step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from loom import _native, schedules
from loom.convert import DividedWeights
from loom.data import ArraySource, BatchSource, TrainingBatch
from loom.data.loading import Loader
from loom.errors import ConfigError, DataError
from loom.training.config import TrainingConfig
from loom.training.form import Examples, Form
from loom.training.sharing import Sharing

__all__ = [
    "ArrayFeed",
    "BatchFeed",
    "copied",
    "counted_share",
    "require_known_length",
    "shared_out",
]

_UNLIMITED = 1 << 62


class ArrayFeed:
    """A data set in arrays, which the engine shuffles and cuts into batches."""

    def __init__(self, source: ArraySource, form: Form, config: TrainingConfig) -> None:
        self.first = form.examples(source.batch)
        if not form.counts(self.first):
            raise form.nothing_counts("data")
        rows = config.batch_size * config.accumulate
        self.steps: int | None = -(-source.rows // rows)
        self.order: dict[str, object] = {
            "batch_size * accumulate": rows,
            "samples": source.rows,
            "shuffle": config.shuffle,
            **({"seed": config.seed} if config.shuffle else {}),
        }
        """What says which samples come in which step of an epoch."""
        self._more = False

    def total_steps(self, config: TrainingConfig) -> int:
        """Returns the length of the whole run."""
        return min((self.steps or 0) * config.epochs, _UNLIMITED)

    def begin(self, trainer: _native.Trainer, done: int, changed: bool) -> None:
        """Draws the epoch's order."""
        trainer.begin_epoch(changed)
        self._more = done < (self.steps or 0)

    def ready(self) -> bool:
        """Whether the epoch has another step."""
        return self._more

    def position(self) -> None:
        """Returns nothing: how many steps are done says it all."""

    def run(
        self, trainer: _native.Trainer, single: bool, seconds: float, shared: Sharing | None = None
    ) -> _native.Report:
        """Runs one step, or as many as fit a time; with other processes one."""
        if shared is not None:
            report, ended = shared.run(trainer, self.first)
            self._more = not ended
            return report
        limit, time = (1, float("inf")) if single else (_UNLIMITED, seconds)
        report, ended = trainer.run(self.first, limit, time)
        self._more = not ended
        return report


class BatchFeed:
    """A data set that comes batch by batch.

    Data with a `set_epoch` method is told each epoch's number before it is iterated. Data with `state_dict`
    and `load_state_dict` goes on from a position by itself; other data is iterated up to it.

    Args:
        source: The data.
        form_of: Says by the first batch what examples look like.
        config: How the training goes.
        epoch: The first epoch's number.
        position: What `position` has returned where training is to go on.
    """

    def __init__(
        self,
        source: BatchSource,
        form_of: Callable[[TrainingBatch], Form],
        config: TrainingConfig,
        epoch: int = 0,
        position: object = None,
    ) -> None:
        self._source = source
        self._epoch = epoch
        self._goes_on = position is not None
        if position is not None:
            source.batches.load_state_dict(position)  # type: ignore[attr-defined]
        self._accumulate = config.accumulate
        self.order: dict[str, object] = {
            "accumulate": config.accumulate,
            **(source.batches.order() if isinstance(source.batches, Loader) else {}),
        }
        """What is known of which samples come in which step of an epoch."""
        self.newest: list[Examples] = []
        """What the newest step has learned from."""
        # The batches of the next step. All but the last are copies: whoever makes the data may
        # write the next batch where the one before was.
        self._next: list[Examples] = []
        try:
            length: int | None = len(source.batches)  # type: ignore[arg-type]
        except TypeError:
            length = None
        self.steps = None if length is None else -(-length // config.accumulate)
        # What is looked at before training is not taken from data that comes only once, and kept
        # apart from whatever else is made where it was, such as validation data.
        self._batches: Iterator[TrainingBatch] | None = None
        first = next(self._iterate())
        self._form = form_of(first)
        self.first = copied(self._form.examples(first))
        self._peeked: Examples | None = self.first
        # What came before a position is not looked at again.
        self._counted = position is not None or self._form.counts(self.first)

    def total_steps(self, config: TrainingConfig) -> int:
        """Returns the length of the whole run; refuses schedules that need one where it is unknown."""
        if self.steps is not None:
            return min(self.steps * config.epochs, _UNLIMITED)
        require_known_length(config)
        return _UNLIMITED

    def begin(self, trainer: _native.Trainer, done: int, changed: bool) -> None:
        """Starts to iterate, past what was learned from already."""
        if self._batches is None:
            self._iterate()
        goes_on, self._goes_on = self._goes_on, False
        for _ in range(0 if goes_on else done * self._accumulate):
            if self._take() is None:
                break

    def _iterate(self) -> Iterator[TrainingBatch]:
        if hasattr(self._source.batches, "set_epoch"):
            self._source.batches.set_epoch(self._epoch)
        self._epoch += 1
        self._batches = iter(self._source)
        return self._batches

    def position(self) -> Any:  # noqa: ANN401 - whatever the data says
        """Returns what the data says of where it is; None where it says nothing."""
        batches: Any = self._source.batches
        stateful = hasattr(batches, "state_dict") and hasattr(batches, "load_state_dict")
        return batches.state_dict() if stateful else None

    def _take(self) -> Examples | None:
        if self._peeked is not None:
            examples, self._peeked = self._peeked, None
            return examples
        batch = None if self._batches is None else next(self._batches, None)
        return None if batch is None else self._converted(batch)

    def ready(self) -> bool:
        """Takes the batches of the next step from the user's iterator."""
        if not self._next:
            while len(self._next) < self._accumulate and (examples := self._take()) is not None:
                more = len(self._next) + 1 < self._accumulate
                self._next.append(copied(examples) if more else examples)
            if not self._next:
                self._batches = None
                if not self._counted:
                    raise self._form.nothing_counts("data")
        return bool(self._next)

    def _converted(self, batch: TrainingBatch) -> Examples:
        examples = self._form.examples(batch)
        if (examples[1].dtype.kind == "i") != (self.first[1].dtype.kind == "i"):
            raise DataError("some batches have class indices as targets and others rows; give one kind only")
        self._counted = self._counted or self._form.counts(examples)
        return examples

    def run(
        self, trainer: _native.Trainer, single: bool, seconds: float, shared: Sharing | None = None
    ) -> _native.Report:
        """Runs the step that is ready."""
        batches, self._next = self._next, []
        if self._form.sizing is not None:
            self._form.sizing.take_equal(batches)
            self.newest = batches
            share = counted_share(batches)
            batches = [shared_out(batch, share) for batch in batches]
        if shared is not None:
            if len(batches) > 1:
                raise ConfigError(
                    "a training in shards takes batches one by one; take larger ones, accumulate=1"
                )
            return shared.step(trainer, batches[0])
        return trainer.step(batches)


def counted_share(batches: Sequence[Examples]) -> float:
    """Returns what a row counts on average in the mean over all of these; 1 where nothing counts.

    The engine divides by how many rows there are where weights are by output or by step.

    Args:
        batches: The examples.
    """
    rows = sum(len(x) for x, _, _ in batches)
    total = sum(w.divisor if isinstance(w, DividedWeights) else float(len(x)) for x, _, w in batches)
    return total / rows or 1.0


def shared_out(examples: Examples, share: float) -> Examples:
    """Returns examples whose weights make of the mean over rows the one that is wanted.

    Args:
        examples: The examples.
        share: What a row counts on average, as `counted_share` says.
    """
    x, y, weight = examples
    return (x, y, weight / share) if isinstance(weight, DividedWeights) else examples


def copied(examples: Examples) -> Examples:
    """Returns examples that nobody else writes to."""
    x, y, weight = examples
    return x.copy(), y.copy(), None if weight is None else weight.copy()


def require_known_length(config: TrainingConfig) -> None:
    """Refuses schedules that need to know how long a run is, where the data does not tell.

    Args:
        config: The settings.

    Raises:
        ConfigError: The schedule is such a one.
    """
    why = "because the data has no len(); give the schedule its steps"
    schedules.require_known_length(config.schedule, why)
