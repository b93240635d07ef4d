"""What a file or folder is, told by what it holds and not by its name."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from loom._settings.files import text_of
from loom._settings.suggestions import listed
from loom.models.llama2c import is_llama2c
from loom.runs.events import EVENTS

__all__ = ["Format", "format_of", "safetensors_metadata"]

_BEGIN = 4096
_LONGEST_HEADER = 100_000_000


class Format(NamedTuple):
    """What a file is.

    Args:
        name: "loom", "safetensors", "npz", "torch", "gguf", "onnx", "llama2.c", "keras", "hdf5", "plain",
            "hugging face"; "foreign" for what loom cannot read but knows, and "unknown" for the rest.
        told: In words, with what would read it where loom cannot.
    """

    name: str
    told: str


def format_of(path: Path) -> Format:
    """Returns what a file or folder is; "unknown" for what cannot be opened, too.

    Args:
        path: The file or folder.
    """
    try:
        return _of_folder(path) if path.is_dir() else _of_file(path)
    except OSError:
        return _UNKNOWN


_UNKNOWN = Format("unknown", "a file of no format that loom knows")


def _foreign(told: str) -> Format:
    return Format("foreign", told)


_THROUGH_TORCH = (
    "; build its module in PyTorch, load the weights there (torch.load(path, weights_only=True)), and hand "
    "it to loom.from_torch, or save its state_dict() as safetensors"
)
_PICKLE = (
    "a Python pickle, which can run any code when it is read: loom never unpickles. Open it where you trust "
    "it, and save arrays as safetensors or .npz; of PyTorch's:" + _THROUGH_TORCH.removeprefix(";")
)
_UNPACK = "; unpack it and load what is inside"

_TAR = _foreign("a tar archive" + _UNPACK)

# What files begin with, the more telling first.
_BEGINNINGS: list[tuple[bytes, Format]] = [
    (b"GGUF", Format("gguf", "a GGUF file")),
    (b"\x89HDF\r\n\x1a\n", Format("hdf5", "an HDF5 file")),
    *(
        (magic, _foreign("a GGML file from before GGUF; llama.cpp's converters make GGUF of it"))
        for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")
    ),
    (
        b"version https://git-lfs.github.com/spec/v1",
        _foreign("a pointer that Git LFS left in place of the file; `git lfs pull` fetches it"),
    ),
    (b"\x93NUMPY", _foreign("a single NumPy array; numpy.load reads it, and loom.import_model takes arrays")),
    (b"\x1f\x8b", _foreign("compressed by gzip" + _UNPACK)),
    (b"BZh", _foreign("compressed by bzip2" + _UNPACK)),
    (b"\xfd7zXZ\x00", _foreign("compressed by xz" + _UNPACK)),
    (b"\x28\xb5\x2f\xfd", _foreign("compressed by zstd" + _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", _foreign("a 7-Zip archive" + _UNPACK)),
    *(
        (magic, _foreign(f"an image ({name}), no model; read it with Pillow and hand it to net.predict"))
        for magic, name in (
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"\xff\xd8\xff", "JPEG"),
            (b"GIF8", "GIF"),
            (b"BM", "BMP"),
        )
    ),
    (b"RIFF", _foreign("a RIFF file (sound, or a WebP image), no model")),
    (b"%PDF-", _foreign("a PDF document, no model")),
    (b"PAR1", _foreign("a Parquet table, no model; pandas.read_parquet reads it")),
    (b"ARROW1", _foreign("an Arrow table, no model; pyarrow reads it")),
    (b"\x7fELF", _foreign("a program or library, no model")),
    (b"MZ", _foreign("a program or library, no model")),
    (b"SQLite format 3\x00", _foreign("an SQLite database, no model")),
    (b"MATLAB 5.0 MAT-file", _foreign("a MATLAB file; scipy.io.loadmat reads its arrays")),
]


def _of_folder(path: Path) -> Format:
    held = {entry.name for entry in path.iterdir()}
    if "saved_model.pb" in held or "keras_metadata.pb" in held:
        return _foreign(
            "a TensorFlow SavedModel; save the Keras model that it was made of as .keras, or make ONNX of it "
            "with tf2onnx: loom.load reads both"
        )
    if "model_index.json" in held:
        return _foreign("a folder of Diffusers, whose pipelines are of several models; diffusers loads it")
    if path.suffix == ".mlpackage":
        return _foreign("a Core ML package; coremltools reads it, and cannot turn it back")
    if "config.json" in held:
        return Format("hugging face", "a folder as Hugging Face's Hub has them")
    return Format("unknown", _other_folder(path, held))


def _other_folder(path: Path, held: set[str]) -> str:
    """What a folder is that no network is read from, and which of its files is one."""
    if "run.json" in held or EVENTS in held:
        best = next((name for name in ("best.loom", "final.loom") if name in held), None)
        told = "the folder of a run: loom.train(..., run=folder) goes on, loom.read_run(folder) tells of it"
        return told if best is None else f"{told}; its network is {path / best}"
    networks = sorted(name for name in held if name.endswith((".loom", ".keras", ".onnx", ".gguf", ".h5")))
    if len(networks) == 1:
        return f"a folder; the network in it is {path / networks[0]}"
    if networks:
        told = listed(networks)
        return f"a folder with {len(networks)} networks ({told}); name one, {path / networks[0]}"
    return "a folder without a network; those of Hugging Face's Hub have config.json beside tensors"


def _of_file(path: Path) -> Format:
    length = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(_BEGIN)
        for magic, told in _BEGINNINGS:
            if begin.startswith(magic):
                return told
        if begin[4:8] == b"TFL3":
            return _foreign(
                "a TensorFlow Lite model; tf2onnx --tflite makes ONNX of it, which loom.load reads"
            )
        if begin[257:262] == b"ustar":
            return _TAR
        if begin.startswith(b"PK") and zipfile.is_zipfile(path):
            return _of_zip(path)
        metadata = safetensors_metadata(file, length)
        if metadata is not None:
            own = any(key.startswith("loom.") for key in metadata)
            return Format("loom", "a file of loom's") if own else Format("safetensors", "a safetensors file")
        if len(begin) >= 37 and is_llama2c(begin, length):
            return Format("llama2.c", "a model of llama2.c")
        if re.match(rb"\x80[\x02-\x05]", begin):
            return _foreign(_PICKLE)
        if _is_onnx(file, length):
            return Format("onnx", "an ONNX model")
    return _of_text(path, begin, length)


def _of_zip(path: Path) -> Format:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    ends = {name.rpartition("/")[2] for name in names}
    if {"config.json", "model.weights.h5"} <= set(names):
        return Format("keras", "a Keras model")
    if "data.pkl" in ends and any("/code/" in name for name in names):
        return _foreign(
            "a TorchScript program; export the model it was made from with torch.onnx.export, which "
            "loom.load reads, or hand its nn.Module to loom.from_torch"
        )
    if "data.pkl" in ends:
        return Format("torch", "a file of torch.save, a pickle in a zip archive" + _THROUGH_TORCH)
    if (
        any(name.endswith("models/model.json") for name in names)
        or "serialized_exported_program.json" in ends
    ):
        return _foreign("a program of torch.export; torch.export.load(path).module() goes to loom.from_torch")
    if names and all(name.endswith(".npy") for name in names):
        return Format("npz", "arrays of NumPy")
    return _foreign("a zip archive" + _UNPACK)


def _of_text(path: Path, begin: bytes, length: int) -> Format:
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last character may be cut.
        if length <= len(begin) or error.start < len(begin) - 4:
            return _UNKNOWN
        text = begin[: error.start].decode("utf-8")
    start = text.lstrip()
    if not start or re.search(r"[\x00-\x08\x0e-\x1f]", text):
        return _UNKNOWN
    if start.startswith("{"):
        return _of_json(path)
    if re.match(r"<!doctype html|<html", start, re.I):
        return _foreign("a web page, no model: perhaps a download that asked for a login")
    if start.startswith(("<?xml", "<net")):
        return _foreign("an XML file; of an OpenVINO model, load the ONNX that it was made from")
    return _foreign(f"a text file, which begins {start.splitlines()[0][:40]!r}; no model")


def _of_json(path: Path) -> Format:
    try:
        held: Any = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        return _foreign(f"text that looks like JSON and is none: {error}")
    if not isinstance(held, dict):
        return _UNKNOWN
    if "weight_map" in held or "model_type" in held or "architectures" in held:
        return _foreign("one file of a folder of the Hub: give loom.load the folder")
    if "class_name" in held or "keras_version" in held:
        return _foreign("a Keras model without its weights: save it whole, model.save('model.keras')")
    if "nodes" in held and "arg_nodes" in held:
        return _foreign("a graph of MXNet; load the ONNX that mxnet's exporter makes of it")
    if "cells" in held or "layers" in held:
        return Format("plain", "a network as plain JSON")
    return _foreign(f"JSON, but no network: a network has layers, this has {', '.join(list(held)[:6])}")


def safetensors_metadata(file: BinaryIO, length: int) -> dict[str, str] | None:
    """Returns the metadata of a safetensors file; None where it is none, or is damaged.

    Args:
        file: The file; where it stands does not matter.
        length: Its bytes.
    """
    file.seek(0)
    begin = file.read(_BEGIN)
    if len(begin) < 10 or begin[8:9] != b"{":
        return None
    (size,) = struct.unpack_from("<Q", begin)
    if size > min(length - 8, _LONGEST_HEADER):
        return None
    if re.match(rb'\{"__metadata__":\{"loom\.', begin[8:]):
        # A header may be long; the engine reads its own.
        return {"loom.": ""}
    file.seek(8)
    try:
        header = json.loads(file.read(size))
    except (ValueError, RecursionError):
        return None
    metadata = header.pop("__metadata__", {})
    entries = all(isinstance(entry, dict) and "data_offsets" in entry for entry in header.values())
    return metadata if entries and isinstance(metadata, dict) else None


# The fields of ONNX's ModelProto, by their number and the wire type that they have.
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}


def _is_onnx(file: BinaryIO, length: int) -> bool:
    """Whether it is a protobuf message with the fields of an ONNX model and a graph among them."""
    file.seek(0)
    seen: set[int] = set()
    try:
        for number, kind, size in _fields(file, length):
            if _MODEL_FIELDS.get(number) != kind:
                return False
            seen.add(number)
            if kind == 2:
                file.seek(size, 1)
    except ValueError:
        return False
    return {1, 7} <= seen


def _fields(file: BinaryIO, length: int) -> Iterator[tuple[int, int, int]]:
    """The top fields of a protobuf message: number, wire type, and the number or length in it."""
    for _ in range(10_000):
        if file.tell() == length:
            return
        tag = _varint(file)
        value = _varint(file)
        if tag & 7 == 2 and value > length - file.tell():
            raise ValueError("a field reaches beyond the file")
        yield tag >> 3, tag & 7, value
    raise ValueError("too many fields")


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    raise ValueError("no number")
