"""The numeric types that weights are held in: what they take, what they stand for, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from networks import blobs, mlp

TYPES = [entry.name for entry in loom.dtypes()]


def test_types_are_listed_with_bits_range_and_rule() -> None:
    found = {entry.name: entry for entry in loom.dtypes()}
    assert len(found) == 26
    assert found["int4"].bits == 4
    assert found["int4"].range == (-7.0, 7.0)
    assert found["float8_e4m3"].range == (-448.0, 448.0)
    assert (found["q4_0"].bits, found["q8_0"].bits, found["mxfp4"].bits) == (4.5, 8.5, 4.25)
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
    if packed.granularity == "block(32)":
        assert packed.codes.size == -(-inputs // 32) * outputs * int(bits * 4)
    else:
        assert packed.codes.size == -(-inputs * outputs * int(bits) // 8)
    own = packed.codes.nbytes + packed.scales.nbytes
    own += packed.zero_points.size * (8 if dtype == "uint64" else 4)
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
