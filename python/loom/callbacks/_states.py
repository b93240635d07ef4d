"""What callbacks keep of a network's weights, and give back to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.engine import engine_of
from loom.errors import ConfigError

__all__ = ["give_back", "lasting", "moving"]


def moving(network: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - whatever network a callback has
    """Returns what `Network.state_dict` does, without what stands still.

    That is layers of packed weights without masters, but for adapters beside these.

    Args:
        network: The network.
    """
    still = _still(network)
    if not still:
        state: dict[str, NDArray[Any]] = network.state_dict()
        return state
    engine = engine_of(network)
    native, found = engine.native, {}
    for path, at in engine.layers_by_path():
        for name in native.parameter_names(at):
            if f"{path}.{name}" not in still:
                found[f"{path}.{name}"] = native.parameter(at, name, False)
        for name in native.state_names(at):
            found[f"{path}.{name}"] = native.state(at, name)
    return found


def give_back(network: Any, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: ANN401 - as above
    """Gives a network what `moving` has returned.

    What the network has already is not set: weights that stay are not packed anew, which stochastic rounding
    would draw for.

    Args:
        network: The network.
        state: Its weights and states by name.
    """
    now = moving(network)
    if _has_engine(network) and (_still(network) or set(now) == set(state)):
        kept = lasting(network, now)
        changed = {
            name: values for name, values in state.items() if name not in kept or _differ(kept[name], values)
        }
        network.load_state_dict(changed, strict=False)
    else:
        network.load_state_dict(state)


def _differ(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape != other.shape or one.dtype != other.dtype or one.tobytes() != other.tobytes()


def lasting(network: Any, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - as above
    """Returns copies of what lasts of a network's state: all but what layers carry from batch to batch.

    Args:
        network: The network.
        state: Its `state_dict`, or what `moving` has returned.
    """
    engine = engine_of(network)
    carried = {
        f"{path}.{name}" for path, at in engine.layers_by_path() for name in engine.native.carried_names(at)
    }
    return {name: np.array(values) for name, values in state.items() if name not in carried}


def _has_engine(network: Any) -> bool:  # noqa: ANN401 - as above
    try:
        engine_of(network)
    except ConfigError:
        return False
    return True


def _still(network: Any) -> set[str]:  # noqa: ANN401 - as above
    """Returns the names of parameters in layers whose masters were dropped, but for adapters."""
    if not _has_engine(network):
        # Whatever else has a state has all of it.
        return set()
    engine = engine_of(network)
    native, found = engine.native, set()
    for path, at in engine.layers_by_path():
        names = native.parameter_names(at)
        if names and native.weights_state(at)["dropped"]:
            beside = engine.adapter_parameters(at)
            found |= {f"{path}.{name}" for name in names if name not in beside}
    return found
