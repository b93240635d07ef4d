"""ONNX files, read with care: what they claim is checked against what there is."""

from __future__ import annotations

import math
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.errors import FileError, SerializationError
from loom.extras import require

__all__ = ["array_of", "read_model", "tensors_of"]

LARGEST = 2**40
"""Elements that a tensor has at most."""


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
            data = path.read_bytes()
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
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            raise SerializationError(f"the ONNX model's functions cannot be put in place: {error}") from error
    return model, folder


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
