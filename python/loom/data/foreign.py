"""Data sets of other packages as they are: PyTorch's, Hugging Face's, and whatever can be indexed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data.augmenting import Augment
from loom.data.generated import Generated, generate
from loom.data.labels import class_names
from loom.data.loading import SampleLoader
from loom.errors import ConfigError, DataError

__all__ = ["Samples", "adopted", "samples"]

_PARTS = ("input", "target", "weight")
_TARGETS = ("label", "labels", "target", "targets", "y")


class Samples(SampleLoader):
    """A data set that gives its samples one by one, as batches; `samples` makes it.

    Args:
        dataset: What has `len` and gives samples by their numbers.
        parts: Makes (x, y) or (x, y, weight) of one of them.
        **settings: As for `Loader`.
    """

    def __init__(self, dataset: Foreign, parts: Callable[[Any], Sequence[Any]], **settings: Foreign) -> None:
        super().__init__("samples", len(dataset), **settings)
        self.dataset = dataset
        self._parts = parts

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data, as JSON; of the samples nothing is known."""
        mark = getattr(self.dataset, "_fingerprint", None)
        return {**super().identity(), "dataset": type(self.dataset).__qualname__, "fingerprint": mark}

    def _samples(self, rows: NDArray[np.intp]) -> tuple[Any, Any, Any]:
        return _joined([_arrays(self._parts(self.dataset[row]), row) for row in rows.tolist()], rows)


def samples(
    dataset: Foreign,
    *,
    input: str | None = None,  # noqa: A002 - what it is called everywhere in loom
    target: str | None = None,
    transform: Callable[[Any], Sequence[Any]] | None = None,
    classes: Sequence[str] | None = None,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    workers: int = 0,
    augment: Augment | None = None,
) -> Samples | Generated:
    """Makes batches of a data set that gives samples one by one.

    `net.fit(dataset)` does the same to a `torch.utils.data.Dataset` and to a `datasets.Dataset` as they are,
    and to those that are streamed, an `IterableDataset` of either, with the batch size, the seed and the
    shuffling of the training; a `torch.utils.data.DataLoader` gives batches already, and is used as it is.
    Orders are of loom's seed; a data set that draws by itself is its own affair.

    Args:
        dataset: What has `len(dataset)` and `dataset[number]`, or can be iterated again for each epoch; it
            gives (x, y), (x, y, weight), or a dictionary of columns; for inputs or outputs with names x or y
            are dictionaries. One with `set_epoch(number)` that is
            iterated is told each epoch's number.
        input: The column that is read, where samples are dictionaries; the only one beside the target where
            None.
        target: The column that is told; one called label, labels, target, targets or y where None.
        transform: Makes (x, y) or (x, y, weight) of what the data set gives, instead.
        classes: The names of the classes; those of Hugging Face's `ClassLabel` where None.
        batch_size: How many samples a batch has.
        shuffle: Whether the order is another one in each epoch; within windows of 8,192 samples where the
            data set can only be iterated.
        seed: What the order is drawn from.
        workers: How many threads ask the data set, which must allow it; none where 0. One that can only be
            iterated is asked by the caller's, and its batches are made ahead.
        augment: What is done to images, (channels, height, width) each.

    Returns:
        Batches, for `loom.train` and the like.

    Raises:
        DataError: Samples are of another form, or the data set is empty.
        ConfigError: A setting is out of range, or there is no such column.

    Examples:
        >>> class Squares:
        ...     def __len__(self): return 6
        ...     def __getitem__(self, row): return {"x": [row / 6], "label": row % 2}
        >>> [batch.target.tolist() for batch in loom.data.samples(Squares(), batch_size=4, shuffle=False)]
        [[0, 1, 0, 1], [0, 1]]
    """
    if isinstance(dataset, Mapping) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        # The rows of columns by name have no numbers.
        if isinstance(dataset, Mapping) or not isinstance(dataset, Iterable) or isinstance(dataset, Iterator):
            raise DataError(
                "samples takes what has len() and [number], or what can be iterated again for each epoch, "
                f"got {type(dataset).__name__}"
            )
        return _streamed(
            dataset,
            input,
            target,
            transform,
            classes,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            workers=workers,
            augment=augment,
        )
    if len(dataset) == 0:
        raise DataError("samples: the data set is empty")
    names = None if classes is None else class_names("samples", classes)
    parts, told = _parts_of(dataset[0], input, target, transform)
    if told is not None:
        names = names or _class_names(dataset, told)
    found = Samples(
        dataset, parts, batch_size=batch_size, shuffle=shuffle, seed=seed, workers=workers, augment=augment
    )
    found.classes = names
    return found


def adopted(data: Foreign, batch_size: int = 32, *, shuffle: bool = False, seed: int = 0) -> Foreign:
    """Returns batches of a data set that gives samples one by one; anything else as it is.

    Args:
        data: What was given as data.
        batch_size: How many samples a batch has.
        shuffle: Whether the order is another one in each epoch.
        seed: What the order is drawn from.
    """
    if isinstance(data, (str, bytes, Mapping, list, tuple)) or hasattr(data, "__array__"):
        return data
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    # Hugging Face's can be iterated, too, sample by sample.
    if (indexed and (not isinstance(data, Iterable) or _is_hugging_face(data))) or _is_streamed(data):
        return samples(data, batch_size=batch_size, shuffle=shuffle, seed=seed)
    return data


def _is_hugging_face(data: object) -> bool:
    return hasattr(data, "features") and hasattr(data, "column_names")


def _is_streamed(data: object) -> bool:
    """Whether it is an `IterableDataset` of PyTorch or Hugging Face, which gives samples and not batches."""
    modules = (sys.modules.get("torch.utils.data"), sys.modules.get("datasets"))
    kinds = [getattr(module, "IterableDataset", None) for module in modules]
    return any(isinstance(kind, type) and isinstance(data, kind) for kind in kinds)


def _streamed(
    dataset: Iterable[Any],
    said: str | None,
    told: str | None,
    transform: Callable[[Any], Sequence[Any]] | None,
    classes: Sequence[str] | None,
    *,
    batch_size: int,
    **settings: Foreign,
) -> Generated:
    features = getattr(dataset, "features", None)
    if transform is None and isinstance(features, Mapping):
        # What is wrong with the columns is said before anything is read.
        said, told = _columns(features, said, told)
        classes = classes or _class_names(dataset, told)

    def pieces(epoch: int) -> Iterator[tuple[Any, ...]]:
        set_epoch = getattr(dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        each = iter(dataset)
        first = next(each, None)
        if first is None:
            return
        parts, _ = _parts_of(first, said, told, transform)
        each, row = chain([first], each), 0
        while piece := list(islice(each, batch_size)):
            found = [_arrays(parts(sample), row + place) for place, sample in enumerate(piece)]
            x, y, weight = _joined(found, range(row, row + len(piece)))
            yield (x, y) if weight is None else (x, y, weight)
            row += len(piece)

    return generate(pieces, batch_size=batch_size, classes=classes, **settings)


def _parts_of(
    first: Foreign,
    said: str | None,
    told: str | None,
    transform: Callable[[Any], Sequence[Any]] | None,
) -> tuple[Callable[[Any], Sequence[Any]], str | None]:
    """Returns what makes (x, y) or (x, y, weight) of a sample like the first, and the target's column."""
    if transform is not None:
        return transform, None
    if isinstance(first, Mapping):
        read, target = _columns(first, said, told)
        return (lambda sample: (sample[read], sample[target])), target
    if said is not None or told is not None:
        raise ConfigError("samples: input= and target= name columns, and samples are no dictionaries")
    return (lambda sample: sample), None


def _arrays(parts: Foreign, row: int) -> tuple[Any, ...]:
    if not isinstance(parts, (tuple, list)) or len(parts) not in (2, 3):
        raise DataError(
            f"samples: sample {row} is no (x, y) or (x, y, weight), but {type(parts).__name__}; say "
            "what is which: loom.data.samples(dataset, input=..., target=...), or transform=..."
        )
    return tuple(_array(part) for part in parts)


def _joined(found: Sequence[tuple[Any, ...]], rows: Sequence[int] | NDArray[np.intp]) -> tuple[Any, Any, Any]:
    columns = list(zip(*found, strict=True))
    stacked = [
        _stacked(column, rows, name) for column, name in zip(columns, _PARTS[: len(columns)], strict=True)
    ]
    return stacked[0], stacked[1], stacked[2] if len(stacked) == 3 else None


def _columns(sample: Mapping[str, Any], said: str | None, told: str | None) -> tuple[str, str]:
    names = list(sample)
    for what, name in (("input", said), ("target", told)):
        if name is not None and name not in names:
            raise ConfigError(
                f"samples: {what} {shown(name)} is no column; there are {', '.join(map(repr, names))}"
            )
    if told is None:
        guesses = [name for name in _TARGETS if name in names]
        if not guesses:
            raise ConfigError(
                f"samples: which column is told? target= names one of {', '.join(map(repr, names))}"
            )
        told = guesses[0]
    if said is None:
        others = [name for name in names if name != told]
        if len(others) != 1:
            raise ConfigError(
                f"samples: which column is read? input= names one of {', '.join(map(repr, others))}"
            )
        said = others[0]
    return said, told


def _class_names(dataset: Foreign, told: str) -> tuple[str, ...] | None:
    features = getattr(dataset, "features", None)
    kind = features.get(told) if isinstance(features, Mapping) else None
    names = getattr(kind, "names", None)
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) and names else None


def _array(part: Foreign) -> Foreign:
    """Returns a part of a sample as an array; pictures of Pillow as (channels, height, width) from 0 to 1.

    A dictionary is one of such.
    """
    if isinstance(part, Mapping):
        return {name: _array(each) for name, each in part.items()}
    if hasattr(part, "getbands") and hasattr(part, "tobytes"):
        image = np.asarray(part.convert("L") if part.mode in ("1", "L") else part.convert("RGB"))
        planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
        return np.multiply(planes, np.float32(1.0 / 255.0), dtype=np.float32)
    return part if isinstance(part, str) else as_numpy(part, what="samples")


def _stacked(parts: Sequence[Any], rows: Sequence[int] | NDArray[np.intp], name: str) -> Any:  # noqa: ANN401
    """Returns the parts of several samples as one array, of dictionaries as one of arrays."""
    if isinstance(parts[0], Mapping):
        for row, part in zip(rows, parts, strict=True):
            if not isinstance(part, Mapping) or part.keys() != parts[0].keys():
                raise DataError(f"samples: {name} of sample {row} has other names than that of {rows[0]}")
        return {each: _stacked([part[each] for part in parts], rows, f'{name} "{each}"') for each in parts[0]}
    shapes = {np.shape(part) for part in parts}
    if len(shapes) > 1:
        first = np.shape(parts[0])
        place = next(place for place, part in enumerate(parts) if np.shape(part) != first)
        raise DataError(
            f"samples: {name} of sample {rows[0]} has the shape {first}, and that of sample {rows[place]} "
            f"{np.shape(parts[place])}; bring them to one, transform=..."
        )
    stacked: NDArray[Any] = np.stack([np.asarray(part) for part in parts])
    return stacked
