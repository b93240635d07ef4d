"""What is done to columns before a network reads them: learned once, applied again, kept as JSON."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom._typing import Foreign
from loom.data.frames import Column, Frame, read_frame
from loom.data.standardizing import divisors
from loom.errors import ConfigError, DataError, DTypeError

__all__ = ["Categories", "ColumnEncoder", "Numbers"]

_NUMBERS = "numbers"
MISSING, UNKNOWN, FIRST = 0, 1, 2
"""The codes of a value that is missing, of one that was not learned, and of the first that was."""


@dataclass(frozen=True)
class Numbers:
    """How a column of numbers or booleans is read.

    Args:
        name: The column.
        mean: What stands where a number is missing; what is taken off where the column is scaled.
        scale: What the rest is divided by: the standard deviation, or 1.
        centred: Whether the mean is taken off.
        indicator: Whether a column beside it says where numbers are missing: where any were when this was
            learned.
    """

    kind: ClassVar[str] = "numbers"
    name: str
    mean: float
    scale: float = 1.0
    centred: bool = True
    indicator: bool = False

    def blocks(self, column: Column) -> list[NDArray[np.float64]]:
        """Returns the column as numbers, and beside it where they are missing."""
        if column.kind == "text":
            raise DTypeError(
                f"column {self.name!r}: expected numbers, as the encoder has learned, got texts such as "
                f"{shown(next(value for value in column.values if value is not None))}"
            )
        values = np.where(column.missing, self.mean, column.values.astype(np.float64))
        if self.centred:
            values = (values - self.mean) / self.scale
        return [values, column.missing.astype(np.float64)] if self.indicator else [values]

    @property
    def features(self) -> list[str]:
        """The names of what it becomes."""
        return [self.name, f"{self.name} is missing"] if self.indicator else [self.name]


@dataclass(frozen=True)
class Categories:
    """How a column of categories is read: as whole numbers, 0 where missing, 1 where unknown, 2 the first.

    Args:
        name: The column.
        values: The categories, sorted: texts, whole numbers or booleans.
        indicator: Whether any was missing when this was learned.
    """

    kind: ClassVar[str] = "categories"
    name: str
    values: tuple[str | int | bool, ...]
    indicator: bool = False

    def codes(self, column: Column) -> NDArray[np.int64]:
        """Returns (rows,) codes."""
        code_of = self._codes()
        present = _keys(column) if not column.missing.all() else np.empty(len(column.values), object)
        kinds, places = _distinct(present, column.missing)
        table = np.array([code_of(kind) for kind in kinds] or [UNKNOWN], dtype=np.int64)
        found = np.full(len(column.values), MISSING, np.int64)
        found[~column.missing] = table[places]
        return found

    def _codes(self) -> Callable[[Any], int]:
        """Returns what gives a value's code: files and frames write a category as text or as a number."""
        codes: dict[Any, int] = {value: FIRST + place for place, value in enumerate(self.values)}
        if any(isinstance(value, str) for value in self.values):
            # Of numbers that are a frame's own categories their names were learned.
            return lambda value: codes.get(str(value), codes.get(f"{value}.0", UNKNOWN))
        texts = {str(value): code for value, code in codes.items()}

        def code_of(value: object) -> int:
            if isinstance(value, str):
                return texts.get(value.strip().removesuffix(".0"), UNKNOWN)
            return codes.get(value, UNKNOWN)

        return code_of

    def blocks(self, column: Column) -> list[NDArray[np.float64]]:
        """Returns a column for each category, one where a row is of it; and one for missing values."""
        codes = self.codes(column)
        first = [MISSING] if self.indicator else []
        return [(codes == code).astype(np.float64) for code in (*range(FIRST, self.size), *first)]

    @property
    def features(self) -> list[str]:
        """The names of what it becomes as columns of zeros and ones."""
        names = [f"{self.name} = {value}" for value in self.values]
        return [*names, f"{self.name} is missing"] if self.indicator else names

    @property
    def size(self) -> int:
        """How many codes there are: what an `nn.Embedding` of them needs."""
        return FIRST + len(self.values)


@dataclass(frozen=True)
class ColumnEncoder:
    """What `loom.data.columns` has learned of a frame; called with a frame, it does the same to it.

    `Network.encoder` keeps it with a network, and files do.

    Args:
        parts: How each column is read, in the order of the outputs.
        target: The columns that are told; none is needed to predict.
        inputs: "matrix", "codes" or "dict"; see `loom.data.columns`.
    """

    parts: tuple[Numbers | Categories, ...]
    target: tuple[str, ...] = ()
    inputs: str = "matrix"
    columns: tuple[str, ...] = field(init=False)
    """The columns that it reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(part.name for part in self.parts))

    def __call__(self, frame: Foreign) -> Foreign:
        """Returns what a network reads of a frame.

        Args:
            frame: Of pandas, polars or Arrow, or a dictionary of columns; it has the columns that were
                learned, in any order, and what else it has is not looked at.

        Returns:
            (rows, width) float32; for inputs="dict" a dictionary of that under "numbers" and (rows,) codes
            under the name of each column of categories.

        Raises:
            DataError: A column is not there.
            DTypeError: A column that was numbers holds texts now.
        """
        given = read_frame(frame)
        self._require(given)
        read = [(part, given.column(part.name, "columns")) for part in self.parts]
        if self.inputs == "dict":
            numbers = [
                block for part, column in read if isinstance(part, Numbers) for block in part.blocks(column)
            ]
            found: dict[str, NDArray[Any]] = {_NUMBERS: _matrix(numbers, given.rows)} if numbers else {}
            found.update(
                {part.name: part.codes(column) for part, column in read if isinstance(part, Categories)}
            )
            return found
        if self.inputs == "codes":
            if all(isinstance(part, Categories) for part in self.parts):
                # An embedding reads whole numbers.
                return np.stack(
                    [part.codes(column) for part, column in read if isinstance(part, Categories)], 1
                )
            blocks = [
                block
                for part, column in read
                for block in (
                    [part.codes(column).astype(np.float64)]
                    if isinstance(part, Categories)
                    else part.blocks(column)
                )
            ]
            return _matrix(blocks, given.rows)
        return _matrix([block for part, column in read for block in part.blocks(column)], given.rows)

    def has_made(self, x: Foreign) -> bool:
        """Whether a dictionary is what a call gives for inputs="dict", rather than a frame.

        Args:
            x: What may be either.
        """
        if self.inputs != "dict" or not isinstance(x, Mapping):
            return False
        if any(isinstance(part, Numbers) for part in self.parts):
            return _NUMBERS in x
        kinds = {getattr(getattr(x.get(name), "dtype", None), "kind", "") for name in self.columns}
        names = any(isinstance(value, str) for part in self.parts for value in getattr(part, "values", ()))
        return names and kinds <= {"i", "u"}

    def _require(self, given: Frame) -> None:
        absent = [name for name in self.columns if name not in given.names]
        if absent:
            raise DataError(
                f"the frame has no column {', '.join(map(repr, absent))}, which the network has learned "
                f"from; it has {', '.join(map(repr, given.names))}"
            )

    def targets(self, frame: Foreign) -> NDArray[Any]:
        """Returns the targets of a frame.

        Args:
            frame: As in a call.

        Returns:
            (rows,) labels or numbers; (rows, targets) where there are several columns.

        Raises:
            DataError: There is none, or a value is missing.
        """
        if not self.target:
            raise DataError("the encoder was made without target=; give (encoder(frame), y)")
        given = read_frame(frame)
        found = []
        for name in self.target:
            if name not in given.names:
                raise DataError(f"the frame has no column {name!r}, which is the target")
            found.append(given.column(name, "columns").as_labels())
        return found[0] if len(found) == 1 else np.stack([part.astype(np.float64) for part in found], axis=1)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the matrix's columns; for inputs="dict" those under "numbers"."""
        if self.inputs == "matrix":
            return tuple(name for part in self.parts for name in part.features)
        if self.inputs == "dict":
            return tuple(name for part in self.parts if isinstance(part, Numbers) for name in part.features)
        found = [[part.name] if isinstance(part, Categories) else part.features for part in self.parts]
        return tuple(name for names in found for name in names)

    @property
    def names(self) -> tuple[str, ...]:
        """For inputs="dict" the names of what a call gives: "numbers" where there are any, and categories."""
        numbers = any(isinstance(part, Numbers) for part in self.parts)
        return (*((_NUMBERS,) if numbers else ()), *self.sizes)

    @property
    def width(self) -> int:
        """How many columns the matrix has: the network's `input_shape`."""
        return len(self.features)

    @property
    def sizes(self) -> dict[str, int]:
        """Of each column of categories, how many codes it has: what an `nn.Embedding` of it needs."""
        return {part.name: part.size for part in self.parts if isinstance(part, Categories)}

    def to_config(self) -> dict[str, Any]:
        """Returns it as plain JSON values."""
        parts: list[dict[str, Any]] = []
        for part in self.parts:
            if isinstance(part, Numbers):
                told: dict[str, Any] = {
                    "mean": part.mean,
                    "scale": part.scale,
                    "centred": part.centred,
                }
            else:
                told = {"values": list(part.values)}
            parts.append({"type": part.kind, "name": part.name, "indicator": part.indicator, **told})
        return {"inputs": self.inputs, "target": list(self.target), "parts": parts}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ColumnEncoder:
        """Makes it of what `to_config` returned.

        Args:
            config: The JSON values.

        Raises:
            ConfigError: They are of something else.
        """
        try:
            parts = tuple(_part(dict(part)) for part in config["parts"])
            inputs = str(config["inputs"])
            if inputs not in ("matrix", "codes", "dict"):
                raise ConfigError(f"the encoder of columns is damaged: inputs are {shown(inputs)}")
            return cls(parts, tuple(map(str, config["target"])), inputs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"the encoder of columns is damaged: {error!r}") from error


def _part(told: dict[str, Any]) -> Numbers | Categories:
    name, indicator = str(told["name"]), bool(told["indicator"])
    if told["type"] == Categories.kind:
        return Categories(name, tuple(told["values"]), indicator)
    mean, scale = float(told["mean"]), float(told["scale"])
    if told["type"] != Numbers.kind or not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
        raise ConfigError(f"the encoder of columns is damaged: column {name!r} has {shown(told)}")
    return Numbers(name, mean, scale, bool(told["centred"]), indicator)


def _matrix(blocks: Sequence[NDArray[Any]], rows: int) -> NDArray[np.float32]:
    found = np.empty((rows, len(blocks)), np.float32)
    for place, block in enumerate(blocks):
        found[:, place] = block
    return found


_MANY_TEXTS = 50
"""So many different texts in a column may be categories, however few rows there are."""
_ROWS_PER_TEXT = 5
"""Where fewer rows than that share a text, it hardly tells anything of those to come."""


class Figures:
    """What is summed up of one column while frames are gone through, in whatever pieces they come.

    Args:
        name: The column.
        as_categories: Whether numbers are categories, too.
    """

    def __init__(self, name: str, *, as_categories: bool) -> None:
        self.name = name
        self._as_categories = as_categories
        self._kind: str | None = None
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._missing = False
        self._values: set[Any] = set()

    def add(self, column: Column) -> None:
        """Takes up another piece of the column."""
        self._missing |= bool(column.missing.any())
        present = ~column.missing
        count = int(present.sum())
        if count == 0:
            return
        if self._kind not in (None, column.kind):
            raise DTypeError(f"column {self.name!r} is {self._kind} in some rows and {column.kind} in others")
        self._kind = column.kind
        if column.kind == "text" or self._as_categories:
            self._values.update(_distinct(_keys(column), column.missing)[0])
            self._count += count
            return
        values = column.values[present].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            self._sum_up(values, count)

    def _sum_up(self, values: NDArray[np.float64], count: int) -> None:
        mean = float(values.mean())
        # Chan, Golub and LeVeque's way to put the parts of a variance together.
        moved = mean - self._mean
        whole = self._count + count
        self._squares += float(np.square(values - mean).sum()) + moved * moved * self._count * count / whole
        self._mean += moved * count / whole
        self._count = whole

    def part(self, *, scale: bool) -> Numbers | Categories:
        """Returns how the column is read from now on."""
        if self._values or self._as_categories:
            self._warn_of_texts()
            return Categories(self.name, tuple(sorted(self._values)), self._missing)
        if self._kind is None:
            raise DataError(f"column {self.name!r} has no values at all; leave it out: drop=[{self.name!r}]")
        if self._kind == "boolean" or not scale:
            return Numbers(self.name, self._mean, centred=False, indicator=self._missing)
        deviation = math.sqrt(self._squares / self._count)
        if not math.isfinite(deviation):
            raise DataError(
                f"column {self.name!r} has numbers so large that their deviation is infinite; divide it by "
                f"their size, or leave it out: drop=[{self.name!r}]"
            )
        scaled = float(divisors(self._mean, deviation))
        return Numbers(self.name, self._mean, scaled, indicator=self._missing)

    def _warn_of_texts(self) -> None:
        """Warns of texts that hardly any two rows share: names, numbers of orders, dates in CSV."""
        different = len(self._values)
        if self._as_categories or different <= _MANY_TEXTS or different * _ROWS_PER_TEXT <= self._count:
            return
        warnings.warn(
            f"column {self.name!r} has {different:,} different texts in {self._count:,} rows, each of which "
            "becomes an input that next to no row says anything of. Leave it out, "
            f"drop=[{self.name!r}], or make numbers of what matters of it (of dates by pandas.to_datetime); "
            f"categories=[{self.name!r}] says that it is meant",
            stacklevel=7,
        )


def learned(
    frames: Iterable[Any],
    *,
    target: Sequence[str],
    categories: Sequence[str],
    scale: bool | Sequence[str],
    drop: Sequence[str],
    inputs: str,
) -> ColumnEncoder:
    """Learns from frames, which are gone through once; for the arguments see `loom.data.columns`."""
    figures: dict[str, Figures] | None = None
    for frame in frames:
        given = read_frame(frame)
        if figures is None:
            for what, names in (("target", target), ("categories", categories), ("drop", drop)):
                for name in names:
                    if name not in given.names:
                        # The error lists what there is.
                        _absent(what, name, given)
            scaled = [] if isinstance(scale, bool) else scale
            for name in scaled:
                if name not in given.names:
                    _absent("scale", name, given)
            out = {*target, *drop}
            figures = {
                name: Figures(name, as_categories=name in categories)
                for name in given.names
                if name not in out
            }
        for name, found in figures.items():
            found.add(given.column(name, "columns"))
    if figures is None:
        raise DataError("columns: there are no rows to learn from")
    if not figures:
        raise DataError("columns: no column is left to learn from")
    if inputs == "dict" and _NUMBERS in figures:
        raise DataError(
            f'columns: with inputs="dict" the matrix of numbers is called "{_NUMBERS}"; rename that column'
        )
    parts = tuple(
        found.part(scale=scale if isinstance(scale, bool) else name in scale)
        for name, found in figures.items()
    )
    return ColumnEncoder(parts, tuple(target), inputs)


def _absent(what: str, name: str, given: Frame) -> None:
    given.column(name, f"columns({what}=)")


def _keys(column: Column) -> NDArray[Any]:
    """Returns the values as what JSON keeps and gives back: texts, whole numbers, booleans."""
    if column.kind != "number" or column.values.dtype.kind in "iu":
        return column.values
    present = column.values[~column.missing]
    if (present != np.round(present)).any():
        broken = float(present[present != np.round(present)][0])
        raise DTypeError(
            f"column {column.name!r} is among the categories and holds {broken}; categories are texts, whole "
            "numbers or booleans"
        )
    return np.where(column.missing, 0, column.values).astype(np.int64)


def _distinct(values: NDArray[Any], missing: NDArray[np.bool_]) -> tuple[list[Any], NDArray[np.intp]]:
    """Returns the values there are, and at which of them every row stands that has one."""
    present = values[~missing]
    if present.dtype.kind == "O":
        # A dictionary is faster than sorting texts.
        order: dict[Any, int] = {}
        places = np.fromiter((order.setdefault(value, len(order)) for value in present.tolist()), np.intp)
        return list(order), places
    kinds, inverse = np.unique(present, return_inverse=True)
    return kinds.tolist(), inverse.reshape(-1)
