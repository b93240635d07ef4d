"""Writes tensors/: files of tensors by the packages that define the formats, and what they decode to.

    python tests/golden/tensor_files.py

needs gguf 0.19.0, safetensors 0.8.0 and NumPy 2. `every.gguf` holds two rows of each type that loom decodes, of
random blocks, and metadata of every kind; `decoded.npz` what gguf makes of them. `packed.gguf` holds `numbers` of
`decoded.npz` as gguf packs them. `every.safetensors` holds each type of safetensors.
"""

from pathlib import Path

import gguf
import numpy as np
import safetensors
from gguf import GGMLQuantizationType as Type
from gguf import quants

FOLDER = Path(__file__).parent / "tensors"
RANDOM = np.random.default_rng(17)
PACKED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
# Where the float16 scales of a block are, in bytes.
SCALES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


def blocks(name):
    """Random bytes, with scales that are finite."""
    length, size = gguf.GGML_QUANT_SIZES[Type[name]]
    rows = RANDOM.integers(0, 256, (2, 256 // length, size), dtype=np.uint8)
    if name == "MXFP4":
        # Subnormal scales, too.
        rows[..., 0] = RANDOM.integers(0, 200, rows.shape[:2])
        rows[0, :3, 0] = 0, 1, 2
    else:
        for place in SCALES.get(name, (0,)):
            scale = RANDOM.normal(size=rows.shape[:2]).astype("<f2")
            rows[..., place : place + 2] = scale[..., None].view(np.uint8)
    return rows.reshape(2, -1)


def main():
    FOLDER.mkdir(exist_ok=True)
    decoded = {}
    writer = gguf.GGUFWriter(FOLDER / "every.gguf", "llama")
    writer.add_uint8("kinds.uint8", 200)
    writer.add_int8("kinds.int8", -3)
    writer.add_uint16("kinds.uint16", 60000)
    writer.add_int16("kinds.int16", -30000)
    writer.add_uint32("kinds.uint32", 4_000_000_000)
    writer.add_int32("kinds.int32", -5)
    writer.add_float32("kinds.float32", 1.5)
    writer.add_bool("kinds.bool", True)
    writer.add_string("kinds.string", "Wörter")
    writer.add_uint64("kinds.uint64", 1 << 60)
    writer.add_int64("kinds.int64", -(1 << 60))
    writer.add_float64("kinds.float64", 1e300)
    writer.add_array("kinds.texts", ["a", "", "ä"])
    writer.add_array("kinds.numbers", [1, -2, 3])
    writer.add_array("kinds.floats", [0.5, 1.5])
    writer.add_array("kinds.truths", [True, False])
    writer.add_array("kinds.nested", [[1, 2], [3]])
    for name, dtype in PLAIN.items():
        array = (RANDOM.normal(size=(2, 5)) * 100).astype(dtype)
        writer.add_tensor(name, array)
        decoded[name] = array
    bits = RANDOM.normal(size=(2, 6)).astype(np.float32)
    half = quants.quantize(bits, Type.BF16)
    writer.add_tensor("BF16", half, raw_shape=half.shape, raw_dtype=Type.BF16)
    decoded["BF16"] = quants.dequantize(half, Type.BF16)
    for name in PACKED:
        raw = blocks(name)
        writer.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=Type[name])
        decoded[name] = quants.dequantize(raw, Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    numbers = RANDOM.normal(size=(3, 64)).astype(np.float32)
    numbers[0, :32] = 0
    decoded["numbers"] = numbers
    writer = gguf.GGUFWriter(FOLDER / "packed.gguf", "llama")
    for name in ("F16", "BF16", "Q4_0", "Q8_0"):
        raw = quants.quantize(numbers, Type[name])
        if name == "F16":
            writer.add_tensor(name, raw)
        else:
            writer.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(FOLDER / "decoded.npz", **decoded)

    sizes = {
        "float64": 8,
        "float32": 4,
        "float16": 2,
        "bfloat16": 2,
        "float8_e4m3fn": 1,
        "float8_e5m2": 1,
        "bool": 1,
    }
    sizes |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
    specs, held = {}, []
    for name, size in sizes.items():
        data = bytes([0, 1, 1, 0, 1, 0]) if name == "bool" else bytes(range(0, 246, 41))[:6] * size
        held.append(np.frombuffer(data, np.uint8))
        specs[name] = safetensors.TensorSpec(
            dtype=name, shape=[2, 3], data_ptr=held[-1].ctypes.data, data_len=len(data)
        )
    (FOLDER / "every.safetensors").write_bytes(safetensors.serialize(specs, {"made by": "safetensors"}))


if __name__ == "__main__":
    main()
