"""The weights in Keras's files, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from loom.errors import SerializationError
from loom.models.keras import hdf5

__all__ = ["Flat", "Groups", "Weights", "snake_names"]

# In what order Keras counts the weights of layers inside a layer.
_ORDER = ["query", "key", "value", "attention_output", "output", "forward", "backward"]


def snake_names(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What files call layers that do not tell their names: their class, counted."""
    counts: dict[str, int] = {}
    found: dict[str, str] = {}
    for layer in layers:
        snake = re.sub(r"\W+", "", layer["class_name"])
        snake = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", snake)
        snake = re.sub("([a-z])([A-Z])", r"\1_\2", snake).lower()
        count = counts.get(snake, 0)
        counts[snake] = count + 1
        found[layer["config"]["name"]] = f"{snake}_{count}" if count else snake
    return found


def _place(name: str) -> int:
    return next((place for place, part in enumerate(_ORDER) if name.startswith(part)), len(_ORDER))


class Groups:
    """Weights in `.keras` files: a group for each layer, with numbered arrays."""

    def __init__(self, group: hdf5.Group) -> None:
        self._group = group

    def _find(self, name: str, counted: str) -> hdf5.Group | None:
        layers = self._group.group("layers") or self._group
        for group in layers.groups().values():
            told = group.group("vars")
            if told is not None and told.attributes.get("name") == name:
                return group
        return layers.group(counted)

    def inside(self, name: str, counted: str) -> Groups:
        """Returns the weights of a model inside this one."""
        group = self._find(name, counted)
        if group is None:
            raise SerializationError(f"the file has no weights of the model {name}")
        return Groups(group)

    def of(self, name: str, counted: str) -> list[NDArray[Any]]:
        """Returns the weights of a layer, in Keras's order."""
        group = self._find(name, counted)
        return [] if group is None else list(self._arrays(group))

    def _arrays(self, group: hdf5.Group) -> Iterator[NDArray[Any]]:
        groups = group.groups()
        if "vars" in groups:
            arrays = groups.pop("vars").arrays()
            for number in sorted(arrays, key=int):
                yield arrays[number].numpy()
        for name in sorted(groups, key=lambda name: (_place(name), name)):
            yield from self._arrays(groups[name])


class Flat:
    """Weights in `.h5` files: lists of names for each layer."""

    def __init__(self, group: hdf5.Group, within: str | None = None) -> None:
        self._group = group
        self._within = within

    def inside(self, name: str, counted: str) -> Flat:
        """Returns the weights of a model inside this one."""
        return Flat(self._group, self._within or name)

    def of(self, name: str, counted: str) -> list[NDArray[Any]]:
        """Returns the weights of a layer, in Keras's order."""
        group = self._group.group(self._within or name)
        if group is None:
            return []
        own = [
            entry
            for entry in group.attributes["weight_names"]
            if not self._within or name in entry.split("/")
        ]
        return [_array(group, entry) for entry in own]


Weights: TypeAlias = "Groups | Flat"


def _array(group: hdf5.Group, path: str) -> NDArray[Any]:
    found = group.get(path)
    if not isinstance(found, hdf5.Array):
        raise SerializationError(f'the file names the weights "{path}", and has none of that name')
    return found.numpy()
