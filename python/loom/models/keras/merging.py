"""What Keras makes of several values, by layers and by arithmetic on the values themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from loom.models.branches import Join, Row
from loom.models.keras.values import Unsupported, Value, moved, refuse

__all__ = ["MERGES", "is_operation", "merged", "operation", "refuse_foreign"]

MERGES = {
    "Add": "add",
    "Concatenate": "concat",
    "Average": "average",
    "Multiply": "multiply",
    "Subtract": "subtract",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Dot": "dot",
}
"""Layers of several inputs, and how loom's Parallel calls them, where it has them as they are."""

_SYMBOLS = {"Add": "+", "Subtract": "-", "Multiply": "*", "TrueDivide": "/", "Divide": "/"}
_CHOICES = {"Maximum": "max", "Minimum": "min"}
_TURNED: Row = [{"type": "scale", "factor": -1.0}]
_INVERTED: Row = [{"type": "expr", "expression": "1 / x"}]


def refuse_foreign(layer: Mapping[str, Any]) -> None:
    """Raises Unsupported where a layer's class is not Keras's, whatever it is called."""
    module = layer.get("module")
    home = module.partition(".")[0] if isinstance(module, str) else "keras"
    refuse(
        home not in ("keras", "tf_keras", "tensorflow"),
        f"{layer['class_name']} of {module}, a layer of one's own",
    )


def is_operation(layer: Mapping[str, Any]) -> bool:
    """Returns whether what a model calls is a function of `keras.ops`, and no layer of that name."""
    module = layer.get("module")
    if isinstance(module, str):
        return "ops" in module.split(".")
    # An .h5 file does not tell; but every layer has one of these settings, and no operation.
    nodes = layer.get("inbound_nodes")
    new = isinstance(nodes, list) and nodes and isinstance(nodes[0], Mapping)
    return bool(new) and not {"trainable", "dtype", "layers"} & set(layer["config"])


def merged(
    kind: str, config: Mapping[str, Any], read: Sequence[Value], *, expand: bool = True
) -> tuple[Join, Row, Value]:
    """Returns how several values become one: how they are joined, what comes behind, and what that makes.

    Args:
        kind: Keras's class.
        config: Its settings.
        read: The values.
        expand: Whether values of fewer axes get more behind the batch, as Keras's layers have it.

    Raises:
        Unsupported: They have not the same number of axes, or are not as many as the layer takes.
    """
    ranks = [value.rank for value in read]
    if kind == "Dot":
        return _dot(config, read)
    several = len(set(ranks)) > 1
    refuse(several and not (expand and kind != "Concatenate"), f"{kind} of values of {_listed(ranks)} axes")
    refuse(kind == "Subtract" and len(read) != 2, f"Subtract of {len(read)} values")
    first = read[0].first and not several
    ends = [moved(value, first=first) for value in read]
    values = [value.laid(first=first) for value in read]
    if kind == "Concatenate":
        return _side_by_side(config, values, ends)
    if several:
        values = [_expanded(value, max(ranks), end, kind) for value, end in zip(values, ends, strict=True)]
    shapes = [value.shape for value in values]
    combine = MERGES[kind]
    whole = values[0]
    if None not in shapes and len(set(shapes)) > 1:
        shape = np.broadcast_shapes(*(shape for shape in shapes if shape is not None))
        whole = replace(whole, shape=tuple(shape))
        if combine != "multiply":
            for value, end in zip(values, ends, strict=True):
                end.extend(_repeated(value.shape or (), shape))
    whole = replace(whole, mask=None)
    if combine == "subtract":
        ends[1].extend(_TURNED)
        return Join("add", ends=ends), [], whole
    if combine in ("maximum", "minimum"):
        return _extreme(combine, whole, ends)
    return Join(combine, ends=ends), [], whole


def _listed(ranks: Sequence[int]) -> str:
    return " and ".join(map(str, ranks))


def _side_by_side(
    config: Mapping[str, Any], values: Sequence[Value], ends: list[Row]
) -> tuple[Join, Row, Value]:
    whole = values[0]
    axis = config.get("axis", -1)
    refuse(axis == 0 or axis < -whole.rank, f"a Concatenate over axis {axis}, along the batch")
    axis = axis - 1 if axis > 0 else axis % whole.rank
    # Channels, which Keras has last, may be first here.
    axis = axis if not whole.first else 0 if axis == whole.rank - 1 else axis + 1
    shape: tuple[int, ...] | None = None
    if all(value.shape is not None for value in values):
        shapes = [value.shape or () for value in values]
        shape = (*shapes[0][:axis], sum(each[axis] for each in shapes), *shapes[0][axis + 1 :])
    return Join("concat", axis, ends), [], replace(whole, shape=shape, mask=None)


def _expanded(value: Value, rank: int, end: Row, kind: str) -> Value:
    """A value with more axes, of one element each, in front; the row that makes it so grows."""
    if value.rank == rank:
        return value
    shape = (1,) * (rank - value.rank) + value.extents(f"{kind} of values of different axes,")
    end.append({"type": "reshape", "shape": list(shape)})
    return replace(value, rank=rank, shape=shape)


def _repeated(shape: Sequence[int], wanted: Sequence[int]) -> Row:
    """What repeats a value along each axis of which it has one element and others have more."""
    row: Row = []
    now = list(shape)
    for axis, (extent, more) in enumerate(zip(shape, wanted, strict=True)):
        if extent == 1 < more:
            row.append({"type": "reshape", "shape": [prod(now[:axis]), 1, prod(now[axis + 1 :])]})
            row.append({"type": "up_sampling2d", "scale": [more, 1], "mode": "nearest"})
            now[axis] = more
            row.append({"type": "reshape", "shape": list(now)})
    return row


def _extreme(combine: str, whole: Value, ends: list[Row]) -> tuple[Join, Row, Value]:
    """The largest of several numbers, or the smallest: a pooling over them side by side."""
    shape = list(whole.extents(combine.capitalize()))
    turned = _TURNED if combine == "minimum" else []
    for end in ends:
        end.extend([*turned, {"type": "reshape", "shape": [prod(shape), 1]}])
    after: Row = [{"type": "global_max_pool1d"}, {"type": "reshape", "shape": shape}, *turned]
    return Join("concat", 1, ends), after, whole


def _dot(config: Mapping[str, Any], read: Sequence[Value]) -> tuple[Join, Row, Value]:
    """Sums of products over one axis of both values: the products of all pairs of what is left."""
    refuse(len(read) != 2, f"Dot of {len(read)} values")
    ranks = [value.rank for value in read]
    refuse(
        max(ranks) > 2 or min(ranks) < 1,
        f"Dot of values of {_listed(ranks)} axes: here of 1 or 2, so Reshape them before",
    )
    axes = config["axes"] if isinstance(config["axes"], list) else [config["axes"]] * 2
    axes = [axis - 1 if axis > 0 else axis % value.rank for axis, value in zip(axes, read, strict=True)]
    ends, kept = [], []
    for place, (value, axis) in enumerate(zip(read, axes, strict=True)):
        end = moved(value, first=False)
        shape = value.laid(first=False).extents("Dot")
        if axis == 0 and value.rank == 2:
            end.append({"type": "permute", "axes": [1, 0]})
            shape = shape[::-1]
        if config.get("normalize"):
            end.append({"type": "l2_norm"})
        many = shape[:-1]
        kept.append(many)
        lone = prod(many)
        end.append({"type": "reshape", "shape": [lone, 1, shape[-1]] if place == 0 else [1, lone, shape[-1]]})
        ends.append(end)
    shape = (*kept[0], *kept[1]) or (1,)
    after: Row = [
        {"type": "expr", "expression": "sum(x, axis=-1)"},
        {"type": "reshape", "shape": list(shape)},
    ]
    return Join("multiply", ends=ends), after, Value(len(shape), False, shape)


def operation(
    kind: str, config: Mapping[str, Any], node: Mapping[str, Any], read: Sequence[Value]
) -> tuple[Join | None, Row, Value]:
    """Returns what arithmetic on a model's values becomes: of several values, or of one and a number.

    Args:
        kind: The operation's class in `keras.ops`.
        config: Its settings.
        node: Its call, with the arguments.
        read: The values among these, in order.

    Returns:
        How values are joined, None where there is one; what comes behind, and what that makes.

    Raises:
        Unsupported: It is another operation, or has constants that are no numbers.
    """
    operands = list(_operands([node["args"], node["kwargs"]]))
    values = [operand is None for operand in operands]
    symbol = _SYMBOLS.get(kind)
    if kind == "Negative" and values == [True]:
        return None, _TURNED, read[0]
    if kind == "Concatenate" and values and all(values):
        return merged(kind, config, read)
    if (symbol is None and kind not in _CHOICES) or len(operands) != 2:
        raise Unsupported(f"keras.ops {kind} is of no layer that loom has")
    if all(values):
        if symbol == "/":
            join, _, value = merged("Multiply", config, read, expand=False)
            ends = [join.ends[0], [*join.ends[1], *_INVERTED]]
            return Join(join.combine, ends=ends), [], value
        return merged(kind, config, read, expand=False)
    (number,) = (operand for operand in operands if operand is not None)
    refuse(not isinstance(number, float), f"keras.ops {kind} of a value and a constant that is no number")
    if kind in _CHOICES:
        text = f"{_CHOICES[kind]}(x, {number!r})"
    else:
        text = f"x {symbol} {number!r}" if values[0] else f"{number!r} {symbol} x"
    return None, [{"type": "expr", "expression": text}], read[0]


def _operands(argument: Any) -> Iterator[Any]:  # noqa: ANN401 - of JSON
    """The operands of a call: None for a value of the model, a float for a number, else what stands there."""
    if isinstance(argument, Mapping):
        if argument.get("class_name") == "__keras_tensor__":
            yield None
            return
        if "class_name" in argument:
            yield argument
            return
        argument = list(argument.values())
    if isinstance(argument, list):
        for entry in argument:
            yield from _operands(entry)
    elif isinstance(argument, int | float) and not isinstance(argument, bool):
        yield float(argument)
    else:
        yield argument if argument is not None else "None"
