"""Data sets: IDX files written here and read back, and their damage found."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import datasets

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx(array: np.ndarray) -> bytes:
    code = CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(folder: Path, *, rows: int = 6, compress: bool = False, dash: str = "-") -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (rows, 5, 4), np.uint8)
    labels = (np.arange(rows) % 10).astype(np.uint8)
    for prefix in ("train", "t10k"):
        for kind, array in ((f"images{dash}idx3", images), (f"labels{dash}idx1", labels)):
            content = idx(array)
            name = f"{prefix}-{kind}-ubyte" + (".gz" if compress else "")
            (folder / name).write_bytes(gzip.compress(content, mtime=0) if compress else content)
    return images


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dash", ["-", "."])
def test_mnist_is_read_compressed_or_not(tmp_path: Path, compress: bool, dash: str) -> None:
    images = write_mnist(tmp_path, compress=compress, dash=dash)
    (x, y), test = loom.datasets.mnist(tmp_path)
    assert x.shape == (6, 1, 5, 4)
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    np.testing.assert_array_equal(np.round(x[:, 0] * 255), images)
    np.testing.assert_array_equal(test.y, np.arange(6))


@pytest.mark.parametrize("dtype", CODES)
def test_every_element_type_is_read(tmp_path: Path, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    (tmp_path / "file").write_bytes(idx(array))
    read = datasets.read_idx(tmp_path / "file")
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an IDX file"),
        (b"PK\x03\x04 something else", "is not an IDX file: it begins with 50 4b 03 04"),
        (b"\0\0\x08\x03\0\0\0\x01", "it ends inside its header of 16 bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"is truncated: its header announces \(2, 3\)"),
        (idx(np.zeros((2, 3), np.uint8)) + b"\0", "is too long"),
        (b"\0\0\x08\x41" + b"\0\0\0\1" * 65 + b"\0", "has 65 axes"),
        (b"\0\0\x08\x02" + b"\xff" * 8, "is truncated"),
        (b"\0\0\x08\x04" + b"\xff" * 12 + bytes(4), "no array can have the shape"),
        (gzip.compress(b"\0\0\x0e\x04" + b"\xff" * 16 + bytes(99), mtime=0), "is truncated"),
        (gzip.compress(idx(np.zeros((2, 3), np.uint8)), mtime=0)[:-9], "is damaged"),
    ],
)
def test_damage_is_found(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(loom.SerializationError, match=message):
        datasets.read_idx(tmp_path / "file")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match="not a folder with MNIST's files"):
        datasets.mnist(tmp_path / "nowhere")
    with pytest.raises(loom.FileError, match="no train-images-idx3-ubyte"):
        datasets.mnist(tmp_path)
    with pytest.raises(loom.FileError, match="cannot be read"):
        datasets.read_idx(tmp_path)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(loom.SerializationError, match=r"6 images but .* 5 labels"):
        datasets.mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros((6, 1), np.uint8)))
    with pytest.raises(loom.SerializationError, match=r"expected labels \(rows,\)"):
        datasets.mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((6, 5, 4), np.int16)))
    with pytest.raises(loom.SerializationError, match="expected images"):
        datasets.mnist(tmp_path)


def test_digits_are_split_evenly_and_always_alike() -> None:
    data = loom.datasets.digits()
    assert data.train.x.shape == (1437, 1, 8, 8)
    assert data.test.x.shape == (360, 1, 8, 8)
    assert data.train.x.min() == 0.0
    assert data.train.x.max() == 1.0
    share = np.bincount(data.test.y) / np.bincount(np.concatenate([data.train.y, data.test.y]))
    np.testing.assert_allclose(share, 0.2, atol=0.005)
    np.testing.assert_array_equal(loom.datasets.digits().test.x, data.test.x)
    assert not np.array_equal(loom.datasets.digits(seed=1).test.x, data.test.x)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(loom.MissingExtraError, match=r"pip install 'loom-nn\[datasets\]'"):
        loom.datasets.digits()


def test_a_gzip_bomb_takes_no_more_memory_than_its_header_says(tmp_path: Path) -> None:
    import tracemalloc

    bomb = gzip.compress(idx(np.zeros(1000, np.uint8)) + bytes(200_000_000), compresslevel=1)
    assert len(bomb) < 2_000_000
    (tmp_path / "bomb.gz").write_bytes(bomb)
    tracemalloc.start()
    with pytest.raises(loom.SerializationError, match="is too long"):
        datasets.read_idx(tmp_path / "bomb.gz")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3_000_000
