"""The network: addressing, layer handles, weights by name, configuration, numeric types."""

from __future__ import annotations

import copy
import gc
import io
import json
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, cnn, mlp, weights


def test_cells_and_layers_are_addressed_by_coordinates() -> None:
    net = loom.Network(input_shape=(1, 8, 8), grid=(2, 1, 2))
    first = net[0, 0, 0].add(nn.Flatten(), nn.Dense(5))
    net[1, 0, 1].add(nn.Dense(2))
    assert len(first) == 2
    assert first == net[0, 0, 0] == net[-2, 0, 0]
    assert net[0, 0, 0, 1] == first[1] == first[-1] == list(first)[1]
    assert [layer.at for layer in first[:]] == [(0, 0, 0, 0), (0, 0, 0, 1)]
    assert [layer.path for layer in net.layers] == ["0.0.0.0", "0.0.0.1", "1.0.1.0"]
    assert [cell.at for cell in net] == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert {first, net[0, 0, 0]} == {first}
    assert {net[0, 0, 0, 1], first[1]} == {first[1]}
    assert net.output_shape == (2,)


def test_a_pair_addresses_a_cell_where_the_depth_is_one() -> None:
    net = mlp()
    assert net.grid == (1, 1, 2)
    assert net[0, 1] == net[0, 0, 1]
    assert net[-1, -1, -1, -1].config == nn.Dense(3)


def test_data_flows_depth_then_row_then_column_then_layer() -> None:
    net = loom.Network(input_shape=2, grid=(2, 2, 2), precision="float64")
    order = [(z, y, x) for z in range(2) for y in range(2) for x in range(2)]
    for place, at in reversed(list(enumerate(order))):
        net[at].add(nn.Dense(2, activation="tanh"), nn.Dense(place + 1))
        if place < 7:
            net[at].add(nn.Dense(2))
    expected = x = np.array([[0.3, -0.7]])
    for at in order:
        for layer in net[at]:
            z = expected @ layer.weight.T + layer.bias
            expected = np.tanh(z) if layer.config == nn.Dense(2, activation="tanh") else z
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-12)
    assert net.output_shape == (8,)


def test_a_layer_handle_shows_everything_of_its_layer() -> None:
    net = mlp(precision="float64")
    layer = net[0, 0, 0, 0]
    assert layer.config == nn.Dense(24, activation="tanh")
    assert (layer.kind, layer.dtype, layer.input_shape, layer.output_shape) == (
        "dense",
        "float64",
        (6,),
        (24,),
    )
    assert net[0, 0, 0, 1].dtype is None
    assert dict(net[0, 0, 0, 1].parameters) == {}
    assert list(layer.parameters) == ["weight", "bias"]
    assert layer.weight.shape == layer["weight"].shape == (24, 6)
    assert "weight" in layer.parameters
    assert layer.parameters.get("gain") is None
    assert {"weight", "trainable"} <= set(dir(layer))
    assert repr(layer.parameters) == "Parameters(weight: (24, 6), bias: (24,))"
    x = np.random.default_rng(0).normal(size=(5, 6))
    net.forward(x)
    np.testing.assert_array_equal(layer.input, x)
    np.testing.assert_allclose(layer.preactivation, x @ layer.weight.T + layer.bias, rtol=1e-12)
    np.testing.assert_allclose(layer.activation, np.tanh(layer.preactivation), rtol=1e-12)
    assert not layer.gradients["weight"].any()
    gradient = np.random.default_rng(1).normal(size=(5, 3))
    net.backward(gradient)
    np.testing.assert_allclose(
        net[0, 0, 1, 0].gradients["weight"], gradient.T @ net[0, 0, 1, 0].input, rtol=1e-12
    )


def test_parameters_are_assigned_as_a_whole() -> None:
    net = mlp()
    layer = net[0, 0, 0, 0]
    layer.weight = np.arange(144).reshape(24, 6)
    layer["bias"] = [0.5] * 24
    layer.parameters["bias"] = layer.bias * 2
    np.testing.assert_array_equal(layer.weight, np.arange(144, dtype=np.float32).reshape(24, 6))
    np.testing.assert_array_equal(layer.bias, np.ones(24, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        layer.weight[0, 0] = 1.0
    with pytest.raises(AttributeError, match="no attribute 'wieght'; its parameters: weight, bias"):
        layer.wieght = 3
    with pytest.raises(AttributeError, match="no attribute 'gain'"):
        _ = layer.gain
    with pytest.raises(loom.ConfigError, match='did you mean "weight"'):
        _ = layer["wieght"]


def test_trainable_and_rate_factor() -> None:
    net = mlp()
    layer = net[0, 0, 0, 0]
    assert (layer.trainable, layer.rate_factor) == (True, 1.0)
    layer.trainable, layer.rate_factor = False, 0.5
    assert (layer.trainable, layer.rate_factor) == (False, 0.5)
    settings: Any = net.config.settings[0]
    assert (settings.at, settings.trainable, settings.rate_factor) == ((0, 0, 0, 0), False, 0.5)
    with pytest.raises(loom.ConfigError, match="rate_factor must be a finite number"):
        layer.rate_factor = -1


def test_initial_weights_follow_the_seed() -> None:
    assert weights(mlp(seed=3)) == weights(mlp(seed=3)) != weights(mlp(seed=4))
    deep = loom.Sequential([nn.Dense(400)], input_shape=300)
    assert deep[0, 0, 0, 0].weight.std() == pytest.approx(np.sqrt(2 / 700), rel=0.02)
    assert not deep[0, 0, 0, 0].bias.any()


def test_state_dict_names_every_parameter_and_can_be_loaded() -> None:
    net, other = cnn(seed=1), cnn(seed=2)
    state = net.state_dict()
    assert list(state) == [f"0.0.0.{layer}.{name}" for layer in (0, 2, 4) for name in ("weight", "bias")]
    state["0.0.0.4.bias"][:] = 7.0
    assert not net[0, 0, 0, 4].bias.any()
    assert other.load_state_dict(state) is other
    np.testing.assert_array_equal(other[0, 0, 0, 4].bias, np.full(4, 7.0, np.float32))
    x = np.random.default_rng(0).normal(size=(3, 1, 8, 8))
    net.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(net.predict(x), other.predict(x))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"0.0.1.0.bias": None}, loom.ConfigError, r"missing 0\.0\.1\.0\.bias"),
        ({"0.0.1.1.bias": np.zeros(3)}, loom.ConfigError, r"unknown 0\.0\.1\.1\.bias"),
        (
            {"0.0.1.0.bias": np.zeros(4)},
            loom.ShapeError,
            r"0\.0\.1\.0\.bias: expected shape \(3,\), got \(4,\)",
        ),
        ({"0.0.1.0.bias": ["a", "b", "c"]}, loom.DTypeError, r"0\.0\.1\.0\.bias: expected real numbers"),
        ({"0.0.1.0.bias": [1.0, np.nan, 0.0]}, loom.NonFiniteError, r"cell \(0, 0, 1\), layer 0"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: dict[str, Any], error: type, message: str) -> None:
    net = mlp()
    before = weights(net)
    state = {name: values + 1 for name, values in net.state_dict().items()}
    state = {name: values for name, values in {**state, **change}.items() if values is not None}
    with pytest.raises(error, match=message):
        net.load_state_dict(state)
    assert weights(net) == before


def test_repr_shows_the_layers_in_their_cells() -> None:
    net = loom.Network(input_shape=(1, 8, 8), grid=(1, 2), precision="float64", seed=3)
    net[0, 0].add(nn.Conv2D(4, 3, padding=1, activation="relu"), nn.MaxPool2D(2), nn.Flatten())
    net[0, 1].add(nn.Dense(10, activation=nn.LeakyReLU(0.2)))
    assert repr(net).splitlines() == [
        'Network(input_shape=(1, 8, 8), grid=(1, 1, 2), precision="float64", seed=3)',
        "  (0, 0, 0)",
        "    0: Conv2D(filters=4, kernel_size=(3, 3), padding=(1, 1), activation='relu')",
        "    1: MaxPool2D(pool_size=(2, 2))",
        "    2: Flatten()",
        "  (0, 0, 1)",
        "    0: Dense(units=10, activation=LeakyReLU(slope=0.2))",
    ]
    assert repr(net[0, 0, 0, 1]) == "Layer (0, 0, 0, 1): MaxPool2D(pool_size=(2, 2))"
    assert repr(net[0, 1]).splitlines()[0] == "Cell (0, 0, 1)"


def test_summary_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    net = cnn()
    net.morph("int8", where=lambda layer: layer.kind == "dense")
    net[0, 0, 0, 0].trainable = False
    net.summary()
    shown = capsys.readouterr().out
    stream = io.StringIO()
    net.summary(file=stream)
    assert stream.getvalue() == shown
    rows = shown.splitlines()
    assert rows[0].split() == ["cell", "layer", "output", "shape", "parameters", "type", "bytes"]
    assert rows[2].split() == [
        "(0,",
        "0,",
        "0)",
        "0",
        "conv2d",
        "(6,",
        "8,",
        "8)",
        "60",
        "(frozen)",
        "float32",
        "240",
    ]
    assert "int8" in rows[6]
    assert rows[-1].startswith("536 parameters, 476 trainable")


def test_configuration_to_json_and_back() -> None:
    net = cnn(seed=5)
    net.morph("bfloat16", where=lambda layer: layer.kind == "conv2d")
    net[0, 0, 0, 4].rate_factor = 2.0
    read = loom.Network.from_json(net.to_json())
    assert read.config == net.config
    assert json.loads(net.to_json(indent=2)) == net.config.to_config()
    assert read.to_json() == net.to_json()
    assert read[0, 0, 0, 0].dtype == "bfloat16"
    assert weights(read) == weights(net)
    assert loom.Network.from_config(net.config).config == net.config


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", loom.SerializationError, "must be JSON"),
        ("[]", loom.ConfigError, "expected a mapping"),
        ('{"input_shape": [3], "gird": [1, 1]}', loom.ConfigError, 'did you mean "grid"'),
        (
            '{"input_shape": [3], "cells": [{"at": [0,0,0], "layers": [{"type": "dens"}]}]}',
            loom.ConfigError,
            '"dense"',
        ),
        (
            '{"input_shape": [3], "cells": [{"at": [0,0,0], "layers": [{"type": "dense", "unit": 3}]}]}',
            loom.ConfigError,
            'did you mean "units"',
        ),
    ],
)
def test_json_with_mistakes_is_refused(text: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        loom.Network.from_json(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input_shape": 0}, "input_shape"),
        ({"input_shape": ()}, "one sample's extents"),
        ({"input_shape": 3, "grid": (0, 1, 1)}, "grid"),
        ({"input_shape": 3, "grid": (1,)}, r"\(rows, columns\)"),
        ({"input_shape": 3, "precision": "float16"}, 'did you mean "float64"|Known: float32, float64'),
        ({"input_shape": 3, "seed": -1}, "seed"),
        ({"input_shape": 3, "seed": 2**64}, "below"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        loom.Network(**settings)


def test_every_array_like_thing_can_be_predicted() -> None:
    net = mlp()
    x = blobs()[0][:4]
    expected = net.predict(x)
    assert expected.dtype == np.float32
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    for given in (x.tolist(), x.astype(np.float64), strided, np.asfortranarray(x), x.astype(">f4")):
        np.testing.assert_array_equal(net.predict(given), expected)
    np.testing.assert_array_equal(
        net.predict(np.ones((2, 6), np.uint8)), net.predict(np.ones((2, 6), np.float16))
    )
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(net.predict(read_only), expected)


@pytest.mark.parametrize("make", [mlp, cnn])
def test_a_sample_has_the_same_bits_in_every_batch(make: Any) -> None:
    net = make()
    x = np.random.default_rng(0).normal(size=(64, *net.input_shape)).astype(np.float32)
    together = net.predict(x)
    for rows in (1, 2, 7, 33):
        np.testing.assert_array_equal(net.predict(x[:rows]), together[:rows])
        np.testing.assert_array_equal(net.predict(x, batch_size=rows), together)
    np.testing.assert_array_equal(net.forward(x[5:6], training=False), together[5:6])


def test_a_network_may_grow() -> None:
    net = loom.Sequential([nn.Dense(4)], input_shape=6)
    before = net.predict(np.ones((1, 6)))
    kept = net[0, 0, 0, 0].weight
    net[0, 0, 0].add(nn.Activation("relu"), {"type": "dense", "units": 2})
    assert net.predict(np.ones((1, 6))).shape == (1, 2)
    np.testing.assert_array_equal(net[0, 0, 0, 0].weight, kept)
    assert before.shape == (1, 4)


def test_layers_are_added_all_or_none() -> None:
    net = mlp()
    with pytest.raises(loom.ConfigError, match=r"expected a layer such as nn\.Dense"):
        net[0, 0].add(nn.Dense(3), "dense")  # type: ignore[arg-type]
    assert len(net[0, 0]) == 2
    net[0, 0].add(nn.ELU(0.5))  # type: ignore[arg-type]
    assert net[0, 0, 0, 2].config == nn.Activation(nn.ELU(0.5))


def test_devices() -> None:
    net = mlp()
    assert net.device == "cpu"
    assert net.to("cpu") is net
    assert net.device == "cpu"
    with pytest.raises(loom.ConfigError, match='did you mean "cpu"'):
        net.to("cpuu")


# Numeric types


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("int8", 1)])
def test_morphed_layers_compute_from_packed_weights_and_back(dtype: str, size: int) -> None:
    net = mlp(units=200)
    x = blobs()[0]
    exact, full = net.predict(x), net.weight_bytes
    assert net.morph(dtype) is net
    assert net[0, 0, 0, 0].dtype == dtype
    near = net.predict(x)
    assert 0 < np.abs(near - exact).max() < 0.05
    assert net.weight_bytes < full * (size / 4 + 0.25)
    layer = net[0, 0, 1, 0]
    assert not np.array_equal(layer.decoded("weight"), layer.weight)
    net.morph("float32")
    np.testing.assert_array_equal(net.predict(x), exact)
    assert net.weight_bytes == full


def test_int8_weights_have_a_scale_for_each_output() -> None:
    net = mlp()
    net.morph("int8")
    layer = net[0, 0, 0, 0]
    steps = np.abs(layer.weight).max(axis=1, keepdims=True) / 127
    codes = layer.decoded("weight") / steps
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)
    assert np.abs(layer.decoded("weight") - layer.weight).max() <= steps.max() * 0.5001


def test_only_some_layers_may_be_morphed() -> None:
    net = mlp()
    net.morph("int8", where=lambda layer: layer.at[2] == 1)
    assert [layer.dtype for layer in net.layers] == ["float32", None, "int8"]
    net[0, 0, 1, 0].weight = np.ones((3, 24))
    np.testing.assert_allclose(net[0, 0, 1, 0].decoded("weight"), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "error", "message"),
    [("int9", loom.DTypeError, 'did you mean "int'), (8, loom.DTypeError, "name of a numeric type")],
)
def test_unknown_types_are_refused(dtype: Any, error: type, message: str) -> None:
    net = mlp()
    with pytest.raises(error, match=message):
        net.morph(dtype)
    assert net[0, 0, 0, 0].dtype == "float32"


# Observers


def test_observers_see_each_layer_after_each_forward_pass() -> None:
    net = mlp(precision="float64")
    x = blobs()[0][:5].astype(np.float64)
    recorder, seen = loom.observers.Recorder(), []
    assert net.observe(recorder) is net
    net.observe(lambda activations: seen.append([layer.path for layer in activations]))
    output = net.forward(x)
    last = recorder.records[0][-1]
    assert (last.path, last.kind, last.shape, last.forward) == ("0.0.1.0", "dense", (5, 3), 0)
    assert last.mean == pytest.approx(output.mean(), rel=1e-12)
    assert last.std == pytest.approx(output.std(), rel=1e-9)
    assert (last.min, last.max) == (output.min(), output.max())
    assert last.norm == pytest.approx(np.linalg.norm(output), rel=1e-12)
    dropped = net[0, 0, 0, 1].activation
    assert recorder.records[0][1].zeros == pytest.approx(np.mean(dropped == 0))
    predicted = net.predict(x, batch_size=2)
    assert [record[-1].forward for record in recorder.records] == [0, 1, 2, 3]
    assert recorder.records[-1][-1].shape == (1, 3)
    assert recorder.records[1][-1].min == predicted[:2].min()
    assert seen == [["0.0.0.0", "0.0.0.1", "0.0.1.0"]] * 4
    net.unobserve(recorder)
    net.unobserve()
    np.testing.assert_array_equal(net.predict(x), predicted)
    assert len(recorder) == 4
    with pytest.raises(loom.StateError, match="does not observe"):
        net.unobserve(recorder)
    with pytest.raises(loom.ConfigError, match="an observer is called"):
        net.observe("console")  # type: ignore[arg-type]


def test_observers_do_not_change_what_is_predicted() -> None:
    net = cnn()
    x = np.random.default_rng(0).normal(size=(9, 1, 8, 8)).astype(np.float32)
    plain = net.predict(x)
    net.observe(loom.observers.Recorder())
    np.testing.assert_array_equal(net.predict(x, batch_size=4), plain)


# Shapes


def shapes(input_shape: Sequence[int], *layers: nn.Layer) -> loom.Network:
    return loom.Sequential(layers, input_shape=input_shape)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (lambda: shapes((3,), nn.Conv2D(4, 3)), r"cell \(0, 0, 0\), layer 0 \(conv2d\).*\(3,\)"),
        (lambda: shapes((1, 4, 4), nn.Conv2D(4, 5)), r"layer 0 \(conv2d\)"),
        (lambda: shapes((3, 8, 8), nn.Conv2D(4, 3, groups=2)), r"layer 0 \(conv2d\)"),
        (lambda: shapes((1, 4, 4), nn.Flatten(), nn.MaxPool2D(2)), r"layer 1 \(max_pool2d\).*\(16,\)"),
        (lambda: shapes((4,), nn.Dense(6), nn.Reshape((4, -1))), r"layer 1 \(reshape\).*6"),
    ],
)
def test_shape_errors_name_the_cell_the_layer_and_both_shapes(net: Any, message: str) -> None:
    with pytest.raises(loom.ShapeError, match=message):
        net().build()


def test_a_network_without_layers_cannot_be_used_but_copied() -> None:
    net = loom.Network(input_shape=3, seed=4)
    with pytest.raises(loom.InvalidValueError, match="no layer"):
        net.predict(np.ones((1, 3)))
    assert copy.deepcopy(net).config == net.config
    assert repr(net) == "Network(input_shape=(3,), grid=(1, 1, 1), seed=4)"


def test_links_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    net = loom.Network(input_shape=4, grid=(1, 3))
    for column in range(3):
        net[0, column].add(nn.Dense(4))
    net.link((0, 0), (0, 2)).link((0, 1), (0, 2), "concat", axis=0)
    assert repr(net).splitlines()[-2:] == [
        "  (0, 0, 0) -> (0, 0, 2): add",
        "  (0, 0, 1) -> (0, 0, 2): concat, axis=0",
    ]
    net.summary()
    rows = capsys.readouterr().out.splitlines()
    assert rows[-4:-2] == [
        "link (0, 0, 0) -> (0, 0, 2)  add             (4,)",
        "link (0, 0, 1) -> (0, 0, 2)  concat, axis 0  (8,)",
    ]


def test_types_are_those_that_parameters_are_held_in(capsys: pytest.CaptureFixture[str]) -> None:
    net = loom.Sequential(
        [nn.PositionalEmbedding(8), nn.LayerNorm(), nn.GRU(5, return_sequences=True), nn.KMeans(3)],
        input_shape=(6, 4),
    ).morph("int4")
    positions, norm, gru, means = net.layers
    assert [layer.dtype for layer in net.layers] == ["float32", "float32", "int4", "float32"]
    for layer in net.layers:
        held = {name: stored.dtype for name, stored in layer.weights.stored.items()}
        assert layer.dtype in held.values()
    net.morph("q8_0", where=lambda layer: layer.kind == "kmeans", parameters="centroids")
    net.morph("int8", where=lambda layer: layer.kind == "gru", parameters="weight_hh_l0")
    net.morph("int8", where=lambda layer: layer.kind == "layer_norm", parameters="weight")
    assert [layer.dtype for layer in (positions, norm, gru, means)] == ["float32", "int8", "int4", "q8_0"]
    net.summary()
    shown = capsys.readouterr().out
    assert "int8: weight; float32: bias" in shown
    assert "int4: weight_ih_l0; int8: weight_hh_l0; float32: bias_ih_l0, bias_hh_l0" in shown
    trainable = sum(layer[name].size for layer in net.layers for name in layer.parameters)
    assert f"{trainable} parameters, {trainable} trainable" in shown
    net.drop_master().summary()
    shown = capsys.readouterr().out
    # What stays float of layers with nothing packed can still be trained.
    assert f"{trainable} parameters, {positions.weight.size} trainable" in shown
    assert shown.count("(dropped)") == 3


def test_a_network_is_freed_with_its_last_reference() -> None:
    net = mlp()
    x, y = blobs()
    loom.train(net, (x, y), loom.TrainingConfig(loss="cross_entropy", verbose=False, metrics=["accuracy"]))
    net.observe(lambda activations: None).predict(x)
    net.forward(x)
    net.morph("int8", where=lambda layer: layer.kind == "dense")
    assert net.measures.steps == 0
    freed = weakref.ref(net)
    # Weights, on a GPU above all, are not to wait for the collector of circles.
    gc.collect()
    gc.disable()
    try:
        del net
        assert freed() is None
    finally:
        gc.enable()
