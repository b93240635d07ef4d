"""What callbacks that average weights take of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.engine import HasEngine, engine_of

__all__ = ["lasting"]


def lasting(network: HasEngine, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns copies of what lasts of a network's state: all but what layers carry from batch to batch.

    Args:
        network: The network.
        state: Its `state_dict`.
    """
    engine = engine_of(network)
    places = [(*at, place) for at, place in engine.layer_places()]
    carried = {
        f"{path}.{name}"
        for path, at in zip(engine.layer_paths(), places, strict=True)
        for name in engine.native.carried_names(at)
    }
    return {name: np.array(values) for name, values in state.items() if name not in carried}
