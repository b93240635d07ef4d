"""Splits of data: random, stratified by labels, whole groups at a time; once, or in folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from loom._settings.calls import explained
from loom._settings.checks import flag, real, whole
from loom._settings.suggestions import shown
from loom._typing import ArrayLike, Foreign
from loom.convert import as_numpy
from loom.data.batches import ArraySource, TrainingBatch
from loom.data.extents import Padded
from loom.data.frames import is_frame, read_frame, rows_of
from loom.errors import ConfigError, DataError

__all__ = ["folds", "hold_out", "split", "taken"]

DataT = TypeVar("DataT")
Rows = NDArray[np.intp]


def hold_out(source: ArraySource, fraction: float) -> tuple[ArraySource, ArraySource]:
    """Holds out the last samples, before any shuffling.

    Args:
        source: The data set.
        fraction: The share held out; between 0 and 1.

    Returns:
        What is left for training, and what was held out.

    Raises:
        DataError: One of the two would be empty.
    """
    held = round(source.rows * fraction)
    kept = source.rows - held
    if held == 0 or kept == 0:
        raise DataError(
            f"validation_split {fraction:g} of {source.rows} samples leaves {kept} for training "
            f"and {held} for validation; both need at least one"
        )
    cuts = slice(0, kept), slice(kept, source.rows)
    first, last = (ArraySource(taken(source.batch, cut), cut.stop - cut.start) for cut in cuts)
    return first, last


@overload
def split(data: ArraySource, fraction: float) -> tuple[ArraySource, ArraySource]: ...
@overload
def split(
    data: DataT,
    fraction: float = 0.2,
    *,
    stratify: ArrayLike | str | bool | None = None,
    groups: ArrayLike | str | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> tuple[DataT, DataT]: ...
@explained()
def split(
    data: Any,
    fraction: float = 0.2,
    *,
    stratify: ArrayLike | str | bool | None = None,
    groups: ArrayLike | str | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> Any:
    """Splits data into what is learned from and what is held out.

    Args:
        data: (x, y) or (x, y, weight) arrays, lists of sequences or `Padded`, a `TrainingBatch`, a table of
            `columns`, or a frame of pandas, polars or Arrow, which is better split before `columns` looks at
            it. Of an `ArraySource` the last samples are held out.
        fraction: The share held out; between 0 and 1.
        stratify: True holds out the same share of every class of the targets; or labels (rows,), or the name
            of a frame's column, by which to.
        groups: (rows,) or the name of a frame's column: samples of one group, such as a patient, stay
            together; as near to the share as whole groups come.
        shuffle: Whether samples are drawn; otherwise the last ones are held out.
        seed: What is drawn from; the same number draws the same samples.

    Returns:
        What is left for training, and what was held out, in the form that was given and in its order.

    Raises:
        DataError: One of the two would be empty, or lengths differ.
        ConfigError: Settings contradict each other, or are out of range.

    Examples:
        >>> x, y = np.arange(10.0)[:, None], np.array([0, 1] * 5)
        >>> (x_train, y_train), (x_test, y_test) = loom.data.split((x, y), 0.4, stratify=True)
        >>> y_test.tolist().count(0), y_test.tolist().count(1)
        (2, 2)
        >>> kept, held = loom.data.split((x, y), 0.2, groups=np.arange(10) // 2)
        >>> len(held[1])
        2
    """
    if isinstance(data, ArraySource):
        return hold_out(data, fraction)
    share = real("split", "fraction", fraction, above=0.0, below=1.0)
    shuffle = flag("split", "shuffle", shuffle)
    rows, strata, teams = _settings("split", data, stratify, groups, shuffle=shuffle)
    wanted = round(rows * share)
    draw = np.random.default_rng(whole("split", "seed", seed, least=0))
    if teams is not None:
        chosen = _whole_groups(teams, wanted, draw)
    elif strata is not None:
        chosen = _of_every_class(strata, share, wanted, draw)
    elif shuffle:
        chosen = draw.permutation(rows)[:wanted]
    else:
        chosen = np.arange(rows - wanted, rows)
    held = np.zeros(rows, bool)
    held[chosen] = True
    if held.all() or not held.any():
        what = f"of {len(np.unique(teams))} groups " if teams is not None else ""
        if strata is not None:
            what = f"of {len(np.unique(strata))} classes "
        raise DataError(
            f"split: a share of {share:g} of {rows} samples {what}leaves {int((~held).sum())} for training "
            f"and {int(held.sum())} held out; both need at least one"
        )
    return _part(data, np.flatnonzero(~held)), _part(data, np.flatnonzero(held))


def folds(
    data: DataT,
    count: int = 5,
    *,
    stratify: ArrayLike | str | bool | None = None,
    groups: ArrayLike | str | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> Iterator[tuple[DataT, DataT]]:
    """Yields data in folds: each sample is held out once, and learned from in the other folds.

    Args:
        data: As in `split`.
        count: How many folds there are; at least 2.
        stratify: True deals every class out evenly; or labels, or the name of a column, as in `split`.
        groups: Samples of one group stay together, as in `split`.
        shuffle: Whether samples are drawn; otherwise folds are runs of neighbours.
        seed: What is drawn from.

    Yields:
        What is left for training, and what is held out, in the form that was given and in its order.

    Raises:
        DataError: There are fewer samples, or groups, than folds.
        ConfigError: Settings contradict each other, or are out of range.

    Examples:
        >>> x, y = np.arange(10.0)[:, None], np.array([0, 1] * 5)
        >>> [held[1].tolist() for _, held in loom.data.folds((x, y), 2, shuffle=False)]
        [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
    """
    number = whole("folds", "count", count, least=2)
    rows, strata, teams = _settings("folds", data, stratify, groups, shuffle=shuffle)
    draw = np.random.default_rng(whole("folds", "seed", seed, least=0))
    least = rows if teams is None else len(np.unique(teams))
    if least < number:
        raise DataError(
            f"folds: {least} {'samples' if teams is None else 'groups'} do not make {number} folds"
        )
    places = np.empty(rows, np.intp)
    shuffle = flag("folds", "shuffle", shuffle)
    if teams is not None:
        places = _dealt_groups(teams, number, draw)
    elif strata is not None:
        order = draw.permutation(rows)
        places[order[np.argsort(strata[order], kind="stable")]] = np.arange(rows) % number
    else:
        order = draw.permutation(rows) if shuffle else np.arange(rows)
        places[order] = np.arange(rows) * number // rows

    def parts() -> Iterator[tuple[DataT, DataT]]:
        for fold in range(number):
            held = places == fold
            yield _part(data, np.flatnonzero(~held)), _part(data, np.flatnonzero(held))

    return parts()


def _settings(
    where: str, data: object, stratify: object, groups: object, *, shuffle: bool
) -> tuple[int, Rows | None, Rows | None]:
    """Returns how many samples there are, and classes and groups as numbers."""
    rows = _count(where, data)
    labelled = stratify is not None and stratify is not False
    if labelled and groups is not None:
        raise ConfigError(f"{where}: stratify and groups contradict each other; give one of them")
    if (labelled or groups is not None) and not flag(where, "shuffle", shuffle):
        raise ConfigError(f"{where}: stratify and groups draw samples; leave shuffle=False out")
    strata = None
    if labelled:
        strata = _numbered(
            where, "stratify", _target(where, data) if stratify is True else stratify, data, rows
        )
    return rows, strata, None if groups is None else _numbered(where, "groups", groups, data, rows)


def _numbered(where: str, name: str, values: Foreign, data: object, rows: int) -> Rows:
    if isinstance(values, str):
        if not is_frame(data):
            raise ConfigError(f"{where}: {name}={values!r} names a column, and the data is no frame")
        column = read_frame(data).column(values, where)
        values = column.as_labels()
    array = as_numpy(values, what=f"{where}: {name}")
    if array.shape != (rows,):
        raise DataError(f"{where}: {name} must be ({rows},), one for each sample, got {array.shape}")
    if array.dtype.kind == "O":
        array = np.array([repr(value) for value in array.tolist()])
    numbers: Rows = np.unique(array, return_inverse=True)[1].reshape(-1)
    return numbers


def _target(where: str, data: object) -> object:
    if isinstance(data, TrainingBatch):
        return data.target
    if isinstance(data, (tuple, list)) and len(data) > 1:
        return data[1]
    raise ConfigError(f"{where}: stratify=True needs targets, (x, y); name the column of a frame")


def _count(where: str, data: Foreign) -> int:
    if is_frame(data):
        return rows_of(data)
    parts = (data.input, data.target, data.weight) if isinstance(data, TrainingBatch) else data
    if not isinstance(parts, (tuple, list)) or not parts:
        raise DataError(
            f"{where} takes (x, y) arrays, a TrainingBatch or a frame, got {type(data).__name__}; an image "
            "folder has a method split"
        )
    counts = {_length(where, part) for part in parts if part is not None}
    if len(counts) != 1:
        raise DataError(f"{where}: arrays have {sorted(counts)} samples; they need the same number")
    return counts.pop()


def _length(where: str, part: Foreign) -> int:
    if isinstance(part, dict):
        return min((_length(where, each) for each in part.values()), default=0)
    if isinstance(part, Padded):
        return _length(where, part.values)
    if isinstance(part, (list, tuple)):
        # Their rows may have extents of their own.
        return len(part)
    if is_frame(part):
        return rows_of(part)
    array = as_numpy(part)
    if array.ndim == 0:
        raise DataError(f"{where}: a single number is no array of samples, got {shown(part)}")
    return len(array)


def _part(data: Foreign, rows: Rows) -> Foreign:
    """Returns some rows of samples, targets and weights, or of a frame, in the form that they have."""
    # By itself a list is one of samples.
    return [*taken(tuple(data), rows)] if isinstance(data, list) else taken(data, rows)


def taken(data: Foreign, rows: Rows | slice) -> Foreign:
    """Returns some rows of data, in the form that it has.

    Args:
        data: Arrays, lists, dictionaries or frames, a tuple of these, or a `TrainingBatch`.
        rows: Which rows.
    """
    if isinstance(data, TrainingBatch):
        weight = None if data.weight is None else taken(data.weight, rows)
        return replace(data, input=taken(data.input, rows), target=taken(data.target, rows), weight=weight)
    if isinstance(data, dict):
        return {name: taken(part, rows) for name, part in data.items()}
    if isinstance(data, tuple):
        return tuple(None if part is None else taken(part, rows) for part in data)
    if isinstance(data, Padded):
        return Padded(taken(data.values, rows), taken(data.lengths, rows))
    if isinstance(data, list) and len({_extents(row) for row in data}) > 1:
        chosen = range(*rows.indices(len(data))) if isinstance(rows, slice) else rows
        return [data[row] for row in chosen]
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if is_frame(data):
        return data.take(rows) if hasattr(data, "take") else data[rows]
    return as_numpy(data)[rows]


def _extents(row: Foreign) -> tuple[int, ...]:
    """Returns the extents of a sample in a list, as far as they tell one from another."""
    if isinstance(row, (list, tuple)):
        return (len(row),)
    return tuple(row.shape) if hasattr(row, "shape") else ()


def _of_every_class(strata: Rows, share: float, wanted: int, draw: np.random.Generator) -> Rows:
    """The same share of every class; what is over goes where the share is cut down most."""
    counts = np.bincount(strata)
    exact = counts * share
    held = np.floor(exact).astype(int)
    rest = exact - held
    # One of a kind is learned from.
    rest[counts < 2] = -1.0
    for place in np.argsort(-rest, kind="stable")[: max(wanted - int(held.sum()), 0)]:
        held[place] += counts[place] > 1
    chosen = [draw.permutation(np.flatnonzero(strata == each))[: held[each]] for each in range(len(counts))]
    return np.concatenate(chosen)


def _whole_groups(teams: Rows, wanted: int, draw: np.random.Generator) -> Rows:
    counts = np.bincount(teams)
    held, taken = np.zeros(len(counts), bool), 0
    for team in draw.permutation(len(counts)):
        if abs(taken + counts[team] - wanted) < abs(taken - wanted) and held.sum() + 1 != len(counts):
            held[team], taken = True, taken + counts[team]
    if not held.any() and len(counts) > 1:
        held[np.argmin(counts)] = True
    return np.flatnonzero(held[teams])


def _dealt_groups(teams: Rows, number: int, draw: np.random.Generator) -> Rows:
    """The largest groups first, each to the fold that has least."""
    counts = np.bincount(teams)
    order = draw.permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    sizes, places = np.zeros(number, int), np.empty(len(counts), np.intp)
    for team in order:
        places[team] = np.argmin(sizes)
        sizes[places[team]] += counts[team]
    return places[teams]
