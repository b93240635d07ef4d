"""Numeric types that are chosen parameter by parameter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, mlp, quiet


def sequences() -> loom.Network:
    """An LSTM, attention, a norm and positions."""
    return loom.Sequential(
        [
            nn.PositionalEmbedding(8),
            nn.MultiHeadAttention(heads=2),
            nn.LayerNorm(),
            nn.LSTM(8),
            nn.Dense(3),
        ],
        input_shape=(5, 6),
    )


def find(net: loom.Network, kind: str) -> Any:
    return next(layer for layer in net.layers if layer.kind == kind)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_each_parameter_has_its_own_type(device: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    x = np.random.default_rng(0).normal(size=(7, 5, 6)).astype(np.float32)
    net = sequences()
    net.morph("int4").to(device)
    lstm = find(net, "lstm")
    net.morph("int8", where=lambda layer: layer.kind == "lstm", parameters="weight_hh_l0")
    net.morph("int8", where=lambda layer: layer.kind == "lstm", parameters=["bias_ih_l0", "bias_hh_l0"])
    net.morph("q8_0", where=lambda layer: layer.kind == "layer_norm", parameters=("weight", "bias"))
    net.morph("bfloat16", where=lambda layer: layer.kind == "positional_embedding", parameters="weight")
    net.morph("float32", where=lambda layer: layer.kind == "dense", parameters="weight")
    stored = lstm.weights.stored
    assert {name: entry.dtype for name, entry in stored.items()} == {
        "weight_ih_l0": "int4",
        "weight_hh_l0": "int8",
        "bias_ih_l0": "int8",
        "bias_hh_l0": "int8",
    }
    assert stored["bias_ih_l0"].nbytes == 32 + 4
    assert stored["weight_hh_l0"].nbytes == 8 * 32 + 32 * 4
    assert sum(entry.nbytes for entry in stored.values()) == lstm.weights.nbytes()
    assert lstm.weights.scales("bias_ih_l0").shape == (1,)
    assert lstm.dtype == "int4"
    assert find(net, "dense").weights.stored["weight"].version is None

    # What is computed is what the decoded parameters make.
    plain = sequences()
    for layer, other in zip(net.layers, plain.layers, strict=True):
        for name in layer.parameters:
            other.parameters[name] = layer.decoded(name)
    expected = net.predict(x)
    np.testing.assert_allclose(plain.predict(x), expected, rtol=2e-5, atol=2e-5)

    # Files and configs keep it, with and without masters.
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom").to(device)
    np.testing.assert_array_equal(loaded.predict(x), expected)
    assert find(loaded, "lstm").weights.stored == stored
    again = loom.Network.from_config(net.config)
    assert find(again, "lstm").weights.stored["weight_hh_l0"].dtype == "int8"
    assert again.config == net.config
    dropping = loaded.morph("int8", where=lambda layer: layer.kind == "dense").drop_master()
    small = dropping.predict(x)
    dropping.save(tmp_path / "small.loom")
    small_again = loom.load(tmp_path / "small.loom").to(device)
    np.testing.assert_array_equal(small_again.predict(x), small)
    assert find(small_again, "lstm").weights.dropped
    small_again.unpack()
    np.testing.assert_array_equal(small_again.predict(x), small)

    # The whole layer again.
    net.morph("int4")
    assert {entry.dtype for entry in lstm.weights.stored.values()} == {"int4", "float32"}
    assert not any(settings.parameters for settings in net.config.settings)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_packed_biases_learn(device: str, request: pytest.FixtureRequest) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    x, y = blobs()
    net = mlp()
    net.morph("int8").to(device)
    net.morph("int4", parameters="bias")
    layer = net[0, 0, 0, 0]
    before, read = layer.bias, layer.decoded("bias")
    config = quiet(epochs=4, learning_rate=0.02)
    loom.train(net, (x, y), config)
    assert not np.array_equal(layer.bias, before)
    assert not np.array_equal(layer.decoded("bias"), read)
    # The master is packed by absmax / 7.
    scale = np.float32(np.abs(layer.bias).max() / np.float32(7))
    np.testing.assert_allclose(layer.decoded("bias"), np.rint(layer.bias / scale) * scale, atol=1e-6)
    assert (net.predict(x).argmax(axis=1) == y).mean() > 0.9


def test_names_that_are_not_there_are_refused() -> None:
    net = mlp()
    with pytest.raises(loom.InvalidValueError, match=r"wieght.*did you mean \"weight\".*bias"):
        net.morph("int8", parameters="wieght")
    with pytest.raises(loom.InvalidValueError, match="no weight of a product"):
        net.morph("int8", parameters="bias", activations="int8")
    for wrong in ([], 3, ["bias", 1]):
        with pytest.raises(loom.ConfigError, match="parameters is the name"):
            net.morph("int8", parameters=wrong)  # type: ignore[arg-type]
    assert net[0, 0, 0, 0].dtype == "float32"
    net.morph("int8", parameters="bias")
    config = json.loads(net.to_json())
    for settings in config["settings"]:
        settings["parameters"]["baios"] = settings["parameters"].pop("bias")
    with pytest.raises(loom.InvalidValueError, match=r"baios.*did you mean \"bias\""):
        loom.Network.from_json(json.dumps(config)).build()
    config = json.loads(mlp().to_json())
    config["settings"] = [{"at": [0, 0, 0, 0], "frozen": ["wait"]}]
    with pytest.raises(loom.InvalidValueError, match=r"unknown parameter \"wait\".*weight"):
        loom.Network.from_json(json.dumps(config)).build()


def test_the_page_says_what_takes_on_a_layers_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text()
    table = page.partition("| layer | takes on the type |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| ([\w, ]+?) \|(.*)\|$", table, re.MULTILINE))
    sequence: dict[str, nn.Layer] = {
        "RNN, LSTM, GRU": nn.LSTM(4, initial_state="learned"),
        "MultiHeadAttention": nn.MultiHeadAttention(2),
        "SwiGLU, GeGLU": nn.SwiGLU(5),
        "PositionalEmbedding": nn.PositionalEmbedding(3),
        "LayerNorm, GroupNorm, BatchNorm, RMSNorm": nn.LayerNorm(),
        "PReLU": nn.PReLU(),
        "KMeans": nn.KMeans(2),
        "Dense, convolutions": nn.Dense(4),
        "WeightNorm, SpectralNorm": nn.WeightNorm(nn.Dense(4)),
    }
    assert set(rows) == {*sequence, "Embedding, TiedHead"}
    for name, layer in sequence.items():
        net = loom.Sequential([layer], input_shape=(3, 4)).morph("int8")
        taken, stays = rows[name].split("|")
        for parameter, stored in net.layers[0].weights.stored.items():
            column = taken if stored.dtype == "int8" else stays
            kind = "state" if "state" in parameter else "bias" if "bias" in parameter else parameter
            assert kind in column or "kin" in column, (name, parameter, stored.dtype)
        assert net.layers[0].dtype == ("int8" if taken.strip() else "float32")
    for table_of in (nn.Embedding(5, 4), nn.TiedHead(5)):
        shape = 3 if isinstance(table_of, nn.Embedding) else (3, 4)
        net = loom.Sequential([table_of], input_shape=shape).morph("int8")
        assert net.layers[0].dtype == "int8"
