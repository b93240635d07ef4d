"""The numeric types that weights are held in: what they take, what they stand for, and what they refuse."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, mlp

TYPES = [entry.name for entry in loom.dtypes()]


def test_types_are_listed_with_bits_range_and_rule() -> None:
    found = {entry.name: entry for entry in loom.dtypes()}
    assert found["int4"].bits == 4
    assert found["int4"].range == (-7.0, 7.0)
    assert found["float8_e4m3"].range == (-448.0, 448.0)
    assert (found["q4_0"].bits, found["q8_0"].bits, found["mxfp4"].bits) == (4.5, 8.5, 4.25)
    assert (found["uint4_min"].bits, found["uint4_min"].granularity) == (6.0, "block(32)")
    assert (found["nf4"].bits, found["nf4"].granularity) == (4.5, "block(64)")
    assert found["ternary"].granularity == "channel"
    assert found["bfloat16"].granularity == "none"
    assert all(entry.rule for entry in found.values())


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_computes_from_its_own_bytes(dtype: str, tmp_path: Path) -> None:
    net = mlp(units=64)
    x = blobs()[0]
    net.morph(dtype)
    layer = net[0, 0, 0, 0]
    if dtype == "float32":
        with pytest.raises(loom.StateError, match="not packed"):
            layer.weights.packed("weight")
        return
    packed = layer.weights.packed("weight")
    outputs, inputs = layer.weight.shape
    bits = next(entry.bits for entry in loom.dtypes() if entry.name == dtype)
    if dtype.endswith("_min"):
        bits = int(dtype.removeprefix("uint")[0])
        assert packed.minima.shape == packed.scales.shape
        assert packed.zero_points.size == 0
    if packed.granularity == "block(32)" and not dtype.endswith("_min"):
        assert packed.codes.size == -(-inputs // 32) * outputs * int(bits * 4)
    else:
        assert packed.codes.size == -(-inputs * outputs * int(bits) // 8)
    own = packed.codes.nbytes + packed.scales.nbytes
    own += packed.zero_points.size * (8 if dtype == "uint64" else 4) + packed.minima.nbytes
    assert layer.weights.nbytes() == own + layer.bias.nbytes
    assert layer.weights.nbytes("float32") == layer.weight.nbytes + layer.bias.nbytes
    hidden = np.tanh(x @ layer.decoded("weight").T + layer.bias)
    last = net[0, 0, 1, 0]
    expected = hidden @ last.decoded("weight").T + last.bias
    np.testing.assert_allclose(net.predict(x), expected, rtol=2e-5, atol=2e-5)
    net.save(tmp_path / "packed.loom")
    loaded = loom.load(tmp_path / "packed.loom")
    np.testing.assert_array_equal(loaded.predict(x), net.predict(x))
    kept = loaded[0, 0, 0, 0].weights.packed("weight")
    np.testing.assert_array_equal(kept.codes, packed.codes)
    np.testing.assert_array_equal(kept.scales, packed.scales)
    np.testing.assert_array_equal(kept.minima, packed.minima)


@pytest.mark.parametrize(
    ("granularity", "scales"), [("channel", (24,)), ("tensor", (1,)), ("block(3)", (-1, 24))]
)
def test_scales_are_of_what_is_asked_for(granularity: str, scales: tuple[int, ...]) -> None:
    net = mlp()
    net.morph("uint4", granularity=granularity)
    layer = net[0, 0, 0, 0]
    packed = layer.weights.packed("weight")
    blocks = -(-layer.weight.shape[1] // 3)
    assert packed.scales.shape == tuple(blocks if extent == -1 else extent for extent in scales)
    assert packed.zero_points.shape == packed.scales.shape
    assert layer.weights.versions["uint4"].granularity == granularity
    # A network made from the description packs its own weights so.
    copy = loom.Network.from_json(net.to_json())
    copy.load_state_dict(net.state_dict())
    again = copy[0, 0, 0, 0].weights.packed("weight")
    np.testing.assert_array_equal(again.codes, packed.codes)
    np.testing.assert_array_equal(again.scales, packed.scales)
    # A code more or less is the worst that rounding the zero point and the weight costs.
    assert np.abs(layer.decoded("weight") - layer.weight).max() <= packed.scales.max() * 1.001


def test_a_version_follows_its_master() -> None:
    net = mlp()
    net.morph("int8")
    weights = net[0, 0, 0, 0].weights
    before = weights.epoch
    codes = weights.packed("weight").codes
    net[0, 0, 0, 0].weight = net[0, 0, 0, 0].weight[::-1]
    assert weights.epoch > before
    assert not np.array_equal(weights.packed("weight").codes, codes)
    assert weights.versions["int8"].current
    assert not weights.dropped
    np.testing.assert_array_equal(weights.master["weight"], net[0, 0, 0, 0].weight)


@pytest.mark.parametrize(
    ("dtype", "granularity", "error", "message"),
    [
        ("q4_0", "channel", loom.DTypeError, "blocks of its own"),
        ("float16", "tensor", loom.DTypeError, "no scales"),
        ("int8", "row", loom.InvalidValueError, "unknown granularity"),
        ("int8", "block(0)", loom.InvalidValueError, "unknown granularity"),
        ("int8", 3, loom.ConfigError, "got 3"),
    ],
)
def test_granularities_that_cannot_be_are_refused(
    dtype: str, granularity: Any, error: type, message: str
) -> None:
    net = mlp()
    with pytest.raises(error, match=message):
        net.morph(dtype, granularity=granularity)
    assert net[0, 0, 0, 0].dtype == "float32"


def _spread(net: loom.Network) -> None:
    """Weights of a few sizes, so that scales by different rules differ."""
    for layer in (net[0, 0, 0, 0], net[0, 0, 1, 0]):
        weight = np.array(layer.weight)
        weight[:, ::5] *= 6.0
        layer.weight = weight


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.5, 100.0])
def test_percentiles_are_numpys(percentile: float) -> None:
    net = mlp(units=40)
    _spread(net)
    net.morph("int8", calibration=f"percentile({percentile})")
    layer = net[0, 0, 0, 0]
    magnitudes = np.abs(layer.weight.astype(np.float64))
    expected = np.percentile(magnitudes, percentile, axis=1).astype(np.float32) / np.float32(127)
    np.testing.assert_allclose(layer.weights.scales("weight"), expected, rtol=2e-7)
    net.morph("uint8", granularity="tensor", calibration=f"percentile({percentile})")
    low, high = np.percentile(layer.weight.astype(np.float64), [100 - percentile, percentile])
    expected = (max(high, 0) - min(low, 0)) / 255
    np.testing.assert_allclose(layer.weights.scales("weight"), [expected], rtol=3e-7)


@pytest.mark.parametrize("granularity", ["channel", "tensor", "block(7)"])
def test_least_error_is_less(granularity: str) -> None:
    for dtype in ("int4", "uint4", "int2", "float4_e2m1", "ternary"):
        errors = {}
        for calibration in ("absmax", "mse"):
            net = mlp(units=40)
            _spread(net)
            net.morph(dtype, granularity=granularity, calibration=calibration)
            layer = net[0, 0, 0, 0]
            errors[calibration] = float(np.square(layer.decoded("weight") - layer.weight).sum())
        assert errors["mse"] < errors["absmax"], dtype


def test_measured_inputs_weigh_the_errors(tmp_path: Path) -> None:
    x = blobs()[0].copy()
    x[:, 0] *= 40.0
    net = mlp(units=40)
    _spread(net)
    assert net[0, 0, 0, 0].input_range is None
    net.morph("int4", calibration="mse")
    plain = net[0, 0, 0, 0].decoded("weight")
    assert net.calibrate(x, percentile=90.0, batch_size=7) is net
    layer = net[0, 0, 0, 0]
    found = layer.input_range
    assert found is not None
    assert found.absmax == np.abs(x).max()
    assert found.percent == 90.0
    np.testing.assert_allclose(found.percentile, np.percentile(np.abs(x), 90.0), rtol=1 / 128)
    squares = np.square(x.astype(np.float64)).mean(axis=0)
    np.testing.assert_allclose(found.mean_squares, squares, rtol=1e-9)
    weighed = layer.decoded("weight")
    assert not np.array_equal(weighed, plain)

    def error(decoded: Any) -> float:
        return float((np.square(decoded - layer.weight) * squares).sum())

    assert error(weighed) < error(plain)
    hidden = net[0, 0, 1, 0].input_range
    assert hidden is not None
    assert hidden.absmax <= 1.0
    net.save(tmp_path / "calibrated.loom")
    loaded = loom.load(tmp_path / "calibrated.loom")
    kept = loaded[0, 0, 0, 0]
    assert kept.weights.versions["int4"].calibration == "mse"
    assert kept.input_range is not None
    np.testing.assert_array_equal(kept.input_range.mean_squares, found.mean_squares)
    # The next version is made by the same rule.
    turned = np.array(layer.weight[::-1])
    for each in (net, loaded):
        each[0, 0, 0, 0].weight = turned
    np.testing.assert_array_equal(kept.decoded("weight"), layer.decoded("weight"))


def test_what_was_measured_is_kept_with_adapters(tmp_path: Path) -> None:
    net = mlp().add_adapter(rank=2).calibrate(blobs()[0])
    net.save(tmp_path / "adapted.loom")
    for other in (loom.load(tmp_path / "adapted.loom"), copy.deepcopy(net)):
        assert other.fingerprint() == net.fingerprint()


def test_stochastic_rounding_is_unbiased_and_between_neighbours() -> None:
    net = mlp(units=40)
    net.morph("int4", rounding="stochastic")
    layer = net[0, 0, 0, 0]
    assert layer.weights.versions["int4"].rounding == "stochastic"
    scales = layer.weights.scales("weight")[:, None]
    before = layer.decoded("weight")
    assert np.abs(before - layer.weight).max() < scales.max() * 1.0001
    optimizer = loom.optimizers.SGD()
    net.set_optimizer(optimizer)
    x = blobs()[0]
    total = np.zeros_like(before)
    draws = 200
    for _ in range(draws):
        # A rate of zero moves nothing, but counts, so that the weights are drawn anew.
        net.backward(np.zeros_like(net.forward(x)))
        net.apply_gradients(0.0)
        total += layer.decoded("weight")
    spread = 5 * 0.5 * scales / np.sqrt(draws)
    assert (np.abs(total / draws - layer.weight) <= spread + 1e-6).all()
    assert not np.array_equal(layer.decoded("weight"), before)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"dtype": "q4_0", "calibration": "mse"}, loom.DTypeError, "q4_0 finds its scales by"),
        ({"dtype": "mxfp4", "calibration": "percentile(9)"}, loom.DTypeError, "mxfp4 finds its scales"),
        ({"dtype": "q8_0", "rounding": "stochastic"}, loom.DTypeError, "q8_0 rounds by"),
        ({"dtype": "float16", "calibration": "mse"}, loom.DTypeError, "float16 has no scales"),
        ({"dtype": "ternary", "calibration": "percentile"}, loom.DTypeError, "mean magnitude"),
        ({"dtype": "int8", "calibration": "entropy"}, loom.InvalidValueError, "unknown calibration"),
        ({"dtype": "int8", "calibration": "percentile(0)"}, loom.InvalidValueError, "above 0"),
        ({"dtype": "int8", "calibration": 99.9}, loom.ConfigError, "got 99.9"),
        ({"dtype": "int8", "rounding": "up"}, loom.InvalidValueError, "unknown rounding"),
        ({"dtype": "int8", "rounding": None}, loom.ConfigError, "got None"),
    ],
)
def test_recipes_that_cannot_be_are_refused(settings: dict[str, Any], error: type, message: str) -> None:
    net = mlp()
    with pytest.raises(error, match=message):
        net.morph(**settings)
    assert net[0, 0, 0, 0].dtype == "float32"


def test_calibrate_refuses_what_it_cannot_measure() -> None:
    net = mlp()
    x = blobs()[0]
    for percentile in (0, 101, "most"):
        with pytest.raises(loom.ConfigError, match="percentile"):
            net.calibrate(x, percentile=percentile)  # type: ignore[arg-type]
    with pytest.raises(loom.ShapeError):
        net.calibrate(x[:, :-1])
    with pytest.raises(loom.NonFiniteError):
        net.calibrate(np.full_like(x, np.nan))


@pytest.mark.parametrize("dtype", [name for name in TYPES if name != "float32"])
def test_a_network_without_masters_is_as_small_as_its_bits(dtype: str, tmp_path: Path) -> None:
    net = mlp(units=64)
    x, y = blobs()
    net.morph(dtype)
    expected = net.predict(x)
    bits = net.weight_bytes
    assert net.drop_master() is net
    net.save(tmp_path / "small.loom")
    assert bits <= (tmp_path / "small.loom").stat().st_size <= bits + 2000
    loaded = loom.load(tmp_path / "small.loom")
    np.testing.assert_array_equal(loaded.predict(x), expected)
    weights = loaded[0, 0, 0, 0].weights
    assert weights.dropped
    config = loom.TrainingConfig(loss="cross_entropy", learning_rate=0.05, verbose=False)
    with pytest.raises(loom.StateError, match=r"unpack\(\)"):
        loom.train(loaded, (x, y), config)
    weights.unpack()
    assert not weights.dropped
    with pytest.raises(loom.StateError, match="nothing to unpack"):
        weights.unpack()
    loaded.unpack(where=lambda layer: layer.weights.dropped)
    with pytest.raises(loom.StateError, match="nothing to unpack"):
        loaded.unpack()
    np.testing.assert_array_equal(loaded.predict(x), expected)
    np.testing.assert_array_equal(loaded[0, 0, 0, 0].weight, loaded[0, 0, 0, 0].decoded("weight"))
    loom.train(loaded, (x, y), config)
    assert not np.array_equal(loaded.predict(x), expected)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_frozen_parameters_stay_while_packed_weights_learn(
    device: str, request: pytest.FixtureRequest
) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    x, y = blobs()
    net = mlp()
    layer = net[0, 0, 0, 0]
    net.morph("int4").to(device)
    assert layer.freeze("bias") is layer
    assert layer.frozen == ("bias",)
    with pytest.raises(loom.ConfigError, match="gain"):
        layer.freeze("gain")
    layer.bias = np.linspace(-1, 1, 24)
    bias, weight = layer.bias, layer.weight
    config = loom.TrainingConfig(loss="cross_entropy", learning_rate=0.02, epochs=2, verbose=False)
    loom.train(net, (x, y), config)
    np.testing.assert_array_equal(layer.bias, bias)
    assert not np.array_equal(layer.weight, weight)
    copy = loom.Network.from_json(net.to_json())
    assert copy[0, 0, 0, 0].frozen == ("bias",)
    layer.unfreeze("bias")
    loom.train(net, (x, y), config)
    assert not np.array_equal(layer.bias, bias)


def test_activations_can_be_quantised_for_inference(tmp_path: Path) -> None:
    x, _ = blobs()
    net = mlp()
    net.morph("int8", activations="int8")
    quantised = net.predict(x)
    np.testing.assert_array_equal(net.predict(x[:1]), quantised[:1])
    path = tmp_path / "net.loom"
    net.save(path)
    np.testing.assert_array_equal(loom.load(path).predict(x), quantised)
    assert [layer.activations for layer in net.config.settings] == ["int8", "int8"]
    in_float = net.morph("int8").predict(x)
    assert not np.array_equal(in_float, quantised)
    np.testing.assert_allclose(in_float, quantised, atol=0.1 * np.abs(in_float).max())


@pytest.mark.parametrize(
    ("dtype", "activations", "error", "message"),
    [
        ("uint8", "int8", loom.DTypeError, "uint8 are not; use one of int8"),
        ("float32", "int8", loom.DTypeError, "needs packed weights"),
        ("int8", "int4", loom.DTypeError, "int8 only"),
        ("int8", 8, loom.ConfigError, "got 8"),
    ],
)
def test_activations_that_cannot_be_are_refused(
    dtype: str, activations: Any, error: type, message: str
) -> None:
    net = mlp()
    with pytest.raises(error, match=message):
        net.morph(dtype, activations=activations)
    assert net[0, 0, 0, 0].dtype == "float32"


def test_a_transposed_convolution_refuses_quantised_activations_by_name() -> None:
    layers = [nn.ConvTranspose2D(2, kernel_size=3), nn.Flatten(), nn.Dense(2)]
    net = loom.Sequential(layers, input_shape=(1, 5, 5))
    with pytest.raises(loom.InvalidValueError, match="a transposed convolution"):
        net.morph("int8", activations="int8")
    net.morph("int8", where=lambda layer: layer.kind == "dense", activations="int8")
