"""What the networks of an ensemble must have in common, and what is said of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._settings.checks import real
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.data import Classes
from loom.engine import engine_of
from loom.engine.labels import known_classes
from loom.errors import ConfigError, ShapeError
from loom.network import Network
from loom.network.probabilities import threshold as threshold_of
from loom.training.record import record_of

__all__ = [
    "check_shapes",
    "checked_members",
    "classes_together",
    "learned_logits",
    "shares",
    "thresholds_by_output",
]


def checked_members(networks: Sequence[Network]) -> tuple[Network, ...]:
    """Returns the networks of an ensemble; a ConfigError where there are none, or something else is one."""
    given: object = networks
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise ConfigError(f"an ensemble is of one network or more, got {given!r}")
    for network in networks:
        if not isinstance(network, Network):
            raise ConfigError(f"an ensemble is of loom.Networks, got {type(network).__name__}")
    return tuple(networks)


def check_shapes(networks: Sequence[Network], names: Sequence[str]) -> None:
    """Refuses networks whose inputs or outputs are others than the first one's, with a ShapeError."""
    for kind in ("input_shape", "output_shape"):
        wanted = getattr(networks[0], kind)
        for network, name in zip(networks, names, strict=True):
            if getattr(network, kind) != wanted:
                raise ShapeError(
                    f"the networks of an ensemble need the same {kind}: "
                    f'"{name}" has {getattr(network, kind)}, "{names[0]}" {wanted}'
                )
    wanted_ports = _ports(networks[0])
    for network, name in zip(networks, names, strict=True):
        if _ports(network) != wanted_ports:
            raise ShapeError(
                f'the networks of an ensemble need the same inputs and outputs by name: "{name}" has others '
                f'than "{names[0]}"'
            )


def _ports(network: Network) -> tuple[object, object]:
    """The names and extents of inputs and outputs."""
    ports = engine_of(network).ports
    if ports is None:
        return (), ()
    inputs = [(entry.name, entry.shape) for entry in ports.inputs]
    return inputs, ports.output_shapes() if ports.outputs else ()


def classes_together(networks: Sequence[Network], names: Sequence[str]) -> dict[str, Classes]:
    """Returns the classes that networks know, by output; a ConfigError where two know others."""
    found: dict[str, tuple[Classes, str]] = {}
    for network, name in zip(networks, names, strict=True):
        for output, classes in known_classes(engine_of(network)).items():
            first, teller = found.setdefault(output, (classes, name))
            if first.names != classes.names:
                of = f' of output "{output}"' if output else ""
                raise ConfigError(
                    f"the networks of an ensemble need the same classes{of}, in one order: "
                    f'"{name}" tells {", ".join(classes.names)}, "{teller}" {", ".join(first.names)}'
                )
    return {output: classes for output, (classes, _) in found.items()}


def learned_logits(network: Network, output: str) -> bool:
    """Whether a network has learned an output by a loss of logits, and gives them as they are."""
    judged = record_of(network).judged_by
    loss: Any = None if judged is None else judged.loss
    if output:
        loss = loss.get(output) if isinstance(loss, Mapping) else None
    if loss is None or isinstance(loss, Mapping) or loss == losses.AUTO:
        return False
    return losses.decides_at_zero(loss) and threshold_of(network, output) == 0.0


def thresholds_by_output(
    threshold: float | Mapping[str, float] | None, shapes: Mapping[str, object]
) -> dict[str, float]:
    """Returns the thresholds that are given, by output; of one without a name under ""."""
    if threshold is None:
        return {}
    if not isinstance(threshold, Mapping):
        return dict.fromkeys(shapes, real("Ensemble", "threshold", threshold))
    for name in threshold:
        if name not in shapes:
            raise unknown("threshold: output", name, [*shapes])
    return {name: real("Ensemble", f"threshold of {name}", value) for name, value in threshold.items()}


def shares(weights: ArrayLike | None, count: int) -> NDArray[np.float64]:
    """Returns weights divided by their sum, equal ones where None; a ConfigError where they do not fit."""
    if weights is None:
        return np.full(count, 1.0 / count)
    given = np.asarray(weights)
    if given.shape != (count,):
        raise ConfigError(f"{count} networks need as many weights, got shape {given.shape}")
    numbers = np.array([real("Ensemble", "a weight", weight, least=0.0) for weight in given.tolist()])
    if not numbers.any():
        raise ConfigError("the weights of an ensemble must not all be 0")
    scaled = numbers / numbers.max()
    return np.asarray(scaled / scaled.sum())
