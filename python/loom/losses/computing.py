"""Any loss of arrays, and its gradient."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import real
from loom._typing import ArrayLike, Precision, RealArray
from loom.convert import as_numpy, as_real_array
from loom.data import as_target
from loom.data.class_axis import has_leading_channels, note_leading_channels
from loom.data.labels import as_names
from loom.data.weights import counting, is_by_place, places_of
from loom.errors import DataError, InvalidValueError, ShapeError
from loom.losses.classes import ClassWeight, class_count, expand_class_weight
from loom.losses.cosine import Cosine
from loom.losses.expression import Expr
from loom.losses.own import OwnLoss
from loom.losses.resolving import LossLike, name_of, resolve
from loom.losses.targets import is_classification, settled_for

__all__ = ["behind_softmax", "value_and_gradient"]


def value_and_gradient(
    loss: LossLike | str,
    output: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Computes any loss, and its gradient; the functions of single losses say what they take.

    Args:
        loss: The loss, or its name.
        output: (rows, ...) what the network gave.
        target: What was wanted.
        weight: (rows,) how much each row counts; or (rows, ...) how much each place of it does, such as a
            step or a pixel. What has a weight of 0 may have any target, such as NaN.
        label_smoothing: How much of the weight goes to all classes alike.
        class_weight: How much each class counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output, target and weight do not fit together; or the output is that of `net.forward`, has
            its channels first, and the target does not tell whether these are the classes.
        DataError: Nothing has a weight, or there are more or fewer targets than rows.
        InvalidValueError: A weight is negative or not finite, or a setting says nothing to the loss; or an
            expression adds up over steps or pixels that have weights of their own.
        ConfigError: A setting is out of range.
    """
    given = as_numpy(output, what="output")
    precision: Precision = "float64" if given.dtype == np.float64 else "float32"
    scores = as_real_array(given, precision, what="output")
    if scores.ndim < 2 or scores.size == 0:
        raise ShapeError(f"output: expected (rows, ...) with at least one row, got shape {scores.shape}")
    resolved = settled_for(loss, scores.shape[1:], as_names(as_numpy(target, what="target")))
    wanted = as_target(
        target,
        scores.shape[1:],
        classification=is_classification(resolved),
        precision=precision,
        channels_first=has_leading_channels(output),
    )
    if len(wanted) != len(scores):
        raise DataError(f"output has {len(scores)} rows but target {len(wanted)}")
    weights = None
    if weight is not None:
        counts = as_real_array(weight, "float64", what="weight")
        of_places = counts.ndim > 1 and len(counts) == len(scores) and is_by_place(counts, scores.shape[1:])
        if counts.shape != (len(scores),) and not of_places:
            places = places_of(scores.shape[1:])
            several = f", or {(len(scores), *places)}, one for each place" if places else ""
            raise ShapeError(
                f"weight must be ({len(scores)},), a number for each row{several}, got {counts.shape}"
            )
        wrong = np.argwhere(~(np.isfinite(counts) & (counts >= 0)))
        if wrong.size:
            # What a mean over them were, and a gradient, is nothing; trainings refuse them, too.
            raise InvalidValueError(
                f"weights must be finite and at least 0, but that of row {wrong[0][0]} is "
                f"{counts[tuple(wrong[0])]:g}"
            )
        if not counts.any():
            raise DataError("the weight of every row is zero, and at least one must count")
        of_own = isinstance(resolved, (Cosine, Expr, OwnLoss))
        wanted = counting(wanted, counts, labels=is_classification(resolved), own=of_own)
        if of_places and isinstance(resolved, OwnLoss):
            raise ShapeError(
                f"weight: the loss {name_of(resolved)} is no number for each element, so that each row has "
                f"one weight, ({len(scores)},), got {counts.shape}"
            )
        if of_places and not isinstance(resolved, (Cosine, Expr)):
            # A place is as good as a row, with classes behind it.
            flat, behind = _classes_last(scores), scores.shape[1 if scores.ndim == 4 else -1]
            indices = wanted.dtype.kind == "i"
            value, gradient = value_and_gradient(
                resolved,
                flat.reshape(-1, behind),
                wanted.ravel() if indices else _classes_last(wanted).reshape(-1, behind),
                counts.ravel(),
                label_smoothing,
                class_weight,
            )
            gradient = gradient.reshape(flat.shape)
            return value, np.ascontiguousarray(np.moveaxis(gradient, -1, 1) if scores.ndim == 4 else gradient)
        weights = counts.ravel().tolist()
    own = getattr(resolved, "value_and_gradient", None)
    if own is not None:
        if class_weight is not None or label_smoothing:
            raise InvalidValueError(
                "class_weight and label_smoothing are of the losses cross_entropy, focal and nll, and say "
                f'nothing to "{name_of(resolved)}"; leave them out'
            )
        made: tuple[float, RealArray] = own(scores, wanted, weights)
        return made
    config: object = resolved if isinstance(resolved, str) else resolved.to_config()
    if isinstance(resolved, (Cosine, Expr)):
        config = {"expression": resolved.expression}
    of_classes = expand_class_weight(class_weight, class_count(scores.shape[1:]))
    value, gradient = _native.loss_and_gradient(
        json.dumps(config),
        scores,
        wanted,
        weights,
        real(name_of(resolved), "label_smoothing", label_smoothing, least=0.0, below=1.0),
        of_classes,
    )
    if of_classes is not None and wanted.dtype.kind == "i":
        rows = np.asarray(of_classes)[wanted].reshape(len(wanted), -1).any(axis=1)
        if not (rows & (True if weights is None else np.asarray(weights) != 0)).any():
            raise DataError(
                "the weight of every row is zero, by those of their classes; at least one must count"
            )
    return value, gradient


def _classes_last(array: NDArray[Any]) -> NDArray[Any]:
    """Returns outputs, or targets like them, with the channels of images last."""
    return np.moveaxis(array, 1, -1) if array.ndim == 4 else array


def behind_softmax(
    loss: LossLike | str,
    output: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Computes a loss of what a softmax has made, and its gradient with respect to that.

    Training takes a softmax that ends an output into a loss over classes; this is the same loss of its
    output. Other losses are what they are.

    Args:
        loss: Any.
        output: (rows, ...) probabilities.
        target: What was wanted.
        weight: (rows,) how much each row counts; or (rows, ...) how much each place of it does.
        label_smoothing: How much of the weight goes to all classes alike.
        class_weight: How much each class counts.
    """
    name = "" if isinstance(resolve(loss), (Cosine, Expr, OwnLoss)) else name_of(loss)
    if name in {"cross_entropy", "nll"}:
        return value_and_gradient("nll", output, target, weight, label_smoothing, class_weight)
    if name not in {"focal", "kl_divergence"}:
        return value_and_gradient(loss, output, target, weight, label_smoothing, class_weight)
    shares = np.maximum(as_numpy(output, what="output"), 1e-12)
    logits = np.log(shares)
    if has_leading_channels(output):
        note_leading_channels(logits)
    value, gradient = value_and_gradient(loss, logits, target, weight, label_smoothing, class_weight)
    return value, np.divide(gradient, shares, dtype=gradient.dtype)
