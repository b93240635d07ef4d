"""Files of every format that loom reads, damaged or forged: run as a program, it reads random ones.

    python parser_mutants.py PARSER SEED COUNT [SECONDS]

PARSER is one of `PARSERS`. Archives have their checksums made anew, and headers their lengths, so that what
lies behind those is reached. What is refused by something else than a documented error of loom's, takes
longer than two seconds, or more memory than it may, is printed and kept in the folder that LOOM_MUTANTS
names, and the exit status is 1. A crash ends the process; the file is there then, as `last-PARSER-SEED`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import loom
from file_mutants import flipped, joined, mutated, parts
from loom import _native, nn
from networks import llama

MEMORY = 1 << 29
"""How much memory a process may take beyond what it has when it starts."""
SLOW = 2.0
GOLDEN = Path(__file__).parents[1] / "golden"
LENGTHS = [
    0,
    1,
    2,
    7,
    8,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
TYPES = ["<f4", "|O", "<f8", ">i2", "|b1", "<U3", "<c8", "|V8", "<M8[s]", "[('a', '<f4')]"]
PIECES = [
    b"\0" * 8,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"../",
    b"(((((",
    b"[" * 40,
    b"\x80\x04c",
    b"\x00\x00\xc0\x7f",
]

Random = random.Random
Members = dict[str, bytes]


def changed(data: bytes, rng: Random, others: list[bytes]) -> bytes:
    """Bytes of which something is changed, one to four times."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not data:
            return rng.randbytes(8)
        at = rng.randrange(len(data))
        match rng.randrange(10):
            case 0 | 1:
                data = flipped(data, rng, rng.randint(1, 4))
            case 2:
                data = data[:at]
            case 3:
                data = data[:at] + rng.randbytes(rng.randint(1, 16)) + data[at:]
            case 4:
                data = data[:at] + data[at + rng.randint(1, 16) :]
            case 5:
                other = rng.choice(others)
                start = rng.randrange(len(other))
                data = data[:at] + other[start : start + rng.randint(1, 64)] + data[at:]
            case 6:
                piece = rng.choice(PIECES)
                data = data[:at] + piece + data[at + len(piece) :]
            case _:
                form = rng.choice("BHIQ")
                size = struct.calcsize(form)
                number = rng.choice(LENGTHS) % (1 << 8 * size)
                data = data[:at] + struct.pack("<" + form, number) + data[at + size :]
    return data


def archive(members: Members, rng: Random) -> bytes:
    """A zip archive, members uncompressed and now and then twice there, its numbers now and then wrong."""
    body, directory = bytearray(), bytearray()
    held = list(members.items())
    if rng.random() < 0.05:
        held.append(rng.choice(held))
    for name, data in held:
        label = name.encode("utf-8", "surrogateescape")
        size = len(data) if rng.random() < 0.98 else rng.choice(LENGTHS) % 2**32
        fields = (
            20,
            0,
            rng.choice([8, 12]) if rng.random() < 0.01 else 0,
            0,
            0,
            zlib.crc32(data),
            size,
            size,
        )
        directory += struct.pack("<4s4H", b"PK\1\2", 20, *fields[:3]) + struct.pack("<2H3I", *fields[3:])
        directory += struct.pack("<5H2I", len(label), 0, 0, 0, 0, 0, len(body)) + label
        body += struct.pack("<4s5H3I2H", b"PK\3\4", *fields, len(label), 0) + label + data
    count = len(held) if rng.random() < 0.99 else rng.choice(LENGTHS) % 2**16
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + end)


@functools.cache
def members_of(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        return {name: held.read(name) for name in held.namelist()}


@functools.cache
def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and tensors of a whole file, which stay as they are."""
    return parts(data)


def headed(header: Any, tensors: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + tensors


class Parser:
    """A format: its files, how they are changed, and how they are read.

    Args:
        files: Small files.
        read: Reads one from its bytes.
        change: Changes one.
    """

    def __init__(
        self,
        files: list[bytes],
        read: Callable[[bytes], object],
        change: Callable[[bytes, Random, list[bytes]], bytes] = changed,
    ) -> None:
        self.files, self.read = files, read
        self._change = change

    def mutant(self, rng: Random) -> bytes:
        """A file of which something is changed."""
        return self._change(rng.choice(self.files), rng, self.files)


def look_at(data: bytes | Path) -> None:
    """Opens tensors, and reads every one."""
    with loom.open_tensors(data) as file:
        for entry in file.values():
            with contextlib.suppress(loom.DTypeError):
                assert entry.numpy().shape == entry.shape


def _safetensors(folder: Path) -> Parser:
    files = [(GOLDEN / "tensors" / "every.safetensors").read_bytes()]
    net = loom.Sequential([nn.Dense(3), nn.BatchNorm(), nn.Dense(2)], 4, seed=1)
    net.save_safetensors(folder / "net")
    files.append((folder / "net").read_bytes())

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        if rng.random() < 0.4:
            return changed(data, rng, others)
        header, tensors = parts_of(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            header = mutated(header, rng)
        return headed(header, tensors)

    return Parser(files, look_at, change)


def _gguf(folder: Path) -> Parser:
    net = llama(blocks=1)
    loom.save_gguf(net, folder / "net", "q4_0", {"tokenizer.ggml.tokens": ["a", "b"], "x.scores": [0.5, 1.5]})
    files = [(folder / "net").read_bytes(), (GOLDEN / "tensors" / "every.gguf").read_bytes()]

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        # What comes first says what the rest is.
        head = min(len(data), rng.choice([64, 512, 4096]))
        return changed(data[:head], rng, others) + data[head:]

    def read(data: bytes) -> None:
        look_at(data)
        path = folder / "read.gguf"
        path.write_bytes(data)
        loom.load(path)

    return Parser(files, read, change)


def _npz(folder: Path) -> Parser:
    buffers = [io.BytesIO(), io.BytesIO()]
    np.savez(buffers[0], weight=np.ones((3, 2), np.float32), bias=np.arange(3.0), whole=np.arange(4))
    np.save(buffers[1], np.ones((2, 3), np.float16))
    npz, npy = (buffer.getvalue() for buffer in buffers)

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        if data[:2] != b"PK" or rng.random() < 0.2:
            return changed(data, rng, others)
        members = members_of(data)
        name = rng.choice(list(members))
        member = members[name]
        if rng.random() < 0.5:
            nested = "(" * (5000 if rng.random() < 0.01 else 1)
            text = rng.choice(
                [
                    f"{{'descr': '{rng.choice(TYPES)}', 'fortran_order': False, 'shape': (3, 2), }}",
                    f"{{'descr': '<f4', 'fortran_order': True, 'shape': ({rng.choice(LENGTHS)}, 2), }}",
                    f"{{'descr': '<f4', 'fortran_order': False, 'shape': {nested}, }}",
                    "{'descr': '<f4'}",
                ]
            ).encode()
            member = member[:8] + struct.pack("<H", len(text) % 2**16) + text + member[-24:]
        else:
            member = changed(member, rng, others)
        if rng.random() < 0.05:
            name = rng.choice(["../x.npy", "/x.npy", "", "x" * 300, name])
        return archive({**members, name: member}, rng)

    return Parser([npz, npy], look_at, change)


def _torch(folder: Path) -> Parser:
    import torch

    buffers = [io.BytesIO(), io.BytesIO()]
    state = {"a.weight": torch.ones(3, 2), "a.bias": torch.zeros(3, dtype=torch.bfloat16)}
    torch.save(state, buffers[0])
    torch.save({"model": state, "epoch": 3}, buffers[1])

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        if rng.random() < 0.2:
            return changed(data, rng, others)
        members = members_of(data)
        name = rng.choice([name for name in members if name.endswith("data.pkl")] * 4 + list(members))
        return archive({**members, name: changed(members[name], rng, others)}, rng)

    def read(data: bytes) -> None:
        path = folder / "read.pt"
        path.write_bytes(data)
        look_at(path)

    return Parser([buffer.getvalue() for buffer in buffers], read, change)


def _onnx(folder: Path) -> Parser:
    from loom.models.onnx.export import onnx_model

    rows: list[tuple[list[nn.Layer], Any]] = [
        ([nn.Dense(3, activation="gelu"), nn.Softmax()], 2),
        ([nn.Conv2D(2, 3, padding=1), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(2)], (1, 4, 4)),
        ([nn.GRU(2, reset_after=False)], (3, 2)),
    ]
    nets = [loom.Sequential(row, input_shape=shape, seed=1) for row, shape in rows]
    files = [onnx_model(net).SerializeToString() for net in nets]
    return Parser(files, loom.models.onnx.load)


def _keras(folder: Path) -> Parser:
    files = [(GOLDEN / "keras" / f"{name}.h5").read_bytes() for name in ("image", "lstm", "residual")]
    files.append((GOLDEN / "keras" / "perceptron.keras").read_bytes())

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        if data[:2] != b"PK":
            start = data.find(b'{"') if rng.random() < 0.5 else 0
            end = min(len(data), max(start, 0) + rng.choice([512, 4096, len(data)]))
            return data[: max(start, 0)] + changed(data[max(start, 0) : end], rng, others) + data[end:]
        members = members_of(data)
        name = rng.choice(["config.json", *members])
        member = members[name]
        if name.endswith(".json") and rng.random() < 0.8:
            member = json.dumps(mutated(json.loads(member), rng)).encode()
        else:
            member = changed(member, rng, others)
        return archive({**members, name: member}, rng)

    def read(data: bytes) -> None:
        path = folder / "read.h5"
        path.write_bytes(data)
        loom.load(path)

    return Parser(files, read, change)


def _llama2c(folder: Path) -> Parser:
    def tensors(shared: int) -> bytes:
        width, hidden, blocks, heads, words, steps = 8, 12, 1, 2, 11, 6
        count = words * width + blocks * (2 * width + 4 * width * width + 3 * width * hidden) + width
        count += steps * (width // heads) + (0 if shared > 0 else words * width)
        header = struct.pack("<7i", width, hidden, blocks, heads, heads, shared * words, steps)
        return header + np.full(count, 0.25, np.float32).tobytes()

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        # Behind the header are numbers, of which hardly any is refused.
        if rng.random() < 0.1:
            return changed(data, rng, others)
        place = 4 * rng.randrange(7)
        number = rng.choice([*LENGTHS, 1, 2, 3, 5, 8, 12]) % 2**32
        return data[:place] + struct.pack("<I", number) + data[place + 4 :]

    def read(data: bytes) -> None:
        path = folder / "read.bin"
        path.write_bytes(data)
        loom.load(path)

    return Parser([tensors(1), tensors(-1)], read, change)


def _loom(folder: Path) -> Parser:
    dense = loom.Sequential([nn.Dense(3, activation="tanh"), nn.BatchNorm(), nn.Dense(3)], 4, seed=1)
    packed = loom.Sequential([nn.Dense(5), nn.GRU(3)], (2, 6), seed=2).morph("int4", granularity="block(3)")
    files = []
    for net in (dense, packed):
        net.save(folder / "net")
        files.append((folder / "net").read_bytes())

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        kind = rng.random()
        if kind < 0.2:
            return changed(data, rng, others)
        header, tensors = parts_of(data)
        if kind < 0.3:
            return joined(header, changed(tensors, rng, others))
        place = "__metadata__" if kind < 0.8 else rng.choice(list(header))
        return joined({**header, place: mutated(header[place], rng)}, tensors)

    return Parser(files, _native.Network.from_bytes, change)


def _hub(folder: Path) -> Parser:
    held = sorted((GOLDEN / "hub").glob("*/*/config.json")) + sorted((GOLDEN / "hub").glob("*/config.json"))
    known = [path.parent for path in held if (path.parent / "model.safetensors").exists()][::3]
    texts = {
        json.dumps({**json.loads((at / "config.json").read_text()), "~": str(at)}).encode() for at in known
    }

    def change(data: bytes, rng: Random, others: list[bytes]) -> bytes:
        config = json.loads(data)
        at = config.pop("~")
        if rng.random() < 0.1:
            return json.dumps(
                {"~": at, "text": changed(json.dumps(config).encode(), rng, others).hex()}
            ).encode()
        for _ in range(rng.choice([1, 2, 3, 4, 6])):
            config = mutated(config, rng)
        return json.dumps({"~": at, "text": json.dumps(config).encode().hex()}).encode()

    def read(data: bytes) -> None:
        said = json.loads(data)
        at = Path(said["~"])
        where = folder / "hub"
        where.mkdir(exist_ok=True)
        for path in at.iterdir():
            link = where / path.name
            link.unlink(missing_ok=True)
            if path.name != "config.json":
                link.symlink_to(path)
        (where / "config.json").write_bytes(bytes.fromhex(said["text"]))
        loom.models.from_hub(where)

    return Parser(sorted(texts), read, change)


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "safetensors": _safetensors,
    "gguf": _gguf,
    "npz": _npz,
    "torch": _torch,
    "onnx": _onnx,
    "keras": _keras,
    "llama2c": _llama2c,
    "loom": _loom,
    "hub": _hub,
}


def outcomes(
    name: str, seed: int, count: int, until: float, counted: collections.Counter[str]
) -> Iterator[str]:
    """Reads so many mutants, and yields what is wrong with how they are read."""
    kept = os.environ.get("LOOM_MUTANTS")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        parser = PARSERS[name](Path(folder))
        rng = Random(seed)
        for number in range(count):
            if time.monotonic() > until:
                return
            data = parser.mutant(rng)
            if kept:
                # What ends the process is still there then.
                (Path(kept) / f"last-{name}-{seed}").write_bytes(data)
            told = _outcome(parser, data, counted)
            if told is not None:
                if kept:
                    (Path(kept) / f"wrong-{name}-{seed}-{number}").write_bytes(data)
                yield f"{name} {seed}/{number}: {told}"


def _outcome(parser: Parser, data: bytes, counted: collections.Counter[str]) -> str | None:
    started = time.perf_counter()
    told = None
    counted["all"] += 1
    try:
        parser.read(data)
        counted["read"] += 1
    except (loom.InternalError, loom.OutOfMemoryError) as error:
        told = f"{type(error).__name__}: {error}"
    except loom.LoomError as error:
        counted[type(error).__name__] += 1
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no error of loom's
        told = f"{type(error).__name__}: {error}"
    if told is None and time.perf_counter() - started > SLOW:
        # To ask for a processor's time takes longer than most files; others may have had the processor, too.
        before = time.process_time()
        with contextlib.suppress(Exception):
            parser.read(data)
        took = time.process_time() - before
        told = f"took {took:.1f} s" if took > SLOW else None
    return told


def main() -> int:
    """Reads COUNT mutants of files that PARSER reads."""
    name, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    until = time.monotonic() + float(sys.argv[4]) if len(sys.argv) > 4 else float("inf")
    counted: collections.Counter[str] = collections.Counter()
    warnings.simplefilter("ignore")
    # Whatever is imported when it is first needed is there before memory is measured.
    with tempfile.TemporaryDirectory() as folder:
        parser = PARSERS[name](Path(folder))
        for file in parser.files:
            _outcome(parser, file, collections.Counter())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wrong = 0
    for told in outcomes(name, seed, count, until, counted):
        wrong += 1
        print(told[:400], flush=True)  # noqa: T201 - as a program it prints
    print(f"{name} {seed}: {counted.pop('all', 0)} mutants, {wrong} wrong: {dict(counted)}")  # noqa: T201
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
