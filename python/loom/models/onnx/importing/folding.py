"""What of a graph is constant, and the shape of everything else, for a given number of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.errors import LoomError
from loom.extras import require
from loom.models.onnx.importing.reading import array_of

__all__ = ["Folded", "evaluate_nodes", "fold"]

LARGEST = 2**28
"""Bytes that a folded constant has at most; all of them may have that and what the file's tensors have."""
SLOW = 2**16
"""Elements of a constant that any operator may make; more are for those that NumPy computes at once."""
FAST = {
    *(
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Clip",
        "Concat",
        "ConstantOfShape",
        "Cos",
        "DequantizeLinear",
        "Div",
    ),
    *("Equal", "Exp", "Expand", "Flatten", "Floor", "Gather", "Greater", "Less", "Log", "Max", "Min", "Mod"),
    *("Mul", "Neg", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceSum", "Reshape", "Sin", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile"),
    *("Transpose", "Trilu", "Unsqueeze", "Where", "GreaterOrEqual", "LessOrEqual", "NonZero"),
}
NEVER = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
"""What makes other numbers every time."""
ALIASES = {"Identity", "Dropout", "ZipMap"}


class Folded:
    """A graph with its constants and shapes.

    Args:
        nodes: What is left to compute, in order; names of values are those behind aliases.
        constants: What is constant, by name.
        shapes: The shape of every value, or None where it is not known.
        alias: The name behind names that are given on as they are.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        self.types: dict[str, int] = {}
        self.alias: dict[str, str] = {}


def evaluate_nodes(
    nodes: list[Any],
    given: Mapping[str, NDArray[Any]],
    wanted: list[str],
    opsets: list[Any],
) -> list[NDArray[Any]]:
    """Computes values with ONNX's own reference implementation.

    Args:
        nodes: NodeProtos, in order.
        given: What they read.
        wanted: Which values are returned.
        opsets: The model's operator sets.
    """
    onnx = require("onnx", extra="onnx", purpose="reading ONNX")
    helper = onnx.helper
    reads = {name for node in nodes for name in node.input if name}
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(given[name].dtype), given[name].shape
        )
        for name in sorted(reads & set(given))
    ]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in wanted]
    graph = helper.make_graph(nodes, "piece", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets)
    runner = require("onnx.reference", extra="onnx", purpose="reading ONNX").ReferenceEvaluator(model)
    found = runner.run(wanted, {name: given[name] for name in reads & set(given)})
    return [np.asarray(value) for value in found]


def fold(
    model: Any,  # noqa: ANN401 - a ModelProto
    tensors: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path | None,
    like: Folded | None = None,
) -> Folded:
    """Finds constants and shapes.

    Args:
        model: The model.
        tensors: Its initializers, and inputs that are given once and for all.
        shapes: The shape of each other input.
        folder: Where external data is.
        like: The same for the number of rows that the model was written for, which its constants may hold.
    """
    onnx = require("onnx", extra="onnx", purpose="reading ONNX")
    made = Folded()
    made.constants.update(tensors)
    left = LARGEST + 8 * sum(value.nbytes for value in tensors.values())
    for value in model.graph.input:
        if value.name not in made.constants:
            made.shapes[value.name] = shapes.get(value.name)
            made.types[value.name] = value.type.tensor_type.elem_type
    for given in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(given)
        for place, name in enumerate(given.input):
            node.input[place] = made.alias.get(name, name)
        if (
            node.op_type in ALIASES
            or _keeps(node, made)
            or (node.op_type == "Concat" and len(node.input) == 1)
        ):
            made.alias[node.output[0]] = node.input[0]
            continue
        if node.op_type == "Constant":
            value = _constant(onnx, node, folder)
            if value is not None:
                made.constants[node.output[0]] = value
                continue
        elif node.op_type in ("Shape", "Size") and made.shapes.get(node.input[0]) is not None:
            made.constants[node.output[0]] = _extents(onnx, node, made.shapes[node.input[0]] or ())
            continue
        if like is not None:
            _set_rows(node, made, like)
        found = _inferred(onnx, node, made, model.opset_import)
        constant = bool(node.input) and all(not name or name in made.constants for name in node.input)
        nested = any(each.HasField("g") or each.graphs for each in node.attribute)
        constant = constant and not nested and node.op_type not in {"Constant", *NEVER}
        if constant and _small(found, node, made.constants, left):
            try:
                if node.op_type == "DequantizeLinear":
                    values = [_dequantised(onnx, node, made.constants)]
                else:
                    values = evaluate_nodes(
                        [node], made.constants, list(node.output), list(model.opset_import)
                    )
                made.constants.update(zip(node.output, values, strict=True))
                left -= sum(value.nbytes for value in values)
                continue
            except LoomError:
                raise
            except Exception:  # noqa: BLE001 - what cannot be computed is left, and told as an operator
                pass
        other = _of_learning(onnx, node, made)
        for place, name in enumerate(node.output):
            kind = found.get(name)
            shape = helper_shape(kind) if kind else None
            shape = other[place] if other and shape is None else shape
            made.shapes[name] = shape
            made.types[name] = kind.tensor_type.elem_type if kind else 1
        made.nodes.append(node)
    return made


def _set_rows(node: Any, made: Folded, like: Folded) -> None:  # noqa: ANN401 - a NodeProto
    """Exchanges constants that hold the number of rows for which a model was written."""
    name = node.input[0] if node.input else ""
    now, then, after = made.shapes.get(name), like.shapes.get(name), like.shapes.get(node.output[0])
    if node.op_type == "Reshape" and node.input[1] in made.constants and now and then and after:
        target = _reshaped(now, then, after)
        if target is not None:
            node.input[1] = f"{node.output[0]}.extents"
            made.constants[node.input[1]] = np.asarray(target, np.int64)
    if node.op_type == "Expand" and node.input[1] in made.constants:
        _set_expanded(node, made, now, then)
    if node.op_type in ("LSTM", "GRU", "RNN") and now is not None and len(now) == 3:
        for place in range(5, min(len(node.input), 7)):
            value = made.constants.get(node.input[place])
            if value is not None and value.ndim == 3 and bool((value == value[:, :1]).all()):
                node.input[place] = f"{node.output[0]}.state{place}"
                made.constants[node.input[place]] = np.repeat(value[:, :1], now[1], axis=1)
    if node.op_type == "Concat":
        rows = {(made.shapes[read] or (0,))[0] for read in node.input if made.shapes.get(read)}
        for place, read in enumerate(node.input):
            value = made.constants.get(read)
            if value is not None and len(rows) == 1 and value.ndim > 1 and bool((value == value[:1]).all()):
                node.input[place] = f"{read}.rows"
                made.constants[node.input[place]] = np.repeat(value[:1], rows.copy().pop(), axis=0)


def _set_expanded(
    node: Any,  # noqa: ANN401 - a NodeProto
    made: Folded,
    now: tuple[int, ...] | None,
    then: tuple[int, ...] | None,
) -> None:
    """Gives what is repeated, and how often, the number of rows there is."""
    extents = made.constants[node.input[1]].reshape(-1).copy()
    value = made.constants.get(node.input[0])
    if value is not None:
        for axis in range(-min(value.ndim, extents.size), 0):
            first = value.take([0], axis=axis)
            if value.shape[axis] not in (1, extents[axis]) and bool((value == first).all()):
                value = first
        node.input[0] = f"{node.output[0]}.one"
        made.constants[node.input[0]] = value
    elif now and then:
        for back in range(1, min(len(now), extents.size) + 1):
            if now[-back] != then[-back] and extents[-back] == then[-back]:
                extents[-back] = now[-back]
        node.input[1] = f"{node.output[0]}.extents"
        made.constants[node.input[1]] = extents


def _reshaped(now: tuple[int, ...], then: tuple[int, ...], after: tuple[int, ...]) -> list[int] | None:
    """Returns what a shape becomes where the rows of what has it are others; None where that is not clear."""
    changed = [axis for axis in range(len(now)) if now[axis] != then[axis]]
    if len(changed) != 1 or not all(now) or not all(then):
        return None
    before = math.prod(then[: changed[0]])
    fits = [axis for axis in range(len(after)) if math.prod(after[:axis]) == before]
    for axis in [*fits, *range(len(after))]:
        extent, rest = divmod(after[axis] * now[changed[0]], then[changed[0]])
        made = [*after[:axis], extent, *after[axis + 1 :]]
        if not rest and extent and math.prod(made) == math.prod(now):
            return made
    return None


def helper_shape(kind: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - a TypeProto
    """Returns the extents of a type, or None where one is not known."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    extents = [extent.dim_value if extent.HasField("dim_value") else -1 for extent in tensor.shape.dim]
    return None if -1 in extents else tuple(extents)


def _keeps(node: Any, made: Folded) -> bool:  # noqa: ANN401 - a NodeProto
    """Whether a cast leaves values what they are to a network: between floats, or between whole numbers."""
    if node.op_type != "Cast" or node.input[0] in made.constants:
        return False
    after = next(attribute.i for attribute in node.attribute if attribute.name == "to")
    floats, wholes = {1, 10, 11, 16}, {2, 3, 4, 5, 6, 7, 12, 13}
    before = made.types.get(node.input[0], 0)
    return any({before, after} <= group for group in (floats, wholes))


def _constant(onnx: Any, node: Any, folder: Path | None) -> NDArray[Any] | None:  # noqa: ANN401
    for attribute in node.attribute:
        if attribute.name == "value":
            return array_of(attribute.t, folder)
        if attribute.name in ("value_float", "value_floats"):
            return np.asarray(onnx.helper.get_attribute_value(attribute), np.float32)
        if attribute.name in ("value_int", "value_ints"):
            return np.asarray(onnx.helper.get_attribute_value(attribute), np.int64)
    return None


def _dequantised(onnx: Any, node: Any, constants: Mapping[str, NDArray[Any]]) -> NDArray[Any]:  # noqa: ANN401
    """Returns what codes stand for; ONNX's evaluator knows the operator from opset 19 on alone."""
    settings = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    codes, scale, *zero = (np.asarray(constants[name]) for name in node.input if name)
    if settings.get("block_size"):
        raise NotImplementedError("scales of blocks")
    extents = [1] * codes.ndim
    if scale.ndim == 1 and scale.size > 1:
        extents[settings.get("axis", 1)] = -1
    moved = codes.astype(np.float32) - (zero[0].astype(np.float32).reshape(extents) if zero else 0)
    return np.asarray(moved * scale.astype(np.float32).reshape(extents), np.float32)


def _extents(onnx: Any, node: Any, shape: tuple[int, ...]) -> NDArray[Any]:  # noqa: ANN401
    if node.op_type == "Size":
        return np.asarray(math.prod(shape), np.int64)
    settings = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return np.asarray(shape[settings.get("start", 0) : settings.get("end", len(shape))], np.int64)


def _inferred(onnx: Any, node: Any, made: Folded, opsets: Any) -> dict[str, Any]:  # noqa: ANN401
    """Returns the types of a node's outputs, by ONNX's own rules."""
    versions = {opset.domain: opset.version for opset in opsets}
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        types, data = {}, {}
        for name in node.input:
            if name in made.constants:
                value = made.constants[name]
                kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
                types[name] = onnx.helper.make_tensor_type_proto(kind, value.shape)
                if value.size <= 4096:
                    data[name] = onnx.numpy_helper.from_array(np.asarray(value), name)
            elif name:
                types[name] = onnx.helper.make_tensor_type_proto(
                    made.types.get(name, 1), made.shapes.get(name)
                )
        found: dict[str, Any] = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=list(opsets)
        )
        return found
    except Exception:  # noqa: BLE001 - what has no shape is told as an operator that is not known
        return {}


def _of_learning(onnx: Any, node: Any, made: Folded) -> list[tuple[int, ...]] | None:  # noqa: ANN401
    """Returns the shapes that operators of classical learning make, of which ONNX's rules say nothing."""
    shape = made.shapes.get(node.input[0]) if node.input else None
    if node.domain != "ai.onnx.ml" or not shape:
        return None
    if node.op_type in ("Scaler", "Normalizer"):
        return [shape]
    settings = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type in ("LinearRegressor", "LinearClassifier"):
        scores = (shape[0], len(settings.get("coefficients", ())) // shape[-1])
        return [scores] if node.op_type == "LinearRegressor" else [shape[:1], scores]
    return None


def _small(
    found: Mapping[str, Any],
    node: Any,  # noqa: ANN401 - a NodeProto
    constants: Mapping[str, NDArray[Any]],
    left: int,
) -> bool:
    """Whether a constant may be computed: a few numbers in a file may ask for any amount of memory."""
    total = 0
    for name in node.output:
        shape = helper_shape(found[name]) if name in found else None
        if name and shape is None:
            shape = _bound(node, [constants[read] for read in node.input if read])
        if name and shape is None:
            return False
        total += math.prod(shape or ())
    within = sum(constants[name].size for name in node.input if name)
    if node.op_type in ("MatMul", "Gemm"):
        # Every output is a sum over what both share.
        return total * max(constants[node.input[0]].shape, default=1) <= 2**33 and 8 * total <= min(
            LARGEST, left
        )
    return 8 * total <= min(LARGEST, left) and (node.op_type in FAST or total + within <= SLOW)


def _bound(node: Any, values: list[NDArray[Any]]) -> tuple[int, ...] | None:  # noqa: ANN401 - a NodeProto
    """Returns a shape of as many elements as a node makes at most, where ONNX's rules do not say them."""
    if node.op_type in ("Cast", "Squeeze", "Unsqueeze"):
        return values[0].shape
    if node.op_type == "NonZero":
        return (values[0].ndim, values[0].size)
    if node.op_type == "Concat":
        return (sum(value.size for value in values),)
    if node.op_type in ("Equal", "Where"):
        try:
            return np.broadcast_shapes(*(value.shape for value in values))
        except ValueError:
            return None
    if node.op_type == "Gather" and values[0].ndim:
        return (values[1].size, values[0].size)
    return None
