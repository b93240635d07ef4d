"""Losses of one's own, written as text."""

from __future__ import annotations

from dataclasses import dataclass

from loom import _native
from loom._settings.suggestions import shown
from loom.errors import ConfigError, LoomError
from loom.losses.own import Loss

__all__ = ["Expr"]


@dataclass(frozen=True)
class Expr(Loss):
    """A loss of one's own, written as text: the mean of it over all elements.

    `y` is an element of the output and `t` the target's; the rest is as in `nn.Expr`, sums and means over
    axes of a sample included. The derivative is made by rule. It runs on every device, takes weights of
    samples, and is saved as text.

    Args:
        expression: The text, in which both stand.

    Raises:
        ConfigError: The text is no expression, with a caret below the place.

    Examples:
        >>> value, gradient = loom.losses.value_and_gradient(
        ...     loom.losses.Expr("abs(y - t) ** 1.5"), [[1.0], [4.0]], [[1.0], [0.0]]
        ... )
        >>> value, gradient.tolist()
        (4.0, [[0.0], [1.5]])
    """

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ConfigError(f"losses.Expr: expression must be text, got {shown(self.expression)}")
        try:
            _native.check_expression(self.expression)
        except LoomError as error:
            told = (
                '; what a network makes is minimised as it is by loss="mean_output", behind nn.Expr'
                if str(error).endswith("does not depend on t")
                else ""
            )
            raise ConfigError(f"losses.Expr: {error}{told}") from None
