"""Files, pickles and copies: the same network comes back; what is no network is refused."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, cnn, mlp, quiet, weights


@pytest.fixture
def trained() -> loom.Network:
    net = mlp(seed=7)
    loom.train(net, blobs(), quiet(epochs=2, metrics=["accuracy"]))
    return net


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("make", [mlp, cnn])
def test_a_saved_network_comes_back_bit_for_bit(tmp_path: Path, make: Any, dtype: str) -> None:
    net = make(seed=3).morph(dtype)
    net.layers[0].trainable = False
    path = tmp_path / "net.loom"
    net.save(path)
    loaded = loom.load(str(path))
    assert loaded.config == net.config
    assert weights(loaded) == weights(net)
    x = np.random.default_rng(0).normal(size=(5, *net.input_shape))
    np.testing.assert_array_equal(loaded.predict(x), net.predict(x))
    assert loaded.weight_bytes == net.weight_bytes
    assert [layer.dtype for layer in loaded.layers] == [layer.dtype for layer in net.layers]


def test_float64_networks_keep_their_precision(tmp_path: Path) -> None:
    net = mlp(precision="float64")
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    assert loaded.precision == "float64"
    assert weights(loaded) == weights(net)


def header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    read: dict[str, Any] = json.loads(data[8 : 8 + length])
    return read


def test_the_file_is_safetensors_with_the_promised_names(tmp_path: Path, trained: loom.Network) -> None:
    trained.morph("int8")
    trained.save(tmp_path / "net.loom")
    found = header(tmp_path / "net.loom")
    metadata = found.pop("__metadata__")
    assert metadata["loom.format"] == "2"
    assert loom.Network.from_json(metadata["loom.config"]).config == trained.config
    assert found["0.0.0.0.weight"]["dtype"] == "F32"
    assert found["0.0.0.0.weight"]["shape"] == [24, 6]
    assert found["0.0.0.0.weight@int8"]["dtype"] == "I8"
    assert found["0.0.0.0.weight@int8.scale"]["shape"] == [24]
    assert not any("moment" in name for name in found)
    trained.save(tmp_path / "more.loom", optimizer=True)
    assert any("moment" in name for name in header(tmp_path / "more.loom"))


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda net: pickle.loads(pickle.dumps(net)),
        lambda net: pickle.loads(pickle.dumps(net, 2)),
    ],
    ids=["copy", "deepcopy", "pickle", "pickle 2"],
)
def test_copies_are_whole_and_their_own(trained: loom.Network, copied: Any) -> None:
    trained.morph("bfloat16", where=lambda layer: layer.at[2] == 1)
    other = copied(trained)
    assert other.config == trained.config
    assert weights(other) == weights(trained)
    assert other.evaluate(blobs()) == trained.evaluate(blobs())
    config = quiet(epochs=4)
    loom.train(trained, blobs(), config, resume=True)
    assert weights(other) != weights(trained)
    loom.train(other, blobs(), config, resume=True)
    assert weights(other) == weights(trained)


@pytest.mark.parametrize("setting", [{"class_weight": {1: 5.0}}, {"label_smoothing": 0.2}])
def test_files_keep_what_changes_the_loss_that_is_told(tmp_path: Path, setting: Any) -> None:
    """It was evaluated by another loss once it was loaded."""
    net = mlp()
    loom.train(net, blobs(), quiet(**setting))
    net.save(tmp_path / "net.loom")
    assert loom.load(tmp_path / "net.loom").evaluate(blobs()) == net.evaluate(blobs())


def test_metrics_of_one_s_own_do_not_stand_in_the_way_of_a_pickle() -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(metrics=["accuracy", lambda outputs, targets: 0.0]))
    assert list(pickle.loads(pickle.dumps(net)).evaluate(blobs())) == ["loss", "accuracy"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, trained: loom.Network) -> None:
    path = tmp_path / "net.loom"
    path.write_bytes(b"old")
    trained.save(path)
    assert weights(loom.load(path)) == weights(trained)
    assert [file.name for file in tmp_path.iterdir()] == ["net.loom"]


def test_unwritable_and_missing_paths(tmp_path: Path, trained: loom.Network) -> None:
    with pytest.raises(loom.FileError, match="missing") as raised:
        trained.save(tmp_path / "missing" / "net.loom")
    assert raised.value.errno == errno.ENOENT
    assert isinstance(raised.value, OSError)
    (tmp_path / "folder").mkdir()
    with pytest.raises(loom.FileError, match="folder"):
        trained.save(tmp_path / "folder")
    with pytest.raises(loom.FileError, match=r"nowhere\.loom") as raised:
        loom.load(tmp_path / "nowhere.loom")
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(loom.FileError, match="folder"):
        loom.load(tmp_path / "folder")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path, trained: loom.Network) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(loom.FileError) as raised:
        trained.save(tmp_path / "net.loom")
    assert raised.value.errno == errno.EACCES


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, trained: loom.Network) -> None:
    trained.save(tmp_path / "net.loom", optimizer=True)
    data = (tmp_path / "net.loom").read_bytes()
    part = tmp_path / "part.loom"
    for length in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
        part.write_bytes(data[:length])
        with pytest.raises(loom.SerializationError, match=r"part\.loom"):
            loom.load(part)


def safetensors(metadata: dict[str, str] | None, extra: bytes = b"") -> bytes:
    head: dict[str, Any] = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    if metadata is not None:
        head["__metadata__"] = metadata
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 4 + extra


CONFIG = loom.Sequential([nn.Dense(2)], input_shape=3).to_json()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 something else entirely", "damaged, cut short, or no safetensors"),
        (b"\xff" * 64, "damaged, cut short, or no safetensors"),
        (safetensors(None), "not one that loom saved"),
        (safetensors({"loom.format": "3"}), "format 3.*update loom"),
        (safetensors({"loom.format": "1"}), r"lacks \"loom\.config\""),
        (safetensors({"loom.format": "1", "loom.config": "{"}), "config"),
        (safetensors({"loom.format": "1", "loom.config": '{"input_shape": [0], "cells": []}'}), "network"),
        (safetensors({"loom.format": "1", "loom.config": CONFIG}), r"0\.0\.0\.0\.weight"),
    ],
)
def test_foreign_and_damaged_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "foreign.loom"
    path.write_bytes(data)
    with pytest.raises(loom.SerializationError, match=message):
        loom.load(path)


def test_every_single_damaged_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(2)], input_shape=3)
    net.morph("int8")
    loom.train(net, (np.eye(3), np.eye(3)[:, :2]), loom.TrainingConfig(verbose=False))
    path = tmp_path / "net.loom"
    net.save(path, optimizer=True)
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.choice(len(data), size=400, replace=False):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(bytes(damaged))
        try:
            loaded = loom.load(path)
            loaded.predict(np.zeros((1, *loaded.input_shape)))
        except (loom.SerializationError, loom.NonFiniteError, loom.InvalidValueError):
            pass


def test_model_checkpoints_are_networks(tmp_path: Path) -> None:
    net = mlp()
    checkpoint = loom.ModelCheckpoint(tmp_path / "best-{epoch}.loom", monitor="loss", save_best_only=True)
    loom.train(net, blobs(), quiet(epochs=3), callbacks=[checkpoint])
    assert checkpoint.last_path is not None
    assert weights(loom.load(checkpoint.last_path)) == weights(net)
