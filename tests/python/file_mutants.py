"""Files that were damaged or forged: run as a program, it reads random ones in a process of its own.

    python file_mutants.py SEED COUNT [SECONDS]

Most have their checksums made anew, so that what lies behind those is reached. A crash ends the process;
what is refused by something else than a documented error of loom's, takes longer than two seconds or more
memory than it may, or is read though it is damaged or cannot be saved again, is printed, and the exit
status is 1.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import loom
from loom import _native, nn

# How much memory a process may take beyond what it has when it starts.
MEMORY = 1 << 28
SLOW = 2.0
NUMBERS: list[Any] = [0, 1, 2, 3, 7, 64, -1, 2**31 - 1, 2**31, 2**32, 10**8, 10**12, 2**53, 2**63 - 1, 2**63]
NUMBERS += [2**64 - 1, 2**64, 10**30, 0.5, -0.0, 1e308, 1e-308]
VALUES: list[Any] = [
    *NUMBERS,
    None,
    True,
    False,
    "",
    "x",
    "int4",
    "float64",
    [],
    [1],
    [[1]],
    {},
    {"type": "dense"},
]
TYPES = ["F64", "F32", "F16", "BF16", "I64", "I8", "U8", "U64", "BOOL", "F8_E4M3", "C64", "X"]


def samples() -> list[bytes]:
    """Small files of every kind that loom writes."""
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6) % 3
    quiet: dict[str, Any] = {"batch_size": 3, "verbose": False}

    def trained(net: loom.Network, **settings: Any) -> loom.Network:
        inputs = np.resize(x, (6, *net.input_shape))
        config = loom.TrainingConfig(epochs=1, loss="cross_entropy", optimizer="adam", **quiet, **settings)
        loom.train(net, (inputs, y), config)
        return net

    made: list[tuple[loom.Network, dict[str, bool]]] = []
    dense = loom.Sequential([nn.Dense(3, activation="tanh"), nn.BatchNorm(), nn.Dense(3)], 4, seed=1)
    dense.card = loom.ModelCard(labels=["a", "b", "c"])
    made.append((trained(dense), {"optimizer": True}))
    packed = loom.Sequential([nn.Dense(5), nn.Dense(3)], 6, seed=2)
    packed.morph("int4", granularity="block(3)", where=lambda layer: layer.at[3] == 0)
    packed.morph("uint8", where=lambda layer: layer.at[3] == 1)
    made += [(packed, {}), (packed, {"deploy": True})]
    blocks = loom.Sequential([nn.Dense(3)], 40, precision="float64", seed=3)
    made += [(blocks.morph("q4_0"), {}), (blocks, {"deploy": True})]
    steps = loom.Sequential([nn.LSTM(2, stateful=True), nn.Dense(3)], (2, 2), seed=4)
    trained(steps).forward(np.ones((2, 2, 2)))
    made.append((steps, {"optimizer": True}))
    grid = loom.Network((1, 4, 4), grid=(1, 1, 2), seed=5)
    grid[0, 0].add(nn.Conv2D(2, 3, padding=1), nn.MaxPool2D(2))
    grid[0, 1].add(nn.Residual([nn.Conv2D(2, 1)]), nn.Flatten(), nn.Dense(3))
    made.append((grid, {}))
    attention = nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(2, rotary=nn.Rotary())])
    made.append((loom.Sequential([attention, nn.Flatten(), nn.Dense(3)], (2, 4), seed=6), {}))
    files = [_saved(net, **how) for net, how in made]
    tween = loom.Sequential([nn.Dense(3, activation="tanh"), nn.Dense(3, activation="tanh"), nn.Dense(3)], 4)
    for mode in ("difference", "chain_rule"):
        config = loom.TweenConfig(mode=mode)
        training = loom.TrainingConfig(epochs=1, loss="mse", **quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loom.TweenTrainer(tween, config).fit((x, np.eye(3)[y]), training)
        files.append(_saved(tween, optimizer=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mesh.loom"
        mesh = loom.Mesh(loom.Sequential([nn.Dense(3), nn.Dense(2)], 4), rows=2, window=2)
        mesh.set_input(np.ones((2, 4)))
        mesh.tick(3)
        mesh.save(path)
        files.append(path.read_bytes())
    return files


def _saved(net: loom.Network, **how: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        net.save(Path(folder) / "net.loom", **how)
        return (Path(folder) / "net.loom").read_bytes()


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and tensors of a file."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), data[end:]


def joined(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    """A file of header and tensors, with the checksums that it is to have wherever that can be said."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    begin = struct.pack("<Q", len(text)) + text
    try:
        entries = json.loads(text) if isinstance(header, bytes) else dict(header)
        entries.pop("__metadata__", None)
        start, end = entries.pop("loom.checksums")["data_offsets"]
        places = sorted(entry["data_offsets"] for entry in entries.values())
        checksums = [zlib.crc32(begin), *(zlib.crc32(data[start:end]) for start, end in places)]
        return begin + data[:start] + struct.pack(f"<{len(checksums)}I", *checksums) + data[end:]
    except (KeyError, TypeError, ValueError, AttributeError, struct.error):
        return begin + data


def mutated(value: Any, rng: random.Random) -> Any:
    """JSON of which something is changed."""
    if isinstance(value, str) and value[:1] in "{[" and rng.random() < 0.9:
        try:
            return json.dumps(mutated(json.loads(value), rng))
        except ValueError:
            pass
    if isinstance(value, dict) and value and rng.random() < 0.95:
        value = dict(value)
        key = rng.choice(list(value))
        match rng.randrange(12):
            case 0:
                del value[key]
            case 1:
                value[key + rng.choice(["x", "", " "])] = value.pop(key)
            case 2:
                value[rng.choice(list(value))] = copy.deepcopy(value[key])
            case 3:
                value[rng.choice(["", "x", "type", "units", "kept", "dtype"])] = rng.choice(VALUES)
            case _:
                value[key] = mutated(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.95:
        value = list(value)
        place = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                del value[place]
            case 1:
                value.insert(place, copy.deepcopy(value[place]))
            case 2:
                value.insert(place, rng.choice(VALUES))
            case _:
                value[place] = mutated(value[place], rng)
        return value
    if isinstance(value, int) and rng.random() < 0.3:
        return value + rng.choice([-1, 1, 8, -8])
    if isinstance(value, (int, float)) and rng.random() < 0.6:
        return rng.choice(NUMBERS)
    if isinstance(value, str) and value and rng.random() < 0.5:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice(["", "é", "0", "\0", "]", '"', "\\"]) + value[place + 1 :]
    return rng.choice(VALUES)


def flipped(data: bytes, rng: random.Random, count: int = 1) -> bytes:
    """The same with some bits the other way."""
    changed = bytearray(data)
    for _ in range(count):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mutant(data: bytes, rng: random.Random) -> tuple[bytes, bool]:
    """A file that was damaged or forged, and whether its damage has to be found."""
    kind = rng.randrange(20)
    if kind < 2:
        return flipped(data, rng), True
    if kind == 2:
        return data[: rng.randrange(len(data))], True
    if kind == 3:
        place = rng.randrange(len(data))
        return data[:place] + rng.randbytes(rng.randint(1, 16)) + data[place:], True
    header, tensors = parts(data)
    if kind < 6:
        return joined(header, flipped(tensors, rng, rng.randint(1, 4))), False
    if kind == 6:
        place = rng.randrange(max(len(tensors) - 8, 1))
        odd = rng.choice([b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff", b"\xff" * 8, b"\0" * 8, rng.randbytes(8)])
        return joined(header, tensors[:place] + odd + tensors[place + len(odd) :]), False
    if kind == 7:
        return joined(flipped(json.dumps(header).encode(), rng, rng.randint(1, 3)), tensors), False
    if kind == 8:
        header.pop(rng.choice(list(header)))
        return joined(header, tensors), False
    if kind == 9:
        name = rng.choice(list(header))
        text = json.dumps(header)
        return joined((text[:-1] + f', "{name}": {json.dumps(header[name])}}}').encode(), tensors), False
    if kind < 13:
        name = rng.choice([name for name in header if name != "__metadata__"])
        entry = header[name]
        match rng.randrange(4):
            case 0:
                entry["dtype"] = rng.choice(TYPES)
            case 1:
                entry["shape"] = mutated(entry["shape"], rng)
            case 2:
                entry["data_offsets"] = mutated(entry["data_offsets"], rng)
            case _:
                header[name] = mutated(entry, rng)
        return joined(header, tensors), False
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        header["__metadata__"] = mutated(header["__metadata__"], rng)
    return joined(header, tensors), False


def outcome(data: bytes, damaged: bool, path: Path | None) -> str | None:
    """What is wrong with how a file is read."""
    told: str | None = None
    started = time.perf_counter()
    try:
        if path is None:
            net = _native.Network.from_bytes(data)
        else:
            path.write_bytes(data)
            net = loom.load(path)._engine.native
        if damaged:
            told = "read though it is damaged"
        if b"loom.mesh" in data[:4096]:
            _native.Mesh.restore(net, data)
        if COUNTED["read"] % 8 == 0:
            again = _native.Network.from_bytes(net.to_bytes(True))
            if again.to_bytes(False) != net.to_bytes(False):
                told = "saved again it is another"
        del net
        COUNTED["read"] += 1
    except (loom.InternalError, loom.OutOfMemoryError) as error:
        told = f"{type(error).__name__}: {error}"
    except loom.LoomError as error:
        COUNTED[type(error).__name__] += 1
    except Exception as error:  # noqa: BLE001
        told = f"{type(error).__name__}: {error}"
    if told is None and time.perf_counter() - started > SLOW:
        # To ask for a processor's time takes longer than most files; others may have had the processor, too.
        before = time.process_time()
        with contextlib.suppress(loom.LoomError):
            _native.Network.from_bytes(data)
        took = time.process_time() - before
        told = f"took {took:.1f} s" if took > SLOW else None
    return told


COUNTED: collections.Counter[str] = collections.Counter()


def main() -> int:
    """Reads COUNT mutants."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    until = time.monotonic() + float(sys.argv[3]) if len(sys.argv) > 3 else float("inf")
    kept = os.environ.get("LOOM_MUTANTS")
    files = samples()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rng = random.Random(seed)
    wrong, number = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            if time.monotonic() > until:
                break
            data, damaged = mutant(rng.choice(files), rng)
            if kept:
                # What ends the process is still there then.
                (Path(kept) / f"last-{seed}.loom").write_bytes(data)
            told = outcome(data, damaged, Path(folder) / "net.loom" if number % 20 == 0 else None)
            if told is not None:
                wrong += 1
                print(f"{seed}/{number}: {told}"[:300], flush=True)  # noqa: T201
                if kept:
                    (Path(kept) / f"wrong-{seed}-{number}.loom").write_bytes(data)
    print(f"{number + 1} mutants, {wrong} wrong: {dict(COUNTED)}")  # noqa: T201
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
