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
        end has made, or "nll" has trained, is handed on as it is.

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
    engine = engine_of(self)
    engine.check_single("predict_probabilities")
    loss = _loss_name(self)
    if loss is not None and loss not in _OF_CLASSES:
        raise StateError(
            f'the network was trained by the loss "{loss}", whose outputs are no scores of classes: '
            'predict(x) gives them, and a network that is to tell classes learns by loss="cross_entropy"'
        )
    outputs: Any = predict(self, x, batch_size)
    if isinstance(outputs, list):
        # Of samples with steps of their own.
        return [_probabilities(self, each[None], loss)[0] for each in outputs]  # type: ignore[return-value]
    return _probabilities(self, outputs, loss)


def _loss_name(network: TrainableNetwork) -> str | None:
    """Returns the name of the loss that a network was trained by last; None where none is known."""
    judged = record_of(network).judged_by
    # What only predicts, and was not trained, loads nothing of losses.
    from loom import losses

    return None if judged is None else losses.name_of(cast("Any", judged.loss))


def _probabilities(network: TrainableNetwork, outputs: RealArray, loss: str | None) -> RealArray:
    if outputs.ndim < 2:
        raise ShapeError(f"predict_probabilities: outputs of shape {outputs.shape[1:]} are no classes")
    last = engine_of(network).layer_kinds()[-1]
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
