"""Every numeric type where numbers are awkward, against a transcription of its rule in NumPy and float64."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[np.float64]
TYPES = [entry.name for entry in loom.dtypes()]
LEAST = float(np.finfo(np.float32).tiny)
# Bits of the fraction, the least exponent of a normal number, and the largest number.
FLOATS = {
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, 3.3895313892515355e38),
    "float8_e4m3": (3, -6, 448.0),
    "float8_e5m2": (2, -14, 57344.0),
    "float4_e2m1": (1, 0, 6.0),
}
MICROSCALING = {
    "mxfp8_e4m3": ("float8_e4m3", 8),
    "mxfp8_e5m2": ("float8_e5m2", 15),
    "mxfp4": ("float4_e2m1", 2),
}

# Levels as published, and how many weights share the largest magnitude.
TABLES = {
    "nf4": np.array(
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
        np.float32,
    )
}


def nearest(dtype: str, values: Array) -> Array:
    """The nearest number of a float of a few bits, ties to even, saturating."""
    fraction, least, largest = FLOATS[dtype]
    exponent = np.frexp(values)[1] - 1
    unit = np.ldexp(1.0, np.maximum(exponent, least) - fraction)
    return np.asarray(np.clip(np.rint(values / unit) * unit, -largest, largest))


def mean(values: Array) -> Any:
    """The mean magnitude, summed in sixteen lanes that a tree puts together."""
    lanes = np.zeros(16, values.dtype)
    for place, value in enumerate(np.abs(values)):
        lanes[place % 16] += value
    for half in (8, 4, 2, 1):
        lanes[:half] += lanes[half : 2 * half]
    return lanes[0] / values.dtype.type(len(values))


def scale_for(statistic: Any, limit: float) -> float:
    """1 for zeros, and at least the smallest normal number otherwise."""
    return 1.0 if statistic == 0 else max(float(np.float32(statistic / type(statistic)(limit))), LEAST)


def group(dtype: str, values: Array) -> tuple[float | None, Array]:
    """The scale of the weights that share one, and the numbers that their codes stand for.

    In the weights' own precision; in float64 from 32 bits on.
    """
    kind = values.dtype.type
    largest = np.abs(values).max()
    if dtype in ("float64", "float32"):
        return None, values.astype(dtype)
    if dtype in ("float16", "bfloat16"):
        return None, nearest(dtype, values.astype(np.float64))
    if dtype in FLOATS:
        scale = scale_for(largest, FLOATS[dtype][2])
        codes = nearest(dtype, (values / kind(scale)).astype(np.float64))
        return scale, codes.astype(kind) * kind(scale)
    if dtype in TABLES:
        scale = scale_for(largest, 1.0)
        levels = TABLES[dtype].astype(np.float64)
        quotients = (values / kind(scale)).astype(np.float64)
        # Of two equally near the lower: exact midpoints.
        places = np.searchsorted((levels[:-1] + levels[1:]) / 2, quotients)
        return scale, levels[places].astype(kind) * kind(scale)
    if dtype == "binary":
        scale = 0.0 if largest == 0 else scale_for(max(mean(values), np.finfo(kind).tiny), 1.0)
        return scale, np.where(values >= 0, scale, -scale)
    if dtype == "ternary":
        scale = 1.0 if largest == 0 else scale_for(max(mean(values), np.finfo(kind).tiny), 1.0)
        return scale, np.clip(np.rint(values / kind(scale)), -1, 1) * kind(scale)
    if dtype.endswith("_min"):
        minimum = np.float32(values.min()) + np.float32(0)
        if minimum > values.min():
            minimum = np.nextafter(minimum, np.float32(-np.inf))
        span = values.max() - kind(minimum)
        limit = (1 << int(dtype.removeprefix("uint")[0])) - 1
        scale = scale_for(span, float(limit))
        above = (values - kind(minimum)) / kind(scale)
        return scale, np.clip(np.rint(above), 0, limit) * kind(scale) + kind(minimum)
    bits = int(dtype.lstrip("uint"))
    wide = np.float64 if bits > 16 else kind
    if dtype.startswith("int"):
        limit = (1 << (bits - 1)) - 1
        scale = scale_for(largest, float(limit))
        codes = [max(-limit, min(limit, int(x))) for x in np.rint(values.astype(wide) / wide(scale))]
        return scale, (np.array(codes, dtype=wide) * wide(scale)).astype(kind)
    low, high = wide(min(0, values.min())), wide(max(0, values.max()))
    limit = (1 << bits) - 1
    scale = scale_for(high - low, float(limit))
    if bits > 16 and scale < (high - low) / limit:
        # Rounded down, the greatest number would saturate.
        scale = float(np.nextafter(np.float32(scale), np.float32(np.inf)))
    zero = max(0, min(limit, int(np.rint(-low / wide(scale)))))
    codes = [max(0, min(limit, int(x) + zero)) for x in np.rint(values.astype(wide) / wide(scale))]
    return scale, (np.array([code - zero for code in codes], dtype=wide) * wide(scale)).astype(kind)


def block(dtype: str, values: Array) -> Array:
    """The numbers that a block format makes of up to 32 weights, by its published rule."""
    single = values.astype(np.float32)
    largest = single[np.argmax(np.abs(single))]
    with np.errstate(all="ignore"):
        if dtype in MICROSCALING:
            inner, emax = MICROSCALING[dtype]
            exponent = -127 if largest == 0 else int(np.frexp(np.float64(largest))[1]) - 1 - emax
            scale = np.float32(np.ldexp(1.0, max(-127, min(127, exponent))))
            numbers = nearest(inner, single.astype(np.float64) / np.float64(scale)).astype(np.float32)
            return (numbers * scale).astype(np.float64)
        d = largest / np.float32(-8) if dtype == "q4_0" else abs(largest) / np.float32(127)
        scaled = single * (np.float32(0) if d == 0 else np.float32(1) / d)
        if dtype == "q4_0":
            codes = np.clip(np.nan_to_num(np.trunc(scaled + np.float32(8.5)), nan=0.0), 0, 15) - 8
        else:
            whole = np.trunc(scaled) + np.sign(scaled) * (np.abs(scaled - np.trunc(scaled)) >= 0.5)
            codes = np.clip(np.nan_to_num(whole, nan=0.0), -128, 127)
        return (codes.astype(np.float32) * np.float32(np.float16(d))).astype(np.float64)


def transcribed(dtype: str, granularity: str, weight: Array) -> tuple[list[float], Array]:
    """The scales, group after group as loom has them, and the numbers, of a weight (outputs, inputs)."""
    outputs, inputs = weight.shape
    if granularity == "block(32)" and dtype in ("q4_0", "q8_0", *MICROSCALING):
        parts = [
            np.concatenate([block(dtype, row[at : at + 32]) for at in range(0, inputs, 32)]) for row in weight
        ]
        return [], np.array(parts)
    if granularity in ("tensor", "none"):
        scale, numbers = group(dtype, weight.T.reshape(-1))
        return [] if scale is None else [scale], numbers.reshape(inputs, outputs).T
    length = inputs if granularity == "channel" else int(granularity[6:-1])
    scales, numbers = [], np.zeros_like(weight)
    for at in range(0, inputs, length):
        for row in range(outputs):
            scale, numbers[row, at : at + length] = group(dtype, weight[row, at : at + length])
            assert scale is not None
            scales.append(scale)
    return scales, numbers


def awkward(seed: int, outputs: int, inputs: int, precision: str) -> Array:
    """Rows of zeros, of numbers too small for a normal scale, of one number alone, and of a wide range."""
    random = np.random.default_rng(seed)
    least = -44 if precision == "float32" else -300
    weight = random.normal(size=(outputs, inputs))
    for row in weight:
        match random.integers(6):
            case 0:
                row[:] = 0.0
            case 1:
                row *= 10.0 ** random.integers(least, -36)
            case 2:
                row *= 10.0 ** random.uniform(-38, 37, inputs)
            case 3:
                row[:] = 0.0
                row[random.integers(inputs)] = random.normal() * 10.0 ** random.integers(least, 37)
            case 4:
                row *= 10.0 ** random.integers(-36, 37)
                row[:] = np.abs(row) * random.choice([-1.0, 1.0])
            case _:
                row[random.random(inputs) < 0.3] = random.choice([0.0, -0.0, 1e-40, 1e-30])
    return weight.astype(precision)


def check(dtype: str, granularity: str | None, weight: Array, precision: str, device: str = "cpu") -> None:
    outputs, inputs = weight.shape
    if dtype in ("float16", "q4_0", "q8_0"):
        weight = np.clip(weight, -6e4, 6e4)
    net = loom.Sequential([nn.Dense(outputs, bias=False)], input_shape=inputs, precision=precision)
    layer = net.layers[0]
    layer.weight = weight
    net.morph(dtype, granularity=granularity)
    if device != "cpu":
        # Nothing comes in and nothing is wanted, so that a step encodes the weights anew and moves none.
        config = loom.TrainingConfig(loss="mse", optimizer=loom.SGD(), learning_rate=0.1, device=device)
        loom.Trainer(net, config).step(np.zeros((2, inputs)), np.zeros((2, outputs)))
        weight = np.array(layer.weight)
    if dtype == precision:
        return
    packed = layer.weights.packed("weight")
    scales, numbers = transcribed(dtype, packed.granularity, weight)
    np.testing.assert_array_equal(packed.scales.reshape(-1), scales)
    assert all(scale == 0.0 or scale >= LEAST for scale in scales)
    np.testing.assert_array_equal(layer.decoded("weight"), numbers)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("dtype", TYPES)
def test_ranges_too_small_for_a_normal_scale_take_the_smallest(dtype: str, precision: str) -> None:
    """From 1e-30, where only the scales of 64 bits are that small, down to the least number there is."""
    for magnitude in (1e-15, 1e-19, 1e-29, 1e-30, 1e-36, 1e-38, 2e-40, 1e-44):
        weight = magnitude * np.array([[0.3, -1.0, 0.7, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.2, 0.1]])
        check(dtype, None, weight.astype(precision), precision)


def test_zeros_have_the_scale_that_their_type_says() -> None:
    net = loom.Sequential([nn.Dense(2, bias=False)], input_shape=3)
    layer = net.layers[0]
    layer.weight = np.array([[0.0, -0.0, 0.0], [1.0, 2.0, 3.0]])
    for dtype in TYPES:
        net.morph(dtype)
        if dtype != "float32" and layer.weights.packed("weight").granularity == "channel":
            zeros = layer.weights.packed("weight").scales.reshape(-1)[0]
            assert zeros == (0.0 if dtype == "binary" else 1.0), dtype
        assert (layer.decoded("weight")[0] == 0).all()
        assert (net.predict(np.array([[3.0, -2.0, 1e6]]))[0, 0]) == 0, dtype


# More with LOOM_SOAK=1.
@settings(max_examples=40 if os.environ.get("LOOM_SOAK") == "1" else 24, deadline=None, derandomize=True)
@given(drawn=strategies.data())
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("dtype", TYPES)
def test_groups_of_any_numbers_follow_the_rule(
    dtype: str, precision: str, drawn: strategies.DataObject
) -> None:
    def draw(least: int, most: int) -> int:
        return drawn.draw(strategies.integers(least, most))

    weight = awkward(draw(0, 1 << 30), draw(1, 5), draw(1, 40), precision)
    own = next(entry.granularity for entry in loom.dtypes() if entry.name == dtype)
    free = own not in ("none", "block(32)") or dtype.endswith("_min")
    asked = drawn.draw(strategies.sampled_from([None, "channel", "block(5)"])) if free else None
    check(dtype, asked, weight, precision)


@pytest.mark.parametrize("dtype", TYPES)
def test_groups_of_any_numbers_follow_the_rule_on_a_gpu(dtype: str, gpu: str) -> None:
    for seed in range(2):
        check(dtype, None, awkward(seed, 5, 37, "float32"), "float32", gpu)
