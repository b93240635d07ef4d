"""Small data sets: read from files that are already there, or out of scikit-learn."""

from __future__ import annotations

import errno
import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom._settings.calls import explained
from loom._settings.checks import file_path, real, whole
from loom._settings.spellings import attribute_error
from loom._typing import LabelArray
from loom.errors import FileError, SerializationError
from loom.extras import require

__all__ = ["Dataset", "Part", "digits", "mnist", "read_idx"]

_IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

# Of an array of NumPy, in all versions.
_MOST_AXES = 32
_PIECE = 1 << 20


class Part(NamedTuple):
    """Images and their classes; fits wherever `(x, y)` does."""

    x: NDArray[np.float32]
    """(rows, channels, height, width), from 0 to 1."""
    y: LabelArray
    """(rows,) class indices."""


class Dataset(NamedTuple):
    """What is learned from, and what was held out."""

    train: Part
    test: Part


@explained(path="loom downloads nothing: loom.datasets.mnist(folder), with the four IDX files in it")
def mnist(path: str | Path) -> Dataset:
    """Reads MNIST, or a data set in its format, from a folder of IDX files.

    The four files have their usual names, compressed (.gz) or not:
    train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
    t10k-labels-idx1-ubyte.

    Args:
        path: The folder.

    Returns:
        Images (rows, 1, height, width) from 0 to 1 and their classes.

    Raises:
        ConfigError: The path is none.
        FileError: The folder or one of its files is missing or unreadable.
        SerializationError: A file is damaged, or images and labels differ in
            number.

    Examples:
        >>> (x, y), (x_test, y_test) = loom.datasets.mnist("data/mnist")  # doctest: +SKIP
    """
    folder = file_path("mnist", path)
    return Dataset(_mnist_part(folder, "train"), _mnist_part(folder, "t10k"))


@explained()
def digits(test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Scikit-learn's 1,797 real images of handwritten digits, 8 x 8, 10 classes.

    Needs the extra "datasets".

    Args:
        test_fraction: The share held out, the same of every class.
        seed: What the split draws from.

    Returns:
        Images (rows, 1, 8, 8) from 0 to 1 and their classes, shuffled.

    Raises:
        MissingExtraError: Scikit-learn is not installed.
        ConfigError: The share is not between 0 and 1.
    """
    share = real("digits", "test_fraction", test_fraction, above=0.0, below=1.0)
    state = whole("digits", "seed", seed, least=0)
    source = require("sklearn.datasets", extra="datasets", purpose="loom.datasets.digits")
    selection = require("sklearn.model_selection", extra="datasets", purpose="loom.datasets.digits")
    images, classes = source.load_digits(return_X_y=True)
    x = (images.reshape(-1, 1, 8, 8) / 16.0).astype(np.float32)
    y = classes.astype(np.int64)
    x_train, x_test, y_train, y_test = selection.train_test_split(
        x, y, test_size=share, stratify=y, random_state=state
    )
    return Dataset(Part(x_train, y_train), Part(x_test, y_test))


def read_idx(path: str | Path) -> NDArray[Any]:
    """Reads one IDX file, compressed (.gz) or not.

    The format: two zero bytes, the element type, the number of axes, the
    extents as big-endian 32-bit numbers, the elements.

    Args:
        path: The file.

    Returns:
        The array, in the machine's byte order.

    Raises:
        FileError: The file is missing or unreadable.
        SerializationError: It is no IDX file, or it is truncated or too long.
    """
    file = file_path("read_idx", path)
    try:
        with file.open("rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            if packed:
                with gzip.open(opened) as unpacked:
                    return _read_idx(file, unpacked)
            return _read_idx(file, opened)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SerializationError(f"{file} is damaged: {error}") from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        reason = f"cannot be read: {error.strerror or error}"
        raise FileError(error.errno or errno.EIO, reason, str(file)) from error


def _read_idx(file: Path, content: IO[bytes] | gzip.GzipFile) -> NDArray[Any]:
    begin = content.read(4)
    if len(begin) < 4 or begin[:2] != b"\0\0" or begin[2] not in _IDX_DTYPES:
        raise SerializationError(f"{file} is not an IDX file: it begins with {begin.hex(' ')}")
    dtype = np.dtype(_IDX_DTYPES[begin[2]])
    axes = begin[3]
    if axes > _MOST_AXES:
        raise SerializationError(f"{file} has {axes} axes, and an array {_MOST_AXES} at most")
    header = content.read(4 * axes)
    if len(header) < 4 * axes:
        raise SerializationError(f"{file} is truncated: it ends inside its header of {4 + 4 * axes} bytes")
    shape = struct.unpack(f">{axes}I", header)
    wanted = math.prod(shape) * dtype.itemsize
    # Piece by piece, and one byte further: neither a header nor what is packed has more memory asked for than
    # there is data, and data that the header speaks of.
    data = bytearray()
    while piece := content.read(min(wanted + 1 - len(data), _PIECE)):
        data += piece
    if len(data) != wanted:
        state = "truncated" if len(data) < wanted else "too long"
        held = f"{len(data)}" if len(data) < wanted else "more"
        raise SerializationError(
            f"{file} is {state}: its header announces {shape}, so {wanted} bytes of data, but it has {held}"
        )
    elements = np.frombuffer(data, dtype) if data else np.empty(0, dtype)
    try:
        return elements.reshape(shape).astype(dtype.newbyteorder("="), copy=False)
    except ValueError as error:
        # No element, and more of them along the other axes than can be counted.
        raise SerializationError(f"{file}: no array can have the shape {shape}") from error


def _mnist_part(folder: Path, prefix: str) -> Part:
    images_file = _find(folder, f"{prefix}-images", "idx3-ubyte")
    labels_file = _find(folder, f"{prefix}-labels", "idx1-ubyte")
    images, labels = read_idx(images_file), read_idx(labels_file)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise SerializationError(
            f"{images_file}: expected images (rows, height, width) of unsigned bytes, "
            f"got shape {images.shape} of {images.dtype}"
        )
    if labels.ndim != 1 or labels.dtype != np.uint8:
        raise SerializationError(
            f"{labels_file}: expected labels (rows,) of unsigned bytes, "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    if len(images) != len(labels):
        raise SerializationError(
            f"{images_file} has {len(images)} images but {labels_file} {len(labels)} labels"
        )
    x = images[:, None].astype(np.float32)
    x /= np.float32(255.0)
    return Part(x, labels.astype(np.int64))


def _find(folder: Path, stem: str, suffix: str) -> Path:
    names = [f"{stem}{dash}{suffix}{ending}" for dash in "-." for ending in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    if not folder.is_dir():
        raise FileError(errno.ENOTDIR, "not a folder with MNIST's files", str(folder))
    raise FileError(errno.ENOENT, f"no {names[0]} (compressed or not) in this folder", str(folder))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
