"""Frames as columns of NumPy arrays: pandas, polars, Arrow, and dictionaries of columns."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import unknown
from loom._typing import Foreign
from loom.data.labels import is_missing
from loom.errors import DataError, DTypeError

__all__ = ["Column", "Frame", "is_frame", "read_frame", "rows_of"]

Kind: TypeAlias = Literal["number", "boolean", "text"]


@dataclass(frozen=True)
class Column:
    """A column as arrays.

    Args:
        name: Its name.
        kind: What its values are.
        values: (rows,) numbers (whole ones as they are), booleans, or texts as objects; what stands where
            values are missing is of no account.
        missing: (rows,) where there are none.
    """

    name: str
    kind: Kind
    values: NDArray[Any]
    missing: NDArray[np.bool_]

    def as_labels(self) -> NDArray[Any]:
        """Returns the values as labels, where none is missing.

        Raises:
            DataError: One is missing.
        """
        if self.missing.any():
            rows = np.flatnonzero(self.missing)
            raise DataError(
                f"column {self.name!r} has no value in {len(rows)} rows, first in row {rows[0]}; leave these "
                "rows out"
            )
        return self.values.astype(str) if self.kind == "text" else self.values


@dataclass(frozen=True)
class Frame:
    """A frame whose columns are read one by one.

    Args:
        names: The columns' names, in order.
        rows: How many rows it has.
        given: The frame.
    """

    names: tuple[str, ...]
    rows: int
    given: Any

    def column(self, name: str, where: str) -> Column:
        """Reads a column.

        Args:
            name: Its name.
            where: Who asks, for error messages.

        Raises:
            DataError: There is no such column.
            DTypeError: It holds what is neither numbers, booleans nor texts.
        """
        if name not in self.names:
            raise DataError(str(unknown(f"column in {where}", name, self.names)))
        values = self.given.column(name) if _is_arrow(self.given) else self.given[name]
        return _column(name, values)


def is_frame(value: object) -> bool:
    """Whether something is a frame of pandas, polars or Arrow, or a dictionary of columns.

    Nothing is imported: who has such a frame has imported what makes it.
    """
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(name, str) for name in value)
    return any(
        (module := sys.modules.get(package)) is not None and isinstance(value, getattr(module, kind, ()))
        for package, kind in (
            ("pandas", "DataFrame"),
            ("polars", "DataFrame"),
            ("pyarrow", "Table"),
            ("pyarrow", "RecordBatch"),
        )
    )


def rows_of(frame: Foreign) -> int:
    """Returns how many rows a frame has."""
    if isinstance(frame, Mapping):
        return min((_extent(name, column) for name, column in frame.items()), default=0)
    return int(frame.num_rows) if _is_arrow(frame) else len(frame)


def read_frame(frame: Foreign) -> Frame:
    """Returns a frame of any package.

    Args:
        frame: Of pandas, polars or Arrow, or a dictionary of columns.

    Raises:
        DataError: It is none, has two columns of one name, or columns of different lengths.
    """
    if not is_frame(frame):
        raise DataError(
            "expected a frame of pandas or polars, an Arrow table or a dictionary of columns, got "
            f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
        )
    if isinstance(frame, Mapping):
        names: Sequence[Any] = list(frame)
        lengths = {name: _extent(name, column) for name, column in frame.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"columns have different lengths: {lengths}")
    else:
        names = list(frame.schema.names if _is_arrow(frame) else frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"columns are named by texts, got {name!r}; rename them: frame.columns = [...]")
        if names.count(name) > 1:
            raise DataError(f"two columns are called {name!r}; rename one of them")
    return Frame(tuple(names), rows_of(frame), frame)


def _extent(name: object, column: Foreign) -> int:
    """Returns how many rows a column of a dictionary has."""
    try:
        rows = None if isinstance(column, str) else len(column)
    except TypeError:
        rows = None
    if rows is None:
        raise DataError(
            f"column {name!r} is one value where columns are lists or arrays: {{{name!r}: [{column!r}]}}"
        )
    return rows


def _is_arrow(frame: object) -> bool:
    return type(frame).__module__.partition(".")[0] == "pyarrow"


def _column(name: str, values: Foreign) -> Column:
    """Reads one column of any package."""
    package = type(values).__module__.partition(".")[0]
    if package == "pyarrow":
        return _arrow(name, values)
    if package == "polars":
        return _polars(name, values)
    if package == "pandas":
        return _pandas(name, values)
    return _plain(name, values)


def _pandas(name: str, series: Foreign) -> Column:
    kind = str(series.dtype)
    if kind == "category":
        # Categories that are numbers are names here.
        return _text(name, series.astype(object).to_numpy(), series.isna().to_numpy())
    if kind.startswith(("datetime", "period", "timedelta", "date")):
        raise _dates(name, kind)
    missing = series.isna().to_numpy(dtype=bool)
    if kind in ("object", "str", "string") or kind.startswith("string"):
        return _objects(name, series.to_numpy(dtype=object), missing)
    lowered = kind.lower()
    if lowered.startswith("bool"):
        return Column(name, "boolean", series.fillna(value=False).to_numpy(dtype=bool), missing)
    if missing.any() and lowered.startswith(("int", "uint")):
        return _number(name, series.to_numpy(dtype=np.float64, na_value=np.nan), missing)
    values = series.to_numpy(dtype=np.float64, na_value=np.nan) if missing.any() else series.to_numpy()
    return _plain(name, values, missing)


def _polars(name: str, series: Foreign) -> Column:
    kind = str(series.dtype)
    if kind.startswith(("Date", "Time", "Duration")):
        raise _dates(name, kind)
    missing = series.is_null().to_numpy()
    if kind.startswith(("String", "Utf8", "Categorical", "Enum")):
        return _text(name, np.array(series.to_list(), dtype=object), missing)
    if kind == "Boolean":
        return Column(name, "boolean", series.fill_null(value=False).to_numpy().astype(bool), missing)
    if kind.startswith("Decimal"):
        return _number(name, np.array([np.nan if v is None else float(v) for v in series.to_list()]), missing)
    if not kind.startswith(("Int", "UInt", "Float")):
        raise _unusable(name, kind)
    values = series.to_numpy()
    return _number(name, values, missing | _nan(values))


def _arrow(name: str, values: Foreign) -> Column:
    kind = str(values.type)
    if kind.startswith(("date", "time", "duration", "month")):
        raise _dates(name, kind)
    if kind.startswith("dictionary"):
        values = values.cast(values.type.value_type)
        found = _arrow(name, values)
        return _text(name, found.values.astype(object), found.missing)
    missing = np.asarray(values.is_null()).astype(bool)
    if kind in ("string", "large_string", "string_view"):
        return _text(name, np.array(values.to_pylist(), dtype=object), missing)
    if kind == "bool":
        held = [bool(value) for value in values.to_pylist()]
        return Column(name, "boolean", np.array(held, dtype=bool), missing)
    if kind.startswith("decimal"):
        return _number(
            name, np.array([np.nan if v is None else float(v) for v in values.to_pylist()]), missing
        )
    if not kind.startswith(("int", "uint", "float", "double", "halffloat")):
        raise _unusable(name, kind)
    numbers = np.asarray(values)
    return _number(name, numbers, missing | _nan(numbers))


def _plain(name: str, values: Foreign, missing: NDArray[np.bool_] | None = None) -> Column:
    """Reads an array, a list, or what can be turned into an array."""
    array = values if isinstance(values, np.ndarray) else _listed(values)
    if array.ndim != 1:
        raise DTypeError(f"column {name!r}: expected one value a row, got an array of shape {array.shape}")
    none = np.zeros(len(array), bool) if missing is None else missing
    kind = array.dtype.kind
    if kind in "mM":
        raise _dates(name, str(array.dtype))
    if kind in "OUST":
        return _objects(name, array.astype(object), none)
    if kind == "b":
        return Column(name, "boolean", array, none)
    if kind not in "fiu":
        raise _unusable(name, str(array.dtype))
    return _number(name, array, none | _nan(array))


def _listed(values: Foreign) -> NDArray[Any]:
    if isinstance(values, (list, tuple)):
        # With None or texts among them, NumPy would make texts of numbers.
        return np.array(values, dtype=object) if _mixed(values) else np.asarray(values)
    return np.asarray(values)


def _mixed(values: Sequence[Any]) -> bool:
    return any(
        value is None or isinstance(value, (str, bytes)) or type(value).__name__ == "NAType"
        for value in values
    )


def _objects(name: str, values: NDArray[Any], missing: NDArray[np.bool_]) -> Column:
    """Reads objects: texts, or numbers and booleans with None among them."""
    none = missing | np.array([is_missing(value) for value in values.tolist()], dtype=bool)
    held = values[~none].tolist()
    kinds = {type(value) for value in held}
    if not held or all(issubclass(kind, str) for kind in kinds):
        if not held:
            # Nothing says what it would be; a number that is always missing needs no categories.
            return _number(name, np.full(len(values), np.nan), none)
        return _text(name, values, none)
    if all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        filled = np.zeros(len(values), bool)
        filled[~none] = [bool(value) for value in held]
        return Column(name, "boolean", filled, none)
    if all(issubclass(kind, (int, float, np.number)) and not issubclass(kind, bool) for kind in kinds):
        numbers = np.full(len(values), np.nan)
        numbers[~none] = [float(value) for value in held]
        return _number(name, numbers, none)
    spelled = sorted(kind.__name__ for kind in kinds)
    if any(kind.__module__ in ("datetime", "pandas") for kind in kinds):
        raise _dates(name, ", ".join(spelled))
    raise DTypeError(
        f"column {name!r} holds values of several types: {', '.join(spelled)}; make them of one, such as "
        f"frame[{name!r}].astype(str), or leave the column out: drop=[{name!r}]"
    )


def _text(name: str, values: NDArray[Any], missing: NDArray[np.bool_]) -> Column:
    texts = np.empty(len(values), object)
    texts[:] = [None if none else str(value) for value, none in zip(values.tolist(), missing, strict=True)]
    return Column(name, "text", texts, missing)


def _number(name: str, values: NDArray[Any], missing: NDArray[np.bool_]) -> Column:
    infinite = np.isinf(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if infinite.any():
        raise DataError(
            f"column {name!r} is infinite in row {int(np.flatnonzero(infinite)[0])}; leave such rows out, or "
            "put NaN there, which counts as missing"
        )
    return Column(name, "number", values, missing)


def _nan(values: NDArray[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    return found


def _dates(name: str, kind: str) -> DTypeError:
    return DTypeError(
        f"column {name!r} holds dates or times ({kind}), which are no quantity by themselves; make numbers "
        "of what matters of them, such as the days since a day, the month or the weekday "
        f"(frame[{name!r}].dt.month), or leave the column out: drop=[{name!r}]"
    )


def _unusable(name: str, kind: str) -> DTypeError:
    return DTypeError(
        f"column {name!r} holds {kind}; columns are numbers, booleans or texts; leave it out: drop=[{name!r}]"
    )
