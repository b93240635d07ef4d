"""What callbacks that average weights have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag
from loom.callbacks._states import give_back, moving
from loom.callbacks.base import Callback, Logs

__all__ = ["Averaging"]


class Averaging(Callback):
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
        # What training goes on from, while the network has the average.
        self._own: dict[str, NDArray[Any]] | None = None

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Gives the network the average to be measured."""
        if self.validates:
            self.give()

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Gives the network its own weights back."""
        self.restore()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Does so where validation was broken off."""
        self.restore()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the network the average."""
        if self.keeps:
            self.give()

    def give(self) -> None:
        """Gives the network the average, where there is one and the network has not got it yet."""
        if self.weights and self._own is None:
            own = {name: np.array(values) for name, values in moving(self.network).items()}
            give_back(self.network, {**own, **self.weights})
            self._own = own

    def restore(self) -> None:
        """Gives the network back what training goes on from."""
        if self._own is not None:
            own, self._own = self._own, None
            give_back(self.network, own)
