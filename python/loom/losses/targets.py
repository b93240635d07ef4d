"""What losses take as scores and targets, and which loss targets ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from numpy.typing import NDArray

from loom._settings.logits import OF_LOGITS
from loom._typing import TargetKind
from loom.losses.classes import class_count
from loom.losses.cosine import Cosine
from loom.losses.dice import Dice
from loom.losses.expression import Expr
from loom.losses.own import Loss, OwnLoss
from loom.losses.resolving import LossLike, name_of, resolve

__all__ = [
    "AUTO",
    "decides_at_zero",
    "is_classification",
    "is_own",
    "is_undecided",
    "read_as",
    "settled_for",
    "suited",
    "target_kind",
]

AUTO: Final = "auto"
"""What `TrainingConfig` says where the loss is chosen by the targets; see `suited`."""


def decides_at_zero(value: LossLike | str) -> bool:
    """Whether a loss takes scores on both sides of zero, such as logits: above it they mean class 1.

    Args:
        value: A name, a loss, or its JSON form.
    """
    return read_as(value) in OF_LOGITS


def read_as(value: LossLike | str) -> str:
    """Returns the name of the loss by which outputs say what they mean: their own loss's, but for dice.

    Dice takes the sigmoid of each output, as binary_cross_entropy does, and with `by_class` the softmax over
    classes, as cross_entropy does.

    Args:
        value: A name, a loss, or its JSON form.

    Examples:
        >>> loom.losses.read_as("dice"), loom.losses.read_as(loom.losses.Dice(by_class=True))
        ('binary_cross_entropy', 'cross_entropy')
    """
    loss = resolve(value)
    if isinstance(loss, Dice):
        return "cross_entropy" if loss.by_class else "binary_cross_entropy"
    return name_of(loss)


def is_classification(value: LossLike | str) -> bool:
    """Returns whether the loss takes class indices as targets."""
    loss = resolve(value)
    # One of the user's own says what its targets are.
    return name_of(loss) in {"cross_entropy", "focal", "nll"} or bool(getattr(loss, "classes", False))


def is_own(value: LossLike | str) -> bool:
    """Returns whether a loss is of the user's own: by expression, or a function in Python."""
    return isinstance(resolve(value), (Cosine, Expr, OwnLoss))


def is_undecided(value: LossLike | str) -> bool:
    """Returns whether a loss of the user's own has seen no target yet, which may be class indices."""
    loss = resolve(value)
    return isinstance(loss, OwnLoss) and not loss.labelled and loss.classes is None


def settled_for(value: LossLike | str, output_shape: Sequence[int], target: NDArray[Any]) -> str | Loss:
    """Returns a loss that knows whether its targets are class indices; one of the user's own looks at them.

    Args:
        value: A name, a loss, or its JSON form.
        output_shape: One sample's output, without the batch.
        target: The targets, or the first of them.
    """
    loss = resolve(value)
    if not (isinstance(loss, OwnLoss) and is_undecided(loss)):
        return loss
    return loss.of_classes(classes=suited(output_shape, target) == "cross_entropy")


def target_kind(value: LossLike | str) -> TargetKind:
    """Returns what a loss takes as targets.

    Args:
        value: A name, a loss, or its JSON form.
    """
    loss = resolve(value)
    if not is_classification(loss):
        return "numbers"
    if isinstance(loss, OwnLoss):
        return "labels" if loss.labelled else "indices"
    return "classes"


def suited(output_shape: Sequence[int], target: NDArray[Any]) -> Literal["cross_entropy", "mse"]:
    """Returns the name of the loss that targets ask for, where nobody names one.

    Args:
        output_shape: One sample's output, without the batch.
        target: The targets, or the first of them.

    Returns:
        "cross_entropy" for whole numbers or texts without the class axis of an output with more than one
        class, and for booleans where there are two; otherwise "mse".

    Examples:
        >>> loom.losses.suited((10,), np.array([3, 1]))
        'cross_entropy'
        >>> loom.losses.suited((1,), np.array([3, 1]))
        'mse'
    """
    classes = class_count(output_shape) > 1 and target.ndim == len(output_shape)
    told = target.dtype.kind in "iuU" or (target.dtype.kind == "b" and class_count(output_shape) == 2)
    return "cross_entropy" if classes and told else "mse"
