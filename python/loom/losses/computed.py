"""Losses that loom computes with NumPy, in the place of kernels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, cast

from numpy.typing import NDArray

from loom._settings.encoding import Named
from loom._typing import JSON
from loom.losses.own import OwnLoss

__all__ = ["ComputedLoss"]


class ComputedLoss(OwnLoss):
    """Base of the losses that are computed on the CPU, by NumPy in double precision, whatever the device.

    On a GPU each step waits until the output has been read back and its gradient copied there, of which a
    warning tells. Unlike losses of one's own they are settings, which files keep.
    """

    kind: ClassVar[str]  # type: ignore[misc] # theirs is the class's
    # What targets are: class indices, numbers, or either.
    takes: ClassVar[bool | None] = True
    labelled: ClassVar[bool] = True

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **settings: Any) -> None: ...  # noqa: ANN401 - each has its own

    def __post_init__(self) -> None:
        self._enter(self.kind, self.rows, self.takes)

    def rows(self, output: NDArray[Any], target: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """Returns the loss of each row or of the batch, and its gradient with respect to the output.

        Args:
            output: (rows, ...) what the network gave.
            target: What was wanted.
        """
        raise NotImplementedError

    def of_classes(self, *, classes: bool) -> OwnLoss:
        """Returns the same loss for targets that are class indices or numbers."""
        if classes == self.classes:
            return self
        if classes not in self._variants:
            variant = type(self)(**self._given())
            object.__setattr__(variant, "classes", classes)
            self._variants[classes] = variant
        return self._variants[classes]

    def to_config(self) -> JSON:  # type: ignore[override] # it has settings
        """Returns the name alone, or the name with its settings."""
        return Named.to_config(self)

    def _given(self) -> dict[str, Any]:
        fields = dataclasses.fields(cast(Any, self))
        return {field.name: getattr(self, field.name) for field in fields}

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has a number of its own.
        return _copied, (type(self), self._given(), self.classes)


def _copied(kind: type[ComputedLoss], settings: dict[str, Any], classes: bool | None) -> OwnLoss:
    made = kind(**settings)
    return made if classes is None else made.of_classes(classes=classes)
