"""How well a network does on data, in reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._settings.logits import OF_LOGITS, OF_MARGINS
from loom.convert import as_numpy
from loom.data import ArraySource, Data, TrainingBatch, as_source
from loom.data.extents import Padded
from loom.data.foreign import adopted
from loom.engine import engine_of
from loom.engine.labels import indexed, known_classes
from loom.errors import ConfigError, DataError, ShapeError
from loom.network import Network
from loom.reports import ClassificationReport, DeviationReport, RegressionReport
from loom.reports.deviation import deviation_under
from loom.training.labelling import as_known
from loom.training.record import record_of

__all__ = ["answers_of_open_extents", "classification", "deviation", "regression"]


def deviation(
    network: Network,
    data: Data,
    *,
    loss: losses.LossLike | None = None,
    worst: int = 10,
    batch_size: int = 256,
) -> DeviationReport:
    """Reports how far a network's outputs are from targets, in per cent of these.

    Args:
        network: The network.
        data: (x, y) arrays, a `TrainingBatch`, or an iterable of either; of open extents also lists and
            `loom.data.Padded`. Where outputs have steps of their own, each is a row, one sample behind the
            other.
        loss: What the network was trained for, which says what its outputs mean: classes under
            cross_entropy and nll, logits of probabilities under binary_cross_entropy and dice. That of the
            last training in this process where None, or else what the targets' shape says.
        worst: How many of the worst answers are listed.
        batch_size: How many samples are computed at a time.

    Returns:
        The report; see `DeviationReport.of` for what is compared.

    Raises:
        DataError: The data is empty, of unequal length, or of no known form.
        ShapeError: It does not fit the network.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2)
        >>> loom.analysis.deviation(net, (np.eye(2), [0, 2])).compared
        'classes'
    """
    outputs, targets = _outputs(network, data, batch_size)
    return deviation_under(_loss(network, loss), outputs, targets, worst=worst)


def classification(
    network: Network,
    data: Data,
    names: Sequence[str] | None = None,
    *,
    logits: bool | None = None,
    bins: int = 10,
    batch_size: int = 256,
) -> ClassificationReport:
    """Reports how well a network tells classes apart.

    Args:
        network: The network.
        data: (x, y) arrays, a `TrainingBatch`, or an iterable of either; of open extents also lists and
            `loom.data.Padded`. Where outputs have steps of their own, each is a row, one sample behind the
            other.
        names: The names of the classes; where None their labels, as far as the network knows them, or their
            numbers.
        logits: Whether the outputs are logits, rather than probabilities. Where None, single outputs are
            if the network was trained by a loss of scores, such as binary_cross_entropy or dice; others as
            `ClassificationReport.of` says.
        bins: How many bins the calibration has.
        batch_size: How many samples are computed at a time.

    Returns:
        The report.

    Raises:
        DataError: The data is empty, of unequal length, or of no known form; or a label names no class.
        ShapeError: It does not fit the network.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2)
        >>> loom.analysis.classification(net, (np.eye(2), [0, 2]), ["a", "b", "c"]).confusion.shape
        (3, 3)
    """
    outputs, targets = _outputs(network, data, batch_size)
    loss = _loss(network, None)
    if logits is None and loss in OF_LOGITS:
        logits = True
    if loss in OF_MARGINS and bool((targets < 0).any()):
        # Theirs are -1 and 1.
        targets = (targets > 0).astype(np.int64)
    known = known_classes(engine_of(network)).get("")
    if names is None and known is not None:
        names = known.names
    return ClassificationReport.of(outputs, targets, names, logits=logits, bins=bins)


def regression(
    network: Network, data: Data, names: Sequence[str] | None = None, *, batch_size: int = 256
) -> RegressionReport:
    """Reports how near a network's outputs are to targets.

    Args:
        network: The network.
        data: (x, y) arrays, a `TrainingBatch`, or an iterable of either; of open extents also lists and
            `loom.data.Padded`. Where outputs have steps of their own, each is a row, one sample behind the
            other.
        names: The names of the outputs; their numbers where None.
        batch_size: How many samples are computed at a time.

    Returns:
        The report.

    Raises:
        DataError: The data is empty, of unequal length, or of no known form.
        ShapeError: It does not fit the network.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=2)
        >>> loom.analysis.regression(net, (np.eye(2), [0.0, 1.0])).residuals.shape
        (2, 1)
    """
    return RegressionReport.of(*_outputs(network, data, batch_size), names)


def _outputs(network: Network, data: Data, batch_size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a network answers to data, and the targets; real ones in the network's own precision."""
    if not isinstance(network, Network):
        raise ConfigError(f"expected a loom.Network, got {network!r}")
    engine = engine_of(network)
    engine.build()
    if engine.sizing is not None:
        return answers_of_open_extents(network, data, batch_size)
    source = as_source(as_known(engine_of(network), data, None))
    classes = known_classes(engine_of(network)).get("")
    batches = [source.batch] if isinstance(source, ArraySource) else source
    pairs = [
        (network.predict(batch.input, batch_size), as_numpy(indexed(batch.target, classes)).copy())
        for batch in batches
    ]
    outputs, targets = map(np.concatenate, zip(*pairs, strict=True))
    return outputs, targets.astype(outputs.dtype) if targets.dtype.kind == "f" else targets


def _loss(network: Network, loss: losses.LossLike | None) -> str | None:
    if loss is None:
        trained = record_of(network).judged_by
        loss = None if trained is None else cast("losses.LossLike", trained.loss)
    return None if loss is None else losses.read_as(loss)


def answers_of_open_extents(
    network: Network, data: Data, batch_size: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns what a network of open extents answers to data, and the targets, in the order of the samples.

    Args:
        network: The network, of one output.
        data: (x, y) with lists, arrays or `Padded`, a `TrainingBatch`, or an iterable of either.
        batch_size: How many samples are computed at a time.

    Returns:
        (rows, ...) each; a row is a sample, or a step or place where outputs have extents of their own.
    """
    engine = engine_of(network)
    classes = known_classes(engine).get("")
    given: Any = adopted(data, batch_size=batch_size, shuffle=False, seed=0)
    single = isinstance(given, TrainingBatch) or (
        isinstance(given, tuple) and not all(isinstance(each, TrainingBatch) for each in given)
    )
    outputs: list[NDArray[Any]] = []
    targets: list[NDArray[Any]] = []
    for item in [given] if single else given:
        pair: Any = (item.input, item.target) if isinstance(item, TrainingBatch) else item
        x, y = pair[:2]
        found: Any = network.predict(x, batch_size)
        if isinstance(found, dict):
            raise ConfigError("a report is of one output; make one for each, of what predict gives")
        if isinstance(x, Padded) and engine.sizing is not None and None in engine.sizing.output_shape:
            found = [each[:length] for each, length in zip(found, np.asarray(x.lengths), strict=True)]
        if len(found) != len(y):
            raise DataError(f"data: input has {len(found)} samples but there are {len(y)} targets")
        if not isinstance(found, list):
            outputs.append(found)
            targets.append(as_numpy(indexed(y, classes)))
            continue
        for number, (output, target) in enumerate(zip(found, y, strict=True)):
            wanted = as_numpy(indexed(target, classes), what=f"data: the target of sample {number}")
            if output.ndim < 3:
                # Of padded samples targets may be padded, too.
                wanted = wanted[: len(output)]
            outputs.append(_in_rows(output))
            targets.append(_in_rows(wanted) if wanted.ndim == output.ndim else wanted.reshape(-1))
            if len(outputs[-1]) != len(targets[-1]):
                raise ShapeError(
                    f"data: sample {number} is answered by shape {output.shape}, its target has "
                    f"{wanted.shape}"
                )
    if not outputs:
        raise DataError("data: there are no samples")
    return np.concatenate(outputs), np.concatenate(targets)


def _in_rows(output: NDArray[Any]) -> NDArray[Any]:
    """Returns the steps of a sequence, or the places of an image whose channels come first, one a row."""
    return output if output.ndim < 3 else np.moveaxis(output, 0, -1).reshape(-1, len(output))
