"""What Keras makes of several values, by layers and by arithmetic on the values themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom.models.branches import Join, Row
from loom.models.keras.layers import Unsupported, Value, moved, refuse

__all__ = ["MERGES", "is_operation", "merged", "operation", "refuse_foreign"]

MERGES = {
    "Add": "add",
    "Concatenate": "concat",
    "Average": "average",
    "Multiply": "multiply",
    "Subtract": "subtract",
}
"""Layers of several inputs, and how loom's Parallel calls them; a difference is a sum with one end turned."""

_SYMBOLS = {"Add": "+", "Subtract": "-", "Multiply": "*", "TrueDivide": "/", "Divide": "/"}
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


def merged(kind: str, config: Mapping[str, Any], read: Sequence[Value]) -> tuple[Join, Value]:
    """Returns several values as one, all in the layout of the first.

    Raises:
        Unsupported: They have not the same number of axes, or are not as many as the layer takes.
    """
    first = read[0]
    ranks = [value.rank for value in read]
    refuse(len(set(ranks)) > 1, f"{kind} of values of {' and '.join(map(str, ranks))} axes")
    ends = [moved(value, first=first.first) for value in read]
    axis = None
    if kind == "Concatenate":
        axis = config.get("axis", -1)
        axis = axis - 1 if axis > 0 else axis % first.rank
        # Channels, which Keras has last, may be first here.
        axis = axis if not first.first else 0 if axis == first.rank - 1 else axis + 1
    combine = MERGES[kind]
    if combine == "subtract":
        refuse(len(read) != 2, f"Subtract of {len(read)} values")
        ends[1] = [*ends[1], *_TURNED]
        combine = "add"
    return Join(combine, axis, ends), first


def operation(
    kind: str, config: Mapping[str, Any], node: Mapping[str, Any], read: Sequence[Value]
) -> tuple[Join | Row, Value]:
    """Returns what arithmetic on a model's values becomes: of several values, or of one and a number.

    Args:
        kind: The operation's class in `keras.ops`.
        config: Its settings.
        node: Its call, with the arguments.
        read: The values among these, in order.

    Raises:
        Unsupported: It is another operation, or has constants that are no numbers.
    """
    operands = list(_operands([node["args"], node["kwargs"]]))
    values = [operand is None for operand in operands]
    symbol = _SYMBOLS.get(kind)
    if kind == "Negative" and values == [True]:
        return _TURNED, read[0]
    if kind == "Concatenate" and values and all(values):
        return merged(kind, config, read)
    if symbol is None or len(operands) != 2:
        raise Unsupported(f"keras.ops {kind} is of no layer that loom has")
    if all(values):
        if symbol == "/":
            join, value = merged("Multiply", config, read)
            return Join(join.combine, ends=[join.ends[0], [*join.ends[1], *_INVERTED]]), value
        return merged(kind, config, read)
    (number,) = (operand for operand in operands if operand is not None)
    refuse(not isinstance(number, float), f"keras.ops {kind} of a value and a constant that is no number")
    text = f"x {symbol} {number!r}" if values[0] else f"{number!r} {symbol} x"
    return [{"type": "expr", "expression": text}], read[0]


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
