"""What is in a file of a model, without loading it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from loom._settings.checks import file_path
from loom._settings.files import text_of
from loom.errors import DataError, FileError, LoomError, SerializationError
from loom.extras import require
from loom.models import llama2c
from loom.models.formats import Format, format_of
from loom.models.guessing import guess
from loom.models.keras import weights_of
from loom.models.plain import parameters_of
from loom.reports.base import Report, TabularReport
from loom.reports.parameter_names import blocks
from loom.tensors import open_tensors

__all__ = ["InspectedTensor", "Inspection", "inspect"]

# Types of GGUF that have no decoder here.
_UNREAD = ("iq1", "iq2", "iq3", "iq4_xs", "tq")


@dataclass(frozen=True, eq=False)
class InspectedTensor(Report):
    """A tensor in a file.

    Args:
        name: What the file calls it.
        shape: Its extents.
        dtype: The type of its elements in the file.
        nbytes: Its bytes in the file.
        layer: The layer that it would belong to; empty where that is open.
        loads: Whether it can be loaded.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    layer: str
    loads: bool


@dataclass(frozen=True, eq=False)
class Inspection(TabularReport):
    """What is in a file or folder; `loom.inspect` makes it.

    Args:
        path: The file or folder.
        format: What it is.
        tensors: Its tensors, in the file's order.
        open: What `loom.load` would ask, a line each; empty where nothing is open.
    """

    path: str
    format: str
    tensors: tuple[InspectedTensor, ...]
    open: str = ""

    @property
    def parameters(self) -> int:
        """How many numbers the tensors hold together."""
        return sum(prod(tensor.shape) for tensor in self.tensors)

    @property
    def nbytes(self) -> int:
        """How many bytes the tensors have in the file."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def columns(self) -> dict[str, Any]:
        """Returns a row for each tensor."""
        names = ("name", "shape", "dtype", "nbytes", "layer", "loads")
        return {name: [getattr(tensor, name) for tensor in self.tensors] for name in names}

    def __str__(self) -> str:
        header = ("tensor", "shape", "type", "bytes", "layer")
        rows = [
            (
                tensor.name,
                " x ".join(map(str, tensor.shape)) or "one number",
                tensor.dtype,
                f"{tensor.nbytes:,}",
                tensor.layer if tensor.loads else f"{tensor.layer or 'unknown'}: cannot be loaded",
            )
            for tensor in self.tensors
        ]
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(5)]
        lines = [
            "  ".join(
                cell.rjust(width) if column == 3 else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (header, *rows)
        ]
        total = f"{len(self.tensors):,} tensors, {self.parameters:,} parameters, {self.nbytes:,} bytes"
        asked = ["open:", *(f"  {line}" for line in self.open.splitlines())] if self.open else []
        return "\n".join([f"{self.path}: {self.format}", *lines, total, *asked])


def inspect(path: str | PathLike[str]) -> Inspection:
    """Lists the tensors of a file or folder that `loom.load` reads, without loading it.

    Of tensors alone the layer is guessed, as `loom.models.guess` does; `open` says what that cannot tell.

    Args:
        path: The file or folder.

    Returns:
        A report: print it, or ask `to_frame()`, `to_json()`, `parameters`, `nbytes`.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, or of a format that loom cannot read: the message says of which.
        MissingExtraError: Reading this format needs a package that is not installed.

    Examples:
        >>> import tempfile
        >>> path = tempfile.mktemp()
        >>> loom.Sequential([nn.Dense(2)], input_shape=3).save(path)
        >>> report = loom.inspect(path)
        >>> [(tensor.name, tensor.shape, tensor.layer) for tensor in report.tensors]
        [('0.0.0.0.bias', (2,), 'dense'), ('0.0.0.0.weight', (2, 3), 'dense')]
        >>> report.parameters, report.nbytes
        (8, 32)
    """
    place = file_path("inspect", path)
    found = format_of(place)
    try:
        place.stat()
        if found.name not in _LISTED:
            raise SerializationError(f"{place} is {found.told}")
        tensors, asked = _LISTED[found.name](place, found)
    except OSError as error:
        if isinstance(error, LoomError):
            raise
        raise FileError(error.errno, f"cannot read {place}: {error.strerror}") from error
    return Inspection(str(place), found.told, tuple(tensors), asked)


Listed = tuple[list[InspectedTensor], str]


def _own(path: Path, found: Format) -> Listed:
    """A file of loom's: its header says the tensors, its configuration the layers."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        try:
            header = json.loads(file.read(min(size, path.stat().st_size)))
            config = json.loads(header.pop("__metadata__", {})["loom.config"])
            kinds = {
                ".".join(map(str, (*cell["at"], number))): layer["type"]
                for cell in config["cells"]
                for number, layer in enumerate(cell["layers"])
            }
            tensors = [
                InspectedTensor(
                    name,
                    tuple(entry["shape"]),
                    str(entry["dtype"]),
                    entry["data_offsets"][1] - entry["data_offsets"][0],
                    kinds.get(".".join(name.split(".")[:4]), ""),
                    True,
                )
                for name, entry in header.items()
                if name != "loom.checksums"
            ]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SerializationError(f"{path} is a file of loom's, and damaged: {error!r}") from error
    return tensors, ""


def _alone(path: Path, found: Format) -> Listed:
    """Tensors with nothing that says what they are, but for a config.json."""
    config: dict[str, Any] = {}
    if (path / "config.json").is_file():
        config = json.loads(text_of(path / "config.json"))
    with open_tensors(path) as tensors:
        layers, asked = _guessed(tensors, config)
        if found.name in ("gguf", "hugging face") and not config.get("tie_word_embeddings"):
            # Where these say what the network is, a head with a table of its own is a dense layer.
            layers = {name: "dense" if kind == "tied_head" else kind for name, kind in layers.items()}
        made = [
            InspectedTensor(
                name,
                tuple(entry.shape),
                entry.dtype,
                entry.nbytes,
                layers.get(name, ""),
                not entry.dtype.startswith(_UNREAD),
            )
            for name, entry in tensors.items()
        ]
    # Folders of the Hub and GGUF say themselves what is asked for.
    return made, asked if found.name in ("safetensors", "npz") else ""


def _guessed(tensors: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """The layer of each tensor, and what is open."""
    # What their names tell, where the layer is open.
    named = {
        name: part.kind
        for block in blocks(list(tensors))
        for part in block.parts
        for name in part.names
        if part.kind != "other"
    }
    try:
        guessed = guess(tensors, config)
    except (LoomError, DataError) as error:
        return named, str(error)
    layers = {
        tensor: placed.kind
        for part in guessed.parts
        for placed in part.placed
        for tensor in placed.tensors.values()
    }
    return {**named, **layers}, guessed.questions()


def _llama2c(path: Path, found: Format) -> Listed:
    made = [
        InspectedTensor(name, shape, "float32", 4 * prod(shape), layer, True)
        for name, shape, layer in llama2c.tensors_of(path)
    ]
    return made, ""


def _plain(path: Path, found: Format) -> Listed:
    return [
        InspectedTensor(place, shape, "JSON", 8 * prod(shape), kind, True)
        for place, kind, shape in parameters_of(path)
    ], ""


def _keras(path: Path, found: Format) -> Listed:
    return [
        InspectedTensor(name, shape, dtype, nbytes, kind, True)
        for name, shape, dtype, nbytes, kind in weights_of(path)
    ], ""


def _onnx(path: Path, found: Format) -> Listed:
    onnx = require("onnx", extra="onnx", purpose="inspecting ONNX models")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise SerializationError(f"{path} is no ONNX model, or damaged: {error}") from error
    users = {name: node.op_type for node in model.graph.node for name in node.input}
    return list(_initializers(onnx, model, users)), ""


def _initializers(onnx: Any, model: Any, users: Mapping[str, str]) -> Iterator[InspectedTensor]:  # noqa: ANN401
    for tensor in model.graph.initializer:
        shape = tuple(tensor.dims)
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        size = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * prod(shape)
        yield InspectedTensor(tensor.name, shape, dtype, size, users.get(tensor.name, ""), True)


_LISTED: dict[str, Callable[[Path, Format], Listed]] = {
    "loom": _own,
    **dict.fromkeys(("safetensors", "npz", "gguf", "torch", "hugging face"), _alone),
    "llama2.c": _llama2c,
    "plain": _plain,
    "keras": _keras,
    "hdf5": _keras,
    "onnx": _onnx,
}
