"""Probabilities of classes: what a network's outputs mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loom._settings.calls import explained
from loom._typing import ArrayLike, RealArray
from loom.engine import engine_of
from loom.errors import ShapeError, StateError
from loom.network.inference import predict
from loom.training.record import record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.engine.ports import Ports
    from loom.training.trainable import TrainableNetwork

__all__ = ["predict_probabilities"]

_OF_CLASSES = ("cross_entropy", "nll", "binary_cross_entropy", "binary_focal", "kl_divergence", "ctc")
_SIMPLEX = ("sparsemax", "entmax")
"""Layers beside softmaxes whose outputs are probabilities."""


@explained()
def predict_probabilities(self: TrainableNetwork, x: ArrayLike, batch_size: int = 256) -> RealArray:
    """Returns how likely each class of each sample is.

    Args:
        x: As in `predict`.
        batch_size: How many are computed at a time.

    Returns:
        The outputs as probabilities. Scores of classes go through softmax; those of "binary_cross_entropy"
        and "binary_focal", and single ones, through the logistic function; what a softmax at the network's
        end has made, or "nll" has trained, is handed on as it is. Of named outputs a dictionary of those
        whose losses are of classes; where the network was not trained here, of those of several values.

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
    if loss is not None and loss not in _OF_CLASSES:
        raise StateError(
            f'the network was trained by the loss "{loss}", whose outputs are no scores of classes: '
            'predict(x) gives them, and a network that is to tell classes learns by loss="cross_entropy"'
        )
    outputs: Any = predict(self, x, batch_size)
    last = engine_of(self).layer_kinds()[-1]
    if isinstance(outputs, list):
        # Of samples with steps of their own.
        return [_probabilities(each[None], last, loss)[0] for each in outputs]  # type: ignore[return-value]
    return _probabilities(outputs, last, loss)


def _of_outputs(network: TrainableNetwork, ports: Ports, x: object, batch_size: int) -> dict[str, RealArray]:
    """Returns the probabilities of named outputs that have any."""
    from loom import losses

    judged = record_of(network).judged_by
    trained = None if judged is None else cast("Mapping[str, Any]", judged.loss)
    engine = engine_of(network)
    kinds = dict(zip(engine.layer_places(), engine.layer_kinds(), strict=True))
    outputs = cast("dict[str, RealArray]", predict(network, cast("ArrayLike", x), batch_size))
    found = {}
    for entry in ports.outputs:
        values = outputs[entry.name]
        loss = None if trained is None else losses.name_of(trained[entry.name])
        if (loss is None and values.shape[1:] == (1,)) or (loss is not None and loss not in _OF_CLASSES):
            continue
        # A cell without layers hands on what the one before it has made.
        made = [kind for (at, _), kind in kinds.items() if at <= tuple(entry.cell)]
        found[entry.name] = _probabilities(values, made[-1] if made else "", loss)
    if not found:
        raise StateError(
            "no output of the network is of classes: predict(x) gives what they are, and outputs that are to "
            'tell classes learn by loss={"...": "cross_entropy"}'
        )
    return found


def _loss_name(network: TrainableNetwork) -> str | None:
    """Returns the name of the loss that a network was trained by last; None where none is known."""
    judged = record_of(network).judged_by
    # What only predicts, and was not trained, loads nothing of losses.
    from loom import losses

    return None if judged is None else losses.name_of(cast("Any", judged.loss))


def _probabilities(outputs: RealArray, last: str, loss: str | None) -> RealArray:
    if outputs.ndim < 2:
        raise ShapeError(f"predict_probabilities: outputs of shape {outputs.shape[1:]} are no classes")
    if loss == "nll" or last in _SIMPLEX or last.endswith("softmax"):
        return outputs
    if outputs.shape[1:] == (1,) or loss in ("binary_cross_entropy", "binary_focal"):
        # Of either sign, without what is too large for exp.
        small = np.exp(-np.abs(outputs))
        return cast("RealArray", np.where(outputs < 0, small, outputs.dtype.type(1)) / (1 + small))
    # As losses have it: images are (rows, classes, height, width).
    axis = 1 if outputs.ndim == 4 else -1
    shifted = np.exp(outputs - outputs.max(axis=axis, keepdims=True))
    return cast("RealArray", shifted / shifted.sum(axis=axis, keepdims=True))
