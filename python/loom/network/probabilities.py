"""Classes and their probabilities: what a network's outputs mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.calls import explained
from loom._settings.logits import OF_LOGITS
from loom._typing import ArrayLike, RealArray
from loom.engine import engine_of
from loom.engine.told import classes_by_output, classes_of
from loom.errors import ShapeError, StateError
from loom.network.inference import predict
from loom.reports.outputs import class_axis
from loom.training.record import record_of

if TYPE_CHECKING:
    from loom.data import Classes
    from loom.engine import Engine
    from loom.engine.ports import Ports
    from loom.training.trainable import TrainableNetwork

__all__ = ["ending", "predict_classes", "predict_probabilities", "threshold"]

_OF_SCORES = ("cross_entropy", "focal", "binary_cross_entropy", "binary_focal", "kl_divergence", "ctc")
"""Losses that apply the softmax or the sigmoid by themselves, whatever stands before."""
_OF_CLASSES = (*_OF_SCORES, "nll")


@explained()
def predict_classes(self: TrainableNetwork, x: ArrayLike, batch_size: int = 256) -> NDArray[Any]:
    """Returns the most likely class of each sample, by the label that it had in training.

    Args:
        x: As in `predict`.
        batch_size: How many are computed at a time.

    Returns:
        (rows, ...) without the class axis: labels, where the network has learned from labels or its card
        names them, otherwise class indices. A single output, of a sample, a step or a pixel, tells two
        classes. Where a loss takes its sigmoid, as "binary_cross_entropy" and "dice" do, or compares it with
        margins, as "hinge" does, it means class 1 above 0; by losses that compare it with 0 and 1, such as
        "mse", it does above 0.5. Where no loss is known it is a probability, cut at 0.5, if the network ends
        in a sigmoid, and otherwise a score, cut at 0. Of samples in a list whose outputs have steps of their
        own, a list of arrays. Of named outputs a dictionary of those that have several values, or labels.
        Where several labels may be right at once, `predict_probabilities(x) > 0.5` says which.

    Raises:
        ShapeError: The outputs are no classes, or the samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.
        StateError: The network is training in another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=2, seed=1)
        >>> x = np.eye(2).repeat(8, axis=0)
        >>> _ = net.fit(x, ["cat"] * 8 + ["dog"] * 8, epochs=200, learning_rate=0.1, verbose=False)
        >>> net.predict_classes(np.eye(2)).tolist()
        ['cat', 'dog']
    """
    outputs: Any = predict(self, x, batch_size)
    engine = engine_of(self)
    any_of = classes_of(engine.native)
    if isinstance(outputs, dict):
        known = classes_by_output(engine.native)
        cells, trained = _cells(engine.ports), _losses_by_output(self)
        # A single number may as well be a number, as long as nobody has named its classes.
        several = {name: part for name, part in outputs.items() if not _is_number(part) or name in known}

        def likely(name: str, part: RealArray) -> NDArray[Any]:
            return _most_likely(part, known.get(name, any_of), engine, trained.get(name), cells[name])

        return {  # type: ignore[return-value]
            name: [likely(name, each[None])[0] for each in part]
            if isinstance(part, list)
            else likely(name, part)
            for name, part in several.items()
        }
    loss = _loss_name(self)
    if isinstance(outputs, list):
        # Of samples with steps of their own.
        return [_most_likely(each[None], any_of, engine, loss)[0] for each in outputs]  # type: ignore[return-value]
    return _most_likely(outputs, any_of, engine, loss)


def _is_number(outputs: RealArray | list[RealArray]) -> bool:
    """Whether an output is a single number, of each sample or, in a list, of each of its steps."""
    if isinstance(outputs, list):
        return bool(outputs[0].shape[-1] == 1)
    return bool(outputs.shape[1:] == (1,))


def _most_likely(
    outputs: RealArray,
    classes: Classes | None,
    engine: Engine,
    loss: str | None,
    cell: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Returns the most likely classes by outputs, which come from a cell and were learned by a loss."""
    if outputs.ndim < 2:
        raise ShapeError(f"predict_classes: outputs of shape {outputs.shape[1:]} are no classes")
    # As losses have it: images are (rows, classes, height, width).
    axis = class_axis(outputs.ndim)
    single = outputs.shape[axis] == 1
    if single:
        found = (np.take(outputs, 0, axis=axis) > _threshold(engine, loss, cell)).astype(np.int64)
    else:
        found = outputs.argmax(axis=axis)
    count = 2 if single else outputs.shape[axis]
    return classes.labels(found) if classes is not None and len(classes.values) == count else found


def threshold(network: TrainableNetwork, output: str = "") -> float:
    """Returns above what a single output means class 1; see `predict_classes`.

    Args:
        network: The network.
        output: The output's name, where it has one.
    """
    engine = engine_of(network)
    if not output:
        return _threshold(engine, _loss_name(network), None)
    return _threshold(engine, _losses_by_output(network).get(output), _cells(engine.ports)[output])


def _threshold(engine: Engine, loss: str | None, cell: Sequence[int] | None) -> float:
    """Returns above what a single output means class 1, as the metric "accuracy" has it."""
    if loss is not None:
        # A loss that takes the sigmoid of what a sigmoid gives reads that as a score, too.
        return 0.0 if loss in OF_LOGITS else 0.5
    return 0.5 if ending(engine, cell) == "sigmoid" else 0.0


@explained()
def predict_probabilities(self: TrainableNetwork, x: ArrayLike, batch_size: int = 256) -> RealArray:
    """Returns how likely each class of each sample is.

    Args:
        x: As in `predict`.
        batch_size: How many are computed at a time.

    Returns:
        The outputs as probabilities. Scores of classes go through softmax; those of "binary_cross_entropy",
        "binary_focal" and "dice", and single ones, through the logistic function; what a softmax or a sigmoid
        at the network's end has made, or "nll" has trained, is handed on as it is. Of named outputs a
        dictionary of those whose losses are of classes; where the network was not trained here, of those of
        several values, or that end in a sigmoid.

    Raises:
        StateError: The network was trained by a loss whose outputs are no scores of classes, such as
            "mse"; or it is training in another thread.
        ShapeError: The outputs are no classes, or the samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2)
        >>> net.predict_probabilities(np.eye(2)).sum(axis=1).round(6).tolist()
        [1.0, 1.0]
    """
    ports = engine_of(self).ports
    if ports is not None and ports.outputs:
        return cast("RealArray", _of_outputs(self, ports, x, batch_size))
    loss = _loss_name(self)
    end = ending(engine_of(self))
    if loss is not None and loss not in _OF_CLASSES and end != "sigmoid":
        raise StateError(
            f'the network was trained by the loss "{loss}", whose outputs are no scores of classes: '
            'predict(x) gives them, and a network that is to tell classes learns by loss="cross_entropy"'
        )
    outputs: Any = predict(self, x, batch_size)
    if isinstance(outputs, list):
        # Of samples with steps of their own.
        return [_probabilities(each[None], end, loss)[0] for each in outputs]  # type: ignore[return-value]
    return _probabilities(outputs, end, loss)


def ending(engine: Engine, cell: Sequence[int] | None = None) -> str:
    """Returns "softmax" or "sigmoid" where a cell's outputs are probabilities already, otherwise "".

    Args:
        engine: The network's.
        cell: The cell; the last one where None.
    """
    from loom.diagnosis.case import SIGMOIDS, SOFTMAXES, ending_at

    end = ending_at(engine, cell)
    if end is None:
        return ""
    return "softmax" if end.name in SOFTMAXES else "sigmoid" if end.name in SIGMOIDS else ""


def _cells(ports: Ports | None) -> dict[str, tuple[int, ...]]:
    return {} if ports is None else {entry.name: tuple(entry.cell) for entry in ports.outputs}


def _of_outputs(network: TrainableNetwork, ports: Ports, x: object, batch_size: int) -> dict[str, RealArray]:
    """Returns the probabilities of named outputs that have any."""
    trained, cells = _losses_by_output(network), _cells(ports)
    engine = engine_of(network)
    outputs = cast("dict[str, Any]", predict(network, cast("ArrayLike", x), batch_size))
    found: dict[str, RealArray] = {}
    for name, values in outputs.items():
        loss, end = trained.get(name), ending(engine, cells[name])
        unknown = _is_number(values) if loss is None else loss not in _OF_CLASSES
        if unknown and end != "sigmoid":
            continue
        if isinstance(values, list):
            # Of samples with steps of their own.
            found[name] = cast("Any", [_probabilities(each[None], end, loss)[0] for each in values])
        else:
            found[name] = _probabilities(values, end, loss)
    if not found:
        raise StateError(
            "no output of the network is of classes: predict(x) gives what they are, and outputs that are to "
            'tell classes learn by loss={"...": "cross_entropy"}'
        )
    return found


def _losses_by_output(network: TrainableNetwork) -> dict[str, str]:
    """Returns by which losses named outputs that were trained are read; none where none is known."""
    from loom import losses

    judged = record_of(network).judged_by
    if judged is None or not isinstance(judged.loss, Mapping):
        return {}
    return {name: losses.read_as(loss) for name, loss in judged.loss.items()}


def _loss_name(network: TrainableNetwork) -> str | None:
    """Returns by which loss the outputs of a network that was trained are read; None where none is known."""
    judged = record_of(network).judged_by
    # What only predicts, and was not trained, loads nothing of losses.
    from loom import losses

    if judged is None or isinstance(judged.loss, Mapping):
        return None
    return losses.read_as(cast("Any", judged.loss))


def _probabilities(outputs: RealArray, end: str, loss: str | None) -> RealArray:
    if outputs.ndim < 2:
        raise ShapeError(f"predict_probabilities: outputs of shape {outputs.shape[1:]} are no classes")
    if loss == "nll" or end == "softmax" or (end == "sigmoid" and loss not in _OF_SCORES):
        return outputs
    # As losses have it: images are (rows, classes, height, width).
    axis = class_axis(outputs.ndim)
    if outputs.shape[axis] == 1 or loss in ("binary_cross_entropy", "binary_focal"):
        # Of either sign, without what is too large for exp.
        small = np.exp(-np.abs(outputs))
        return cast("RealArray", np.where(outputs < 0, small, outputs.dtype.type(1)) / (1 + small))
    shifted = np.exp(outputs - outputs.max(axis=axis, keepdims=True))
    return cast("RealArray", shifted / shifted.sum(axis=axis, keepdims=True))
