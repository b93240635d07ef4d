"""Golden codes of the packed numeric types.

Writes dtypes.json, which the Rust tests read. Small floats come from ml_dtypes: the number of every
code, and digests of the codes of a million random numbers and of what lies at and next to every
midpoint between two codes. Block formats are made here, in NumPy, from their published layouts:
`block_q4_0` and `block_q8_0` of llama.cpp, and the OCP microscaling formats. Types whose codes are the levels of a
table are made here of the published table, the nearest level found in exact fractions.

Run with ml_dtypes and NumPy installed: python tests/golden/dtypes.py
"""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np

RANDOM = 1_000_000
FLOATS = {
    # type: (NumPy's, codes, code of the largest number, the exponents of random numbers: first and how many)
    "float16": (np.float16, 1 << 16, 0x7BFF, (100, 43)),
    "bfloat16": (ml_dtypes.bfloat16, 1 << 16, 0x7F7F, (0, 255)),
    "float8_e4m3": (ml_dtypes.float8_e4m3fn, 256, 0x7E, (114, 23)),
    "float8_e5m2": (ml_dtypes.float8_e5m2, 256, 0x7B, (108, 36)),
    "float4_e2m1": (ml_dtypes.float4_e2m1fn, 16, 0x7, (123, 8)),
}


def words(count: int) -> np.ndarray:
    """Well mixed 32-bit words by their number: the finalizer of MurmurHash3."""
    word = np.arange(1, count + 1, dtype=np.uint32)
    word = (word ^ word >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    word = (word ^ word >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return word ^ word >> np.uint32(16)


def digest(codes: np.ndarray) -> str:
    """The sum of the codes, each plus one, times the words of their places, modulo 2**64."""
    weights = words(codes.size).astype(np.uint64)
    return f"{int(np.sum((codes.astype(np.uint64) + np.uint64(1)) * weights)):016x}"


def values_of(dtype, codes: int) -> np.ndarray:
    """The number of every code."""
    unsigned = np.uint16 if codes > 256 else np.uint8
    return np.arange(codes, dtype=np.uint32).astype(unsigned).view(dtype).astype(np.float32)


def codes_of(values: np.ndarray, dtype, largest: np.float32) -> np.ndarray:
    """The codes of numbers, saturating."""
    rounded = np.clip(values, -largest, largest).astype(np.float32).astype(dtype)
    return rounded.view(np.uint16 if rounded.itemsize == 2 else np.uint8)


def random_values(first: int, count: int, largest: np.float32) -> np.ndarray:
    """Random signs and fractions, the exponents in turn."""
    word = words(RANDOM)
    exponent = np.uint32(first) + np.arange(RANDOM, dtype=np.uint32) % np.uint32(count)
    values = (word & np.uint32(0x807FFFFF) | exponent << np.uint32(23)).view(np.float32)
    return np.clip(values, -largest, largest)


def midpoints(values: np.ndarray, largest_code: int) -> np.ndarray:
    """What lies below, at and above every midpoint of neighbouring codes, and the same negated."""
    values = values[: largest_code + 1].astype(np.float64)
    middle = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    bits = middle.view(np.uint32)
    around = np.stack([bits - np.uint32(1), bits, bits + np.uint32(1)], axis=1).reshape(-1)
    around = around.view(np.float32)
    return np.stack([around, -around], axis=1).reshape(-1)


def floats() -> dict:
    """Each small float's numbers and digests."""
    found = {}
    for name, (dtype, count, largest_code, exponents) in FLOATS.items():
        values = values_of(dtype, count)
        largest = values[largest_code]
        bits = values.view(np.uint32).copy()
        bits[np.isnan(values)] = 0x7FC00000
        entry = {
            "values_digest": digest(bits),
            "random_digest": digest(codes_of(random_values(*exponents, largest), dtype, largest)),
            "midpoints_digest": digest(codes_of(midpoints(values, largest_code), dtype, largest)),
        }
        if count <= 256:
            entry["values"] = [f"{word:08x}" for word in bits]
        found[name] = entry
    return found


def reciprocal(d: np.float32) -> np.float32:
    return np.float32(0) if d == 0 else np.float32(1) / d


def q4_0(block: np.ndarray) -> bytes:
    """llama.cpp's quantize_row_q4_0_ref for one block."""
    largest = np.float32(0)
    for value in block:
        if abs(largest) < abs(value):
            largest = value
    d = largest / np.float32(-8)
    codes = np.minimum(15, np.trunc(block * reciprocal(d) + np.float32(8.5))).astype(np.uint8)
    return np.float16(d).tobytes() + (codes[:16] | codes[16:] << 4).astype(np.uint8).tobytes()


def q8_0(block: np.ndarray) -> bytes:
    """llama.cpp's quantize_row_q8_0_ref for one block."""
    d = np.max(np.abs(block)) / np.float32(127)
    scaled = block * reciprocal(d)
    whole = np.trunc(scaled)
    rounded = whole + np.sign(scaled) * (np.abs(scaled - whole) >= np.float32(0.5))
    return np.float16(d).tobytes() + rounded.astype(np.int8).tobytes()


def microscaling(dtype, codes: int, emax: int, block: np.ndarray) -> bytes:
    """An OCP MX block: the shared exponent, then the codes, two a byte where they have four bits."""
    largest = float(np.max(np.abs(block)))
    exponent = -127 if largest == 0 else int(np.floor(np.log2(largest))) - emax
    exponent = max(-127, min(127, exponent))
    table = values_of(dtype, codes).astype(np.float64)[: codes // 2]
    table = table[np.isfinite(table)]
    found = []
    for value in block.astype(np.float64) / 2.0**exponent:
        distance = np.abs(table - min(abs(value), table[-1]))
        nearest = np.flatnonzero(distance == distance.min())
        # Of two equally near the one with an even code.
        code = int(nearest[0] if nearest[0] % 2 == 0 else nearest[-1])
        found.append(code | (codes // 2 if np.signbit(value) else 0))
    found = np.array(found, dtype=np.uint8)
    if codes == 16:
        found = found[0::2] | found[1::2] << 4
    return bytes([exponent + 127]) + found.astype(np.uint8).tobytes()


FORMATS = {
    "q4_0": q4_0,
    "q8_0": q8_0,
    "mxfp8_e4m3": lambda block: microscaling(ml_dtypes.float8_e4m3fn, 256, 8, block),
    "mxfp8_e5m2": lambda block: microscaling(ml_dtypes.float8_e5m2, 256, 15, block),
    "mxfp4": lambda block: microscaling(ml_dtypes.float4_e2m1fn, 16, 2, block),
}


def blocks() -> dict:
    """One column of blocks for each format; the last one is short of elements."""
    random = np.random.default_rng(7)
    rows = [random.standard_normal(32) * scale for scale in (1.0, 0.02, 300.0, 1e-6)]
    rows += [
        np.zeros(32),
        np.where(np.arange(32) == 5, -3.0, 0.0),
        # Several of the largest magnitude, of both signs.
        np.where(np.arange(32) % 3 == 0, 2.0, -2.0),
        np.linspace(-1.0, 1.0, 32),
        # Halves of steps.
        (np.arange(32) - 16) / 2.0,
        (np.arange(32) + 0.5) * 127.0 / 32.0,
        random.standard_normal(9),
    ]
    values = np.concatenate(rows).astype(np.float32)
    padded = np.concatenate([values, np.zeros(-values.size % 32, np.float32)]).reshape(-1, 32)
    found = {name: b"".join(map(pack, padded)).hex() for name, pack in FORMATS.items()}
    return {"values": [f"{word:08x}" for word in values.view(np.uint32)], "bytes": found}


# The levels as bitsandbytes prints them, and how many weights share the largest magnitude.
TABLES = {
    "nf4": (
        [
            -1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0,
        ],
        64,
    ),
}


def tables() -> dict:
    """One column for each table: what lies at and next to every midpoint, zeros, and random numbers."""
    found = {}
    for name, (printed, length) in TABLES.items():
        levels = np.array(printed, np.float32)
        exact = [Fraction(float(level)) for level in levels]
        middle = np.array([(a + b) / 2 for a, b in pairwise(exact)], np.float32)
        near = np.stack([np.nextafter(middle, np.float32(-2)), middle, np.nextafter(middle, np.float32(2))])
        near = near.reshape(-1)
        random = np.random.default_rng(11)
        rows = [np.float32([1.0]), near, np.zeros(length * 2 - 1 - near.size)]
        rows += [random.standard_normal(length) * scale for scale in (1.0, 0.02, 3e30, 1e-30)]
        rows += [np.zeros(length), random.standard_normal(9)]
        values = np.concatenate(rows).astype(np.float32)
        scales, codes = [], []
        for at in range(0, values.size, length):
            block = values[at : at + length]
            scale = np.max(np.abs(block)) or np.float32(1)
            scales.append(scale)
            for value in block / scale:
                # Of two equally near the lower.
                distances = [abs(Fraction(float(value)) - level) for level in exact]
                codes.append(distances.index(min(distances)))
        found[name] = {
            "levels": [f"{word:08x}" for word in levels.view(np.uint32)],
            "values": [f"{word:08x}" for word in values.view(np.uint32)],
            "scales": [f"{word:08x}" for word in np.array(scales, np.float32).view(np.uint32)],
            "codes": "".join(f"{code:x}" for code in codes),
        }
    return found


def main() -> None:
    with np.errstate(over="ignore"):
        golden = {"floats": floats(), "blocks": blocks(), "tables": tables()}
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
