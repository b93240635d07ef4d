"""Labels, frames and data sets of other packages on their way into training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._typing import Foreign
from loom.convert import as_numpy
from loom.data import ArraySource, Classes, Data, Source, Table, TrainingBatch
from loom.data.batches import is_single
from loom.data.foreign import adopted
from loom.data.frames import is_frame
from loom.data.labels import as_names
from loom.data.weights import counting
from loom.engine import Engine
from loom.engine.labels import BINARY, compares_labels, fitting, indexed, known_classes
from loom.engine.told import classes_of, encoder_of, forget_classes, remember_classes, remember_encoder
from loom.errors import ConfigError, DataError, DTypeError, ShapeError
from loom.losses import AUTO
from loom.training.config import TrainingConfig, by_output

SourceT = TypeVar("SourceT", bound=Source)

__all__ = [
    "BINARY",
    "are_no_indices",
    "as_known",
    "indexed",
    "learn_classes",
    "tabled",
    "takes_labels",
    "together",
    "unequal",
    "weighed",
    "with_indices",
]


def as_known(engine: Engine, data: Data, config: TrainingConfig | None, *, learns: bool = False) -> Data:
    """Returns data in a form that `as_source` takes: frames by the network's encoder, data sets as batches.

    Args:
        engine: The network's.
        data: What was given.
        config: The batch size, the seed and whether to shuffle, for data sets that are indexed.
        learns: Whether the network keeps the encoder of a table from now on.

    Raises:
        DataError: It is a frame, and the network has no encoder.
    """
    data = tabled(engine, data, learns=learns)
    if isinstance(data, Table):
        return data
    found: Data
    if config is None:
        found = adopted(data)
    else:
        shuffle = learns and config.shuffle
        found = adopted(data, batch_size=config.batch_size, shuffle=shuffle, seed=config.seed)
    return found


def tabled(engine: Engine, data: Data, *, learns: bool = False) -> Data:
    """Returns the table that the network's encoder makes of a frame; other data as it is.

    Args:
        engine: The network's.
        data: What was given.
        learns: Whether the network keeps the encoder of a table from now on.

    Raises:
        DataError: It is a frame, and the network has no encoder.
    """
    if isinstance(data, Table):
        if learns:
            remember_encoder(engine.native, data.encoder)
        return data
    encoder = getattr(data, "encoder", None)
    if learns and encoder is not None and hasattr(encoder, "to_config"):
        remember_encoder(engine.native, encoder)
    if is_frame(data):
        known = encoder_of(engine.native)
        if known is not None:
            return Table(known(data), known.targets(data), None, encoder=known)
        if not isinstance(data, dict):
            raise DataError(
                f"data: a {type(data).__module__.partition('.')[0]} frame does not say what is told of it; "
                "make a table of it, table = loom.data.columns(frame, target=...), and give that"
            )
    return data


def takes_labels(config: TrainingConfig, output_shape: tuple[int, ...]) -> bool:
    """Whether targets may be labels: under losses that compare classes, or where the loss is open.

    Args:
        config: How the training goes.
        output_shape: One sample's output, without the batch.
    """
    if isinstance(config.loss, Mapping):
        # Several outputs have their targets by name.
        return False
    return compares_labels(config.loss, output_shape)


def learn_classes(
    engine: Engine, config: TrainingConfig, data: Data, *, refuses: bool = True
) -> TrainingConfig:
    """Has the network remember what labels there are, if data has labels that are no class indices.

    Args:
        engine: The network's; it is built if there may be labels.
        config: How the training goes.
        data: What it learns from.
        refuses: Whether class indices beyond the outputs are an error.

    Returns:
        The config; with the loss that suits classes, where it is open and the data names its classes; and
        with weights of classes in the order of the outputs, as `weighed` gives them.

    Raises:
        ConfigError: A class that has a weight is none of the labels.
        DataError: There are more or fewer labels than outputs, or class indices beyond them.
    """
    return weighed(engine, _learned(engine, config, data, refuses=refuses))


def weighed(engine: Engine, config: TrainingConfig) -> TrainingConfig:
    """Returns the config with a weight for each class, in the order of the outputs.

    Whoever says how much 7 counts, among labels 3, 7 and 40, means the label and no place. Weights of the
    classes of named outputs become lists here, whatever they are called; of a single output without labels
    they stay as they are.

    Args:
        engine: The network's; it is built where it has named outputs.
        config: The config, of named outputs one that `settled_outputs` has made.

    Raises:
        ConfigError: A class that has a weight is none of the labels, or out of range.
    """
    given = config.class_weight
    if not isinstance(given, Mapping):
        return config
    if by_output(given):
        ports = engine.ports
        assert ports is not None
        known, shapes = ports.labels(), ports.output_shapes()
        found = {
            name: losses.expand_class_weight(
                _by_label(weights, known.get(name), name), losses.class_count(shapes[name])
            )
            for name, weights in cast("Mapping[str, losses.ClassWeight]", given).items()
        }
        return replace(config, class_weight=cast("Any", found))
    return replace(config, class_weight=_by_label(cast("Any", given), known_classes(engine).get("")))


def _by_label(
    given: losses.ClassWeight, classes: Classes | None, output: str | None = None
) -> losses.ClassWeight:
    """Returns a weight for each class in the order of the outputs, where weights are given by label."""
    if not isinstance(given, Mapping):
        return given
    weights = cast("Mapping[Any, float]", given)
    where = "" if output is None else f' of output "{output}"'
    text = next((label for label in weights if isinstance(label, str)), None)
    known = set() if classes is None else set(classes.values)
    if classes is not None and classes.kind == "text":
        # Of text that is a number only the number is left; numbers that are no label are class indices.
        named = {str(label): weight for label, weight in weights.items()}
        by_label = text is not None or known >= set(named)
        weights = named if by_label else weights
    elif text is not None:
        learned = "no labels" if classes is None else f"the labels {', '.join(classes.names[:10])}"
        raise ConfigError(
            f'class_weight{where} names class "{text}", but the network has learned {learned}; train on '
            "targets that are text, or give weights by class index: class_weight={1: 5.0}"
        )
    else:
        by_label = classes is not None and classes.kind == "integer"
    if classes is None or not by_label:
        return weights
    for label in weights:
        if label not in known:
            raise ConfigError(
                f"class_weight{where} names class {label}, which is none of the labels: "
                f"{', '.join(classes.names[:10])}{', ...' if len(classes.names) > 10 else ''}"
            )
    return [weights.get(label, 1.0) for label in classes.values]


def _learned(engine: Engine, config: TrainingConfig, data: Data, *, refuses: bool) -> TrainingConfig:
    named = getattr(data, "classes", None)
    named = named if isinstance(named, (tuple, list)) and named else None
    if config.loss != AUTO and not _may_have_labels(config):
        return config
    found = None if named is not None else _labels(data)
    if named is None and found is None:
        return config
    engine.build()
    shape = tuple(engine.native.output_shape())
    if not takes_labels(config, shape):
        return config
    outputs = 2 if shape == (1,) else losses.class_count(shape)
    if named is not None:
        if len(named) != outputs:
            raise DataError(unequal(list(map(str, named)), outputs))
        if fitting(classes_of(engine.native), shape) is None:
            forget_classes(engine.native)
            remember_classes(engine.native, Classes("text", tuple(map(str, named))))
        return replace(config, loss="cross_entropy") if config.loss == AUTO else config
    if found is None or found.ndim != len(shape) or fitting(classes_of(engine.native), shape) is not None:
        # Labels that are not among the classes are refused where they are looked up.
        return config
    forget_classes(engine.native)
    classes = Classes.of(found)
    if classes.kind == "integer" and not are_no_indices(found, outputs, len(classes.values)):
        # Those of batches are refused where they come. What other losses call classes need not be outputs.
        loss = config.loss
        compared = loss == AUTO or (losses.is_classification(loss) and not losses.is_own(loss))
        indices = compared and shape != (1,)
        if refuses and indices and is_single(data):
            _check_indices(found, outputs)
        return config
    if len(classes.values) != outputs:
        raise DataError(unequal(list(classes.names), outputs))
    remember_classes(engine.native, classes)
    return config


def _may_have_labels(config: TrainingConfig) -> bool:
    if isinstance(config.loss, Mapping):
        return False
    loss = config.loss
    return losses.is_classification(loss) or losses.is_undecided(loss) or losses.name_of(loss) in BINARY


def unequal(names: list[str], outputs: int, output: str | None = None) -> str:
    """Says that there are more or fewer labels than classes.

    Args:
        names: The labels.
        outputs: How many classes the network tells.
        output: The output that tells them, where it has a name.
    """
    listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    where, named = "target", "[...]"
    if output is not None:
        where, named = f'target of output "{output}"', f'{{"{output}": [...]}}'
    return (
        f"{where}: there are {len(names)} labels ({listed}), but the network tells {outputs} classes; give "
        f"the last layer {len(names)} units, or name all classes, net.card = loom.ModelCard(labels={named})"
    )


def _check_indices(labels: NDArray[Any], outputs: int) -> None:
    """Refuses class indices that are too large for the outputs, with what is to be done."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high < outputs:
        return
    row = int(np.argmax(labels.reshape(len(labels), -1).max(axis=1) >= outputs))
    remedy = (
        f"labels go from {low} to {high}: y - {low} numbers them from 0, and with y.astype(str) the network "
        "keeps them as names"
        if low > 0 and high - low < outputs
        else f"give the last layer {high + 1} units, or, where {high} says that something is not to count, a "
        "weight of 0 there"
    )
    raise DataError(
        f"class index {int(labels[row].max())} of row {row} is out of range: there are {outputs} classes, "
        f"numbered from 0 to {outputs - 1}; {remedy}"
    )


def are_no_indices(labels: NDArray[Any], outputs: int, kinds: int) -> bool:
    """Whether whole numbers name as many classes as there are outputs, with gaps between them.

    Numbers without gaps that begin elsewhere than at 0 are a mistake more often than names.

    Args:
        labels: The numbers.
        outputs: How many classes the network tells.
        kinds: How many different numbers there are.
    """
    low, high = int(labels.min()), int(labels.max())
    return kinds == outputs and low >= 0 and high - low >= kinds


def _labels(data: Data) -> NDArray[Any] | None:
    """Returns labels of data that can be looked at without going through it; None where there are none."""
    single = is_single(data)
    if not single and not isinstance(data, (list, tuple)):
        return None
    parts: list[Any] = [data] if single else list(cast("list[Any]", data))
    found = []
    for part in parts:
        target = part.target if isinstance(part, TrainingBatch) else _part(part, 1)
        weight = part.weight if isinstance(part, TrainingBatch) else _part(part, 2)
        if target is None:
            return None
        try:
            array = as_names(target)
            if weight is not None and not isinstance(weight, Mapping):
                array = counting(array, as_numpy(weight, what="weight"), labels=True)
        except (DTypeError, ShapeError):
            # Whoever takes the targets says what is wrong with them.
            return None
        if array.dtype.kind not in "Ubiu" or array.size == 0:
            return None
        found.append(array)
    return found[0] if len(found) == 1 else together(found)


def together(found: list[NDArray[Any]]) -> NDArray[Any] | None:
    """Returns arrays one behind the other; None where they have other extents, or are of other kinds.

    Args:
        found: The arrays.
    """
    # A single number has no rows.
    extents = {array.shape[1:] if array.ndim else None for array in found}
    same = len({array.dtype.kind for array in found}) == 1 and len(extents) == 1 and None not in extents
    return np.concatenate(found) if same else None


def _part(part: object, number: int) -> Foreign:
    """Returns the target of a pair, 1, or its weight, 2; None where there is none."""
    known = isinstance(part, (tuple, list)) and number < len(part) <= 3
    return cast("Any", part)[number] if known else None


def with_indices(source: SourceT, classes: Classes | None) -> SourceT:
    """Returns a data set whose labels are class indices, if it is in arrays.

    Args:
        source: The data set.
        classes: The network's.
    """
    if not isinstance(source, ArraySource):
        return source
    target = indexed(source.batch.target, classes)
    if target is source.batch.target:
        return source
    return replace(source, batch=replace(source.batch, target=as_numpy(target)))
