"""Named inputs and outputs: dictionaries of arrays to rows of numbers and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike, Precision, RealArray
from loom.architecture import InputConfig, NetworkConfig, OutputConfig
from loom.convert import as_input, as_numpy, as_real_array, real_dtype
from loom.data import as_target
from loom.errors import DataError, DTypeError, InvalidValueError, ShapeError
from loom.grid import Coordinate

__all__ = ["Ports"]


class Ports:
    """The named inputs and outputs of a network: how they lie in the rows that the engine reads and makes.

    Args:
        native: The native network; built before outputs are asked for.
        config: The network without its weights.
    """

    def __init__(self, native: _native.Network, config: NetworkConfig) -> None:
        self._native = native
        self.inputs = cast("tuple[InputConfig, ...]", config.inputs)
        self.outputs = cast("tuple[OutputConfig, ...]", config.outputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What the inputs are called."""
        return tuple(entry.name for entry in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are called."""
        return tuple(entry.name for entry in self.outputs)

    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns one sample's extents of every output."""
        shapes = map(tuple, self._native.named_output_shapes())
        return dict(zip(self.output_names, shapes, strict=True))

    def pack(self, x: object, precision: Precision) -> RealArray:
        """Puts named inputs into one row for each sample.

        Args:
            x: A dictionary of arrays, or a data frame whose columns have the inputs' names; an array where
                the network has one input without a name.
            precision: The network's.

        Returns:
            (rows, elements) of the network's precision.

        Raises:
            DataError: A name is missing, or the inputs have different numbers of rows.
            ConfigError: A name is unknown.
            ShapeError: An input has another shape than the network takes.
            DTypeError: It does not hold numbers, or not whole ones where it is of categories.
        """
        if not self.inputs:
            return as_input(cast("ArrayLike", x), precision, indices=self._native.index_limit() is not None)
        given = _by_name("input", x, self.input_names)
        parts = []
        for entry, limit in zip(self.inputs, self._native.index_limits(), strict=True):
            what = f'input "{entry.name}"'
            array = as_numpy(given[entry.name], what=what)
            if limit is not None and array.dtype.kind not in "iu":
                # Says what came.
                _whole(array, what)
            parts.append(_flat(array, cast("tuple[int, ...]", entry.shape), what))
        _same_rows("input", self.input_names, parts)
        widths = [part.shape[1] for part in parts]
        row = np.empty((len(parts[0]), sum(widths)), real_dtype(precision))
        for start, width, part, name in zip(
            np.cumsum([0, *widths]), widths, parts, self.input_names, strict=False
        ):
            row[:, start : start + width] = as_real_array(part, precision, what=f'input "{name}"')
        return row

    def pack_steps(self, x: object, precision: Precision) -> RealArray:
        """Puts steps of named inputs into a row for each sequence: all of one input, then those of the next.

        Args:
            x: A dictionary of arrays, (rows, steps, ...) each; an array where the network has one input
                without a name.
            precision: The network's.

        Returns:
            (rows, elements) of the network's precision, or the array.

        Raises:
            DataError: A name is missing, or the inputs have different numbers of rows or steps.
            ConfigError: A name is unknown.
            ShapeError: An input's steps have another shape.
            DTypeError: It does not hold numbers, or not whole ones where it is of categories.
        """
        if not self.inputs:
            return self.pack(x, precision)
        given = _by_name("input", x, self.input_names)
        parts, all_steps = [], {}
        for entry, limit in zip(self.inputs, self._native.index_limits(), strict=True):
            what = f'input "{entry.name}"'
            array = as_numpy(given[entry.name], what=what)
            if limit is not None and array.dtype.kind not in "iu":
                _whole(array, what)
            shape = cast("tuple[int, ...]", entry.shape)
            if array.ndim < 2 or array.shape[2:] != shape[1:]:
                wanted = ", ".join(map(str, ("rows", "steps", *shape[1:])))
                raise ShapeError(f"{what}: expected shape ({wanted}), got {array.shape}")
            all_steps[entry.name] = array.shape[1]
            parts.append(as_real_array(array.reshape(len(array), -1), precision, what=what))
        first, *others = self.input_names
        for name in others:
            if all_steps[name] != all_steps[first]:
                raise DataError(
                    f'input "{first}" brings {all_steps[first]} steps but input "{name}" {all_steps[name]}'
                )
        _same_rows("input", self.input_names, parts)
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def unpack_shapes(self, rows: RealArray, shapes: list[tuple[int, ...]]) -> dict[str, RealArray]:
        """Takes rows of all outputs apart that have these extents."""
        return _apart(rows, dict(zip(self.output_names, shapes, strict=True)))

    def cell_of(self, output: str) -> Coordinate:
        """Returns the cell that an output comes from; a ConfigError where no output is called so."""
        for entry in self.outputs:
            if entry.name == output:
                return cast("Coordinate", tuple(entry.cell))
        raise unknown("output", output, self.output_names)

    def target_shapes(self, classes: Mapping[str, bool], *, labelled: bool) -> dict[str, tuple[int, ...]]:
        """Returns one sample's extents of the targets of every output, as they lie in a row.

        Args:
            classes: Whether the loss of each output takes class indices.
            labelled: Whether it is given indices, rather than a number for each class.
        """
        shapes = self.output_shapes()
        if not labelled:
            return shapes
        return {name: _without_classes(shape) if classes[name] else shape for name, shape in shapes.items()}

    def is_labelled(self, row: int, classes: Mapping[str, bool]) -> bool:
        """Returns whether a row of so many numbers holds class indices, as `pack_targets` makes it."""
        return row != sum(map(math.prod, self.output_shapes().values())) and any(classes.values())

    def pack_targets(self, y: object, classes: Mapping[str, bool], precision: Precision) -> RealArray:
        """Puts targets of named outputs into one row for each sample.

        Class indices are a number each, as long as no output comes with numbers for each class instead; then
        they are such, too.

        Args:
            y: A dictionary of arrays, or a data frame whose columns have the outputs' names.
            classes: Whether the loss of each output takes class indices.
            precision: The network's.

        Returns:
            (rows, elements) of the network's precision.

        Raises:
            DataError: A name is missing, or the targets have different numbers of rows.
            ConfigError: A name is unknown.
            ShapeError: A target does not fit its output.
            DTypeError: It does not hold numbers.
            InvalidValueError: A class index is out of range.
        """
        given = _by_name("target", y, self.output_names)
        shapes = self.output_shapes()
        targets = {}
        for name, shape in shapes.items():
            array = as_numpy(given[name], what=f'target of output "{name}"')
            if classes[name]:
                array = _numbered(array, name)
            try:
                target = as_target(array, shape, classification=classes[name], precision=precision)
            except (DTypeError, ShapeError, InvalidValueError) as error:
                raise type(error)(f'output "{name}": {error}') from None
            if target.dtype.kind == "i":
                _check_labels(target, shape, name, precision)
            targets[name] = target
        labelled = all(targets[name].dtype.kind == "i" for name in shapes if classes[name])
        parts = []
        for name, shape in shapes.items():
            target = targets[name]
            if target.dtype.kind == "i" and not labelled:
                target = _one_hot(target, shape, precision)
            parts.append(target.reshape(len(target), -1))
        _same_rows("target", self.output_names, parts)
        if len(parts) == 1:
            return np.ascontiguousarray(parts[0], real_dtype(precision))
        return np.concatenate(parts, axis=1, dtype=real_dtype(precision))

    def unpack(self, rows: RealArray) -> dict[str, RealArray]:
        """Takes rows of all outputs apart."""
        return _apart(rows, self.output_shapes())

    def pack_gradients(self, gradient: object, precision: Precision) -> RealArray:
        """Puts the gradients of named outputs into rows like the network's output."""
        given = _by_name("gradient", gradient, self.output_names)
        parts = []
        for name, shape in self.output_shapes().items():
            what = f'gradient of output "{name}"'
            parts.append(_flat(as_real_array(given[name], precision, what=what), shape, what))
        _same_rows("gradient", self.output_names, parts)
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def unpack_inputs(self, rows: RealArray) -> dict[str, RealArray]:
        """Takes rows of all inputs' gradients apart; whole numbers have none.

        Args:
            rows: (rows, elements), or with axes before these, such as ticks.
        """
        shapes = {entry.name: cast("tuple[int, ...]", entry.shape) for entry in self.inputs}
        flat = rows.reshape(-1, rows.shape[-1])
        parts = _apart(flat, shapes)
        found = {name: part.reshape(*rows.shape[:-1], *shapes[name]) for name, part in parts.items()}
        limits = self._native.index_limits()
        return {
            name: found[name] for name, limit in zip(self.input_names, limits, strict=True) if limit is None
        }


def _by_name(what: str, given: object, names: tuple[str, ...]) -> Mapping[str, Any]:
    listed = ", ".join(f'"{name}"' for name in names)
    if not isinstance(given, Mapping):
        columns = getattr(given, "columns", None)
        if columns is None:
            raise DataError(
                f"{what}: the network has named {what}s; give a dictionary of arrays by name ({listed}), "
                f"got {type(given).__name__}"
            )
        # Of a data frame the columns of these names count; others may stand beside them.
        given = {name: cast(Any, given)[name] for name in names if name in list(columns)}
    for name in given:
        if name not in names:
            raise unknown(what, name, names)
    missing = [name for name in names if name not in given]
    if missing:
        raise DataError(f'{what} "{missing[0]}" is missing; the network has {listed}')
    return given


def _same_rows(what: str, names: tuple[str, ...], parts: list[NDArray[Any]]) -> None:
    for name, part in zip(names, parts, strict=True):
        if len(part) != len(parts[0]):
            raise DataError(
                f'{what} "{names[0]}" has {len(parts[0])} samples but {what} "{name}" has {len(part)}'
            )


def _flat(array: NDArray[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    if shape == (1,) and array.ndim == 1:
        # One number a row, without its axis.
        array = array[:, None]
    if array.ndim == 0 or array.shape[1:] != shape:
        wanted = f"(rows, {', '.join(map(str, shape))})"
        raise ShapeError(f"{what}: expected shape {wanted}, got {array.shape}")
    return array.reshape(len(array), math.prod(shape))


def _numbered(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Returns class labels as numbers: false and true are the classes 0 and 1."""
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind in "USO":
        raise DTypeError(
            f'output "{name}": got labels of dtype {labels.dtype}; a network remembers names for the classes '
            f'of a single output: number these, names, y["{name}"] = np.unique(y["{name}"], '
            "return_inverse=True)"
        )
    return labels


def _whole(array: NDArray[Any], what: str) -> None:
    raise DTypeError(
        f"{what}: it takes whole numbers, such as places in a vocabulary, got dtype {array.dtype}; convert "
        "them with .astype(int) if they are whole numbers"
    )


def _apart(rows: RealArray, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, RealArray]:
    found, start = {}, 0
    for name, shape in shapes.items():
        end = start + math.prod(shape)
        found[name] = np.ascontiguousarray(rows[:, start:end]).reshape(len(rows), *shape)
        start = end
    return found


def _class_axis(shape: tuple[int, ...]) -> int:
    """The axis of the classes in rows of this shape: the last, or the channels of images."""
    return 1 if len(shape) == 3 else len(shape)


def _without_classes(shape: tuple[int, ...]) -> tuple[int, ...]:
    axis = _class_axis(shape)
    return shape[: axis - 1] + shape[axis:]


def _check_labels(labels: NDArray[Any], shape: tuple[int, ...], name: str, precision: Precision) -> None:
    classes = shape[_class_axis(shape) - 1]
    if classes > (1 << 53 if precision == "float64" else 1 << 24):
        raise InvalidValueError(
            f'output "{name}": {classes} classes are more than numbers of {precision} tell apart'
        )
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise InvalidValueError(
            f'output "{name}": class index {labels[wrong][0]} of row {row} is out of range: '
            f"there are {classes} classes, numbered from 0 to {classes - 1}"
        )


def _one_hot(labels: NDArray[Any], shape: tuple[int, ...], precision: Precision) -> RealArray:
    axis = _class_axis(shape)
    target = np.zeros((len(labels), *shape), real_dtype(precision))
    places = np.expand_dims(labels.reshape(len(labels), *_without_classes(shape)), axis)
    np.put_along_axis(target, places, 1.0, axis)
    return target
