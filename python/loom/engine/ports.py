"""Named inputs and outputs: dictionaries of arrays to rows of numbers and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike, Precision, RealArray, TargetKind
from loom.architecture import InputConfig, NetworkConfig, OutputConfig
from loom.convert import as_input, as_numpy, as_real_array, real_dtype
from loom.data import Classes, as_target
from loom.data.labels import KINDS, as_names
from loom.data.weights import is_by_place, places_of
from loom.engine.class_axis import leads_with_channels
from loom.engine.told import classes_by_output
from loom.errors import DataError, DTypeError, InvalidValueError, ShapeError
from loom.grid import Coordinate

__all__ = ["Ports", "apart", "by_name", "flat_input"]


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
        self._config = config

    @property
    def input_names(self) -> tuple[str, ...]:
        """What the inputs are called."""
        return tuple(entry.name for entry in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are called."""
        return tuple(entry.name for entry in self.outputs)

    def input_extents(self) -> dict[str, tuple[int | None, ...]]:
        """Returns one sample's extents of every input, None where they are open."""
        return {entry.name: tuple(cast("tuple[int | None, ...]", entry.shape)) for entry in self.inputs}

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
        given = by_name("input", x, self.input_names)
        parts = []
        for entry, limit in zip(self.inputs, self._native.index_limits(), strict=True):
            shape = cast("tuple[int, ...]", entry.shape)
            parts.append(flat_input(entry.name, given[entry.name], shape, indices=limit is not None))
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
        given = by_name("input", x, self.input_names)
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
        return apart(rows, dict(zip(self.output_names, shapes, strict=True)))

    def cell_of(self, output: str) -> Coordinate:
        """Returns the cell that an output comes from; a ConfigError where no output is called so."""
        for entry in self.outputs:
            if entry.name == output:
                return cast("Coordinate", tuple(entry.cell))
        raise unknown("output", output, self.output_names)

    def leads_with_channels(self, output: str, shape: tuple[int, ...]) -> bool:
        """Whether an output has its channels first, and no axis of classes last, as far as layers tell.

        Args:
            output: Its name.
            shape: One sample's extents of it.
        """
        return leads_with_channels(self._config, shape, self.cell_of(output))

    def target_shapes(self, kinds: Mapping[str, TargetKind], *, labelled: bool) -> dict[str, tuple[int, ...]]:
        """Returns one sample's extents of the targets of every output, as they lie in a row.

        Args:
            kinds: What the loss of each output takes.
            labelled: Whether those that take either are given indices, rather than a number for each class.
        """
        return {
            name: _without_classes(shape) if _is_told(kinds[name], labelled=labelled) else shape
            for name, shape in self.output_shapes().items()
        }

    def is_labelled(self, row: int, kinds: Mapping[str, TargetKind]) -> bool:
        """Returns whether a row of so many numbers holds class indices, as `pack_targets` makes it."""
        numbers = self.target_shapes(kinds, labelled=False)
        return row != sum(map(math.prod, numbers.values())) and "classes" in kinds.values()

    def labels(self) -> dict[str, Classes]:
        """Returns what the classes of outputs are called, where somebody has said so."""
        return classes_by_output(self._native)

    def pack_targets(
        self,
        y: object,
        kinds: Mapping[str, TargetKind],
        precision: Precision,
        *,
        labels: Mapping[str, Classes] | None = None,
    ) -> RealArray:
        """Puts targets of named outputs into one row for each sample.

        Class indices are a number each, as long as no output comes with numbers for each class instead; then
        they are such, too, but for losses that take nothing else.

        Args:
            y: A dictionary of arrays, or a data frame whose columns have the outputs' names.
            kinds: What the loss of each output takes.
            precision: The network's.
            labels: What the classes of outputs are called; what the network remembers where None.

        Returns:
            (rows, elements) of the network's precision.

        Raises:
            DataError: A name is missing, a label is of no class, or the targets have different numbers of
                rows.
            ConfigError: A name is unknown.
            ShapeError: A target does not fit its output.
            DTypeError: It does not hold numbers.
            InvalidValueError: A class index is out of range.
        """
        given = by_name("target", y, self.output_names)
        shapes = self.output_shapes()
        known = self.labels() if labels is None else labels
        targets = {}
        for name, shape in shapes.items():
            kind = kinds[name]
            array = _numbered(given[name], name, known.get(name), classes=kind != "numbers")
            try:
                target = as_target(
                    array,
                    shape,
                    classification=kind != "numbers",
                    precision=precision,
                    channels_first=kind != "numbers" and self.leads_with_channels(name, shape),
                )
            except (DTypeError, ShapeError, InvalidValueError) as error:
                raise type(error)(f'output "{name}": {error}') from None
            if target.dtype.kind == "i":
                _check_labels(target, shape, name, precision, any_number=kind == "labels")
            elif kind in {"indices", "labels"}:
                raise ShapeError(
                    f'output "{name}": its loss takes class indices, without the class axis, got targets of '
                    f"shape {array.shape}"
                )
            targets[name] = target
        labelled = all(targets[name].dtype.kind == "i" for name in shapes if kinds[name] == "classes")
        parts = []
        for name, shape in shapes.items():
            target = targets[name]
            if target.dtype.kind == "i" and not _is_told(kinds[name], labelled=labelled):
                target = _one_hot(target, shape, precision)
            parts.append(target.reshape(len(target), -1))
        _same_rows("target", self.output_names, parts)
        if len(parts) == 1:
            return np.ascontiguousarray(parts[0], real_dtype(precision))
        return np.concatenate(parts, axis=1, dtype=real_dtype(precision))

    def pack_weights(self, weights: Mapping[str, ArrayLike], rows: int, precision: Precision) -> RealArray:
        """Puts weights of rows by output into one array.

        Args:
            weights: (rows,) for each output that has some, or (rows, ...) for each place of it, such as a
                step or a pixel; 1 for the others.
            rows: How many rows there are.
            precision: The network's.

        Returns:
            (rows, outputs) of the network's precision; or, where weights are of places, (rows, places), those
            of one output behind those of the other.

        Raises:
            ConfigError: A name is unknown.
            DataError: There are more or fewer weights than rows.
            DTypeError: They are no numbers.
        """
        dtype, shapes = real_dtype(precision), self.output_shapes()
        parts: dict[str, RealArray] = {name: np.ones((rows, 1), dtype) for name in self.output_names}
        for name, given in weights.items():
            if name not in self.output_names:
                raise unknown("weight: output", name, self.output_names)
            array = as_real_array(given, precision, what=f'weight of output "{name}"')
            of_places = array.ndim > 1 and len(array) == rows and is_by_place(array, shapes[name])
            if array.shape != (rows,) and not of_places:
                places = places_of(shapes[name])
                told = f", or {(rows, *places)}, one for each place of it" if places else ""
                raise DataError(
                    f'weight of output "{name}" must be ({rows},), one for each sample{told}, got '
                    f"{array.shape}"
                )
            parts[name] = array.reshape(rows, -1)
        if any(part.shape[1] > 1 for part in parts.values()):
            widths = [math.prod(places_of(shape)) for shape in shapes.values()]
            wide = zip(parts.values(), widths, strict=True)
            return np.concatenate([np.broadcast_to(part, (rows, width)) for part, width in wide], axis=1)
        return np.concatenate(list(parts.values()), axis=1)

    def weight_widths(self, count: int) -> list[int]:
        """Returns how many weights of a row are of each output, of as many as `pack_weights` makes."""
        if count == len(self.outputs):
            return [1] * count
        return [math.prod(places_of(shape)) for shape in self.output_shapes().values()]

    def weights_by_output(self, weight: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Returns (rows, 1) weights of each output, or (rows, places), of what `pack_weights` has made.

        Args:
            weight: That; or (rows,) of all outputs, or (rows, 1) as the engine has these.
        """
        if weight.ndim == 1 or weight.shape[1] == 1:
            return dict.fromkeys(self.output_names, weight.reshape(-1, 1))
        ends = np.cumsum(self.weight_widths(weight.shape[1]))[:-1]
        return dict(zip(self.output_names, np.split(weight, ends, axis=1), strict=True))

    def unpack(self, rows: RealArray) -> dict[str, RealArray]:
        """Takes rows of all outputs apart."""
        return apart(rows, self.output_shapes())

    def pack_gradients(self, gradient: object, precision: Precision) -> RealArray:
        """Puts the gradients of named outputs into rows like the network's output."""
        given = by_name("gradient", gradient, self.output_names)
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
        parts = apart(flat, shapes)
        found = {name: part.reshape(*rows.shape[:-1], *shapes[name]) for name, part in parts.items()}
        limits = self._native.index_limits()
        return {
            name: found[name] for name, limit in zip(self.input_names, limits, strict=True) if limit is None
        }


def by_name(what: str, given: object, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns a dictionary of arrays, or the columns of a data frame, checked.

    Args:
        what: What they are, for error messages.
        given: The dictionary or the frame.
        names: The names that there must be.

    Raises:
        DataError: It is something else, or a name is missing.
        ConfigError: A name is unknown.
    """
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


def flat_input(name: str, given: ArrayLike, shape: tuple[int, ...], *, indices: bool) -> NDArray[Any]:
    """Returns an input of fixed extents as rows: (rows, elements).

    Args:
        name: The input's.
        given: (rows, *shape), or (rows,) where a sample is one number.
        shape: One sample's extents.
        indices: Whether the network reads whole numbers there.

    Raises:
        ShapeError: It has other extents.
        DTypeError: It holds no numbers, or none that are whole where such are read.
    """
    what = f'input "{name}"'
    array = as_numpy(given, what=what)
    if indices and array.dtype.kind not in "iu":
        # Says what came.
        _whole(array, what)
    return _flat(array, shape, what)


def _flat(array: NDArray[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    if shape == (1,) and array.ndim == 1:
        # One number a row, without its axis.
        array = array[:, None]
    if array.ndim == 0 or array.shape[1:] != shape:
        wanted = f"(rows, {', '.join(map(str, shape))})"
        raise ShapeError(f"{what}: expected shape {wanted}, got {array.shape}")
    return array.reshape(len(array), math.prod(shape))


def _is_told(kind: TargetKind, *, labelled: bool) -> bool:
    """Whether a row holds class indices; `labelled` where those are such that may be numbers as well."""
    return kind in {"indices", "labels"} or (kind == "classes" and labelled)


def _numbered(target: ArrayLike, name: str, known: Classes | None, *, classes: bool) -> NDArray[Any]:
    """Returns labels as class indices: by what classes are called, or false and true as 0 and 1."""
    try:
        labels = as_names(target)
    except DataError as error:
        raise DataError(f'output "{name}": {error}') from None
    if known is not None and (labels.dtype.kind == "U" or labels.dtype.kind in KINDS[known.kind]):
        return known.indices(labels, f'target of output "{name}"')
    if labels.dtype.kind == "b" and classes:
        return labels.astype(np.int64)
    if labels.dtype.kind in "USO" and classes:
        raise DTypeError(
            f'output "{name}": got labels of dtype {labels.dtype}, and the network has no names for its '
            "classes: it learns them from arrays and lists; where data comes in batches, "
            f'net.card = loom.ModelCard(labels={{"{name}": [...]}}) tells them before'
        )
    return labels


def _whole(array: NDArray[Any], what: str) -> None:
    raise DTypeError(
        f"{what}: it takes whole numbers, such as places in a vocabulary, got dtype {array.dtype}; convert "
        "them with .astype(int) if they are whole numbers"
    )


def apart(rows: RealArray, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, RealArray]:
    """Takes rows apart.

    Args:
        rows: (rows, elements) flat arrays one behind the other.
        shapes: One sample's extents of each.
    """
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


def _check_labels(
    labels: NDArray[Any], shape: tuple[int, ...], name: str, precision: Precision, *, any_number: bool
) -> None:
    classes = shape[_class_axis(shape) - 1]
    most = 1 << 53 if precision == "float64" else 1 << 24
    if any_number:
        if labels.size and int(np.abs(labels.astype(np.int64)).max()) > most:
            raise InvalidValueError(
                f'output "{name}": a label is beyond {most}, and numbers of {precision} tell no more apart'
            )
        return
    if classes > most:
        raise InvalidValueError(
            f'output "{name}": {classes} classes are more than numbers of {precision} tell apart'
        )
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise InvalidValueError(
            f'output "{name}": class index {labels[wrong][0]} of row {row} is out of range: '
            f"there are {classes} classes, numbered from 0 to {classes - 1}; what is not to count takes a "
            "weight of 0"
        )


def _one_hot(labels: NDArray[Any], shape: tuple[int, ...], precision: Precision) -> RealArray:
    axis = _class_axis(shape)
    target = np.zeros((len(labels), *shape), real_dtype(precision))
    places = np.expand_dims(labels.reshape(len(labels), *_without_classes(shape)), axis)
    np.put_along_axis(target, places, 1.0, axis)
    return target
