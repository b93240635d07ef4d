"""Figures of single outputs of several: their losses and metrics, by what counts in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import losses, metrics
from loom._typing import TargetKind
from loom.convert import DividedWeights
from loom.data.weights import places_of
from loom.engine.ports import Ports, apart

__all__ = [
    "LossOfOutput",
    "MetricOfOutput",
    "OfOutput",
    "OutputParts",
    "OutputWeights",
    "part_of_loss",
    "target_kinds",
]


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


@dataclass(frozen=True)
class OutputWeights:
    """How much rows count in the loss of each output, and in what the sum of losses is divided by.

    Args:
        counts: By output (rows, 1), or (rows, places) where each of these has a weight of its own.
        divisor: What the mean is over: how many rows there are where weights are by output, and otherwise
            what all of them together count.
    """

    counts: Mapping[str, NDArray[np.float64]]
    divisor: float

    @classmethod
    def of(cls, ports: Ports, weight: NDArray[Any] | None, rows: int) -> OutputWeights:
        """Takes weights apart.

        Args:
            ports: The network's names.
            weight: (rows,), or (rows, ...) as `Ports.pack_weights` makes them; None where all count alike.
            rows: How many there are.
        """
        given = np.ones(rows) if weight is None else np.asarray(weight, np.float64)
        of_rows = given.ndim == 1 or given.shape[1] == 1
        return cls(ports.weights_by_output(given), float(given.sum()) if of_rows else float(rows))

    @classmethod
    def joined(cls, parts: Sequence[OutputWeights]) -> OutputWeights:
        """Puts those of several batches one behind the other."""

        def together(name: str) -> NDArray[np.float64]:
            arrays = [part.counts[name] for part in parts]
            most = max(array.shape[1] for array in arrays)
            return np.concatenate([np.broadcast_to(array, (len(array), most)) for array in arrays])

        return cls({name: together(name) for name in parts[0].counts}, sum(part.divisor for part in parts))


class OfOutput:
    """A figure of one output, computed from rows of all of them."""

    def __init__(self, ports: Ports, output: str, chosen: Mapping[str, Any], name: str) -> None:
        self._ports, self._output = ports, output
        self._loss = chosen[output]
        self._kinds = target_kinds(chosen)
        self._shapes = ports.output_shapes()
        self._classes = losses.class_count(self._shapes[output])
        self.__name__ = f"{output}_{name}"

    def under(self, chosen: Mapping[str, Any]) -> OfOutput:
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

    def __call__(
        self,
        outputs: NDArray[Any] | OutputParts,
        targets: NDArray[Any] | None = None,
        weights: OutputWeights | None = None,
    ) -> float:
        """Computes the figure.

        Args:
            outputs: (rows, elements) of all outputs; or these apart, with what places count.
            targets: (rows, elements) likewise.
            weights: How much rows count; alike where None.
        """
        raise NotImplementedError


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


def part_of_loss(
    judge: Callable[..., tuple[float, NDArray[Any]]],
    given: NDArray[Any],
    wanted: NDArray[Any],
    counted: tuple[NDArray[Any] | None, float],
    label_smoothing: float = 0.0,
    class_weight: Sequence[float] | None = None,
) -> tuple[float, NDArray[Any]]:
    """Computes an output's part of the loss of several, and its gradient with respect to the output.

    Args:
        judge: Its loss, as `losses.value_and_gradient` takes what comes behind the loss.
        given: (rows, ...) the output.
        wanted: Its targets.
        counted: How much its rows count, (rows,), or (rows, places), None for all alike; and what the loss of
            all outputs is divided by.
        label_smoothing: How much of the weight goes to all classes alike.
        class_weight: A factor for each class; None for none.
    """
    mine, divisor = counted
    count = np.ones((len(given), 1)) if mine is None else mine.reshape(len(given), -1)
    if class_weight is not None and wanted.dtype.kind == "i":
        count = count * np.asarray(class_weight)[wanted].reshape(len(wanted), -1)
    if not count.any():
        # Nothing of it counts.
        return 0.0, np.zeros_like(given)
    count = count.mean(axis=1)
    if mine is not None and mine.ndim > 1:
        # Places of a row that count alike are one weight, which is all that losses of whole rows take.
        by_place = bool((mine != mine[:, :1]).any())
        mine = mine.reshape(len(mine), *places_of(given.shape[1:])) if by_place else mine[:, 0]
    loss, gradient = judge(given, wanted, mine, label_smoothing, class_weight)
    # By itself it is divided by all its weights; here by what the whole loss is divided by.
    share = float(count.sum()) / divisor
    return loss * share, gradient * gradient.dtype.type(share)


class LossOfOutput(OfOutput):
    """One output's mean loss: its part of the whole, without the output's weight, but with those of rows.

    Args:
        ports: The network's named inputs and outputs.
        output: The output's name.
        chosen: The losses by output.
        label_smoothing: What it is under losses of classes.
        class_weight: A factor for each class; None for none.
        judge: What computes losses of the output; see `probabilities.judging`.
    """

    def __init__(
        self,
        ports: Ports,
        output: str,
        chosen: Mapping[str, Any],
        label_smoothing: float,
        class_weight: Sequence[float] | None,
        judge: Callable[..., tuple[float, NDArray[Any]]] = losses.value_and_gradient,
    ) -> None:
        super().__init__(ports, output, chosen, "loss")
        self._judge = judge
        self._smoothing = label_smoothing if losses.target_kind(self._loss) == "classes" else 0.0
        self._weights = class_weight

    def __call__(
        self,
        outputs: NDArray[Any] | OutputParts,
        targets: NDArray[Any] | None = None,
        weights: OutputWeights | None = None,
    ) -> float:
        """Computes the mean loss."""
        given, wanted, _ = self._parts(outputs, targets)
        mine, divisor = None, float(len(given))
        if isinstance(outputs, OutputParts):
            mine, divisor = outputs.counts[self._output], outputs.divisor
        elif weights is not None:
            mine, divisor = weights.counts[self._output], weights.divisor
        judge = partial(self._judge, self._loss)
        return part_of_loss(judge, given, wanted, (mine, divisor), self._smoothing, self._weights)[0]


class MetricOfOutput(OfOutput):
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

    def __call__(
        self,
        outputs: NDArray[Any] | OutputParts,
        targets: NDArray[Any] | None = None,
        weights: OutputWeights | None = None,
    ) -> float:
        """Computes the metric of what counts."""
        given, wanted, labelled = self._parts(outputs, targets)
        counts = None if weights is None else weights.counts[self._output]
        if isinstance(outputs, OutputParts):
            counts = outputs.counts[self._output]
        if counts is not None and not (counts > 0).all():
            given, wanted = _counted(given, wanted, counts > 0, labelled=labelled)
            if not len(given):
                return math.nan
        shares = not labelled and losses.target_kind(self._loss) == "classes"
        if shares and bool(np.isin(wanted, (0.0, 1.0)).all()):
            wanted = wanted.argmax(axis=1 if wanted.ndim == 4 else -1)
        zero, several = losses.decides_at_zero(self._loss), self._classes > 1
        if isinstance(self.metric, (metrics.Accuracy, metrics.Counted)) and (zero or not several):
            return self.metric(given, wanted, threshold=0.0 if zero else 0.5)
        return float(self.metric(given, wanted))


def _counted(
    given: NDArray[Any], wanted: NDArray[Any], counts: NDArray[np.bool_], *, labelled: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns outputs and targets of the rows that count, or where they are told apart, of places."""
    if counts.ndim == 1 or counts.shape[1] == 1:
        rows = counts.reshape(-1)
        return given[rows], wanted[rows]
    places = counts.shape
    return _by_place(given)[counts], wanted.reshape(places)[counts] if labelled else _by_place(wanted)[counts]
