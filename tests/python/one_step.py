"""One step of plain gradient descent against central differences of what `evaluate` says."""

from __future__ import annotations

from typing import Any

import numpy as np

import loom

__all__ = ["assert_one_step_follows"]


def assert_one_step_follows(
    net: loom.Network, data: Any, settings: loom.TrainingConfig, places: int = 5
) -> None:
    """Trains for one step of SGD, and compares how far so many places of each parameter have moved."""
    step, found = 1e-6, []
    for layer in net.build().layers:
        for name in layer.parameters:
            before = np.array(layer.parameters[name])
            for at in list(np.ndindex(before.shape))[:places]:
                ends = []
                for change in (step, -step):
                    values = before.copy()
                    values[at] += change
                    layer.parameters[name] = values
                    ends.append(net.evaluate(data, settings)["loss"])
                layer.parameters[name] = before
                found.append((layer, name, at, before[at], (ends[0] - ends[1]) / (2 * step)))
    loom.train(net, data, settings)
    for layer, name, at, before_at, slope in found:
        moved = (before_at - layer.parameters[name][at]) / settings.learning_rate
        assert abs(moved - slope) < 1e-7, (layer.path, name, at)
