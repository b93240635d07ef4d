"""What callbacks have in common that give the network other weights than training goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.callbacks._states import give_back, lasting, moving
from loom.callbacks.base import Callback

__all__ = ["Lending"]


class Lending(Callback):
    """Base of callbacks that give the network other weights: while it is measured, or when training ends.

    What training goes on from is kept meanwhile, in the callback's state as well, so that a resumed run goes
    on as if nothing had been given.
    """

    # What training goes on from, while the network has what was lent.
    _own = None

    def lend(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Gives the network these weights, unless it has some of this callback already.

        Args:
            weights: The weights by name; what they leave out stays as it is.
        """
        if self._own is None:
            own = {name: np.array(values) for name, values in moving(self.network).items()}
            give_back(self.network, {**own, **weights})
            self._own = own

    def restore(self) -> None:
        """Gives the network back what training goes on from."""
        if self._own is not None:
            own, self._own = self._own, None
            give_back(self.network, own)

    def take_back(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Does so as a resumed run begins, where the network still has the weights that were lent.

        Weights that were set since are those to go on from.

        Args:
            weights: What was lent.
        """
        own, self._own = self._own, None
        if own is None:
            return
        now = moving(self.network)
        same = all(
            np.array_equal(now[name], values, equal_nan=True)
            for name, values in lasting(self.network, weights).items()
            if name in now
        )
        if same:
            known = {name: values for name, values in own.items() if name in now}
            give_back(self.network, {**now, **known})

    def lent_state(self) -> dict[str, Any]:
        """Returns what training goes on from, for the callback's state; nothing where nothing is lent."""
        return {} if self._own is None else {"own": self._own}

    def load_lent_state(self, state: Mapping[str, Any]) -> None:
        """Takes that back from the callback's state.

        Args:
            state: The state.
        """
        own = state.get("own")
        self._own = None if own is None else dict(own)
