"""Data on its way into the engine: converted, checked, and dealt out step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native, losses, schedules
from loom._typing import Precision, TargetKind
from loom.convert import DividedWeights, SizedRows, as_input, as_numpy, as_real_array
from loom.data import ArraySource, BatchSource, Classes, TrainingBatch, as_target
from loom.data.loading import Loader
from loom.data.weights import by_place
from loom.engine import Engine
from loom.engine.class_axis import leads_with_channels
from loom.engine.labels import fitting
from loom.engine.ports import Ports
from loom.engine.sizing import Sizing
from loom.engine.told import classes_of
from loom.errors import ConfigError, DataError, ShapeError
from loom.training.config import TrainingConfig
from loom.training.labelling import indexed, takes_labels
from loom.training.ported import OutputParts, target_kinds
from loom.training.sharing import Sharing

__all__ = [
    "ArrayFeed",
    "BatchFeed",
    "Examples",
    "Form",
    "Seen",
    "copied",
    "counted_share",
    "require_known_length",
    "shared_out",
]

Examples: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]"
Seen: TypeAlias = "tuple[NDArray[Any] | OutputParts, NDArray[Any] | None]"
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Form:
    """What examples of a network and a loss look like.

    Args:
        output_shape: One sample's output, without the batch.
        classification: Whether the loss takes class indices.
        precision: The network's.
        indices: Whether the network reads whole numbers.
        classes: What labels stand for; None where targets are none.
        sizing: What samples of open extents go through; None where extents are fixed.
        in_rows: Whether targets are rows of those of all named outputs already.
        ports: The names of several outputs; None where there are none.
        kinds: What the loss of each of these takes.
        own: The losses that functions in Python compute, by output; that of a single one by "".
        class_weight: How much each class counts, of a single output; None where all count alike.
        label_smoothing: How much of a row's weight goes to all classes alike.
        channels_first: Whether the output's last axis is hardly that of the classes which its loss looks for.
    """

    output_shape: tuple[int, ...]
    classification: bool
    precision: Precision
    indices: bool = False
    classes: Classes | None = None
    sizing: Sizing | None = None
    in_rows: bool = False
    ports: Ports | None = None
    kinds: Mapping[str, TargetKind] = field(default_factory=dict)
    own: Mapping[str, losses.OwnLoss] = field(default_factory=dict)
    class_weight: Sequence[float] | None = None
    label_smoothing: float = 0.0
    channels_first: bool = False

    @classmethod
    def of(cls, engine: Engine, config: TrainingConfig) -> Form:
        """Returns the form that a network's examples have under a loss; builds the network."""
        engine.build()
        shape = tuple(engine.native.output_shape())
        named = isinstance(config.loss, Mapping)
        classification = not named and losses.is_classification(config.loss)
        classes = fitting(classes_of(engine.native), shape) if takes_labels(config, shape) else None
        sizing = engine.sizing
        # Samples of open extents are rows by then.
        indices = engine.reads_indices and sizing is None
        kinds = target_kinds(cast("Mapping[str, Any]", config.loss)) if named else {}
        ports = engine.ports if named else None
        listed = config.loss if isinstance(config.loss, Mapping) else {"": config.loss}
        own = {name: loss for name, loss in listed.items() if isinstance(loss, losses.OwnLoss)}
        known = (shape, classification, engine.precision, indices, classes, sizing, named, ports, kinds)
        of_one = None if named else cast("losses.ClassWeight | None", config.class_weight)
        of_classes = losses.expand_class_weight(of_one, losses.class_count(shape))
        first = classification and leads_with_channels(engine.config, shape)
        return cls(*known, own, of_classes, config.label_smoothing, first)

    def forget_weights(self) -> None:
        """Has the losses forget how much samples have counted."""
        for loss in self.own.values():
            loss.forget_weights()

    def examples(self, batch: TrainingBatch) -> Examples:
        """Converts samples, targets and weights to what the engine takes, once."""
        weight = batch.weight
        for name, loss in self.own.items():
            loss.note_weights(self._weights_of(name, weight))
        shape = self.output_shape
        given = batch.input
        if self.sizing is not None:
            self.sizing.take(as_numpy(given))
            shape = self.sizing.output_extents()
        # Such rows are as the engine takes them, and an array of another kind would not know its extents.
        sized = given if isinstance(given, SizedRows) else None
        # Labels of steps have become class indices as the steps were put together.
        labelled = self.sizing is None or not self.sizing.has_steps
        made = self._weight(weight, shape)
        for name, loss in self.own.items():
            if self._differ_in_rows(name, made):
                raise ConfigError(
                    f"loss {loss.name}: it is one number for each row, in which steps cannot count by "
                    "weights of their own, nor padding behind the steps of shorter sequences for nothing; "
                    "losses by name and losses.Expr have a number for each step. Of sequences of one length, "
                    "net.resized(...) makes a network without padding"
                )
        return (
            as_input(given, self.precision, indices=self.indices) if sized is None else sized,
            self._target(indexed(batch.target, self.classes) if labelled else batch.target, shape),
            made,
        )

    def _differ_in_rows(self, output: str, weight: NDArray[Any] | None) -> bool:
        """Whether steps of one row of an output count differently; that of a single one is called ""."""
        if weight is None or weight.ndim < 2:
            return False
        if self.ports is not None:
            if self.sizing is None:
                return False
            room, lengths = self.sizing.steps(), self.sizing.output_lengths
            widths = [1 if length is None else room[length] for length in lengths.values()]
            start = sum(widths[: self.ports.output_names.index(output)])
            weight = weight[:, start : start + widths[self.ports.output_names.index(output)]]
        return bool((weight != weight[:, :1]).any())

    def _weight(self, weight: Any, shape: tuple[int, ...]) -> NDArray[Any] | None:  # noqa: ANN401 - as given
        """Returns weights as the engine takes them, of an output of this shape."""
        if weight is None or isinstance(weight, DividedWeights):
            return weight
        made = as_real_array(weight, self.precision, what="weight")
        # Those of several outputs are one for each, or each step of one.
        return by_place(made, shape) if self.ports is None and not self.in_rows else made

    def counts(self, examples: Examples) -> bool:
        """Whether any sample counts in the loss: by its weight, and by those of its classes.

        The mean over samples that do not is none.
        """
        _, target, weight = examples
        if weight is not None and not weight.any():
            return False
        if self.class_weight is None or all(self.class_weight):
            return True
        if target.dtype.kind != "i":
            of_classes = np.asarray(self.class_weight)
            # Smoothing gives each row a share of every class.
            shares = np.moveaxis(target, 1, -1) if target.ndim == 4 else target
            rows = shares.reshape(len(target), -1, len(of_classes)).any(axis=1)
            counted = rows @ of_classes + self.label_smoothing * of_classes.sum() > 0
        else:
            counted = losses.has_weight(target, self.class_weight)
        counted = counted.reshape(len(target), -1).any(axis=1)
        if weight is not None and len(weight) == len(counted):
            counted = counted & weight.reshape(len(weight), -1).any(axis=1)
        return bool(counted.any())

    def nothing_counts(self, where: str) -> DataError:
        """Returns what is told of data in which no sample counts.

        Args:
            where: What the data is for.
        """
        if self.class_weight is None:
            return DataError(f"{where}: the weight of every sample is zero, and at least one must count")
        weights = ", ".join(f"{weight:g}" for weight in self.class_weight[:10])
        told = weights + (", ..." if len(self.class_weight) > 10 else "")
        return DataError(
            f"{where}: no sample counts, since class_weight ({told}, by class) is zero for every class that "
            "there is among the targets: give those that are to count a weight above 0, or take a config "
            "without class_weight"
        )

    def _weights_of(self, output: str, weight: Any) -> Any:  # noqa: ANN401 - as batches have them
        """Returns how much samples count in the loss of an output; None where that says no array."""
        if weight is None or isinstance(weight, DividedWeights):
            # Those that are divided leave padding out.
            return None
        if self.ports is None or np.ndim(weight) == 1:
            return weight
        names = self.ports.output_names
        return weight[:, names.index(output)] if np.shape(weight)[1:] == (len(names),) else None

    def _target(self, target: Any, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ANN401 - of any form
        if self.in_rows:
            return as_real_array(target, self.precision, what="target")
        own = self.own.get("")
        if own is not None and not own.labelled and np.ndim(target) == 1 < len(shape):
            # What `as_target` tells of such targets is meant for losses that compare element by element.
            ones = ", ".join("1" for _ in shape)
            like, rest = ", ".join(map(str, ("rows", *shape))), ", ".join(map(str, ("len(y)", *shape)))
            raise ShapeError(
                f"target: the loss {own.name} gets targets like the output, ({like}), or class indices "
                f"without the class axis, got {np.shape(target)}; a number for each row goes to every place "
                f"of it, np.broadcast_to(y.reshape(-1, {ones}), ({rest}))"
            )
        return as_target(
            target,
            shape,
            classification=self.classification,
            precision=self.precision,
            channels_first=self.channels_first,
        )

    def seen(
        self, rows: NDArray[Any], outputs: NDArray[Any], targets: NDArray[Any], weight: NDArray[Any] | None
    ) -> Seen:
        """Returns outputs and targets of a batch as metrics that are functions take them.

        Args:
            rows: What the network has read, whose extents it has now.
            outputs: What it has made of them.
            targets: What that is compared with.
            weight: How much rows count, or steps.
        """
        sizing = self.sizing
        if sizing is None:
            if self.ports is not None or weight is None or weight.ndim < 2:
                return outputs, targets
            # Steps that do not count are left out, as the engine has it in training.
            indices = targets.dtype.kind == "i"
            targets = targets.reshape(*weight.shape, *(() if indices else targets.shape[-1:]))
            return outputs.reshape(*weight.shape, -1)[weight > 0], targets[weight > 0]
        if self.ports is None or not sizing.has_open_outputs:
            return sizing.real_steps(outputs, targets, weight)
        opened = [name for name, shape in sizing.named_output_shapes.items() if None in shape]
        steps = sizing.step_counts(rows)
        return OutputParts.of(self.ports, self.kinds, opened, steps, outputs, targets, weight), None

    def targets(self, outputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
        """Gives the engine's class indices back the shape that they came in.

        Args:
            outputs: What the network has made of the same batch: (rows, ...), or where steps have weights of
                their own (steps, ...), of those that count.
            targets: The engine's.
        """
        by_step = self.sizing is None and outputs.ndim == 2 < len(self.output_shape) + 1
        if targets.dtype.kind != "i" or by_step:
            return targets
        shape = self.output_shape
        if self.sizing is not None and self.sizing.has_steps:
            # They come step by step.
            shape = shape[1:]
        per_row = shape[1:] if len(shape) == 3 else shape[:-1]
        return targets.reshape(len(targets), *per_row)


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
