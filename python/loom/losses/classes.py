"""The class axis of outputs, and how much each class counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom.errors import ConfigError

__all__ = ["ClassWeight", "class_count", "expand_class_weight", "has_weight"]

ClassWeight: TypeAlias = "Mapping[int, float] | Mapping[str, float] | Sequence[float]"


def class_count(output_shape: Sequence[int]) -> int:
    """Returns the extent of the class axis: the last, or the channels of an image."""
    if not output_shape:
        return 1
    return output_shape[0] if len(output_shape) == 3 else output_shape[-1]


def expand_class_weight(value: ClassWeight | None, classes: int) -> list[float] | None:
    """Returns one weight for each class.

    Args:
        value: A mapping from class to weight, 1 for those left out, or the weights.
        classes: How many classes there are.

    Returns:
        The weights, or None where None was given.

    Raises:
        ConfigError: A class is out of range, a weight negative, or their number wrong.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        weights = [1.0] * classes
        for key, weight in value.items():
            index = whole("class_weight", "a class", key, least=0)
            if not index < classes:
                raise ConfigError(f"class_weight names class {key}, but there are {classes} classes, from 0")
            weights[index] = real("class_weight", f"the weight of class {key}", weight, least=0.0)
        return weights
    weights = [real("class_weight", "a weight", weight, least=0.0) for weight in value]
    if len(weights) != classes:
        raise ConfigError(f"class_weight has {len(weights)} weights, but there are {classes} classes")
    return weights


def has_weight(labels: NDArray[Any], of_classes: Sequence[float]) -> NDArray[np.bool_]:
    """Returns which class indices are of a class that counts; what is no class is told of elsewhere.

    Args:
        labels: (...) class indices.
        of_classes: A weight for each class.
    """
    weights = np.asarray(of_classes)
    known = (labels >= 0) & (labels < len(weights))
    return ~known | (weights[np.where(known, labels, 0)] > 0)
