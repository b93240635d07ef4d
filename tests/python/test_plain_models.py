"""Networks as plain data: every layer comes back bit for bit; what is wrong is said with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import mlp, weights
from samples import SAMPLES, built


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_every_layer_comes_back_bit_for_bit(kind: str) -> None:
    precisions = ["float64", *["float32"] * len(SAMPLES[kind])]
    for config, precision in zip([SAMPLES[kind][0], *SAMPLES[kind]], precisions, strict=True):
        net = built(config, precision)
        text = json.dumps(loom.export_model(net))
        back = loom.import_model(text)
        assert back.config == net.config
        assert weights(back) == weights(net)
        assert json.dumps(loom.export_model(back)) == text


def test_networks_come_back_with_cells_links_and_settings(tmp_path: Path) -> None:
    net = mlp(seed=4).morph("int8")
    net.link((0, 0), (0, 1), "concat")
    net.layers[0].freeze("bias")
    net.layers[0].rate_factor = 0.5
    path = tmp_path / "net.json"
    path.write_text(json.dumps(loom.export_model(net)))
    back = loom.import_model(path)
    assert back.config == net.config
    assert weights(back) == weights(net)
    x = np.random.default_rng(0).normal(size=(4, 6))
    np.testing.assert_array_equal(back.predict(x), net.predict(x))


def test_layers_inside_others_hold_their_own_parameters() -> None:
    inner = nn.Parallel([[nn.Dense(3)], [nn.Residual([nn.Dense(3)])]], combine="filter")
    net = loom.Sequential([nn.Residual([inner, nn.Dense(2)])], 4)
    plain = loom.export_model(net)
    layer = plain["cells"][0]["layers"][0]
    # What Residual and Parallel put in by themselves has no settings to stand beside.
    assert np.shape(layer["projection.0.weight"]) == (2, 4)
    assert np.shape(layer["layers"][0]["branches"][0][0]["weight"]) == (3, 4)
    assert any(name.startswith("gate.") for name in layer["layers"][0])
    assert weights(loom.import_model(plain)) == weights(net)


def test_what_stateful_layers_carry_comes_along() -> None:
    net = loom.Sequential([nn.LSTM(3, stateful=True)], (5, 2))
    net.forward(np.ones((4, 5, 2)))
    assert weights(loom.import_model(loom.export_model(net))) == weights(net)


def test_weights_of_keras_are_turned() -> None:
    random = np.random.default_rng(0)
    kernel, x = random.normal(size=(3, 3, 2, 5)), random.normal(size=(1, 2, 6, 6))
    theirs = {"type": "Conv2D", "kernel": kernel.tolist(), "padding": "valid"}
    own = {"type": "conv2d", "weight": kernel.transpose(3, 2, 0, 1)}
    made = [
        loom.import_model({"input_shape": (2, 6, 6), "precision": "float64", "layers": [layer]})
        for layer in (theirs, own)
    ]
    np.testing.assert_array_equal(made[0].predict(x), made[1].predict(x))
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    np.testing.assert_allclose(
        made[0].predict(x)[0], np.einsum("cyxij,ijco->oyx", windows, kernel), rtol=1e-12
    )


def test_common_names_are_understood() -> None:
    random = np.random.default_rng(1)
    net = loom.import_model(
        {
            "input_size": 4,
            "layers": [
                {
                    "type": "Linear",
                    "out_features": 3,
                    "weight": random.normal(size=(3, 4)),
                    "bias": np.zeros(3),
                },
                {
                    "type": "BatchNormalization",
                    "eps": 1e-3,
                    "gamma": [1, 2, 3],
                    "beta": [0, 0, 1],
                    "moving_mean": [0.5, 0, 0],
                    "moving_variance": [1, 2, 4],
                },
                {"type": "ReLU"},
                {"type": "Dropout", "p": 0.5},
                {"type": "dense", "kernel": random.normal(size=(3, 2))},
            ],
        }
    )
    assert [layer.kind for layer in net.layers] == ["dense", "batch_norm", "activation", "dropout", "dense"]
    assert net.layers[1].config == nn.BatchNorm(epsilon=1e-3)
    assert net.layers[1].states["running_var"].tolist() == [1, 2, 4]
    assert net.layers[4].config == nn.Dense(2, bias=False)


def test_attention_in_one_piece_is_parted() -> None:
    random = np.random.default_rng(2)
    whole = {"in_proj_weight": random.normal(size=(12, 4)), "in_proj_bias": random.normal(size=12)}
    rest = {"out_proj.weight": random.normal(size=(4, 4)), "out_proj.bias": random.normal(size=4)}
    layer = {"type": "MultiheadAttention", "num_heads": 2, **whole, **rest}
    net = loom.import_model({"input_shape": (5, 4), "layers": [layer]})
    np.testing.assert_allclose(net.layers[0].key_weight, whole["in_proj_weight"][4:8], rtol=1e-6)
    np.testing.assert_allclose(net.layers[0].output_bias, rest["out_proj.bias"], rtol=1e-6)


@pytest.mark.parametrize("missing", ["output_bias", "query_bias key_bias value_bias"])
def test_biases_of_attention_may_be_some(missing: str) -> None:
    random = np.random.default_rng(2)
    parts = ("query", "key", "value", "output")
    held = {f"{part}_weight": random.normal(size=(4, 4)) for part in parts}
    held |= {f"{part}_bias": random.normal(size=4) for part in parts if f"{part}_bias" not in missing.split()}
    layer = {"type": "multi_head_attention", "heads": 2, **held}
    net = loom.import_model({"input_shape": (5, 4), "layers": [layer]})
    assert net.layers[0].config.bias == (missing == "output_bias")
    assert weights(loom.import_model(loom.export_model(net))) == weights(net)


DENSE = {"type": "dense", "units": 2, "weight": [[1, 2, 3], [4, 5, 6]], "bias": [0, 0]}


@pytest.mark.parametrize(
    ("layers", "error", "told"),
    [
        (
            [{**DENSE, "weight": [[1, 2], [3, 4]]}],
            loom.ShapeError,
            r'layers\[0\]\["weight"\]: expected shape',
        ),
        ([{**DENSE, "weight": [[1, 2, 3], [4]]}], loom.ShapeError, r'layers\[0\]: "weight"'),
        ([DENSE, {"type": "densee"}], loom.ConfigError, r'layers\[1\]: unknown .*"dense"'),
        ([{**DENSE, "unitss": 3}], loom.ConfigError, r"layers\[0\]: unknown .*units"),
        ([{**DENSE, "wait": [1.0]}], loom.ConfigError, r'layers\[0\]\["wait"\]: the layer has no such'),
        ([{**DENSE, "kernel": [[1, 2]] * 3}], loom.ConfigError, r'layers\[0\]: "weight" is given twice'),
        ([{**DENSE, "weight": [["a"]]}], loom.DTypeError, r'layers\[0\]: "weight"'),
        ([{**DENSE, "weight": [[1, 2, float("nan")]] * 2}], loom.NonFiniteError, "weight"),
        ([{"type": "dense", "units": 2, "bias": [0, 0]}], loom.ConfigError, r"layers\[0\] lacks weight"),
        (
            [DENSE, {"type": "residual", "layers": [{**DENSE, "bias": 7}]}],
            loom.ConfigError,
            r"layers\[1\]\.layers\[0\]",
        ),
        ([{"type": "dense", "units": 2}], loom.ConfigError, "no layer has parameters"),
        ([3], loom.ConfigError, r"layers\[0\]: a layer is a mapping"),
        ("dense", loom.ConfigError, "layers: expected a list"),
        ([{**DENSE, "at": [0]}], loom.ConfigError, r"layers\[0\]: .at. must be"),
        (
            [{"type": "gru", "kernel": [[0] * 6], "recurrent_kernel": [[0] * 6] * 2, "bias": [0] * 6}],
            loom.ConfigError,
            "reset",
        ),
    ],
)
def test_errors_say_where(layers: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        loom.import_model({"input_shape": 3, "layers": layers})


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("{", loom.SerializationError),
        ("[]", loom.SerializationError),
        ("{" * 100_000, loom.SerializationError),
        ('{"a":' * 100_000, loom.SerializationError),
        (3, loom.SerializationError),
        ("nowhere.json", loom.FileError),
        ("{}", loom.ConfigError),
    ],
)
def test_what_is_no_network_is_refused(data: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        loom.import_model(data)
