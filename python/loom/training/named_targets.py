"""What targets of named outputs say: what classes are called, and what losses of one's own take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom.convert import as_numpy
from loom.data import Classes, Data, TrainingBatch
from loom.data.foreign import adopted
from loom.data.labels import as_names
from loom.data.weights import counting
from loom.engine import Engine
from loom.engine.told import remember_classes_by_output
from loom.errors import ConfigError, DataError, DTypeError, LoomError, ShapeError
from loom.losses import OwnLoss
from loom.training.config import TrainingConfig
from loom.training.labelling import BINARY, are_no_indices, tabled, together, unequal, weighed
from loom.training.ported import metrics_under

__all__ = ["settled_by_targets"]


def settled_by_targets(
    engine: Engine, config: TrainingConfig, data: Data | None, *, learns: bool = False
) -> tuple[TrainingConfig, Data | None]:
    """Returns the config with what targets say, and the data.

    That is what losses of one's own take, by the first targets; and of which class each weight is.

    Args:
        engine: The network's; it is built where it has named outputs.
        config: A config that `settled_outputs` has made.
        data: As in `loom.train`.
        learns: Whether it is learned from: the network then remembers what labels there are.

    Raises:
        DataError: There are more or fewer labels than classes.
        ConfigError: A class that has a weight is none of the labels, or out of range.
    """
    ports = engine.ports
    if ports is None or not ports.outputs or data is None:
        return config, data
    engine.build()
    data = tabled(engine, data, learns=learns)
    data = adopted(data, batch_size=config.batch_size, shuffle=learns and config.shuffle, seed=config.seed)
    if learns:
        _learn(engine, config, data)
    config = weighed(engine, config)
    chosen = cast("Mapping[str, Any]", config.loss)
    open_ones = [name for name, loss in chosen.items() if isinstance(loss, OwnLoss) and loss.classes is None]
    if not open_ones:
        return config, data
    first, data = _first(data)
    if first is None:
        return config, data
    shapes, known = ports.output_shapes(), ports.labels()
    settled = dict(chosen)
    for name in open_ones:
        target = _target(first, name)
        if target is not None and _is_open(engine, name):
            # The first sample's, as a batch.
            target = np.asarray(next(iter(target), ()))[None]
        if target is None:
            # Whoever packs the targets says what is wrong with them.
            continue
        classes = name in known or losses.suited(shapes[name], as_names(target)) == "cross_entropy"
        settled[name] = chosen[name].of_classes(classes=classes)
    return replace(config, loss=settled, metrics=metrics_under(cast("Any", config.metrics), settled)), data


def _learn(engine: Engine, config: TrainingConfig, data: object) -> None:
    """Has the network remember the labels of each output that has some that are no class indices.

    Data is looked at that need not be gone through: arrays and lists of batches.

    Args:
        engine: The network's.
        config: A settled config.
        data: What it learns from.

    Raises:
        DataError: There are more or fewer labels than classes.
    """
    ports = engine.ports
    parts = _parts(data)
    if ports is None or parts is None:
        return
    known, found = ports.labels(), {}
    for name, shape in ports.output_shapes().items():
        if name in known:
            # Labels that are not among the classes are refused where they are looked up.
            continue
        targets = [_counting(part, name) for part in parts]
        if _is_open(engine, name):
            # Labels of all places, as if each were of a sample.
            targets = [_flat_labels(engine, part, name) for part in parts]
            shape = (losses.class_count(shape),)
        classes = _classes(config, name, shape, targets)
        if classes is not None:
            found[name] = classes
    if found:
        remember_classes_by_output(engine.native, found)


def _is_open(engine: Engine, name: str) -> bool:
    """Whether an output has the samples' extents."""
    return engine.sizing is not None and None in engine.sizing.named_output_shapes[name]


def _flat_labels(engine: Engine, part: object, name: str) -> NDArray[Any] | None:
    """Returns the labels of all places of an output that has the samples' extents; None where it has none."""
    target, sizing = _target(part, name), engine.sizing
    given: Any = TrainingBatch(*part) if isinstance(part, (tuple, list)) else part
    try:
        arrays = [as_names(each) for each in target]
        length = None if sizing is None else sizing.output_lengths[name]
        if sizing is not None and length is not None:
            own = sizing.samples(given.input).of_length(length)
            arrays = [array[: own.length(number)] for number, array in enumerate(arrays)]
        return np.concatenate([array.reshape(-1) for array in arrays])
    except (ConfigError, DataError, DTypeError, ShapeError, IndexError, TypeError, ValueError):
        # Whoever puts samples together says what is wrong with them.
        return None


def _classes(config: TrainingConfig, name: str, shape: tuple[int, ...], targets: list[Any]) -> Classes | None:
    loss = cast("Mapping[str, Any]", config.loss)[name]
    binary = shape == (1,) and losses.name_of(loss) in BINARY
    of_own = isinstance(loss, OwnLoss) and loss.classes is None
    if not (binary or of_own or losses.target_kind(loss) in {"classes", "indices"}):
        return None
    arrays: list[NDArray[Any]] = []
    for target in targets:
        if target is None:
            return None
        try:
            array = as_names(target)
        except (DTypeError, ShapeError, DataError):
            # Whoever packs the targets says what is wrong with them.
            return None
        if array.dtype.kind not in "Ubiu" or array.size == 0:
            return None
        arrays.append(array)
    labels = arrays[0] if len(arrays) == 1 else together(arrays)
    outputs = 2 if shape == (1,) else losses.class_count(shape)
    if labels is None or labels.ndim != len(shape) or (labels.dtype.kind == "b" and outputs != 2):
        # Truth among several classes is the first two of them.
        return None
    classes = Classes.of(labels)
    if classes.kind == "integer" and not are_no_indices(labels, outputs, len(classes.values)):
        return None
    if len(classes.values) != outputs:
        raise DataError(unequal(list(classes.names), outputs, name))
    return classes


def _parts(data: object) -> list[Any] | None:
    """Returns the batches of data that need not be gone through."""
    if isinstance(data, TrainingBatch):
        return [data]
    if isinstance(data, tuple) and data and not all(isinstance(each, TrainingBatch) for each in data):
        return [data]
    return list(data) if isinstance(data, (list, tuple)) and data else None


def _target(part: object, name: str) -> Any:  # noqa: ANN401 - of any form
    """Returns the target of an output; None where there is none."""
    if isinstance(part, (tuple, list)) and len(part) in {2, 3}:
        part = TrainingBatch(*part)
    target: Any = part.target if isinstance(part, TrainingBatch) else None
    try:
        return target[name]
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _counting(part: object, name: str) -> Any:  # noqa: ANN401 - of any form
    """Returns the target of an output, in which labels of weight 0 are such as count."""
    target = _target(part, name)
    if isinstance(part, (tuple, list)):
        part = TrainingBatch(*part) if len(part) == 3 else None
    weight: Any = part.weight if isinstance(part, TrainingBatch) else None
    weight = weight.get(name) if isinstance(weight, Mapping) else weight
    if target is None or weight is None:
        return target
    try:
        given, counts = as_names(target), as_numpy(weight, what="weight")
    except LoomError:
        # Whoever takes them says what is wrong with them.
        return target
    return counting(given, counts, labels=True) if counts.ndim == 1 or given.ndim > 1 else target


def _first(data: object) -> tuple[Any, Any]:
    """Returns the first batch of data, and the data, which is gone through once only."""
    parts = _parts(data)
    if parts is not None:
        return parts[0], data
    if isinstance(data, (str, bytes, Mapping, np.ndarray)) or not isinstance(data, Iterable):
        return None, data
    batches = iter(data)
    try:
        first = next(batches)
    except StopIteration:
        return None, data
    return first, chain([first], batches) if batches is data else data
