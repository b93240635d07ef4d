"""Targets as losses take them: class indices, or real values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike, Precision, RealArray
from loom.convert import as_labels, as_numpy, as_real_array
from loom.data.class_axis import check_class_axis
from loom.errors import DTypeError, InvalidValueError, ShapeError

__all__ = ["as_target"]


def as_target(
    y: ArrayLike,
    output_shape: tuple[int, ...],
    *,
    classification: bool,
    precision: Precision = "float32",
    channels_first: bool = False,
) -> NDArray[Any]:
    """Converts a target to class indices or to real values, as the loss takes it.

    Args:
        y: The target.
        output_shape: One sample's output, without the batch.
        classification: Whether the loss takes class indices.
        precision: The network's precision.
        channels_first: Whether the output's last axis is hardly that of the classes which its loss looks for.

    Returns:
        Class indices (int32), where the loss takes them and the target has one
        axis less than the output; otherwise real values.

    Raises:
        DTypeError: The values are neither integers nor real numbers.
        ShapeError: The target has other extents than the output has places, or the wrong number of axes; or
            its classes are not along the axis where the loss looks for them, or may not be.
        InvalidValueError: A class index does not fit 32 bits.
    """
    target = _converted(y, output_shape, classification=classification, precision=precision)
    if classification and channels_first:
        check_class_axis(target, output_shape)
    return target


def _converted(
    y: ArrayLike, output_shape: tuple[int, ...], *, classification: bool, precision: Precision
) -> NDArray[Any]:
    array = as_numpy(y, what="target")
    axes = len(output_shape) + 1
    if classification and array.ndim == axes - 1 and array.dtype.kind not in "US":
        labels = _as_classes(array, single=output_shape == (1,))
        _check_places(labels, output_shape)
        return labels
    if output_shape == (1,) and array.ndim == 1:
        # One number a row, without its axis.
        array = array[:, None]
    if array.dtype.kind == "S":
        raise DTypeError(f"target: got bytes, dtype {array.dtype}; labels are texts: y.astype(str)")
    if array.dtype.kind == "U":
        raise DTypeError(
            f'target: expected numbers, got dtype {array.dtype}; text labels go with loss="cross_entropy" '
            "and an output for each class, and where data comes in batches the network has to know their "
            "names: net.card = loom.ModelCard(labels=[...])"
        )
    values: RealArray = as_real_array(array, precision, what="target")
    if values.ndim != axes or values.shape[1:] != output_shape:
        wanted = f"(rows, {', '.join(map(str, output_shape))})"
        indices = " or class indices without the class axis" if classification else ""
        remedy = _remedy(array, output_shape, classification=classification)
        raise ShapeError(f"target: expected shape {wanted}{indices}, got {values.shape}{remedy}")
    return values


def _check_places(labels: NDArray[Any], output_shape: tuple[int, ...]) -> None:
    """Refuses class indices whose extents are not those of the output without its class axis.

    As many numbers in another order would be classes of other places.
    """
    # As losses have it: images are (rows, classes, height, width).
    axis = 0 if len(output_shape) == 3 else len(output_shape) - 1
    places = output_shape[:axis] + output_shape[axis + 1 :]
    given = labels.shape[1:]
    if given == places:
        return
    remedy = ""
    if axis and given == output_shape[1:]:
        order = ", ".join(map(str, (*range(1, axis + 1), 0)))
        remedy = (
            "; of signals and volumes, too, the classes are the last axis of the output: nn.Permute"
            f"(({order})) behind the last layer puts them there"
        )
    elif sorted(given) == sorted(places):
        remedy = "; the same extents in another order are other places"
    wanted = ", ".join(map(str, ("rows", *places)))
    told = ", ".join(map(str, ("rows", *output_shape)))
    raise ShapeError(
        f"target: class indices of an output ({told}) have shape ({wanted}), got {labels.shape}{remedy}"
    )


def _remedy(array: NDArray[Any], output_shape: tuple[int, ...], *, classification: bool) -> str:
    """Says what may be meant by a target of another shape than the output."""
    flat = array.ndim == 1 or array.shape[1:] == (1,)
    if array.dtype.kind == "f" and array.ndim == len(output_shape) and bool(np.isnan(array).any()):
        row = int(np.argwhere(np.isnan(array))[0][0])
        return f"; that of row {row} is missing: leave such rows out, and class labels are whole numbers"
    several = len(output_shape) > 1
    if several and array.shape[1:] == output_shape[:-1] and output_shape[-1] == 1:
        return "; it lacks the last axis, which is of one element: y[..., None]"
    if several and array.shape[1:] == output_shape[1:] and output_shape[0] == 1:
        return "; it lacks the axis of channels, of which there is one: y[:, None]"
    if flat and len(output_shape) == 2:
        return (
            "; the output has a row for every step of a sequence: return_sequences=False of the last "
            "recurrent layer gives the last step alone, nn.Flatten() before the last nn.Dense puts all in "
            "one; and input_shape is that of one sample, without the batch"
        )
    if flat and len(output_shape) > 1:
        return (
            f"; the output has {len(output_shape)} axes for each sample: nn.Flatten() before the last "
            "nn.Dense leaves one, and input_shape is that of one sample, without the batch"
        )
    if array.shape[1:] == (1,) and array.dtype.kind in "iub":
        return '; class labels have one axis: y[:, 0], with loss="cross_entropy"'
    if array.ndim == len(output_shape) and not classification and bool(np.all(array == np.round(array))):
        cast = "" if array.dtype.kind in "iu" else ", as whole numbers: y.astype(int)"
        return f'; class labels go with loss="cross_entropy"{cast}'
    if len(output_shape) > 1 and array.shape[1:] == (1, *output_shape[1:]) and array.dtype.kind in "iub":
        return '; class labels have no axis of classes: y[:, 0], with loss="cross_entropy"'
    if array.ndim == 2 and len(output_shape) == 1:
        return f"; for such targets the last layer has {array.shape[1]} outputs"
    return ""


def _as_classes(array: NDArray[Any], *, single: bool) -> NDArray[np.int32]:
    if single and array.dtype.kind in "iu" and array.any():
        raise InvalidValueError(
            f"target: a single output has the class 0 alone, got {array.max()}; for two classes the last "
            'layer is nn.Dense(2), or take loss="binary_cross_entropy"'
        )
    if array.dtype == np.int32:
        return np.asarray(array, order="C")
    labels = as_labels(array, what="target")
    bounds = np.iinfo(np.int32)
    if labels.size and not (bounds.min <= labels.min() and labels.max() <= bounds.max):
        raise InvalidValueError(
            f"target: class indices from {labels.min()} to {labels.max()} do not fit 32 bits"
        )
    return labels.astype(np.int32)
