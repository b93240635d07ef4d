"""What is told of a network beside it: what its outputs mean, what its inputs have to be, whose it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from loom._settings.encoding import Plain, encode
from loom._settings.suggestions import shown
from loom.errors import ConfigError

__all__ = ["ModelCard"]

Labels: TypeAlias = "Sequence[str] | Sequence[int]"
"""What classes are called."""


@dataclass(frozen=True)
class ModelCard(Plain):
    """What whoever loads a network needs to know to use it; `Network.card` has it, and files keep it.

    loom hands it on, and does nothing by it.

    Args:
        labels: The names of the classes, in the order of the outputs; where outputs have names, such a list
            for each that tells classes, {"kind": ["cat", "dog"]}. None where outputs are no classes, or
            nobody has named them. Whole numbers are labels that targets have as numbers, [3, 7, 40]: a
            network that is given such a card knows them, and `Network.card` has them as texts.
        preprocessing: What was done to samples before they came to the network, such as
            `{"mean": [0.13], "std": [0.31]}`: anything that JSON holds.
        description: What the network is for, what it learned from, how good it is.
        license: Under which licence it may be used: an SPDX expression such as "CC-BY-4.0".
        metadata: Anything else that JSON holds, by name.

    Raises:
        ConfigError: Names are neither texts nor whole numbers, two classes have one name, or something
            cannot be written as JSON.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> net.card = loom.ModelCard(labels=["cat", "dog"], license="MIT")
        >>> net.card.labels
        ('cat', 'dog')
    """

    labels: Labels | Mapping[str, Labels] | None = None
    preprocessing: Mapping[str, Any] | None = None
    description: str = ""
    license: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("description", "license"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"ModelCard: {name} is a text, got {shown(getattr(self, name))}")
        for name in ("preprocessing", "metadata"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) and not (name == "preprocessing" and value is None):
                raise ConfigError(f"ModelCard: {name} is a dictionary, got {shown(value)}")
        given: object = self.labels
        if isinstance(given, Mapping):
            by_output = {
                str(name): _labels(labels, f'labels of output "{name}"') for name, labels in given.items()
            }
            object.__setattr__(self, "labels", by_output)
        elif given is not None:
            object.__setattr__(self, "labels", _labels(given, "labels"))
        for each in fields(self):
            _check_json(each.name, getattr(self, each.name))


def _labels(labels: object, what: str) -> tuple[str, ...] | tuple[int, ...]:
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Sequence):
        raise ConfigError(f"ModelCard: {what}: a list of the classes' names is needed, got {shown(labels)}")
    texts = all(isinstance(label, str) for label in labels)
    if not texts and not all(
        isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels
    ):
        raise ConfigError(
            f"ModelCard: {what} are texts, or whole numbers that targets have, got {shown(list(labels))}"
        )
    if len(set(labels)) < len(labels):
        raise ConfigError(f"ModelCard: two classes have the same name among {what}")
    return tuple(labels) if texts else tuple(int(label) for label in labels)


def _check_json(name: str, value: object) -> None:
    try:
        json.dumps(encode(value), allow_nan=False)
    except (ConfigError, ValueError, RecursionError) as error:
        raise ConfigError(f"ModelCard: {name} cannot be written as JSON: {error}") from error
