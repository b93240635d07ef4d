"""Files of tensors: opened lazily whatever they are called, written as other programs read them."""

from __future__ import annotations

import gc
import io
import json
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from loom.tensors import write_gguf, write_safetensors

GOLDEN = Path(__file__).parents[1] / "golden" / "tensors"


def network(**settings: object) -> loom.Network:
    layers = [nn.Conv2D(3, kernel_size=3), nn.BatchNorm(), nn.Flatten(), nn.Dense(4)]
    return loom.Sequential(layers, input_shape=(2, 6, 6), **settings)  # type: ignore[arg-type]


def test_every_type_of_gguf_is_decoded_as_by_its_own_package() -> None:
    decoded = np.load(GOLDEN / "decoded.npz")
    file = loom.open_tensors(GOLDEN / "every.gguf")
    assert file.format == "gguf"
    assert len(file) == 20
    for name, entry in file.items():
        assert entry.name == name
        np.testing.assert_array_equal(entry.numpy(), decoded[name], strict=True)
    packed = {
        "Q4_0",
        "Q4_1",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "IQ4_NL",
        "MXFP4",
    }
    assert {name for name, entry in file.items() if entry.dtype == name.lower()} == packed


def test_metadata_of_gguf_is_python_s_own() -> None:
    metadata = loom.open_tensors(GOLDEN / "every.gguf").metadata
    assert {key.removeprefix("kinds."): value for key, value in metadata.items()} == {
        "general.architecture": "llama",
        "uint8": 200,
        "int8": -3,
        "uint16": 60000,
        "int16": -30000,
        "uint32": 4_000_000_000,
        "int32": -5,
        "float32": 1.5,
        "bool": True,
        "string": "Wörter",
        "uint64": 1 << 60,
        "int64": -(1 << 60),
        "float64": 1e300,
        "texts": ["a", "", "ä"],
        "numbers": [1, -2, 3],
        "floats": [0.5, 1.5],
        "truths": [True, False],
        "nested": [[1, 2], [3]],
    }


def test_numbers_are_packed_as_by_gguf_s_own_package(tmp_path: Path) -> None:
    theirs = loom.open_tensors(GOLDEN / "packed.gguf")
    numbers = np.load(GOLDEN / "decoded.npz")["numbers"]
    types = {"F16": "float16", "BF16": "bfloat16", "Q4_0": "q4_0", "Q8_0": "q8_0"}
    write_gguf(tmp_path / "ours", dict.fromkeys(types, numbers), {"general.architecture": "llama"}, types)
    ours = loom.open_tensors(tmp_path / "ours")
    for name, dtype in types.items():
        assert ours[name].dtype == dtype
        np.testing.assert_array_equal(ours[name].raw(), theirs[name].raw())
    # The file as a whole, too: header, order, gaps.
    assert (tmp_path / "ours").read_bytes() == (GOLDEN / "packed.gguf").read_bytes()


def test_every_type_of_safetensors_is_read() -> None:
    file = loom.open_tensors(GOLDEN / "every.safetensors")
    assert file.metadata == {"made by": "safetensors"}
    expected = bytes(range(0, 246, 41))
    for name, entry in file.items():
        assert entry.shape == (2, 3)
        if name == "bool":
            assert entry.numpy().tolist() == [[False, True, True], [False, True, False]]
        elif name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            assert entry.numpy().dtype == np.float32
        else:
            array = entry.numpy()
            assert array.dtype == np.dtype(name)
            assert array.tobytes() == expected * array.itemsize
    # By hand, from the bits: the first three are 0, 41 = 0b0_0101_001 = 0b0_01010_01, and 82 = 0b0_1010_010 =
    # 0b0_10100_10; those from 123 on are 0b0_1111_011, 0b1_0100_100 and 0b1_1001_101.
    assert file["float8_e4m3fn"].numpy().ravel().tolist() == [0, 9 / 32, 10, 352, -3 / 16, -6.5]
    assert file["float8_e5m2"].numpy().ravel().tolist() == [0, 1.25 / 32, 48, 57344, -1 / 64, -20]
    wide = np.frombuffer(file["bfloat16"].raw().tobytes(), "<u2").astype("<u4") << 16
    np.testing.assert_array_equal(file["bfloat16"].numpy().ravel(), wide.view("<f4"))


def test_a_network_goes_through_safetensors_and_back(tmp_path: Path) -> None:
    for precision in ("float32", "float64"):
        net = network(seed=1, precision=precision)
        path = tmp_path / precision
        net.save_safetensors(path, {"licence": "none"})
        file = loom.open_tensors(path)
        assert file.metadata == {"format": "pt", "licence": "none"}
        state = net.state_dict()
        assert {name: entry.dtype for name, entry in file.items()} == dict.fromkeys(state, precision)
        for name, array in state.items():
            np.testing.assert_array_equal(file[name].numpy(), array, strict=True)
        other = network(seed=2, precision=precision)
        x = np.random.default_rng(0).normal(size=(3, 2, 6, 6))
        other.load_state_dict(file)
        np.testing.assert_array_equal(other.predict(x), net.predict(x))
    with pytest.raises(loom.InvalidValueError, match="strings"):
        net.save_safetensors(path, {"epochs": 3})  # type: ignore[dict-item]
    with pytest.raises(loom.FileError):
        net.save_safetensors(tmp_path / "none" / "file")


def test_nothing_is_copied_that_need_not_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_safetensors(path, {"a": np.arange(6.0), "b": np.arange(3, dtype=np.int8)})
    file = loom.open_tensors(path)
    first, second = file["a"].numpy(), file["a"].numpy()
    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    assert file["a"].numpy(np.float32).flags.writeable
    file.close()
    del file
    gc.collect()
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    # Bytes are looked at in place, too; they and the file stay as long as an array does.
    data = path.read_bytes()
    count = sys.getrefcount(data)
    array = loom.open_tensors(data)["a"].numpy()
    assert sys.getrefcount(data) == count + 1
    assert array.tolist() == first.tolist()


def test_a_tensor_that_is_not_aligned_is_copied() -> None:
    header = {
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = struct.pack("<Q", len(text)) + text + b"abc" + np.array([1.5, 2.5], "<f4").tobytes()
    assert loom.open_tensors(data)["b"].numpy().tolist() == [1.5, 2.5]


def test_a_file_is_a_mapping_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_safetensors(path, {"a": np.ones((2, 2), np.float32)})
    with loom.open_tensors(path) as file:
        assert list(file) == ["a"]
        assert "a" in file
        assert "b" not in file
        assert file.get("b") is None
        assert (file["a"].shape, file["a"].nbytes, file["a"].size) == ((2, 2), 16, 4)
        assert "1 tensors, 16 bytes" in repr(file)
        np.testing.assert_array_equal(np.asarray(file["a"]), np.ones((2, 2)))
        with pytest.raises(KeyError):
            file["b"]
    with pytest.raises(loom.StateError, match="closed"):
        file["a"]
    assert "closed" in repr(file)


def test_shards_and_folders(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m-1.safetensors", {"a": np.ones(2)})
    write_safetensors(tmp_path / "m-2.safetensors", {"b": np.zeros(3), "c": np.zeros(1)})
    assert sorted(loom.open_tensors(tmp_path)) == ["a", "b", "c"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}))
    assert sorted(loom.open_tensors(index)) == sorted(loom.open_tensors(tmp_path)) == ["a", "b"]
    index.write_text(json.dumps({"weight_map": {"a": "../m-1.safetensors"}}))
    with pytest.raises(loom.SerializationError, match="beside it"):
        loom.open_tensors(index)


def test_numpy_s_files(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "b/c": np.asfortranarray(np.ones((2, 3), np.float32))}
    for save in (np.savez, np.savez_compressed):
        path = tmp_path / "no_name_that_says_so"
        with path.open("wb") as stream:
            save(stream, **arrays)
        for file in (loom.open_tensors(path), loom.open_tensors(path.read_bytes())):
            assert file.format == "npz"
            assert {name: (entry.shape, entry.dtype) for name, entry in file.items()} == {
                "a": ((2, 3), "int64"),
                "b/c": ((2, 3), "float32"),
            }
            for name, array in arrays.items():
                np.testing.assert_array_equal(file[name].numpy(), array, strict=True)
    single = tmp_path / "single.bin"
    with single.open("wb") as stream:
        np.save(stream, arrays["a"])
    assert loom.open_tensors(single)["single"].numpy().tolist() == arrays["a"].tolist()
    assert loom.open_tensors(single.read_bytes())["array"].shape == (2, 3)


def npy(array: np.ndarray, shape: str | None = None) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    data = stream.getvalue()
    if shape is None:
        return data
    # Of the same length, so that the header stays whole.
    gap = b" " * (len(shape) - 4)
    return data.replace(b"(3,), }" + gap, shape.encode() + b", }", 1)


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            file.writestr(name.replace("__", "."), data)
    return stream.getvalue()


class Bomb:
    """What must never be unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return pytest.fail, ("code in a file has been run",)


HOSTILE = {
    "objects": (npy(np.array([Bomb()], dtype=object)), "unpickled"),
    "objects in an archive": (archive(a__npy=npy(np.array([Bomb()], dtype=object))), "unpickled"),
    "a pickle": (pickle.dumps({"a": Bomb()}), "pickle"),
    "an older pickle": (pickle.dumps({"a": Bomb()}, protocol=2), "pickle"),
    "a huge array": (npy(np.zeros(3), "(1099511627776,)"), "beyond the end"),
    "a huge array in an archive": (archive(a__npy=npy(np.zeros(3), "(1099511627776,)")), "beyond the end"),
    "half an archive": (archive(a__npy=npy(np.zeros(3)))[:-30], "archive"),
    "another archive": (archive(a__txt=b"text"), "neither"),
    "Keras": (archive(config__json=b"{}", **{"model.weights.h5": b""}), "Keras"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "a page": (b"<!DOCTYPE html><html>", "web page"),
    "nothing": (b"", "neither"),
    "a long header": (struct.pack("<Q", 1 << 40) + b"{}", "neither"),
    "deep JSON": (struct.pack("<Q", 90_000) + b'{"a":' + b"[" * 89_995, "header"),
    "GGUF of another kind": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
    "GGUF cut short": (GOLDEN.joinpath("every.gguf").read_bytes()[:300], "short"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_hostile_or_foreign_is_named(kind: str, tmp_path: Path) -> None:
    data, says = HOSTILE[kind]
    path = tmp_path / "file"
    path.write_bytes(data)
    for source in (path, data):
        with pytest.raises(loom.SerializationError, match=says):
            loom.open_tensors(source)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError):
        loom.open_tensors(tmp_path / "none")
    with pytest.raises(loom.SerializationError, match="holds no"):
        loom.open_tensors(tmp_path)
    with pytest.raises(loom.SerializationError, match="device"):
        loom.open_tensors("/dev/zero")
    with pytest.raises(loom.InvalidValueError, match="path or bytes"):
        loom.open_tensors(3)  # type: ignore[arg-type]


def test_a_file_of_pytorch_s_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "weights"
    path.write_bytes(archive(**{"weights/data.pkl": b"", "weights/version": b"3"}))
    with pytest.raises(loom.MissingExtraError, match="torch"):
        loom.open_tensors(path)


def test_a_file_of_pytorch_s_is_read_by_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    saved = {"state_dict": weights, "epoch": 3, "optimizer": {"state": {0: {"step": 1}}, "param_groups": []}}
    for kind in (True, False):
        path = tmp_path / "checkpoint"
        torch.save(saved, path, _use_new_zipfile_serialization=kind)
        for file in (loom.open_tensors(path), loom.open_tensors(path.read_bytes())):
            assert (file.format, list(file), file.metadata["epoch"]) == ("torch", ["a", "b"], 3)
            assert file["b"].dtype == "bfloat16"
            np.testing.assert_array_equal(file["a"].numpy(), weights["a"].numpy())
            np.testing.assert_array_equal(file["b"].numpy(), np.ones(2, np.float32))
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(loom.SerializationError, match="more than tensors"):
        loom.open_tensors(path)


def test_tensors_go_from_file_to_file_as_they_are(tmp_path: Path) -> None:
    source = loom.open_tensors(GOLDEN / "every.gguf")
    write_gguf(tmp_path / "gguf", {name: source[name] for name in ("Q4_0", "BF16", "I32", "F64", "Q6_K")})
    copy = loom.open_tensors(tmp_path / "gguf")
    assert {name: entry.dtype for name, entry in copy.items()} == {
        "Q4_0": "q4_0",
        "BF16": "bfloat16",
        "I32": "int32",
        "F64": "float64",
        "Q6_K": "float32",
    }
    for name, entry in copy.items():
        np.testing.assert_array_equal(entry.numpy(), source[name].numpy())
    write_safetensors(tmp_path / "safe", {name: source[name] for name in ("Q4_0", "BF16", "F16")})
    safe = loom.open_tensors(tmp_path / "safe")
    assert {name: entry.dtype for name, entry in safe.items()} == {
        "BF16": "bfloat16",
        "F16": "float16",
        "Q4_0": "float32",
    }
    for name, entry in safe.items():
        np.testing.assert_array_equal(entry.numpy(), source[name].numpy())


def test_what_a_file_cannot_hold_is_refused_and_the_old_one_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(loom.DTypeError, match="complex128"):
        write_safetensors(path, {"a": np.ones(2, np.complex128)})
    with pytest.raises(loom.DTypeError, match="bool"):
        write_gguf(path, {"a": np.ones(2, bool)})
    with pytest.raises(loom.DTypeError, match="q6_k"):
        write_gguf(path, {"a": np.ones(2)}, dtype="q6_k")
    with pytest.raises(loom.NonFiniteError, match="q8_0"):
        write_gguf(path, {"a": np.full((2, 32), np.inf)}, dtype="q8_0")
    for value in (None, {"a": 1}, [], [[1, 2], [3]], 1 << 70, 1j, object()):
        if value != []:
            with pytest.raises(loom.InvalidValueError, match="metadata"):
                write_gguf(path, {}, {"key": value})
    assert path.read_text() == "old"
    # Vectors stay exact; rows that are no whole blocks become float16.
    write_gguf(path, {"v": np.ones(32), "m": np.ones((2, 33)), "w": np.ones((2, 64))}, dtype="q4_0")
    kinds = {name: entry.dtype for name, entry in loom.open_tensors(path).items()}
    assert kinds == {"v": "float32", "m": "float16", "w": "q4_0"}


def test_metadata_has_the_types_that_llama_cpp_expects(tmp_path: Path) -> None:
    metadata = {
        "whole": 3,
        "negative": -3,
        "large": 1 << 40,
        "real": 0.5,
        "truth": True,
        "text": "a",
        "texts": ("a", "b"),
        "tokens": [1, 2],
        "scores": np.array([0.5, 1.0]),
        "exact": np.uint64(7),
    }
    write_gguf(tmp_path / "file", {}, metadata)
    data = (tmp_path / "file").read_bytes()
    kinds = {}
    for key in metadata:
        place = data.index(struct.pack("<Q", len(key)) + key.encode()) + 8 + len(key)
        (kind,) = struct.unpack_from("<I", data, place)
        kinds[key] = (kind, struct.unpack_from("<I", data, place + 4)[0]) if kind == 9 else kind
    assert kinds == {
        "whole": 4,
        "negative": 5,
        "large": 11,
        "real": 6,
        "truth": 7,
        "text": 8,
        "texts": (9, 8),
        "tokens": (9, 5),
        "scores": (9, 12),
        "exact": 10,
    }
    read = loom.open_tensors(tmp_path / "file").metadata
    assert read == {**metadata, "texts": ["a", "b"], "scores": [0.5, 1.0]}


def test_whatever_is_in_an_archive_of_arrays_reading_it_ends_well() -> None:
    seeds = []
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, a=np.arange(6).reshape(2, 3), b=np.ones(300, np.float32), c=np.array(["x", "yy"]))
        seeds.append(stream.getvalue())
    seeds.append(npy(np.arange(6.0)))
    random = np.random.default_rng(17)
    outcomes = []
    for _ in range(1500):
        data = bytearray(seeds[random.integers(len(seeds))])
        for place in random.integers(len(data) - 40, size=random.integers(1, 4)):
            match random.integers(4):
                case 0:
                    data[place] ^= 1 << random.integers(8)
                case 1:
                    data[place : place + 4] = b"\xff" * 4
                case 2:
                    del data[place : place + 3]
                case _:
                    data[place:place] = data[place : place + 20]
        try:
            for entry in loom.open_tensors(bytes(data)).values():
                entry.numpy()
        except loom.SerializationError:
            outcomes.append("refused")
        else:
            outcomes.append("read")
    assert set(outcomes) == {"refused", "read"}
