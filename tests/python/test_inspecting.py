"""Files of any format are listed without being loaded, and tensors alone are loaded by a guess."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from networks import cnn, mlp
from test_llama2c import legacy, random_weights

GOLDEN = Path(__file__).parents[1] / "golden"


def safetensors(arrays: dict[str, NDArray[np.float32]]) -> bytes:
    head, data = {}, b""
    for name, array in arrays.items():
        piece = array.tobytes()
        offsets = [len(data), len(data) + len(piece)]
        head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += piece
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_a_file_of_looms_own(tmp_path: Path) -> None:
    net = cnn().morph("int8")
    net.save(tmp_path / "net.loom", optimizer=True)
    report = loom.inspect(tmp_path / "net.loom")
    kinds = {tensor.name.split(".")[3]: tensor.layer for tensor in report.tensors if tensor.layer}
    assert kinds == {"0": "conv2d", "2": "conv2d", "4": "dense"}
    assert report.nbytes <= (tmp_path / "net.loom").stat().st_size
    assert loom.models.Inspection.from_json(report.to_json()) == report
    assert list(report.columns()) == ["name", "shape", "dtype", "nbytes", "layer", "loads"]


def test_plain_json_and_llama2c(tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_text(json.dumps(loom.export_model(mlp())))
    report = loom.inspect(path)
    assert report.parameters == sum(values.size for values in mlp().state_dict().values())
    assert {tensor.layer for tensor in report.tensors} == {"dense"}
    path.write_bytes(legacy(random_weights(False)))
    report = loom.inspect(path)
    assert 28 + report.nbytes == path.stat().st_size
    assert "table" in str(report)
    assert "tied_head" in str(report)


def test_heads_of_language_models_are_what_loading_makes_of_them(tmp_path: Path) -> None:
    layers = [
        nn.Embedding(20, 32),
        nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(32)]),
        nn.RMSNorm(),
        nn.Dense(20, bias=False),
    ]
    loom.save_gguf(loom.Sequential(layers, input_shape=8, seed=0), tmp_path / "net.gguf")
    head = loom.load(tmp_path / "net.gguf").layers[-1].config.kind
    told = {tensor.name: tensor.layer for tensor in loom.inspect(tmp_path / "net.gguf").tensors}
    assert told["output.weight"] == head == "dense"


def test_models_of_keras() -> None:
    pytest.importorskip("h5py")
    for name in ("lstm.keras", "lstm.h5"):
        report = loom.inspect(GOLDEN / "keras" / name)
        layers = [tensor.layer for tensor in report.tensors]
        assert layers == ["Embedding", *["Bidirectional"] * 6, *["LSTM"] * 3, *["Dense"] * 2]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match="nowhere"):
        loom.inspect(tmp_path / "nowhere")
    (tmp_path / "a.bin").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(loom.SerializationError, match="pickle"):
        loom.inspect(tmp_path / "a.bin")


def test_tensors_alone_are_listed_and_loaded(tmp_path: Path) -> None:
    pytest.importorskip("loom.tensors")
    net = loom.Sequential([nn.Dense(8), nn.Activation("relu"), nn.Dense(3)], 4)
    names = {"0.0.0.0": "fc1", "0.0.0.2": "fc2"}
    state = {names[name[:7]] + name[7:]: values for name, values in net.state_dict().items()}
    path = tmp_path / "model.bin"
    path.write_bytes(safetensors(state))
    report = loom.inspect(path)
    assert [tensor.layer for tensor in report.tensors] == ["dense"] * 4
    assert "activation" in report.open
    with pytest.raises(loom.SerializationError, match="activation"):
        loom.load(path)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(loom.load(path, config={"activation": "relu"}).predict(x), net.predict(x))
    with pytest.raises(loom.ConfigError, match="unknown layer in the mapping"):
        loom.load(path, mapping={"fc3": None})
    mapped = loom.load(path, mapping={"fc1": nn.Dense(8, "relu")}, config={"activation": "linear"})
    np.testing.assert_array_equal(mapped.predict(x), net.predict(x))
    np.savez(tmp_path / "model.npz", **state)
    loaded = loom.load(tmp_path / "model.npz", config={"activation": "relu"})
    np.testing.assert_array_equal(loaded.predict(x), net.predict(x))
