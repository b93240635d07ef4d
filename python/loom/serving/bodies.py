"""What requests hold: samples as JSON or as .npy; and answers in the same form."""

from __future__ import annotations

import io
import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from loom.errors import DataError, LoomError

if TYPE_CHECKING:
    from loom.data import ColumnEncoder

__all__ = ["NPY", "BodyError", "body_within", "from_json", "from_npy", "to_npy"]

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


def from_json(body: bytes, encoder: ColumnEncoder | None = None) -> NDArray[Any]:
    """Reads samples from `{"inputs": [...]}`.

    Args:
        body: The body.
        encoder: What makes numbers of samples by name, {"size": 70, "city": "Oslo"}, where the network has
            learned from a table.

    Raises:
        BodyError: It is no such JSON, or not of samples.
        DataError: Samples by name lack a column.
        DTypeError: A column of numbers holds texts.
    """
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the body is no JSON: {error}") from error
    by_name = "" if encoder is None else f", or an object with {', '.join(encoder.columns)}"
    if not isinstance(told, dict) or set(told) != {"inputs"}:
        raise BodyError(f'the body is {{"inputs": [sample, sample, ...]}}, each a list of numbers{by_name}')
    rows = told["inputs"]
    if isinstance(rows, list) and any(isinstance(row, dict) for row in rows):
        if encoder is None or not all(isinstance(row, dict) for row in rows):
            raise BodyError(
                f"each sample is a list of numbers{by_name}; samples by name are for networks that have "
                "learned from a table"
            )
        absent = [name for name in encoder.columns if not any(name in row for row in rows)]
        if absent:
            raise DataError(f"no sample has {', '.join(absent)}, which the network has learned from")
        return np.asarray(encoder({name: [row.get(name) for row in rows] for name in encoder.columns}))
    try:
        found = np.asarray(told["inputs"])
    except (ValueError, OverflowError) as error:
        raise BodyError(f"inputs: rows of different lengths do not make an array ({error})") from error
    return found


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
