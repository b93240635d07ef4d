"""Labels of any kind, and the classes that they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import sequence
from loom._settings.suggestions import shown
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import ConfigError, DataError, DTypeError

__all__ = ["KINDS", "Classes", "as_names", "is_missing"]

_KINDS = {"text": str, "boolean": bool, "integer": int}
_MOST_SHOWN = 10
KINDS = {"text": "U", "boolean": "b", "integer": "iu"}
"""The kinds of NumPy's dtypes by those of labels."""


@dataclass(frozen=True)
class Classes:
    """The classes of a network, in the order of its outputs.

    Args:
        kind: What labels are: "text", "boolean" or "integer".
        values: The label of each class.

    Raises:
        ConfigError: Labels are of another kind, or one stands twice.
    """

    kind: str
    values: tuple[str | int | bool, ...]

    def __post_init__(self) -> None:
        if self.kind not in _KINDS or not all(type(value) is _KINDS[self.kind] for value in self.values):
            raise ConfigError(f"classes of kind {self.kind!r} cannot be {shown(self.values)}")
        if len(set(self.values)) < len(self.values):
            raise ConfigError(f"two classes have the same label: {shown(self.values)}")

    @classmethod
    def of(cls, labels: NDArray[Any]) -> Classes:
        """Returns the classes that there are among labels, sorted.

        Args:
            labels: Texts, booleans or whole numbers, of any shape.
        """
        kinds = np.unique(labels).tolist()
        if labels.dtype.kind == "b":
            return cls("boolean", (False, True))
        return cls("integer" if labels.dtype.kind in "iu" else "text", tuple(kinds))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as texts."""
        return tuple(map(str, self.values))

    def indices(self, labels: NDArray[Any], where: str = "target") -> NDArray[np.int32]:
        """Returns the class of each label.

        Args:
            labels: Labels of the same kind, of any shape.
            where: What they are, for error messages.

        Raises:
            DataError: One is of no class.
            DTypeError: They are of another kind.
        """
        kind = {"b": "boolean", "i": "integer", "u": "integer", "U": "text"}.get(labels.dtype.kind)
        if kind != self.kind:
            raise DTypeError(
                f"{where}: the network's classes are {self._told()}, got labels of dtype {labels.dtype}"
            )
        found, places = np.unique(labels, return_inverse=True)
        order = {value: place for place, value in enumerate(self.values)}
        table = np.array([order.get(value, -1) for value in found.tolist()], np.int32)
        if (table < 0).any():
            strange = found[table < 0]
            count = int(np.isin(labels, strange).sum())
            raise DataError(
                f"{where}: {count} labels are of no class of the network's, such as "
                f"{shown(strange[0].item())}; the classes are {self._told()}"
            )
        classes: NDArray[np.int32] = table[places].reshape(labels.shape)
        return classes

    def labels(self, indices: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Returns the labels of classes.

        Args:
            indices: Classes, of any shape.
        """
        found: NDArray[Any] = np.array(self.values)[indices]
        return found

    def _told(self) -> str:
        listed = ", ".join(repr(value) for value in self.values[:_MOST_SHOWN])
        return f"{listed}, ... ({len(self.values)})" if len(self.values) > _MOST_SHOWN else listed

    def to_config(self) -> dict[str, Any]:
        """Returns them as plain JSON values."""
        return {"kind": self.kind, "values": list(self.values)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Classes:
        """Makes them of what `to_config` returned.

        Args:
            config: The JSON values.

        Raises:
            ConfigError: They are of something else.
        """
        try:
            return cls(str(config["kind"]), tuple(config["values"]))
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the network's classes are damaged: {error!r}") from error


def class_names(where: str, classes: object) -> tuple[str, ...]:
    """Returns what classes are called, as whoever gives data says it.

    Args:
        where: What takes them.
        classes: Their names, in the order of their numbers.

    Raises:
        ConfigError: They are no list.
    """
    listed = sequence(classes)
    if listed is None:
        raise ConfigError(
            f"{where}: classes must be a list of names, in the order of their numbers, got {shown(classes)}"
        )
    return tuple(map(str, listed))


def as_names(target: ArrayLike) -> NDArray[Any]:
    """Returns labels as an array that says what they are: texts as texts, rather than as objects.

    Args:
        target: Labels; what is none comes back as the array that it is.

    Raises:
        DataError: A label is missing, or too large a number.
    """
    array = as_numpy(target, what="target")
    if array.dtype.kind == "T":
        # NumPy makes texts of one width of those of any length by way of objects alone.
        array = array.astype(object)
    if array.dtype.kind != "O":
        return array
    held: Sequence[Any] = array.reshape(-1).tolist()
    for place, value in enumerate(held):
        if is_missing(value):
            raise DataError(f"target: the label of row {place} is missing; leave such rows out")
    if _all(held, (str,)):
        return array.astype(str)
    if _all(held, (bool, np.bool_)):
        return array.astype(bool)
    if not _all(held, (int, np.integer)):
        return array
    try:
        return array.astype(np.int64)
    except OverflowError as error:
        raise DataError("target: a label is a whole number that does not fit 64 bits") from error


def is_missing(value: object) -> bool:
    """Whether a value says that there is none: None, NaN, and what pandas has for them.

    Args:
        value: Anything; what pandas has answers no comparison with True or False.
    """
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _all(values: Iterable[Any], kinds: tuple[type, ...]) -> bool:
    flags = (bool, np.bool_)
    return all(
        isinstance(value, kinds) and (bool in kinds or not isinstance(value, flags)) for value in values
    )
