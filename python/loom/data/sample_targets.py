"""Targets and weights of samples of different extents, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data.extents import Samples
from loom.data.labels import KINDS, Classes, as_names
from loom.errors import DataError, ShapeError

__all__ = ["SampleTargets", "Targets", "filled_steps", "targets_of_steps"]


class Targets(Protocol):
    """What samples are compared with."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Returns targets and weights of samples that have just been put into rows.

        Args:
            chosen: The samples' numbers.
            dtype: That of the rows.
        """
        ...

    def contents(self) -> list[NDArray[Any]]:
        """Returns all that tells these from others."""
        ...


class SampleTargets:
    """What one output of samples is compared with, or what rows of several fixed ones are.

    Args:
        samples: The samples; where outputs have steps, of the input whose steps these are.
        target: (rows, ...) one for each; where outputs have steps, one of as many steps for each.
        weight: (rows,) how much each counts, or (rows, outputs) for each of several; where outputs have
            steps or pixels, also one for each of these; equally where None.
        room: Says for how many steps the newest rows have room, where outputs have a step for each of the
            samples'; None where they have none.
        classes: What labels of steps stand for; None where they are no labels.

    Raises:
        DataError: There are more or fewer targets or weights than samples.
        ShapeError: A target has other steps than its sample, or the weights of one have.
    """

    def __init__(
        self,
        samples: Any,  # noqa: ANN401 - of one input or, where there are no steps, of several
        target: Foreign,
        weight: Foreign,
        *,
        room: Callable[[], int] | None = None,
        classes: Classes | None = None,
    ) -> None:
        self._room = room
        rows = len(samples)
        self._target = _together(target) if room is None else targets_of_steps(target, samples, classes)
        # Those of steps, one array a sample, are a list.
        self._weight: NDArray[Any] | list[NDArray[Any]] | None = None
        if room is not None and np.ndim(_first(weight)) > 0:
            self._weight = targets_of_steps(weight, samples, None, "data: weight")
        elif room is None and isinstance(weight, (list, tuple)) and np.ndim(_first(weight)) > 0:
            self._weight = [as_numpy(each, what="data: weight") for each in weight]
        elif weight is not None:
            self._weight = as_numpy(weight, what="data: weight")
        found = (len(self._target),) if isinstance(self._target, list) else self._target.shape[:1]
        if found != (rows,):
            told = len(self._target) if found else "no"
            raise DataError(f"data: input has {rows} samples but there are {told} targets")
        shape: tuple[int, ...] = (rows,)
        if self._weight is not None:
            of_list = isinstance(self._weight, list)
            shape = (len(self._weight),) if of_list else cast("NDArray[Any]", self._weight).shape
        if shape != (rows,) and (room is not None or len(shape) < 2 or shape[0] != rows):
            steps = "" if room is None else "; or one for each step of each, in a list of arrays"
            raise DataError(f"data: weight must be ({rows},), one for each sample, got {shape}{steps}")

    def __len__(self) -> int:
        return len(self._target)

    def contents(self) -> list[NDArray[Any]]:
        """Returns all that tells these from others."""
        weights = [] if self._weight is None else self._weight
        return [*self._target, *(weights if isinstance(weights, list) else [weights])]

    def batch(self, chosen: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Returns targets and weights of samples that have just been put into rows."""
        picked = list(chosen)
        if isinstance(self._weight, list):
            weight: Any = [self._weight[number] for number in picked]
            if self._room is None:
                weight = _stacked(weight, "weights")
        else:
            weight = None if self._weight is None else self._weight[picked]
        if self._room is None:
            if isinstance(self._target, list):
                return _stacked([self._target[number] for number in picked]), weight
            return self._target[picked], weight
        steps = self._room()
        parts = [self._target[number] for number in picked]
        weights = np.zeros((len(parts), steps), dtype)
        for place, part in enumerate(parts):
            weights[place, : len(part)] = 1.0 if weight is None else weight[place]
        return filled_steps(parts, steps), weights


def _first(weight: Foreign) -> Any:  # noqa: ANN401 - a number, or those of its steps
    """Returns the weight of the first sample; a number where that is all there is."""
    try:
        return next(iter(weight), 0.0)
    except TypeError:
        return 0.0


def _stacked(targets: Sequence[NDArray[Any]], what: str = "targets") -> NDArray[Any]:
    shapes = sorted({each.shape for each in targets})
    if len(shapes) > 1:
        raise ShapeError(
            f"data: samples that go through the network together have {what} of one shape, got {shapes[0]} "
            f"and {shapes[1]}"
        )
    return np.stack(targets)


def _together(target: Foreign) -> NDArray[Any] | list[NDArray[Any]]:
    """Returns targets in one array, or, where they have extents of their own, each for itself."""
    if (
        isinstance(target, (list, tuple))
        and len({np.shape(each) for each in target if hasattr(each, "shape")}) > 1
    ):
        return [as_numpy(each, what="data: target") for each in target]
    return as_numpy(target, what="data: target")


def targets_of_steps(
    target: Foreign, samples: Samples, classes: Classes | None, what: str = "data"
) -> list[NDArray[Any]]:
    """Returns targets of as many steps as their samples have.

    Args:
        target: One for each sample; those of padded samples may be padded, too.
        samples: The samples that have the steps.
        classes: What labels stand for; None where they are no labels.
        what: What they are of, for error messages.

    Raises:
        DataError: There are more or fewer than samples, or a label is of no class.
        ShapeError: A target has other steps than its sample.
    """
    padded = samples.form != "list"
    found: list[NDArray[Any]] = []
    if len(target) != len(samples):
        raise DataError(f"{what}: input has {len(samples)} samples but there are {len(target)} targets")
    for number, each in enumerate(target):
        array = as_numpy(each, what=f"{what}: the target of sample {number}")
        length = samples.length(number)
        if padded and array.ndim and len(array) >= length:
            array = array[:length]
        if array.ndim == 0 or len(array) != length:
            got = "a single number" if array.ndim == 0 else f"{len(array)}"
            raise ShapeError(
                f"{what}: sample {number} has {length} steps, and the network tells something of each, but "
                f"its target has {got}; for one target a sample let a layer make one vector of the steps, "
                "such as nn.SequencePool"
            )
        if classes is not None and array.dtype.kind in f"TOU{KINDS[classes.kind]}":
            array = classes.indices(as_names(array), f"{what}: the target of sample {number}")
        if array.dtype.kind not in "iubf":
            raise ShapeError(
                f"{what}: the target of sample {number} is of {array.dtype}, and the network has no names "
                "for classes: it learns them from lists and arrays; where data comes in batches, "
                "net.card = loom.ModelCard(labels=[...]) tells them before"
            )
        if found and array.shape[1:] != found[0].shape[1:]:
            raise ShapeError(
                f"{what}: targets have steps of shape {found[0].shape[1:]} and, of sample {number}, "
                f"{array.shape[1:]}"
            )
        found.append(array)
    if found and any(array.dtype != found[0].dtype for array in found):
        kind = np.result_type(*found)
        found = [array.astype(kind) for array in found]
    return found


def filled_steps(parts: Sequence[NDArray[Any]], steps: int) -> NDArray[Any]:
    """Returns arrays of different lengths in one, (rows, steps, ...), with zeros behind them.

    Args:
        parts: The arrays.
        steps: How many there is room for.
    """
    found = np.zeros((len(parts), steps, *parts[0].shape[1:]), parts[0].dtype)
    for row, part in zip(found, parts, strict=True):
        row[: len(part)] = part
    return found
