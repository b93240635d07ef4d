"""Files of any format: each is told by what it holds, and what cannot be read says what it is."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import loom
from loom.models.formats import format_of
from networks import mlp, weights


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


def arrays() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros(3))
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return buffer.getvalue()


def onnx() -> bytes:
    """An ONNX model's outermost fields: version, producer, graph, operator set."""
    return b"\x08\x0a\x12\x03abc\x3a\x05\x12\x03net\x42\x02\x10\x11"


def safetensors(metadata: dict[str, str]) -> bytes:
    head = {"__metadata__": metadata, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4)


FOREIGN = [
    (pickle.dumps({"a": 1}), "Python pickle.*never unpickles"),
    (zipped("archive/data.pkl", "archive/data/0", "archive/version"), "torch.save.*loom.from_torch"),
    (zipped("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"), "TorchScript"),
    (zipped("m/archive_format", "m/models/model.json"), "torch.export"),
    (zipped("readme.txt"), "zip archive"),
    (gzip.compress(b"abc"), "gzip"),
    (tar(), "tar archive"),
    (b"\x1c\x00\x00\x00TFL3" + bytes(40), "TensorFlow Lite.*ONNX"),
    (b"\x89PNG\r\n\x1a\n" + bytes(40), "image.*PNG"),
    (b"\xff\xd8\xff\xe0" + bytes(40), "image.*JPEG"),
    (b"tjgg" + bytes(40), "before GGUF"),
    (b"\x93NUMPY" + bytes(40), "single NumPy array"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
    (b"<!DOCTYPE html><html></html>", "web page"),
    (b"hello, this is text", "text file, which begins 'hello, this is text'"),
    (b'{"model_type": "llama", "hidden_size": 8}', "give loom.load the folder"),
    (b'{"a": 1}', "no network"),
    (b'{"layers": [', "none"),
]


@pytest.mark.parametrize(("data", "told"), FOREIGN, ids=[told for _, told in FOREIGN])
def test_what_cannot_be_read_says_what_it_is(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(loom.SerializationError, match=told) as raised:
        loom.load(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GGUF\x03\0\0\0" + bytes(16), "gguf"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "hdf5"),
        (zipped("metadata.json", "config.json", "model.weights.h5"), "keras"),
        (arrays(), "npz"),
        (onnx(), "onnx"),
        (onnx()[:-1], "unknown"),
        (safetensors({"format": "pt"}), "safetensors"),
        (safetensors({"loom.format": "1"}), "loom"),
        (b'{"input_shape": 3, "layers": []}', "plain"),
        (b"", "unknown"),
        (b"PK\x03\x04 no zip", "unknown"),
    ],
)
def test_formats_are_told_by_content(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / "file.onnx"
    path.write_bytes(data)
    assert format_of(path).name == name


def test_folders_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match=r"a folder.*config\.json"):
        loom.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert format_of(tmp_path).name == "hugging face"
    with pytest.raises(loom.FileError, match="no tensors"):
        loom.load(tmp_path)
    # Through torch alone, which reads it without running it, or not at all.
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises((loom.MissingExtraError, loom.SerializationError)):
        loom.load(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(loom.SerializationError, match=r"TensorFlow SavedModel.*tf2onnx"):
        loom.load(tmp_path)


def test_plain_json_is_a_network(tmp_path: Path) -> None:
    net = mlp(seed=2)
    path = tmp_path / "net"
    path.write_text(json.dumps(loom.export_model(net)))
    assert weights(loom.load(path)) == weights(net)


def test_mappings_are_for_tensors_alone(tmp_path: Path) -> None:
    mlp().save(tmp_path / "net.loom")
    with pytest.raises(loom.ConfigError, match="mapping"):
        loom.load(tmp_path / "net.loom", mapping={})


def test_random_beginnings_do_no_harm(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "file"
    begins = [
        b"",
        b"\x08\x01:",
        b"{",
        b"PK\x03\x04",
        struct.pack("<I", 0x616B3432),
        b"\x10" + bytes(7) + b"{",
    ]
    for _ in range(300):
        path.write_bytes(begins[random.integers(len(begins))] + random.bytes(int(random.integers(200))))
        with pytest.raises((loom.SerializationError, loom.ConfigError)):
            loom.load(path)
