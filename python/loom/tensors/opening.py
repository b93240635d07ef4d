"""Opening a file of tensors of whatever format, told by what is in it."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import file_path
from loom.errors import FileError, InvalidValueError, SerializationError
from loom.tensors import numpy_files, torch_files
from loom.tensors.entry import StoredRows, TensorEntry, TensorFile

__all__ = ["NUMPY_TYPES", "open_tensors"]

NUMPY_TYPES = {
    "bool",
    "complex64",
    *(f"float{bits}" for bits in (16, 32, 64)),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
}
"""The types of tensors that NumPy has, too."""

_FOREIGN = {
    b"\x89HDF": "an HDF5 file, such as Keras writes: h5py reads it",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"ggml": "a GGML file, the predecessor of GGUF: llama.cpp's scripts convert it",
    b"ggjt": "a GGML file, the predecessor of GGUF: llama.cpp's scripts convert it",
    b"TFL3": "a TensorFlow Lite model",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: `git lfs pull` fetches that",
    b"<!DOCTYPE": "a web page, not a file of tensors: the download has gone wrong",
    b"<html": "a web page, not a file of tensors: the download has gone wrong",
}
"""What a file that begins so is."""


def open_tensors(path: str | os.PathLike[str] | bytes) -> TensorFile:
    """Opens a file of tensors as a dictionary; what is not asked for is not read.

    The format is told by what is in the file, whatever it is called. Nothing that the file says is believed
    before it is checked, and nothing in it is run: PyTorch's files go through `torch.load(...,
    weights_only=True)`, and pickles otherwise are refused.

    Args:
        path: A safetensors or GGUF file; the index of several safetensors files (such as
            "model.safetensors.index.json"), or a folder that holds them; NumPy's .npz or .npy; what
            `torch.save` wrote, which needs torch; or the bytes of such a file. Nobody may shorten the file
            while it is open: like all programs that map files, this one would end.

    Returns:
        The tensors by name, with the file's metadata. Safetensors and GGUF are mapped into memory: a tensor's
        pages are read from disk when somebody looks at them, and `numpy()` copies nothing where the file
        holds a type that NumPy has.

    Raises:
        SerializationError: It is no such file, or a damaged one; the message says what it is.
        FileError: The system refuses to read it.
        MissingExtraError: It is PyTorch's, and torch is not installed.

    Examples:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "net.safetensors"
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> net.save_safetensors(path)
        >>> tensors = loom.open_tensors(path)
        >>> {name: entry.shape for name, entry in tensors.items()}
        {'0.0.0.0.bias': (2,), '0.0.0.0.weight': (2, 3)}
        >>> tensors["0.0.0.0.bias"].numpy()
        array([0., 0.], dtype=float32)
    """
    if isinstance(path, bytes):
        return _open_bytes(path)
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidValueError(f"a path or bytes were expected, got {type(path).__name__}")
    place = file_path("open_tensors", path)
    try:
        if place.is_dir():
            return _native_file(_native.TensorFile.open(place), str(place))
        # A pipe would be waited for.
        if not stat.S_ISREG(place.stat().st_mode):
            raise SerializationError(f"{place} is not a file: a pipe or a device")
        with place.open("rb") as file:
            head = file.read(64)
            if _is_zip(head):
                return _open_zip(place, str(place))
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(error.errno, f"could not read {place}: {error.strerror}") from error
    if head.startswith(numpy_files.MAGIC):
        return numpy_files.open_npy(place, str(place), place.stem)
    if head.startswith(torch_files.LEGACY_MAGIC):
        return torch_files.open_torch(place, str(place))
    _refuse_foreign(head, str(place))
    return _native_file(_native.TensorFile.open(place), str(place))


def _open_bytes(data: bytes) -> TensorFile:
    label = f"{len(data):,} bytes"
    if _is_zip(data):
        return _open_zip(io.BytesIO(data), label)
    if data.startswith(numpy_files.MAGIC):
        return numpy_files.open_npy(io.BytesIO(data), label, "array")
    if data.startswith(torch_files.LEGACY_MAGIC):
        return torch_files.open_torch(io.BytesIO(data), label)
    _refuse_foreign(data[:64], label)
    return _native_file(_native.TensorFile.from_bytes(data), label)


def _is_zip(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def _refuse_foreign(head: bytes, label: str) -> None:
    """Says what a file is that is often mistaken for one of tensors."""
    for beginning, what in _FOREIGN.items():
        if head.startswith(beginning):
            raise SerializationError(f"{label} is {what}")
    # Every protocol of pickle since the second begins so; the headers of safetensors are not that long.
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and head[8:9] != b"{":
        raise SerializationError(
            f"{label} is a pickle, which runs whatever code is in it when it is read; loom does not. Where "
            "you trust it, load it yourself and hand the arrays over by name"
        )


def _open_zip(source: Path | io.BytesIO, label: str) -> TensorFile:
    """Opens NumPy's or PyTorch's archives."""
    with numpy_files.damage_told(f"the archive {label}"), zipfile.ZipFile(source) as archive:
        names = archive.namelist()
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        return torch_files.open_torch(source, label)
    if all(name.endswith(".npy") for name in names):
        return numpy_files.open_npz(source, label)
    if "model.weights.h5" in names:
        raise SerializationError(f"{label} is a Keras model: loom.load reads it")
    shown = ", ".join(names[:3])
    raise SerializationError(f"{label} is an archive of neither NumPy's arrays nor PyTorch's: {shown}, ...")


def _native_file(native: _native.TensorFile, label: str) -> TensorFile:
    """Makes the dictionary of what the engine has opened."""
    entries = {
        name: TensorEntry(
            name,
            tuple(shape),
            dtype,
            nbytes,
            _Elements(native, name, dtype, shape),
            _Bytes(native, name),
            _rows(native, name, dtype, shape),
        )
        for name, dtype, shape, nbytes in native.tensors()
    }
    return TensorFile(native.format(), native.metadata(), entries, label, native.verify)


def _rows(native: _native.TensorFile, name: str, dtype: str, shape: list[int]) -> StoredRows | None:
    """Returns the rows of a tensor that has some."""
    count = prod(shape[:-1])
    if len(shape) < 2 or count == 0:
        return None
    return StoredRows(native, name, dtype, count)


class _Bytes:
    """Reads a tensor's bytes."""

    __slots__ = ("name", "native")

    def __init__(self, native: _native.TensorFile, name: str) -> None:
        self.native, self.name = native, name

    def __call__(self) -> NDArray[Any]:
        return self.native.bytes(self.name)


class _Elements(_Bytes):
    """Reads a tensor's elements."""

    __slots__ = ("dtype", "shape")

    def __init__(self, native: _native.TensorFile, name: str, dtype: str, shape: list[int]) -> None:
        super().__init__(native, name)
        self.dtype, self.shape = dtype, shape

    def __call__(self) -> NDArray[Any]:
        if self.dtype not in NUMPY_TYPES:
            return self._shaped(self.native.numbers(self.name))
        stored: NDArray[Any] = super().__call__()
        if self.dtype == "bool":
            # Whatever the bytes are, NumPy's are 0 and 1.
            stored = stored != 0
        dtype = np.dtype(self.dtype).newbyteorder("<")
        if stored.ctypes.data % dtype.alignment:
            stored = stored.copy()
        return self._shaped(stored.view(dtype))

    def _shaped(self, elements: NDArray[Any]) -> NDArray[Any]:
        try:
            return elements.reshape(self.shape)
        except ValueError as error:
            # One axis is empty, and others are beyond any memory.
            raise SerializationError(
                f'"{self.name}" has the extents {tuple(self.shape)}, which no array has: {error}'
            ) from error
