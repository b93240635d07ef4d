"""ONNX files, read with care: what they claim is checked against what there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.files import content_of
from loom.errors import FileError, SerializationError
from loom.extras import require

__all__ = ["array_of", "read_model", "tensors_of"]

LARGEST = 2**40
"""Elements that a tensor has at most."""
NODES = 2**17
"""Nodes that functions come to at most."""


def read_model(source: str | PathLike[str] | bytes) -> tuple[Any, Path | None]:
    """Parses a file or bytes.

    Args:
        source: A path, or the bytes of a file.

    Returns:
        The ModelProto, without external data, and the folder that this would be in.

    Raises:
        SerializationError: It is no ONNX model.
        FileError: The file cannot be read.
    """
    onnx = require("onnx", extra="onnx", purpose="reading ONNX")
    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    else:
        path = Path(fspath(source))
        folder = path.parent
        try:
            data = content_of(path)
        except OSError as error:
            raise FileError(error.errno, f"the ONNX file {path} cannot be read: {error}") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own error classes differ between its versions
        raise SerializationError(f"this is no ONNX model: {error}") from error
    if not model.graph.node or not model.graph.output:
        raise SerializationError("this is no ONNX model: it holds no graph")
    if model.functions:
        if _expanded(model) > NODES:
            raise SerializationError("the ONNX model's functions come to too many nodes, or call themselves")
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            raise SerializationError(f"the ONNX model's functions cannot be put in place: {error}") from error
    _check_order(model)
    return model, folder


def _check_order(model: Any) -> None:  # noqa: ANN401 - a ModelProto
    """Refuses values that are made twice, or read before they are made."""
    tensors = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input]
    known = {*tensors, *inputs, *(tensor.values.name for tensor in model.graph.sparse_initializer)}
    if len(set(inputs)) != len(inputs):
        raise SerializationError("the ONNX model has two inputs of one name")
    for node in _all_nodes(model.graph.node):
        for each in node.attribute:
            held = [*each.tensors, each.sparse_tensor.values, each.sparse_tensor.indices]
            held += [] if node.op_type == "Constant" and each.name == "value" else [each.t]
            if any(tensor.data_location == 1 for tensor in held):
                raise SerializationError(
                    f'{node.op_type} "{node.name}" of the ONNX model has external data in "{each.name}"'
                )
    for node in model.graph.node:
        for name in node.input:
            if name and name not in known:
                raise SerializationError(
                    f'{node.op_type} "{node.name}" of the ONNX model reads "{name}", which nothing makes'
                )
        for name in node.output:
            if name in known:
                raise SerializationError(f'the ONNX model makes "{name}" twice')
            known |= {name} - {""}
    for value in model.graph.output:
        if value.name not in known:
            raise SerializationError(f'nothing of the ONNX model makes its output "{value.name}"')


def _expanded(model: Any) -> int:  # noqa: ANN401 - a ModelProto
    """Returns how many nodes a graph has with its functions in place; many where they go in circles."""
    bodies = {(each.domain, each.name): each.node for each in model.functions}
    counts: dict[tuple[str, str], int] = dict.fromkeys(bodies, 0)
    # Each round tells one more level; what still grows after as many as there are functions is a circle.
    for _ in range(len(bodies) + 1):
        before = dict(counts)
        counts = {
            key: min(sum(before.get((node.domain, node.op_type), 1) for node in _all_nodes(body)), NODES + 1)
            for key, body in bodies.items()
        }
        if counts == before:
            return sum(counts.get((node.domain, node.op_type), 1) for node in _all_nodes(model.graph.node))
    return NODES + 1


def _all_nodes(nodes: Any) -> Iterator[Any]:  # noqa: ANN401 - NodeProtos
    """Yields nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all_nodes(graph.node)


def tensors_of(model: Any, folder: Path | None) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - a ModelProto
    """Returns the initializers by name; SerializationError where one is not what it claims."""
    if model.graph.sparse_initializer:
        raise SerializationError("the ONNX model has sparse initializers, which loom does not read")
    tensors: dict[str, NDArray[Any]] = {}
    for tensor in model.graph.initializer:
        if tensor.name in tensors:
            raise SerializationError(f'the ONNX model has two initializers of the name "{tensor.name}"')
        tensors[tensor.name] = array_of(tensor, folder)
    return tensors


def array_of(tensor: Any, folder: Path | None) -> NDArray[Any]:  # noqa: ANN401 - a TensorProto
    """Returns a tensor's values, from its file where they stand outside."""
    onnx = require("onnx", extra="onnx", purpose="reading ONNX")
    where = f'ONNX tensor "{tensor.name}"'
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape) or math.prod(shape) > LARGEST:
        raise SerializationError(f"{where}: {shape} is no shape that loom can hold")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, shape, folder, where)
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if (
            tensor.raw_data
            and tensor.data_type < 17
            and len(tensor.raw_data) != math.prod(shape) * dtype.itemsize
        ):
            raise ValueError(f"{len(tensor.raw_data)} bytes for shape {shape} of {dtype}")
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise SerializationError(f"{where} is damaged: {error}") from error


def _external(tensor: Any, shape: tuple[int, ...], folder: Path | None, where: str) -> NDArray[Any]:  # noqa: ANN401
    onnx = require("onnx", extra="onnx", purpose="reading ONNX")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise SerializationError(
            f'{where} is in the file "{location}": load the model by its path, not as bytes'
        )
    relative = Path(location)
    inside = folder.resolve()
    target = (inside / relative).resolve()
    if not location or relative.is_absolute() or not target.is_relative_to(inside) or not target.is_file():
        raise SerializationError(f'{where}: external data "{location}" is no file in the folder of the model')
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).newbyteorder("<")
        offset = int(entries.get("offset", 0))
        needed = math.prod(shape) * dtype.itemsize
        length = int(entries.get("length", needed))
    except (ValueError, KeyError) as error:
        raise SerializationError(f"{where}: its external data is not described well: {error}") from error
    size = target.stat().st_size
    if offset < 0 or length != needed or offset + needed > size:
        raise SerializationError(
            f"{where}: {length} bytes from {offset} on of {location} ({size} in all) are not shape {shape} "
            f"of {dtype}"
        )
    if not needed:
        return np.zeros(shape, dtype)
    return np.memmap(target, dtype, "r", offset, shape)
