"""HDF5 files, read in a process of their own: what HDF5's library makes of damaged ones may have no end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from math import prod
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom.errors import FileError, SerializationError

__all__ = ["Array", "Group", "check_size", "opened"]

_USUAL, _DENSEST = 1 << 24, 64
"""Bytes that anything may come to, and how many times the file's that it may beyond: zeros compress best."""
_SECONDS, _A_SECOND = 2, 20 << 20
"""How long a processor may be at a file, and how many bytes give it a second more."""


class Array:
    """An array of a file, which is read when it is asked for."""

    def __init__(self, reader: _Reader, path: str, described: Mapping[str, Any]) -> None:
        self.name = path
        self.shape = tuple(described["shape"])
        self._reader = reader
        self._dtype, self._stored = str(described["dtype"]), int(described["stored"])

    def numpy(self) -> NDArray[Any]:
        """Returns the numbers, for which the file has the bytes.

        Raises:
            SerializationError: It has not, or they are no numbers.
        """
        if self._dtype == "other":
            raise SerializationError(f"{self.name} holds no numbers")
        short = self._dtype == "bfloat16"
        dtype = np.dtype("<u2" if short else self._dtype)
        size = prod(self.shape) * dtype.itemsize
        if size > max(_USUAL, _DENSEST * self._stored):
            raise SerializationError(f"{self.name} would come to {size:,} bytes, which are not in the file")
        found = self._reader.array(self.name, size).view(dtype).reshape(self.shape)
        # The first half of a float32.
        return (found.astype(np.uint32) << 16).view(np.float32) if short else found


class Group:
    """A group of a file: members by name or path, and those attributes that Keras's files are read by."""

    def __init__(self, reader: _Reader, path: str, described: Mapping[str, Any]) -> None:
        self.attributes: Mapping[str, Any] = described["attributes"]
        self._members: dict[str, Group | Array] = {}
        for name, member in described["members"].items():
            kind = Group if "members" in member else Array
            self._members[name] = kind(reader, f"{path}/{name}", member)

    def get(self, path: str) -> Group | Array | None:
        """Returns a member, or None where there is none."""
        found: Group | Array | None = self
        for name in path.split("/"):
            found = found._members.get(name) if isinstance(found, Group) else None
        return found

    def group(self, path: str) -> Group | None:
        """Returns a member that is a group, or None where there is none."""
        found = self.get(path)
        return found if isinstance(found, Group) else None

    def groups(self) -> dict[str, Group]:
        """Returns the members that are groups."""
        return {name: member for name, member in self._members.items() if isinstance(member, Group)}

    def arrays(self) -> dict[str, Array]:
        """Returns the members that are arrays."""
        return {name: member for name, member in self._members.items() if isinstance(member, Array)}


@contextmanager
def opened(path: Path, member: str = "") -> Iterator[Group]:
    """What an HDF5 file holds, while it is open; h5py must be installed.

    Args:
        path: The file.
        member: A file inside it, where it is a zip archive.

    Raises:
        FileError: The system refuses.
        SerializationError: It is no HDF5 file, or damaged.
    """
    reader = _Reader(path, member)
    try:
        yield reader.root
    finally:
        reader.close()


def check_size(size: int, path: Path, what: str) -> None:
    """Refuses what comes to more than a file of its size can mean.

    Raises:
        SerializationError: It does.
    """
    if size > max(_USUAL, _DENSEST * path.stat().st_size):
        raise SerializationError(f"{path} is damaged: {what} would come to {size:,} bytes")


class _Reader:
    """The process that reads a file, and what it has been told."""

    def __init__(self, path: Path, member: str) -> None:
        self._path = path
        size = path.stat().st_size
        # What is compressed in an archive, and in HDF5 again, is held as a file, a chunk and an array.
        limits = (_SECONDS + size // _A_SECOND, 4 * max(_USUAL, _DENSEST * size))
        self._process = subprocess.Popen(
            [
                *(get_executable() or sys.executable, str(Path(__file__).with_name("hdf5_reader.py"))),
                *(json.dumps(sys.path), str(path), member, *map(str, limits)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.root = Group(self, "", self._told())
        except BaseException:
            self.close()
            raise

    def array(self, name: str, size: int) -> NDArray[np.uint8]:
        """Returns the bytes of an array."""
        stdin, stdout = self._process.stdin, cast("BufferedReader", self._process.stdout)
        assert stdin is not None
        try:
            stdin.write(json.dumps(name).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise self._ended() from None
        found = int(self._told()["nbytes"])
        if found != size:
            raise SerializationError(
                f"{self._path} is damaged: {name} has {found:,} bytes instead of {size:,}"
            )
        data = bytearray(size)
        if stdout.readinto(data) != size:
            raise self._ended()
        return np.frombuffer(data, np.uint8)

    def _told(self) -> dict[str, Any]:
        """What the process says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        told: dict[str, Any] = json.loads(line)
        if told.get("errno"):
            raise FileError(told["errno"], f"cannot read {self._path}: {told['error']}")
        if "error" in told:
            raise SerializationError(f"{self._path} is no HDF5 file, or damaged: {told['error']}")
        return told

    def _ended(self) -> SerializationError:
        self.close()
        return SerializationError(
            f"{self._path} is damaged: HDF5's library ended, or came to no end, when it read it"
        )

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
