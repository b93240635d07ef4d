"""NumPy's own files, .npz and .npy; objects, which would be unpickled, are refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from loom.errors import FileError, LoomError, SerializationError
from loom.tensors.entry import TensorEntry, TensorFile

__all__ = ["MAGIC", "damage_told", "open_npy", "open_npz"]

MAGIC = npy.MAGIC_PREFIX

_MOST_PACKED = 1032
"""What deflate can make of a byte at the most."""


@contextmanager
def damage_told(what: str) -> Iterator[None]:
    """Tells of damage in a file as loom does; NumPy and zipfile raise nearly anything then.

    Args:
        what: What is read.
    """
    try:
        yield
    except (LoomError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise FileError(error.errno, f"could not read {what}: {error.strerror}") from error
        raise SerializationError(f"{what} is damaged: {error}") from error
    except Exception as error:
        raise SerializationError(f"{what} is damaged: {error}") from error


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
    with damage_told(label), zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in entries:
                raise SerializationError(f'{label}: "{name}" is there twice')
            if info.file_size > _MOST_PACKED * info.compress_size + 1024:
                raise SerializationError(f'{label}: "{name}" cannot unpack to {info.file_size} bytes')
            with damage_told(f'{label}: "{name}"'), archive.open(info) as member:
                shape, dtype = _header(member, info.file_size, f'{label}: "{name}"')
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
    with damage_told(label):
        if isinstance(source, Path):
            with source.open("rb") as file:
                _header(file, source.stat().st_size, label)
            array = np.load(source, mmap_mode="r", allow_pickle=False)
        else:
            _header(source, len(source.getbuffer()), label)
            source.seek(0)
            array = np.load(source, allow_pickle=False)
    array.flags.writeable = False
    entry = TensorEntry(name, array.shape, array.dtype.name, array.nbytes, lambda: array)
    return TensorFile("npy", {}, {name: entry}, label)


class _Member:
    """Reads one array of an archive."""

    __slots__ = ("label", "member", "source")

    def __init__(self, source: Path | io.BytesIO, member: str, label: str) -> None:
        self.source, self.member, self.label = source, member, label

    def __call__(self) -> NDArray[Any]:
        with (
            damage_told(f'{self.label}: "{self.member}"'),
            zipfile.ZipFile(self.source) as archive,
            archive.open(self.member) as member,
        ):
            return np.asarray(npy.read_array(member, allow_pickle=False))


def _header(file: IO[bytes], size: int, what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads what an array is, and checks that the file is long enough for it."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise SerializationError(f"{what} holds Python objects, which would have to be unpickled")
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize > size:
        raise SerializationError(f"{what} of extents {shape} lies beyond the end of the file")
    return tuple(shape), dtype
