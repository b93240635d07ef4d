"""Models in the files of llama2.c."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom._settings.checks import file_path
from loom.errors import FileError, SerializationError
from loom.network import Network, Sequential

__all__ = ["is_llama2c", "load", "tensors_of"]

_MAGIC = 0x616B3432
# The header of version 1 is padded to this length.
_VERSION_1 = 256
_EPSILON = 1e-5


class _Header(NamedTuple):
    width: int
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    max_time: int
    tied: bool
    legacy: bool

    @property
    def begin(self) -> int:
        """The first byte of the weights."""
        return 28 if self.legacy else _VERSION_1

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """What the file holds, in its order: names of parameters, and shapes."""
        width, hidden, layers = self.width, self.hidden, self.layers
        keys = width // self.heads * self.key_value_heads
        norms = [("attention_norm", (layers, width)), ("feed_forward_norm", (layers, width))]
        table, last = ("table", (self.vocabulary, width)), ("norm", (width,))
        matrices: list[tuple[str, tuple[int, ...]]] = [
            ("query_weight", (layers, width, width)),
            ("key_weight", (layers, keys, width)),
            ("value_weight", (layers, keys, width)),
            ("output_weight", (layers, width, width)),
        ]
        gated: list[tuple[str, tuple[int, ...]]] = [
            ("gate_weight", (layers, hidden, width)),
            ("down_weight", (layers, width, hidden)),
            ("up_weight", (layers, hidden, width)),
        ]
        if self.legacy:
            yield from (table, norms[0], *matrices, norms[1], *gated, last)
            # Cosines and sines of the rotary embedding, which loom makes itself.
            yield "rotary", (2 * self.max_time * (width // self.heads // 2),)
        else:
            yield from (*norms, last, table, *matrices, *gated)
        if not self.tied:
            yield "head", (self.vocabulary, width)

    def length(self) -> int:
        """The bytes of the whole file."""
        sizes = (np.prod(shape, dtype=object) for _, shape in self.tensors())
        return self.begin + 4 * sum(int(size) for size in sizes)


def is_llama2c(begin: bytes, length: int) -> bool:
    """Returns whether a file of this length that begins so is one of llama2.c.

    Args:
        begin: Its first bytes, 28 or more.
        length: All its bytes.
    """
    try:
        return _header(begin).length() == length
    except SerializationError:
        return begin[:4] == struct.pack("<I", _MAGIC)


def _header(begin: bytes) -> _Header:
    """Reads the header of the legacy layout, or of version 1."""
    if len(begin) < 37:
        raise SerializationError("the file ends within its header")
    legacy = begin[:4] != struct.pack("<I", _MAGIC)
    if not legacy and begin[4:8] != struct.pack("<i", 1):
        (version,) = struct.unpack_from("<i", begin, 4)
        raise SerializationError(
            f"it is a llama2.c file of version {version}; loom reads the legacy layout and version 1, both "
            "in float32: export.py of llama2.c writes them with --version 0 or 1"
        )
    numbers = struct.unpack_from("<7i", begin, 0 if legacy else 8)
    tied = numbers[5] > 0 if legacy else begin[36] != 0
    width, hidden, layers, heads, key_value_heads, vocabulary, max_time = map(abs, numbers)
    if 0 in numbers or width % heads or (width // heads) % 2 or heads % key_value_heads:
        raise SerializationError(f"its header {numbers} is none of llama2.c")
    return _Header(width, hidden, layers, heads, key_value_heads, vocabulary, max_time, tied, legacy)


def load(path: str | PathLike[str]) -> Network:
    """Reads a model in the format of llama2.c: the legacy layout, or version 1, both of float32.

    Args:
        path: The file.

    Returns:
        A network that reads places in the vocabulary, (time,), and gives scores for what comes next, (time,
        vocabulary). Its `session` decodes step by step.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is another format or version, or has another length than its header says.
        NonFiniteError: A weight is NaN or infinite.
    """
    place = file_path("load", path)
    header = _opened(place)
    return _filled(header, np.memmap(place, dtype="<f4", mode="r", offset=header.begin))


def tensors_of(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """Lists the tensors of a model: name, shape, and the kind of layer that they go to."""
    kinds = {"table": "embedding", "head": "tied_head", "rotary": "", "norm": "rms_norm"}
    gated = ("gate_weight", "up_weight", "down_weight")
    kinds |= {f"{part}_norm": "rms_norm" for part in ("attention", "feed_forward")}
    kinds |= dict.fromkeys(gated, "swiglu")
    return [(name, shape, kinds.get(name, "multi_head_attention")) for name, shape in _opened(path).tensors()]


def _opened(path: Path) -> _Header:
    """Reads the header of a file, once it is seen to be as long as that says."""
    try:
        with path.open("rb") as file:
            begin = file.read(_VERSION_1)
        length = path.stat().st_size
    except OSError as error:
        raise FileError(error.errno, f"cannot read {path}: {error.strerror}") from error
    try:
        header = _header(begin)
        if header.length() != length:
            raise SerializationError(
                f"its header asks for {header.length()} bytes, the file has {length}: it is cut off, or no "
                "llama2.c file"
            )
    except SerializationError as error:
        raise SerializationError(f"{path}: {error}") from error
    return header


def _filled(header: _Header, numbers: NDArray[Any]) -> Network:
    tensors: dict[str, NDArray[Any]] = {}
    begin = 0
    for name, shape in header.tensors():
        end = begin + int(np.prod(shape))
        tensors[name] = numbers[begin:end].reshape(shape)
        begin = end
    attention = nn.MultiHeadAttention(
        header.heads,
        key_value_heads=header.key_value_heads,
        causal=True,
        rotary=nn.Rotary(),
        bias=False,
        weight_initializer="zeros",
    )
    blocks = [
        nn.Residual([nn.RMSNorm(epsilon=_EPSILON), attention]),
        nn.Residual([nn.RMSNorm(epsilon=_EPSILON), nn.SwiGLU(header.hidden, weight_initializer="zeros")]),
    ]
    vocabulary = header.vocabulary
    net = Sequential(
        [
            nn.Embedding(vocabulary, header.width, weight_initializer="zeros"),
            *blocks * header.layers,
            nn.RMSNorm(epsilon=_EPSILON),
            nn.TiedHead(vocabulary, (0, 0, 0, 0))
            if header.tied
            else nn.TiedHead(vocabulary, weight_initializer="zeros"),
        ],
        input_shape=header.max_time,
    ).build()
    layers = net.layers
    layers[0].weight = tensors["table"]
    for block in range(header.layers):
        attending, feeding = layers[1 + 2 * block], layers[2 + 2 * block]
        attending["layers.0.weight"] = tensors["attention_norm"][block]
        feeding["layers.0.weight"] = tensors["feed_forward_norm"][block]
        for layer in (attending, feeding):
            for name in layer.layers[1].parameters:
                layer[f"layers.1.{name}"] = tensors[name][block]
    layers[-2].weight = tensors["norm"]
    if not header.tied:
        layers[-1].weight = tensors["head"]
    return net
