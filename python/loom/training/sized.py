"""Training of networks whose input has open extents: samples in batches of like ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data import ArraySource, Data, Padded, TrainingBatch
from loom.data.buckets import Buckets
from loom.data.extents import Samples, capacity
from loom.data.foreign import adopted
from loom.data.labels import as_names
from loom.data.sample_targets import SampleTargets, Targets
from loom.data.splitting import hold_out
from loom.data.weights import counting
from loom.engine import Engine
from loom.engine.labels import known_classes
from loom.engine.sizing import Sizing
from loom.errors import ConfigError, DataError, DTypeError, ShapeError
from loom.losses import CTC
from loom.training.automatic import settled_by_target
from loom.training.config import TrainingConfig
from loom.training.labelling import learn_classes
from loom.training.output_figures import target_kinds
from loom.training.output_targets import OutputTargets

__all__ = ["dealt", "told"]


def told(engine: Engine, config: TrainingConfig, data: Data) -> TrainingConfig:
    """Returns the config with what targets say: the loss where it is open, and labels that the network keeps.

    Args:
        engine: The network's, of open extents.
        config: The config.
        data: What is learned from.
    """
    pair = _pair(data)
    sizing = engine.sizing
    if sizing is None or isinstance(config.loss, Mapping):
        return config
    if pair is None:
        return learn_classes(engine, config, _targets_of(sizing, data))
    target: Foreign = pair.target
    if sizing.has_steps or None in sizing.output_shape:
        labels = _labels_of_steps(sizing, pair)
        if labels is not None:
            # Class indices beyond the outputs are refused where samples are put together, which says whose.
            steps = TrainingBatch(np.zeros((1, 1)), labels[None])
            config = learn_classes(engine, config, steps, refuses=False)
        # One sample's, as a batch: of each step there is a class index, or numbers.
        return settled_by_target(engine, config, np.asarray(next(iter(target), ()))[None])
    # Labels and losses are a matter of targets alone.
    config = learn_classes(engine, config, TrainingBatch(np.zeros((len(target), 1)), target))
    return settled_by_target(engine, config, target)


def _targets_of(sizing: Sizing, data: object) -> list[TrainingBatch]:
    """Returns what targets of a list of batches may be labels; nothing where batches come when asked for."""
    given = data if isinstance(data, (list, tuple)) else ()
    batches = [
        TrainingBatch(*each) if isinstance(each, tuple) and 2 <= len(each) <= 3 else each for each in given
    ]
    if not all(isinstance(each, TrainingBatch) and _has_rows(each.target) for each in batches):
        return []
    if not (sizing.has_steps or None in sizing.output_shape):
        return [
            TrainingBatch(np.zeros((len(cast("Any", batch.target)), 1)), batch.target) for batch in batches
        ]
    found = [labels for batch in batches if (labels := _labels_of_steps(sizing, batch)) is not None]
    if not found or len(found) < len(batches):
        return []
    return [TrainingBatch(np.zeros((1, 1)), np.concatenate(found)[None])]


def _labels_of_steps(sizing: Sizing, pair: TrainingBatch) -> NDArray[Any] | None:
    """Returns the labels of all real steps; None where steps have numbers."""
    targets: list[Any] = list(cast("Any", pair.target))
    try:
        if not targets or as_names(targets[0]).dtype.kind not in "Ubiu":
            return None
        if not sizing.has_steps:
            # Samples go through as they are, without padding.
            return _counting([as_names(each).reshape(-1) for each in targets], pair.weight)
        samples = sizing.samples(pair.input).of_length(sizing.output_lengths[""])
        if len(samples) != len(targets):
            return None
        parts = [as_names(each)[: samples.length(n)] for n, each in enumerate(targets)]
        return _counting(parts, pair.weight)
    except (DataError, DTypeError, ShapeError, IndexError, ValueError):
        # Whoever puts samples together says what is wrong with them.
        return None


def dealt(
    engine: Engine, config: TrainingConfig, data: Data | None, *, learns: bool = False
) -> tuple[Data | None, Data | None]:
    """Returns data as the engine takes it, in batches of samples of like extents; and what is held out of it.

    Args:
        engine: The network's.
        config: The config.
        data: (x, y) or (x, y, weight), a `TrainingBatch`, or an iterable of either, with lists of arrays,
            arrays or `Padded` as x, of named inputs dictionaries of such.
        learns: Whether it is learned from, so that it is shuffled where the config says so, and cut in two.

    Raises:
        DataError, ShapeError, DTypeError: As of `Samples` and `Buckets`.
    """
    sizing = engine.sizing
    if sizing is None or data is None:
        return data, None
    size = config.batch_size if learns else config.validation_batch_size or config.batch_size
    shuffle = learns and config.shuffle
    # Batches that are added up have the same extents.
    alike = config.accumulate if learns else 1
    data = adopted(data, batch_size=size, shuffle=shuffle, seed=config.seed)
    pair = _pair(data)
    if pair is None:
        if isinstance(data, (str, bytes, dict)) or not isinstance(data, Iterable):
            raise DataError(
                "data must be a tuple (x, y) or (x, y, weight), a TrainingBatch, or an iterable of them, "
                f"got {type(data).__name__}"
            )
        if learns and config.validation_split > 0:
            raise DataError("validation_split needs data in arrays or lists; give validation= for batches")
        batches = _Batches(data, sizing, _aim(engine, config), alike)
        return (iter(batches) if iter(data) is data else cast("Data", batches)), None
    if pair.weight is not None and not isinstance(pair.weight, Mapping) and not _counts(pair.weight):
        raise DataError("data: the weight of every sample is zero, and at least one must count")
    aim = _aim(engine, config)
    held = None
    if learns and config.validation_split > 0:
        pair, held = _held_out(pair, config.validation_split)
        held = _buckets(sizing, held, config.validation_batch_size or config.batch_size, aim)
    return _buckets(sizing, pair, size, aim, shuffle=shuffle, seed=config.seed, alike=alike), held


_Aim: TypeAlias = "Callable[[Any, TrainingBatch], Targets]"


def _aim(engine: Engine, config: TrainingConfig) -> _Aim:
    """Returns what makes targets of samples and a pair that holds them."""
    sizing, ports = engine.sizing, engine.ports
    assert sizing is not None
    if ports is not None and sizing.has_open_outputs:
        kinds, labels = target_kinds(cast("Mapping[str, Any]", config.loss)), ports.labels()
        return lambda samples, pair: OutputTargets(
            ports, sizing, samples, pair.target, pair.weight, kinds=kinds, labels=labels
        )
    classes = known_classes(engine).get("")
    if not sizing.has_steps:
        return lambda samples, pair: SampleTargets(samples, pair.target, pair.weight, classes=classes)
    length = sizing.output_lengths[""] or 0
    in_order = isinstance(config.loss, CTC)

    def of_steps(samples: Any, pair: TrainingBatch) -> Targets:  # noqa: ANN401 - of any form
        own = samples.of_length(length)
        if in_order:
            _check_labels_in_order(own, pair.target)
        return SampleTargets(
            own, pair.target, pair.weight, room=lambda: sizing.steps()[length], classes=classes
        )

    return of_steps


def _check_labels_in_order(samples: Samples, target: Foreign) -> None:
    """Refuses what a loss of whole sequences cannot be computed of, before targets of steps are spoken of."""
    steps = [samples.length(number) for number in range(len(samples))]
    if set(steps) != {capacity(max(steps))}:
        raise ConfigError(
            "loss ctc: it is one number for each sequence, in which the padding that sequences of any length "
            "get would count as steps. Such learn in a loop by hand, net.forward and net.backward of lists, "
            "with loom.losses.CTC of each: docs/guides/any-length.md#labels-in-order"
        )
    if any(len(each) != steps[0] for each in target):
        raise ShapeError(
            "loss ctc: labels come first, and -1 behind them at as many places as the sequence has steps: "
            f"loom.losses.padded_labels(labels, {steps[0]})"
        )


def _counting(parts: list[NDArray[Any]], weight: Foreign) -> NDArray[Any]:
    """Returns the labels of all steps or pixels in a row; those of weight 0 are such as count."""
    labels = np.concatenate(parts)
    if not isinstance(weight, (list, tuple, np.ndarray)) or len(weight) != len(parts):
        return labels
    lengths = [len(part) for part in parts]
    of_steps = [
        np.broadcast_to(one if np.ndim(one) == 0 else np.asarray(one).reshape(-1)[:length], length)
        for one, length in zip(weight, lengths, strict=True)
    ]
    return counting(labels, np.concatenate(of_steps), labels=True)


def _pair(data: object) -> TrainingBatch | None:
    """Returns data that is a single pair; None where it is iterated."""
    if isinstance(data, tuple) and data and not all(isinstance(each, TrainingBatch) for each in data):
        if len(data) not in {2, 3}:
            raise DataError(f"data: expected (x, y) or (x, y, weight), got a tuple of {len(data)}")
        data = TrainingBatch(*data)
    if not isinstance(data, TrainingBatch):
        return None
    if not _has_rows(data.target):
        raise DataError(
            f"data: targets are one for each sample, in an array or a list, got {shown(data.target)}"
        )
    return data


def _has_rows(target: Foreign) -> bool:
    try:
        len(target)
    except TypeError:
        return False
    return True


def _buckets(
    sizing: Sizing,
    pair: TrainingBatch,
    size: int,
    aim: _Aim,
    *,
    shuffle: bool = False,
    seed: int = 0,
    alike: int = 1,
) -> Foreign:
    samples = sizing.samples(pair.input)
    buckets = Buckets(
        samples,
        aim(samples, pair),
        batch_size=size,
        shuffle=shuffle,
        seed=seed,
        pack=sizing.together,
        alike=alike,
    )
    if shuffle and sizing.refusal is not None and 2 * len(samples) < len(buckets) * min(size, len(samples)):
        warnings.warn(
            f"batches hold sequences of one length only, {len(samples) / len(buckets):.1f} on average "
            f"instead of {size}: {sizing.refusal}. Layers that leave padding out are recurrent ones, "
            "attention, SequencePool and whatever works on each step by itself",
            stacklevel=2,
        )
    return buckets


def _of_step(sizing: Sizing, items: Sequence[object], aim: _Aim) -> Iterator[TrainingBatch]:
    """Yields the batches of a step as the engine takes them, with room for the steps of all of them."""
    given: list[tuple[Any, TrainingBatch]] = []
    for item in items:
        pair = _pair(tuple(item) if isinstance(item, list) else item)
        if pair is None:
            raise DataError(f"expected a TrainingBatch, (x, y) or (x, y, weight), got {type(item).__name__}")
        samples = sizing.samples(pair.input)
        if len({samples.size(number) for number in range(len(samples))}) > 1:
            raise DataError(
                "a batch has samples of different sizes; give batches of one size, or the whole data set as "
                "lists"
            )
        given.append((samples, pair))
    lengths = [samples.lengths(number) for samples, _ in given for number in range(len(samples))]
    for samples, pair in given:
        everything, targets = range(len(samples)), aim(samples, pair)
        rows = sizing.together(samples, everything, lengths)
        yield TrainingBatch(rows, *targets.batch(everything, rows.dtype))


def _counts(weight: Foreign) -> bool:
    """Whether any weight is other than zero: of samples, or of each one's steps in lists of arrays."""
    each = weight if isinstance(weight, (list, tuple)) else (weight,)
    return any(np.any(as_numpy(one) if hasattr(one, "__len__") else one) for one in each)


def _held_out(pair: TrainingBatch, fraction: float) -> tuple[TrainingBatch, TrainingBatch]:
    """Holds out the last samples."""
    rows = _count(pair.target)
    places = np.arange(rows)
    both = hold_out(ArraySource(TrainingBatch(places, places), rows), fraction)
    cuts = [np.asarray(source.batch.input) for source in both]
    first, last = (slice(int(cut[0]), int(cut[-1]) + 1) for cut in cuts)
    return _cut(pair, first), _cut(pair, last)


def _cut(pair: TrainingBatch, rows: slice) -> TrainingBatch:
    return TrainingBatch(*(_part(each, rows) for each in (pair.input, pair.target, pair.weight)))


def _count(given: Foreign) -> int:
    """Returns how many rows there are, of a dictionary in its first part."""
    found: int = len(next(iter(given.values()), ())) if isinstance(given, Mapping) else len(given)
    return found


def _part(given: Foreign, rows: slice) -> Any:  # noqa: ANN401 - of the form that it has
    """Returns some rows of samples, targets or weights, of a dictionary those of each part."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {name: _part(each, rows) for name, each in given.items()}
    if isinstance(given, Padded):
        values, lengths = np.asarray(given.values), np.asarray(given.lengths)
        return Padded(values[rows], lengths[rows])
    return (given.to_numpy() if hasattr(given, "to_numpy") else given)[rows]


class _Batches:
    """Batches that are packed as they come, of data that is iterated anew for every epoch.

    Args:
        batches: The data.
        sizing: What its samples go through.
        aim: What makes targets of samples and a pair that holds them.
        alike: How many batches, one after the other, have room for the same steps.
    """

    def __init__(self, batches: Iterable[Any], sizing: Sizing, aim: _Aim, alike: int) -> None:
        self._batches, self._sizing, self._aim, self._alike = batches, sizing, aim, alike

    def __iter__(self) -> Iterator[TrainingBatch]:
        batches = iter(self._batches)
        while items := list(self._taken(batches)):
            yield from _of_step(self._sizing, items, self._aim)

    def _taken(self, batches: Iterator[Any]) -> Iterator[Any]:
        for place, item in enumerate(islice(batches, self._alike), 1):
            # Whoever makes the data as it is asked for may write the next batch where this one is.
            yield item if place == self._alike or self.is_at_hand else deepcopy(item)

    def __len__(self) -> int:
        return len(cast("Any", self._batches))

    @property
    def is_at_hand(self) -> bool:
        """Whether going through it changes nothing, and gives the same each time."""
        return bool(getattr(self._batches, "is_at_hand", isinstance(self._batches, (list, tuple))))

    def __getattr__(self, name: str) -> object:
        # What the data says of its epochs and its position.
        if name in {"set_epoch", "state_dict", "load_state_dict", "identity"}:
            return getattr(self._batches, name)
        raise AttributeError(name)
