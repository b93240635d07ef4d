"""On a GPU the gradients that several products have for one input are one product: against the processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn


def gradients(net: loom.Network) -> list[np.ndarray]:
    return [array for layer in net.layers for _, array in sorted(layer.gradients.items())]


def kernels(gpu: str, net: loom.Network, x: np.ndarray, gradient: np.ndarray) -> tuple[list[str], list[Any]]:
    """Returns what a pass both ways runs, and the gradients of the parameters and of the input."""
    net.zero_gradients()
    net.forward(x)
    loom.time_frames("kernels", gpu)
    try:
        loom.reset_frame_statistics(gpu)
        of_input = net.backward(gradient)
        ran = [kernel.label for kernel in loom.frame_statistics(gpu).kernels]
    finally:
        loom.time_frames("off", gpu)
    return ran, [of_input, *gradients(net)]


@pytest.mark.parametrize(
    ("shared", "hidden", "rows", "residual", "joined"),
    [
        (8, 128, 6, True, 2),
        # Keys and values of fewer heads.
        (4, 192, 5, True, 2),
        (8, 64, 7, False, 2),
        # What is no multiple of 64 is made as before.
        (2, 100, 6, True, 0),
    ],
)
@pytest.mark.parametrize("time", [40, 43])
def test_they_are_those_of_the_processor(
    shared: int, hidden: int, rows: int, residual: bool, joined: int, time: int, gpu: str
) -> None:
    attention = nn.MultiHeadAttention(8, key_value_heads=shared, head_dim=16, causal=True)
    inner: list[list[nn.Layer]] = [[nn.RMSNorm(), attention], [nn.LayerNorm(), nn.SwiGLU(hidden)]]
    layers = [nn.Residual(part) if residual else part for part in inner]
    flat = [layer for part in layers for layer in (part if isinstance(part, list) else [part])]
    net = loom.Sequential(flat, input_shape=(time, 72), seed=3)
    draws = np.random.default_rng(4)
    x = draws.normal(size=(rows, time, 72)).astype(np.float32)
    gradient = draws.normal(size=(rows, *net.output_shape)).astype(np.float32)
    net.zero_gradients()
    net.forward(x)
    wanted = [net.backward(gradient), *gradients(net)]
    ran, found = kernels(gpu, net.to(gpu), x, gradient)
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() <= 2e-5 * max(1.0, np.abs(other).max())
    assert sum(" products" in label for label in ran) == joined, ran
    # The same bits again.
    for one, other in zip(found, kernels(gpu, net, x, gradient)[1], strict=True):
        assert np.array_equal(one, other)


def test_those_of_mixed_precision_are_near_those_of_single(gpu: str) -> None:
    """Large enough for matrix units where an adapter has them; one product taken for another is far off."""
    attention = nn.MultiHeadAttention(4, head_dim=64, causal=True, bias=False)
    layers = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(192)])]
    draws = np.random.default_rng(5)
    x = draws.normal(size=(16, 64, 256)).astype(np.float32)
    # As small as those of a mean loss: where they are scaled, larger ones overflow 16 bits.
    gradient = (1e-3 * draws.normal(size=x.shape)).astype(np.float32)
    single = loom.Sequential(layers, input_shape=(64, 256), seed=3)
    single.zero_gradients()
    single.forward(x)
    wanted = [single.backward(gradient), *gradients(single)]
    mixed = loom.Sequential(layers, input_shape=(64, 256), seed=3, precision="mixed").to(gpu)
    ran, found = kernels(gpu, mixed, x, gradient)
    assert sum(" products" in label for label in ran) == 2, ran
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() <= 1e-2 * np.abs(other).max()
