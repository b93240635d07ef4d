"""What all reports share: to dictionaries, JSON and data frames, and back."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from loom._tables import table
from loom.errors import ConfigError, SerializationError
from loom.extras import require

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Report", "TabularReport"]

_MOST_ROWS = 20


class Report:
    """Base of the reports, which are frozen dataclasses declared with `eq=False`.

    Fields are numbers, strings, arrays, other reports, and tuples and dictionaries of these.
    """

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values of JSON.

        Arrays become lists; numbers that are not finite, of which JSON knows none, become the strings
        "NaN", "Infinity" and "-Infinity".
        """
        return {field.name: _plain(getattr(self, field.name)) for field in _fields(type(self))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Makes the report from what `to_dict` returned.

        Args:
            values: The fields; those that older versions did not write keep their defaults.

        Returns:
            The report.

        Raises:
            SerializationError: A field is missing, unknown, or of another type.
        """
        fields = _fields(cls)
        names = [field.name for field in fields]
        required = {field.name for field in fields if field.default is dataclasses.MISSING}
        given = list(values)
        if not required <= set(given) <= set(names):
            raise SerializationError(f"a {cls.__name__} has the fields {names}, got {given}")
        hints = get_type_hints(cls)
        try:
            return cls(**{name: _typed(hints[name], values[name]) for name in given})
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(f"this is no {cls.__name__}: {error}") from error

    def to_json(self, indent: int | None = None) -> str:
        """Returns the report as JSON text.

        Args:
            indent: Spaces by level; one line where None.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Makes the report from what `to_json` returned.

        Args:
            text: The JSON text.

        Returns:
            The report.

        Raises:
            SerializationError: It is not JSON, or of another report.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise SerializationError(f"this is no {cls.__name__}: {error}") from error
        if not isinstance(values, dict):
            raise SerializationError(f"this is no {cls.__name__}: the JSON text is no object")
        return cls.from_dict(values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_dict() == self.to_dict()

    # Arrays in the fields can be written to.
    __hash__ = None  # type: ignore[assignment]


class TabularReport(Report):
    """Base of the reports that are tables, too."""

    def columns(self) -> dict[str, Any]:
        """Returns the table's columns by name, one entry a row."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Returns the table for notebooks; of many rows the first and the last."""
        columns = self.columns()
        rows = [tuple(map(_short, row)) for row in zip(*columns.values(), strict=True)]
        if len(rows) > _MOST_ROWS:
            half = _MOST_ROWS // 2
            rows = [*rows[:half], ("...",) * len(columns), *rows[-half:]]
        return table(type(self).__name__, tuple(columns), rows)

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:  # noqa: ANN401
        """Returns the table as a data frame.

        Args:
            library: Whose: "pandas" or "polars".

        Returns:
            The `pandas.DataFrame` or `polars.DataFrame`.

        Raises:
            ConfigError: There is no such library.
            MissingExtraError: It is not installed.
        """
        if library not in ("pandas", "polars"):
            raise ConfigError(f'library must be "pandas" or "polars", got {library!r}')
        module = require(library, extra=library, purpose="to_frame")
        return module.DataFrame(self.columns())


def _short(value: Any) -> str:  # noqa: ANN401 - a cell of any kind
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _fields(cls: type) -> tuple[dataclasses.Field[Any], ...]:
    # Reports are dataclasses, which their base is not.
    return dataclasses.fields(cls)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Report):
        return value.to_dict()
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _typed(hint: Any, value: Any) -> Any:  # noqa: ANN401
    """The value of a field of that type, from what `_plain` made of it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if (alias := getattr(origin, "__value__", None)) is not None:
        # `type NDArray[T] = ...`, as NumPy has it from 2.5 on.
        return _typed(alias[arguments], value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        rest = [argument for argument in arguments if argument is not type(None)]
        return _typed(rest[0], value) if len(rest) == 1 else value
    if origin is np.ndarray:
        (element,) = get_args(arguments[1])
        return np.asarray(value, dtype=None if element is Any else element)
    if origin is tuple:
        entry = arguments[0] if arguments[-1] is Ellipsis else None
        kinds = [entry] * len(value) if entry is not None else arguments
        return tuple(_typed(kind, part) for kind, part in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: _typed(arguments[1], entry) for key, entry in value.items()}
    if isinstance(hint, type) and issubclass(hint, Report):
        return hint.from_dict(value)
    return float(value) if hint is float else value
