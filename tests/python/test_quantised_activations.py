"""Quantised activations against their formulas in NumPy, from the codes and scales that are packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

F32 = NDArray[np.float32]


def quantised(row: F32) -> tuple[np.float32, NDArray[np.int64]]:
    """The scale and the codes of what shares one scale."""
    scale = np.float32(np.abs(row).max() / np.float32(127))
    scale = np.float32(1) if scale == 0 else scale
    return scale, np.clip(np.rint(row / scale), -127, 127).astype(np.int64)


def codes(layer: Any, name: str) -> tuple[NDArray[np.int64], F32]:
    """An int8 weight's codes, (inputs, outputs), and the scales of its outputs."""
    packed = layer.weights.packed(name)
    assert packed.dtype == "int8"
    return packed.codes.view(np.int8).astype(np.int64).reshape(-1, packed.scales.size), packed.scales


def summed(row: NDArray[np.int64], scale: np.float32, weight: tuple[NDArray[np.int64], F32]) -> F32:
    sums = row @ weight[0]
    assert np.abs(sums).max(initial=0) < 2**31
    return (sums.astype(np.float32) * weight[1] * scale).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_its_formula(groups: int, device: str, request: pytest.FixtureRequest) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    x = np.random.default_rng(0).normal(size=(3, 4, 7, 6)).astype(np.float32)
    x[2] = 0
    convolution = nn.Conv2D(6, kernel_size=(3, 2), stride=(2, 1), padding=1, groups=groups)
    net = loom.Sequential([convolution], input_shape=x.shape[1:])
    layer = net[0, 0, 0, 0]
    layer.bias = np.linspace(-1, 1, 6)
    net.morph("int8", activations="int8").to(device)
    found = net.predict(x)
    weight, scales = codes(layer, "weight")
    images, own = 4 // groups, 6 // groups
    for image, made in zip(x, found, strict=True):
        scale, values = quantised(image)
        padded = np.pad(values, ((0, 0), (1, 1), (1, 1)))
        for row in range(made.shape[1]):
            for column in range(made.shape[2]):
                window = padded[:, 2 * row : 2 * row + 3, column : column + 2]
                for group in range(groups):
                    patch = window[group * images : (group + 1) * images].reshape(-1)
                    of = slice(group * own, (group + 1) * own)
                    expected = summed(patch, scale, (weight[:, of], scales[of])) + layer.bias[of]
                    np.testing.assert_allclose(made[of, row, column], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_recurrence_is_its_formula(device: str, request: pytest.FixtureRequest) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    x = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    net = loom.Sequential([nn.RNN(9, activation="relu")], input_shape=(5, 6))
    layer = net[0, 0, 0, 0]
    net.morph("int8", activations="int8").to(device)
    inputs, states = codes(layer, "weight_ih_l0"), codes(layer, "weight_hh_l0")
    biases = [layer.parameters[name] for name in ("bias_ih_l0", "bias_hh_l0")]
    expected = np.zeros((4, 9), np.float32)
    for row, made in zip(x, expected, strict=True):
        for step in row:
            code, scale = quantised(step)[::-1]
            share = summed(code, scale, inputs) + biases[0]
            code, scale = quantised(made)[::-1]
            made[:] = np.maximum(share + biases[1] + summed(code, scale, states), 0)
    # A state that differs in its last bits may be rounded to the next code.
    np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-2 * np.abs(expected).max())


def blocks(dtype: str, data: NDArray[np.uint8], inputs: int) -> tuple[NDArray[np.int64], F32]:
    """Integers (blocks, 32, outputs) and scales (blocks, outputs), by the layouts of the formats."""
    head, length = {"q8_0": (2, 34), "q4_0": (2, 18), "mxfp4": (1, 17)}[dtype]
    each = data.reshape(-1, -(-inputs // 32), length)
    bytes_ = each[..., head:]
    if dtype == "q8_0":
        integers = bytes_.view(np.int8).astype(np.int64)
    elif dtype == "q4_0":
        integers = np.concatenate([bytes_ & 15, bytes_ >> 4], axis=-1).astype(np.int64) - 8
    else:
        # Twice the numbers of E2M1, two to a byte, the first in the lower half.
        numbers = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
        integers = numbers[np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(*bytes_.shape[:-1], 32)]
    if dtype == "mxfp4":
        scales = np.ldexp(np.float32(0.5), each[..., 0].astype(np.int64) - 127).astype(np.float32)
    else:
        scales = np.ascontiguousarray(each[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    return integers.transpose(1, 2, 0), scales.T


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "mxfp4"])
def test_products_with_blocks_have_a_scale_for_each_block(
    dtype: Any, device: str, request: pytest.FixtureRequest
) -> None:
    if device == "gpu":
        request.getfixturevalue("gpu")
    random = np.random.default_rng(3)
    for rows, inputs, outputs in [(1, 96, 40), (3, 70, 5), (9, 100, 67)]:
        # Blocks of very different sizes, one of zeros, and a row that is not finite.
        x = random.normal(size=(rows, inputs)).astype(np.float32)
        x[:, 32:64] *= 1000
        x[0, :32] = 0
        net = loom.Sequential([nn.Dense(outputs, bias=False)], input_shape=inputs)
        net.morph(dtype, activations="int8").to(device)
        packed = net[0, 0, 0, 0].weights.packed("weight")
        integers, scales = blocks(dtype, packed.codes.view(np.uint8), inputs)
        padded = np.zeros((rows, len(integers) * 32), np.float32)
        padded[:, :inputs] = x
        expected = np.zeros((rows, outputs), np.float32)
        for row, made in zip(padded.reshape(rows, -1, 32), expected, strict=True):
            total = np.zeros(outputs, np.float64)
            for block, weight, own in zip(row, integers, scales, strict=True):
                scale, values = quantised(block)
                total += (values @ weight).astype(np.float64) * (own * scale)
            made[:] = total
        largest = np.abs(expected).max()
        np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=2e-6 * largest)
