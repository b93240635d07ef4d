"""What requests hold: samples as JSON or as .npy; and answers in the same form."""

from __future__ import annotations

import io
import json
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from loom.errors import LoomError

__all__ = ["NPY", "BodyError", "body_within", "from_json", "from_npy", "named_from_json", "to_npy"]

NPY = "application/x-npy"


class BodyError(LoomError, ValueError):
    """A body that is not what it says it is."""


async def body_within(request: Any, most: int) -> bytes | None:  # noqa: ANN401 - Starlette's
    """Returns a request's body; None, and the rest unread, where it is longer than `most` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)


def named_from_json(body: bytes) -> dict[str, Any] | None:
    """Reads samples by name: of named inputs, or of a table's columns.

    They are a list for each name, `{"inputs": {"size": [...], "city": [...]}}`, or a sample after another,
    `{"inputs": [{"size": 70, "city": "Oslo"}, ...]}`.

    Returns:
        A list for each name; what a sample leaves out is None. None where inputs have no names.

    Raises:
        BodyError: It is no JSON of inputs.
    """
    given = _inputs(body)
    if isinstance(given, dict):
        lengths = {len(values) if isinstance(values, list) else -1 for values in given.values()}
        if len(lengths) != 1 or -1 in lengths:
            raise BodyError("inputs: each name has a list, and all are of one length")
        return given
    if isinstance(given, list) and given and all(isinstance(sample, dict) for sample in given):
        names = {name: None for sample in given for name in sample}
        return {name: [sample.get(name) for sample in given] for name in names}
    return None


def from_json(body: bytes) -> NDArray[Any]:
    """Reads samples from `{"inputs": [...]}`.

    Raises:
        BodyError: It is no such JSON, or not of numbers.
    """
    rows = _inputs(body)
    if isinstance(rows, list) and any(isinstance(row, dict) for row in rows):
        raise BodyError(
            "each sample is a list of numbers; samples by name, all of them, are for networks that have "
            "learned from a table or have named inputs"
        )
    try:
        return np.asarray(rows)
    except (ValueError, OverflowError) as error:
        raise BodyError(f"inputs: rows of different lengths do not make an array ({error})") from error


def _inputs(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the body is no JSON: {error}") from error
    if not isinstance(told, dict) or set(told) != {"inputs"}:
        raise BodyError('the body is {"inputs": [sample, sample, ...]}, each a list of numbers')
    return told["inputs"]


def from_npy(body: bytes) -> NDArray[Any]:
    """Reads samples from what `numpy.save` writes; what its header announces has to be there.

    Raises:
        BodyError: It is none, or holds Python objects.
    """
    stream = io.BytesIO(body)
    try:
        version = npy.read_magic(stream)
        if version == (1, 0):
            shape, by_column, dtype = npy.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, by_column, dtype = npy.read_array_header_2_0(stream)
        else:
            raise BodyError(f"the body is .npy of version {version}; 1.0 and 2.0 are read")
    except BodyError:
        raise
    except Exception as error:  # Of a damaged header NumPy lets through whatever Python's parser raises.
        raise BodyError(f"the body is no .npy: {error}") from error
    if dtype.hasobject:
        raise BodyError("the body holds Python objects; save an array of numbers")
    wanted, held = prod(shape) * dtype.itemsize, len(body) - stream.tell()
    if wanted != held:
        raise BodyError(f"the body's header announces {wanted} bytes of data, but it has {held}")
    elements = np.frombuffer(body, dtype, offset=stream.tell()) if held else np.empty(0, dtype)
    try:
        return elements.reshape(shape, order="F" if by_column else "C")
    except ValueError as error:
        raise BodyError(f"no array can have the shape {shape}") from error


def to_npy(array: NDArray[Any]) -> bytes:
    """Returns an array as `numpy.save` writes it."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
