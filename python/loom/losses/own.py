"""Losses of one's own: functions of outputs and targets in Python, on their way into the engine."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
import weakref
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.encoding import Named
from loom._settings.suggestions import shown
from loom.errors import ConfigError, ShapeError

__all__ = ["Loss", "LossFunction", "OwnLoss", "differ", "kept"]

LossFunction: TypeAlias = "Callable[[NDArray[Any], NDArray[Any]], tuple[Any, NDArray[Any]]]"
"""Returns the loss of a batch and its gradient with respect to the output."""


class Loss(Named):
    """Base of the losses that are no bare name."""

    __slots__ = ()


class OwnLoss(Loss):
    """A loss that a function in Python computes.

    Args:
        function: Gets the output, (rows, ...), and the target, and returns the loss and its gradient with
            respect to the output. The loss is a number, or one for each row, whose mean is minimised; the
            gradient of a row's is then that of its own number. A single number takes no weights of samples.
        classes: Whether the targets are class indices; None as long as no target has been seen.

    Raises:
        ConfigError: The function does not take an output and a target.
    """

    kind: str  # type: ignore[misc] # each has a name of its own

    function: LossFunction
    name: str
    classes: bool | None
    number: int
    # Whether targets that are class indices may be any whole numbers.
    labelled: ClassVar[bool] = False
    # Whether samples of what it is computed of now count by different weights.
    weighed: bool
    # Held as long as this one is.
    _variants: dict[bool, OwnLoss]

    def __init__(self, function: LossFunction, *, classes: bool | None = None) -> None:
        self.kind = str(getattr(function, "__name__", type(function).__name__))
        _check_signature(self.kind, function)
        self._enter(self.kind, function, classes)

    def _enter(self, name: str, function: LossFunction, classes: bool | None) -> None:
        """Makes it known to the engine by a number."""
        made = {
            "function": function,
            "name": name,
            "classes": classes,
            "number": next(_numbers),
            "weighed": False,
            "_variants": {},
        }
        for key, value in made.items():
            # Those that loom has are frozen.
            object.__setattr__(self, key, value)
        _KEPT[self.number] = self

    def __repr__(self) -> str:
        return f"OwnLoss({self.name})"

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, OwnLoss) and other.function is self.function
        return same and isinstance(other, OwnLoss) and other.classes == self.classes

    def __hash__(self) -> int:
        return hash((id(self.function), self.classes))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has a number of its own.
        return _copied, (self.function, self.classes)

    def of_classes(self, *, classes: bool) -> OwnLoss:
        """Returns the same loss for targets that are class indices or numbers."""
        if classes == self.classes:
            return self
        if classes not in self._variants:
            self._variants[classes] = OwnLoss(self.function, classes=classes)
        return self._variants[classes]

    def to_config(self) -> str:
        """Returns what records say of it; a function is no setting that could be read again."""
        return f"<function {self.name}>"

    def value_and_gradient(
        self, output: NDArray[Any], target: NDArray[Any], weight: NDArray[Any] | None = None
    ) -> tuple[float, NDArray[Any]]:
        """Returns the mean loss of a batch and its gradient with respect to the output.

        Args:
            output: (rows, ...) what the network gave.
            target: What was wanted.
            weight: (rows,) how much each row counts.

        Raises:
            ConfigError: The function returned something else than a loss and a gradient, or one number for a
                batch of rows that count differently.
            ShapeError: They have other shapes than they should.
        """
        values, gradient = self._call(output, target, output.shape[1:], weighed=differ(weight))
        weights = np.ones(len(output)) if weight is None else np.asarray(weight, np.float64)
        shares = (weights / weights.sum()).astype(output.dtype)
        loss = float((values.astype(np.float64) * weights).sum() / weights.sum())
        return loss, gradient * shares.reshape(-1, *[1] * (output.ndim - 1))

    def note_weights(self, weight: object) -> None:
        """Takes note of how much samples count that it is about to be computed of.

        Args:
            weight: Their weights, or None where all count alike.
        """
        if differ(weight):
            object.__setattr__(self, "weighed", True)

    def forget_weights(self) -> None:
        """Forgets what `note_weights` has noted."""
        object.__setattr__(self, "weighed", False)

    def apart(self) -> OwnLoss:
        """Returns the same loss for one run, whose weights are nothing to others with this loss."""
        return copy(self)

    # What the engine calls.

    def _call(
        self, output: NDArray[Any], target: NDArray[Any], shape: tuple[int, ...], *, weighed: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns a loss for each row, and what the gradient of each is with respect to the output."""
        rows = len(output)
        if self.classes:
            per_row = shape[1:] if len(shape) == 3 else shape[:-1]
            if target.size != rows * math.prod(per_row):
                wanted = ", ".join(("rows", *map(str, per_row)))
                raise ShapeError(
                    f"loss {self.name}: takes class indices of shape ({wanted}), without the class axis, got "
                    f"targets of shape {target.shape}"
                )
            target = target.reshape(rows, *per_row)
        found: object = self.function(output, target)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise ConfigError(
                f"loss {self.name}: expected (value, gradient), got {shown(found)}; the gradient goes along, "
                'd value / d output, and of a formula, losses.Expr("(y - t) ** 2"), it is made by rule'
            )
        try:
            value = np.asarray(found[0], output.dtype)
            gradient = np.ascontiguousarray(found[1], output.dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"loss {self.name}: expected numbers, got {shown(found)}") from error
        if gradient.shape != output.shape:
            raise ShapeError(
                f"loss {self.name}: the gradient must have the output's shape {output.shape}, got "
                f"{gradient.shape}"
            )
        if value.ndim == 0:
            if weighed or self.weighed:
                # Rows' parts of the gradient, weighted, would be the gradient of nothing.
                raise ConfigError(
                    f"loss {self.name}: it is one number for all rows of a batch, in which samples cannot "
                    "count by their weights; a loss for each row can, or leave the weights out"
                )
            # The mean over rows is the number again.
            return np.full(rows, value, output.dtype), gradient * rows
        if value.shape != (rows,):
            raise ShapeError(
                f"loss {self.name}: expected one number, or one for each of {rows} rows, got shape "
                f"{value.shape}"
            )
        return np.ascontiguousarray(value), gradient

    def _cut(self) -> None:
        if self.name in _TOLD:
            return
        _TOLD.add(self.name)
        warnings.warn(
            f"the loss {self.name} is computed by Python on the CPU: on a GPU the frame of commands is cut "
            "there, and each step waits until the output has been read back and its gradient copied there. "
            'Where a formula will do, losses.Expr("...") stays on the device; device="cpu" may be faster',
            UserWarning,
            stacklevel=2,
        )


def differ(weight: object) -> bool:
    """Returns whether samples count differently by these weights, of which there need be none."""
    values = np.asarray([] if weight is None else weight)
    return values.size > 0 and bool((values != values.flat[0]).any())


_numbers = itertools.count()
_KEPT: weakref.WeakValueDictionary[int, OwnLoss] = weakref.WeakValueDictionary()
# Losses whose users know what they cost on a GPU.
_TOLD: set[str] = set()


def _copied(function: LossFunction, classes: bool | None) -> OwnLoss:
    return OwnLoss(function, classes=classes)


def kept(number: int) -> OwnLoss:
    """Returns the loss of a number; the engine calls it.

    Args:
        number: The loss's.

    Raises:
        ConfigError: Nobody holds it any more.
    """
    found = _KEPT.get(number)
    if found is None:
        raise ConfigError("the loss is gone: whoever trains must hold it")
    return found


def _check_signature(name: str, function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise ConfigError(
            f"loss {name}: a function of (output, target) is needed, which returns (value, gradient)"
        ) from None
    except ValueError:
        # Built-in functions do not say what they take.
        return
