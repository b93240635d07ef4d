"""Labels of sequences without a place for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom.convert import as_numpy
from loom.errors import InvalidValueError, ShapeError
from loom.losses.computed import ComputedLoss

__all__ = ["CTC", "padded_labels"]


@dataclass(frozen=True)
class CTC(ComputedLoss):
    """Connectionist temporal classification (Graves et al. 2006): labels in order, at unknown steps.

    The output is (steps, classes) logits a sample, the classes with the blank among them. Minus the logarithm
    of the probability of all ways to say the labels, each label at one step or several in a row, with blanks
    between as wanted, and at least one between two labels that are the same; the mean over samples, as
    Optax's and Keras's (PyTorch divides by the number of labels, too). All steps count.

    Targets are (rows, steps) class indices, the labels first and -1 behind them; `padded_labels` makes them.

    It is computed by NumPy on the CPU, on every device, in logarithms.

    Args:
        blank: Which class is the blank.

    Examples:
        >>> logits = np.zeros((1, 3, 4))
        >>> target = loom.losses.padded_labels([[1, 2]], 3)
        >>> loss, gradient = loom.losses.value_and_gradient(loom.losses.CTC(), logits, target)
        >>> round(loss, 4), gradient.shape
        (2.5494, (1, 3, 4))
    """

    blank: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "blank", whole("CTC", "blank", self.blank, least=0))
        super().__post_init__()

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns each row's loss and its gradient.

        Args:
            output: (rows, steps, classes) logits.
            target: (rows, steps) class indices, -1 behind the last.

        Raises:
            ShapeError: The output has not these axes.
            InvalidValueError: A label is the blank or none of the classes, stands behind the end, or a row
                has more labels than can be said in so many steps.
        """
        if output.ndim != 3:
            raise ShapeError(f"loss ctc: takes outputs (rows, steps, classes), got {output.shape}")
        lengths = self._checked(output, target)
        rows, steps, _ = output.shape
        logits = output.astype(np.float64)
        logits -= logits.max(axis=2, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        most = int(lengths.max(initial=0))
        # A blank before every label, and one behind the last.
        said = np.full((rows, 2 * most + 1), self.blank)
        said[:, 1::2] = np.where(target[:, :most] < 0, self.blank, target[:, :most])
        there = np.arange(2 * most + 1) <= 2 * lengths[:, None]
        skips = np.zeros(said.shape, dtype=bool)
        skips[:, 2:] = (said[:, 2:] != self.blank) & (said[:, 2:] != said[:, :-2])
        with np.errstate(divide="ignore", invalid="ignore"):
            emitted = np.take_along_axis(
                logs, np.broadcast_to(said[:, None], (rows, steps, said.shape[1])), 2
            )
            emitted = np.where(there[:, None], emitted, -np.inf)
            before = _forward(emitted, skips)
            after = _backward(emitted, skips, lengths)
            ends = np.take_along_axis(before[:, -1], 2 * lengths[:, None], 1)[:, 0]
            last = np.take_along_axis(before[:, -1], np.maximum(2 * lengths[:, None] - 1, 0), 1)[:, 0]
            total = np.where(lengths > 0, np.logaddexp(ends, last), ends)
            shares = np.exp(before + after - total[:, None, None])
        gradient = np.exp(logs)
        row, step = np.arange(rows)[:, None, None], np.arange(steps)[None, :, None]
        np.subtract.at(gradient, (row, step, said[:, None, :]), shares)
        return -total, gradient

    def _checked(self, output: NDArray[Any], target: NDArray[Any]) -> NDArray[np.intp]:
        """Returns how many labels each row has."""
        steps, classes = output.shape[1:]
        if self.blank >= classes:
            raise InvalidValueError(
                f"loss ctc: the blank is class {self.blank}, but there are {classes} classes"
            )
        lengths: NDArray[np.intp] = (target >= 0).sum(axis=1)
        for row, (labels, length) in enumerate(zip(target, lengths, strict=True)):
            if (labels[length:] >= 0).any():
                raise InvalidValueError(f"loss ctc: row {row} has labels behind its first -1")
            wrong = labels[:length][(labels[:length] >= classes) | (labels[:length] == self.blank)]
            if wrong.size:
                what = "is the blank" if wrong[0] == self.blank else f"is none of {classes} classes"
                raise InvalidValueError(f"loss ctc: label {wrong[0]} of row {row} {what}")
            needed = length + int((labels[1:length] == labels[: max(length - 1, 0)]).sum())
            if needed > steps:
                raise InvalidValueError(
                    f"loss ctc: the {length} labels of row {row} need {needed} steps, since a blank stands "
                    f"between two that are the same, and the output has {steps}"
                )
        return lengths


def _forward(emitted: NDArray[np.float64], skips: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Logarithms of the probability of all beginnings that are at a place by a step."""
    found = np.full_like(emitted, -np.inf)
    found[:, 0, :2] = emitted[:, 0, :2]
    for step in range(1, emitted.shape[1]):
        stays = found[:, step - 1]
        moves = np.full_like(stays, -np.inf)
        moves[:, 1:] = stays[:, :-1]
        jumps = np.full_like(stays, -np.inf)
        jumps[:, 2:] = stays[:, :-2]
        jumps = np.where(skips, jumps, -np.inf)
        found[:, step] = np.logaddexp(np.logaddexp(stays, moves), jumps) + emitted[:, step]
    return found


def _backward(
    emitted: NDArray[np.float64], skips: NDArray[np.bool_], lengths: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Logarithms of the probability of all endings from a place after a step."""
    places = np.arange(emitted.shape[2])
    ends = (places == 2 * lengths[:, None]) | (places == 2 * lengths[:, None] - 1)
    found = np.full_like(emitted, -np.inf)
    found[:, -1] = np.where(ends, 0.0, -np.inf)
    for step in range(emitted.shape[1] - 2, -1, -1):
        stays = found[:, step + 1] + emitted[:, step + 1]
        moves = np.full_like(stays, -np.inf)
        moves[:, :-1] = stays[:, 1:]
        jumps = np.full_like(stays, -np.inf)
        jumps[:, :-2] = np.where(skips[:, 2:], stays[:, 2:], -np.inf)
        found[:, step] = np.logaddexp(np.logaddexp(stays, moves), jumps)
    return found


def padded_labels(labels: Sequence[Sequence[int]], steps: int) -> NDArray[np.int32]:
    """Returns labels of sequences as `CTC` takes them, each row filled up with -1.

    Args:
        labels: The labels of each row, in order.
        steps: How many steps the output has.

    Returns:
        (rows, steps).

    Raises:
        ShapeError: A row has more labels than there are steps.
        DTypeError: Labels are no numbers.

    Examples:
        >>> loom.losses.padded_labels([[3, 1], [2]], 4).tolist()
        [[3, 1, -1, -1], [2, -1, -1, -1]]
    """
    made = np.full((len(labels), whole("padded_labels", "steps", steps, least=1)), -1, np.int32)
    for row, sequence in enumerate(labels):
        if len(sequence) > steps:
            raise ShapeError(f"padded_labels: row {row} has {len(sequence)} labels for {steps} steps")
        made[row, : len(sequence)] = as_numpy(sequence, what="labels") if len(sequence) else []
    return made
