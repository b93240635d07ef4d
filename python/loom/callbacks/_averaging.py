"""What callbacks that average weights have in common."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from loom._settings.checks import flag
from loom.callbacks._lending import Lending
from loom.callbacks.base import Logs

__all__ = ["Averaging"]


class Averaging(Lending):
    """Base of callbacks that average weights, and give the network the average where it is measured or kept.

    Args:
        where: Its name, for messages.
        validates: Whether validation measures the average.
        keeps: Whether the network has the average when training ends.

    Raises:
        ConfigError: A setting is no truth value.
    """

    def __init__(self, where: str, *, validates: bool, keeps: bool) -> None:
        self.validates = flag(where, "validates", validates)
        self.keeps = flag(where, "keeps", keeps)
        self.weights: dict[str, NDArray[Any]] = {}
        """The average by name, as `Network.state_dict` names it; empty before there is one."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Gives the network the average to be measured."""
        if self.validates:
            self.give()

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Gives the network its own weights back."""
        self.restore()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the network the average."""
        if self.keeps:
            self.give()

    def give(self) -> None:
        """Gives the network the average, where there is one and the network has not got it yet."""
        if self.weights:
            self.lend(self.weights)
