"""What examples of a network and a loss look like: how they are converted and checked, and what counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._typing import Precision, TargetKind
from loom.convert import DividedWeights, SizedRows, as_input, as_numpy, as_real_array
from loom.data import Classes, TrainingBatch, as_target
from loom.data.labels import as_names
from loom.data.weights import by_place, counting
from loom.engine import Engine
from loom.engine.class_axis import leads_with_channels
from loom.engine.labels import fitting
from loom.engine.ports import Ports
from loom.engine.sizing import Sizing
from loom.engine.told import classes_of
from loom.errors import ConfigError, DataError, LoomError, ShapeError
from loom.training.config import TrainingConfig
from loom.training.labelling import indexed, takes_labels
from loom.training.output_figures import OutputParts, OutputWeights, target_kinds

__all__ = ["Examples", "Form", "Seen"]

Examples: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]"
Seen: TypeAlias = "tuple[NDArray[Any] | OutputParts, NDArray[Any] | None, OutputWeights | None]"


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
        target = self._counting(batch.target, weight)
        for name, loss in self.own.items():
            if self._differ_in_rows(name, made):
                raise ConfigError(
                    f"loss {loss.name}: it is one number for each row, in which steps or pixels cannot count "
                    "by weights of their own, nor padding behind the steps of shorter sequences for nothing; "
                    "losses by name and losses.Expr have a number for each. Of sequences of one length, "
                    "net.resized(...) makes a network without padding"
                )
        return (
            as_input(given, self.precision, indices=self.indices) if sized is None else sized,
            self._target(indexed(target, self.classes) if labelled else target, shape),
            made,
        )

    def _differ_in_rows(self, output: str, weight: NDArray[Any] | None) -> bool:
        """Whether steps of one row of an output count differently; that of a single one is called ""."""
        if weight is None or weight.ndim < 2:
            return False
        if self.ports is not None:
            number = self.ports.output_names.index(output)
            if self.sizing is None:
                widths = self.ports.weight_widths(weight.shape[1])
            else:
                room, lengths = self.sizing.steps(), self.sizing.output_lengths
                widths = [1 if length is None else room[length] for length in lengths.values()]
            start = sum(widths[:number])
            weight = weight[:, start : start + widths[number]]
        return bool((weight != weight[:, :1]).any())

    def _counting(self, target: Any, weight: Any) -> Any:  # noqa: ANN401 - of any form
        """Returns the targets of a single output; those of weight 0 are such as its loss takes."""
        if self.ports is not None or self.in_rows or weight is None:
            return target
        try:
            given, counts = as_names(target), as_numpy(weight, what="weight")
        except LoomError:
            # Whoever takes them says what is wrong with them.
            return target
        labels = self.classification or self.classes is not None
        made = counting(given, counts, labels=labels, own="" in self.own, classes=self.classes)
        return target if made is given else made

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
        if self.sizing is not None and np.shape(weight)[1:] != (len(self.ports.output_names),):
            return None
        return self.ports.weights_by_output(np.asarray(weight))[output]

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
            weight: How much rows count, or steps, or pixels.
        """
        sizing = self.sizing
        if self.ports is not None and (sizing is None or not sizing.has_open_outputs):
            return outputs, targets, OutputWeights.of(self.ports, weight, len(outputs))
        if self.ports is None:
            return *self._counted(outputs, targets, weight), None
        assert sizing is not None
        opened = [name for name, shape in sizing.named_output_shapes.items() if None in shape]
        steps = sizing.step_counts(rows)
        return OutputParts.of(self.ports, self.kinds, opened, steps, outputs, targets, weight), None, None

    def _counted(
        self, outputs: NDArray[Any], targets: NDArray[Any], weight: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns outputs and targets of the rows, steps or pixels that count, as in training."""
        if weight is None:
            return outputs, targets
        if weight.ndim < 2:
            counts = weight > 0
            return (outputs, targets) if counts.all() else (outputs[counts], targets[counts])
        if self.sizing is not None and self.sizing.has_steps:
            return self.sizing.real_steps(outputs, targets, weight)
        indices = targets.dtype.kind == "i"
        if outputs.ndim == 4:
            outputs = np.moveaxis(outputs, 1, -1)
            targets = targets if indices else np.moveaxis(targets, 1, -1)
        targets = targets.reshape(*weight.shape, *(() if indices else targets.shape[-1:]))
        return outputs.reshape(*weight.shape, -1)[weight > 0], targets[weight > 0]

    def told(self, outputs: NDArray[Any], targets: NDArray[Any], weight: NDArray[Any] | None) -> Seen:
        """Returns what the engine tells of its newest batch, as `seen` would.

        Args:
            outputs: What the network has made of the samples that count.
            targets: What that is compared with.
            weight: How much rows count in each of several outputs.
        """
        if self.ports is None:
            return outputs, self.targets(outputs, targets), None
        sized = self.sizing is not None and self.sizing.has_open_outputs
        return outputs, targets, None if sized else OutputWeights.of(self.ports, weight, len(outputs))

    def targets(self, outputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
        """Gives the engine's class indices back the shape that they came in.

        Args:
            outputs: What the network has made of the same batch: (rows, ...), or where steps have weights of
                their own, or pixels, (steps, ...), of those that count.
            targets: The engine's.
        """
        of_steps = self.sizing is None and outputs.ndim == 2 < len(self.output_shape) + 1
        by_place = of_steps or targets.ndim == 1
        if targets.dtype.kind != "i" or by_place:
            return targets
        shape = self.output_shape
        if self.sizing is not None and self.sizing.has_steps:
            # They come step by step.
            shape = shape[1:]
        per_row = shape[1:] if len(shape) == 3 else shape[:-1]
        return targets.reshape(len(targets), *per_row)
