"""NumPy's own files, .npz and .npy; objects, which would be unpickled, are refused."""

from __future__ import annotations

import io
import zipfile
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from loom.errors import SerializationError
from loom.tensors.entry import TensorEntry, TensorFile

__all__ = ["MAGIC", "open_npy", "open_npz"]

MAGIC = npy.MAGIC_PREFIX

_DAMAGE = (ValueError, EOFError, OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, SyntaxError)
"""What NumPy and zipfile raise for files that are damaged; zlib's error is one of its own."""

_MOST_PACKED = 1032
"""What deflate can make of a byte at the most."""


def open_npz(source: Path | io.BytesIO, label: str) -> TensorFile:
    """Opens an archive of arrays.

    Args:
        source: The file.
        label: What it is called in messages.

    Returns:
        The arrays by name; each is read when it is asked for.

    Raises:
        SerializationError: The archive is damaged, or holds objects.
    """
    entries: dict[str, TensorEntry] = {}
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in entries:
                raise SerializationError(f'{label}: "{name}" is there twice')
            if info.file_size > _MOST_PACKED * info.compress_size + 1024:
                raise SerializationError(f'{label}: "{name}" cannot unpack to {info.file_size} bytes')
            try:
                with archive.open(info) as member:
                    shape, dtype = _header(member, info.file_size, f'{label}: "{name}"')
            except (*_DAMAGE, _zlib_error()) as error:
                if isinstance(error, SerializationError):
                    raise
                raise SerializationError(f'{label}: "{name}" is damaged ({error})') from error
            nbytes = prod(shape) * dtype.itemsize
            read = _Member(source, info.filename, label)
            entries[name] = TensorEntry(name, shape, dtype.name, nbytes, read)
    return TensorFile("npz", {}, entries, label)


def open_npy(source: Path | io.BytesIO, label: str, name: str) -> TensorFile:
    """Opens a file of one array; on disk, it is mapped into memory.

    Args:
        source: The file.
        label: What it is called in messages.
        name: What the array is called.

    Returns:
        The one array.

    Raises:
        SerializationError: The file is damaged, or holds objects.
    """
    try:
        if isinstance(source, Path):
            with source.open("rb") as file:
                _header(file, source.stat().st_size, label)
            array = np.load(source, mmap_mode="r", allow_pickle=False)
        else:
            _header(source, len(source.getbuffer()), label)
            source.seek(0)
            array = np.load(source, allow_pickle=False)
    except _DAMAGE as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError(f"{label}: damaged ({error})") from error
    array.flags.writeable = False
    entry = TensorEntry(name, array.shape, array.dtype.name, array.nbytes, lambda: array)
    return TensorFile("npy", {}, {name: entry}, label)


class _Member:
    """Reads one array of an archive."""

    __slots__ = ("label", "member", "source")

    def __init__(self, source: Path | io.BytesIO, member: str, label: str) -> None:
        self.source, self.member, self.label = source, member, label

    def __call__(self) -> NDArray[Any]:
        try:
            with zipfile.ZipFile(self.source) as archive, archive.open(self.member) as member:
                return np.asarray(npy.read_array(member, allow_pickle=False))
        except (*_DAMAGE, _zlib_error()) as error:
            raise SerializationError(f'{self.label}: "{self.member}" is damaged ({error})') from error


def _header(file: IO[bytes], size: int, what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads what an array is, and checks that the file is long enough for it."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise SerializationError(f"{what} holds Python objects, which would have to be unpickled")
    if prod(shape) * dtype.itemsize > size:
        raise SerializationError(f"{what} of extents {shape} lies beyond the end of the file")
    return tuple(shape), dtype


def _zlib_error() -> type[Exception]:
    import zlib

    return zlib.error
