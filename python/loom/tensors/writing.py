"""Writing safetensors and GGUF, one tensor in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import file_path
from loom._settings.suggestions import shown
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import ConfigError, DTypeError, InvalidValueError
from loom.tensors.entry import TensorEntry
from loom.tensors.opening import NUMPY_TYPES

__all__ = ["write_gguf", "write_safetensors"]

_SAFETENSORS = {*NUMPY_TYPES, "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e8m0"}

GGUF_TYPES = ("float32", "float16", "bfloat16", "q4_0", "q8_0")
"""The types that numbers can be written as."""

_GGUF_AS_IS = ("float64", "int64", "int32", "int16", "int8")
"""The types that GGUF has and that are written as they are."""

_BLOCK = {"q4_0": 32, "q8_0": 32}


class _Piece(NamedTuple):
    """A tensor on its way into a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: Callable[[], NDArray[np.uint8]]


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, ArrayLike],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes arrays by name as a safetensors file; an older file survives a failure.

    Args:
        path: Where to.
        tensors: Arrays, or the entries of a file that `loom.open_tensors` has opened: those are read, and
            decoded where safetensors has no such type, one at a time.
        metadata: What the file is to say beside them.

    Raises:
        ConfigError: The tensors are no arrays by name.
        DTypeError: An array is of a type that safetensors does not have.
        InvalidValueError: Metadata are not strings by name.
        FileError: The system refuses.

    Examples:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "arrays.safetensors"
        >>> loom.tensors.write_safetensors(path, {"ones": np.ones((2, 2))}, {"made by": "hand"})
        >>> loom.open_tensors(path).metadata
        {'made by': 'hand'}
    """
    _check_tensors("write_safetensors", path, tensors)
    metadata = dict(metadata or {})
    for pair in metadata.items():
        if not all(isinstance(text, str) for text in pair):
            raise InvalidValueError(f"metadata of safetensors are strings by name, got {pair!r}")
    pieces = [_plain_piece(name, tensor, _SAFETENSORS, "safetensors") for name, tensor in tensors.items()]
    _native.write_safetensors(
        file_path("write_safetensors", path), metadata, _specified(pieces), lambda index: pieces[index].raw()
    )


def write_gguf(
    path: str | os.PathLike[str],
    tensors: Mapping[str, ArrayLike],
    metadata: Mapping[str, Any] | None = None,
    dtype: str | Mapping[str, str] | None = None,
) -> None:
    """Writes arrays by name as a GGUF file of version 3; an older file survives a failure.

    Args:
        path: Where to.
        tensors: Arrays, or the entries of a file that `loom.open_tensors` has opened: those are read one at a
            time. Integers are written as they are.
        metadata: What the file is to say beside them: truth values, numbers, strings, and lists of those. A
            whole number is written as uint32 where that holds it, a list of them as int32, other numbers as
            float32; NumPy's numbers and arrays keep their types.
        dtype: What numbers are written as: "float32", "float16", "bfloat16", "q4_0" or "q8_0", or such a type
            by name. None keeps what a tensor is where GGUF has it. Tensors of one axis stay float32, and
            those whose rows are not whole blocks of 32 are float16 where q4_0 or q8_0 is asked for.

    Raises:
        ConfigError: The tensors are no arrays by name.
        DTypeError: A type that GGUF does not have, or that is not written.
        InvalidValueError: Metadata of a kind that GGUF does not have.
        NonFiniteError: A number that its type cannot hold.
        FileError: The system refuses.
    """
    _check_tensors("write_gguf", path, tensors)
    pieces = []
    for name, tensor in tensors.items():
        wanted = dtype.get(name) if isinstance(dtype, Mapping) else dtype
        if wanted is not None and wanted not in GGUF_TYPES:
            raise DTypeError(f'"{name}" cannot be written as {wanted!r}; known: {", ".join(GGUF_TYPES)}')
        pieces.append(_gguf_piece(name, tensor, wanted))
    values = [(str(key), _value(str(key), value)) for key, value in (metadata or {}).items()]
    _native.write_gguf(
        file_path("write_gguf", path), values, _specified(pieces), lambda index: pieces[index].raw()
    )


def _check_tensors(where: str, path: object, tensors: object) -> None:
    if not isinstance(tensors, Mapping):
        swapped = "; the path comes first" if isinstance(path, Mapping) else ""
        raise ConfigError(
            f'{where}: tensors are arrays by name, {{"weight": array}}, got {shown(tensors)}{swapped}'
        )


def _specified(pieces: list[_Piece]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(piece.name, piece.dtype, piece.shape) for piece in pieces]


def _looked_at(name: str, tensor: ArrayLike) -> TensorEntry:
    """Returns a tensor as if it were in a file."""
    if isinstance(tensor, TensorEntry):
        return tensor
    array = as_numpy(tensor, what=name)
    return TensorEntry(name, array.shape, array.dtype.name, array.nbytes, lambda: array)


def _little(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns the bytes of an array, the lowest of each number first."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8)


def _plain_piece(name: str, tensor: ArrayLike, known: set[str], kind: str) -> _Piece:
    entry = _looked_at(name, tensor)
    if entry.dtype in known:
        in_numpy = entry.dtype in NUMPY_TYPES
        raw = (lambda: _little(entry.numpy())) if in_numpy else entry.raw
        return _Piece(name, entry.dtype, entry.shape, raw)
    if isinstance(tensor, TensorEntry):
        return _Piece(name, "float32", entry.shape, lambda: _little(entry.numpy(np.float32)))
    raise DTypeError(f'"{name}": {kind} has no {entry.dtype}')


def _gguf_piece(name: str, tensor: ArrayLike, wanted: str | None) -> _Piece:
    entry = _looked_at(name, tensor)
    if entry.dtype in _GGUF_AS_IS[1:] or (wanted is None and entry.dtype == "float64"):
        return _plain_piece(name, entry, set(_GGUF_AS_IS), "GGUF")
    if np.dtype(entry.dtype if entry.dtype in NUMPY_TYPES else "float32").kind not in "fiu":
        raise DTypeError(f'"{name}": GGUF has no {entry.dtype}')
    kept = entry.dtype if entry.dtype in GGUF_TYPES else "float32"
    dtype = kept if wanted is None else wanted
    if wanted is not None and len(entry.shape) < 2:
        dtype = "float32"
    elif dtype in _BLOCK and entry.shape[-1] % _BLOCK[dtype]:
        dtype = "float16"
    if dtype == entry.dtype:
        return _Piece(name, dtype, entry.shape, entry.raw)

    def raw() -> NDArray[np.uint8]:
        numbers = np.ascontiguousarray(entry.numpy(), dtype=np.float32).reshape(-1)
        return _native.encode_tensor(dtype, numbers)

    return _Piece(name, dtype, entry.shape, raw)


def _value(key: str, value: object) -> str | list[str] | tuple[bool, str, bytes]:
    """Returns a value of metadata as the native module takes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
        return list(value)
    is_array = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidValueError(f'metadata "{key}" is of a kind that GGUF does not have') from error
    if not isinstance(value, (np.generic, np.ndarray)):
        array = _narrowed(array, is_array)
    if array.dtype.name not in NUMPY_TYPES or array.dtype.kind == "c" or array.dtype == np.float16:
        raise InvalidValueError(f'metadata "{key}" is of a kind that GGUF does not have: {value!r:.60}')
    if array.ndim != int(is_array):
        raise InvalidValueError(f'metadata "{key}": arrays of more than one axis cannot be written')
    return is_array, array.dtype.name, _little(array).tobytes()


def _narrowed(array: NDArray[Any], is_array: bool) -> NDArray[Any]:
    """Returns Python's numbers in the types that llama.cpp expects of them."""
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind not in "iu":
        return array
    order = (np.int32, np.uint32) if is_array else (np.uint32, np.int32)
    for dtype in order:
        limits = np.iinfo(dtype)
        if not array.size or (array.min() >= limits.min and array.max() <= limits.max):
            return array.astype(dtype)
    return array
