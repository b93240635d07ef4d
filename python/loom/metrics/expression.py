"""A metric of one's own, written as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loom import _native
from loom._settings.suggestions import shown
from loom._typing import ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.errors import ConfigError, LoomError
from loom.metrics.own import FAMILY, Metric, class_table, same_values

__all__ = ["Expr"]


@FAMILY.register("expr")
@dataclass(frozen=True)
class Expr(Metric):
    """A metric of one's own, written as text: the mean of it over all elements.

    `y` is an element of the output and `t` the target's, where class indices count as rows of 0 and 1; the
    rest is as in `nn.Expr`, sums and means over axes included. Files and run folders hold the text.

    Args:
        expression: The text, in which both stand.
        called: What logs and results call it; the text itself where None.

    Raises:
        ConfigError: The text is no expression, with a caret below the place.

    Examples:
        >>> close = loom.metrics.Expr("abs(y - t) < 0.5", called="close")
        >>> close([[1.0], [2.0]], [[1.2], [4.0]])
        0.5
        >>> loom.metrics.Expr("sqrt(sum((y - t) ** 2, axis=-1))")([[3.0, 4.0]], [[0.0, 0.0]])
        5.0
    """

    expression: str
    called: str | None = None
    in_engine: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ConfigError(f"metrics.Expr: expression must be text, got {shown(self.expression)}")
        called: object = self.called
        if called is not None and not (isinstance(called, str) and called):
            raise ConfigError(f"metrics.Expr: called must be a name, got {shown(self.called)}")
        try:
            _native.check_expression(self.expression)
        except LoomError as error:
            raise ConfigError(f"metrics.Expr: {error}") from None

    @property
    def name(self) -> str:
        """What the metric is called in logs and results."""
        return self.called or self.expression

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the mean of the expression.

        Args:
            outputs: (rows, ...) what the network gave.
            targets: Numbers of the same shape, or class indices without the class axis.

        Returns:
            The mean over all elements of all rows, in double precision.

        Raises:
            ShapeError: Outputs and targets do not fit together, or an axis is not there.
            DataError: There are no rows.
        """
        given = as_real_array(outputs, "float64", what="outputs").astype(np.float64, copy=False)
        wanted = as_numpy(targets, what="targets")
        axis = 1 if given.ndim == 4 else given.ndim - 1
        if given.ndim == wanted.ndim + 1 and given.shape[axis] != 1 and wanted.dtype.kind in "iu":
            wanted = _one_hot(given, wanted)
        given, wanted = same_values(given, wanted)
        return _native.expression_mean(
            self.expression, np.ascontiguousarray(given), np.ascontiguousarray(wanted)
        )


def _one_hot(outputs: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns rows of 0 and 1 in the outputs' shape."""
    axis = 1 if outputs.ndim == 4 else outputs.ndim - 1
    _, checked = class_table(outputs, classes)
    rows = np.zeros((len(checked), outputs.shape[axis]))
    np.put_along_axis(rows, checked[:, None], 1.0, axis=1)
    moved = np.moveaxis(outputs, axis, -1).shape
    return np.moveaxis(rows.reshape(moved), -1, axis)
