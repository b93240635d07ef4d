"""The workloads in loom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import _native, nn
from workloads import DEPTHWISE, Workload

_RANDOM = np.random.default_rng(0)


def step(work: Workload) -> Callable[[], object] | None:
    """Builds one step of a workload."""
    if work.is_product:
        # A product as a user meets it: a layer of its size, checks of the input included.
        extent = work.sizes[0]
        layer = loom.Sequential([nn.Dense(extent, bias=False)], input_shape=extent)
        rows = _RANDOM.standard_normal((extent, extent), np.float32)
        return lambda: layer.predict(rows, batch_size=extent)
    if work.kind == "attention":
        return _attention(work)
    net = network(work)
    if work.kind == "train_gpt":
        words = _RANDOM.integers(0, work.sizes[-1], (work.batch, *net.input_shape))
        return _train(net, work, words, _RANDOM.integers(0, work.sizes[-1], words.shape))
    x = _RANDOM.standard_normal((work.batch, *net.input_shape), np.float32)
    if work.kind in ("infer_mlp", "infer_depthwise"):
        return lambda: net.predict(x)
    return _train(net, work, x, _RANDOM.integers(0, net.output_shape[0], work.batch))


def _train(net: loom.Network, work: Workload, x: NDArray[Any], y: NDArray[np.int64]) -> Callable[[], object]:
    config = loom.TrainingConfig(
        loss="cross_entropy",
        optimizer=loom.AdamW(),
        learning_rate=1e-3,
        batch_size=work.batch,
        device="cpu",
    )
    trainer = loom.Trainer(net, config)
    return lambda: trainer.step(x, y)


def _attention(work: Workload) -> Callable[[], object]:
    time, width, heads = work.sizes
    layer = nn.MultiHeadAttention(heads, causal=True, bias=False)
    net = loom.Sequential([layer], input_shape=(time, width))
    x = _RANDOM.standard_normal((work.batch, time, width), np.float32)
    gradient = _RANDOM.standard_normal(x.shape, np.float32)

    def both_ways() -> object:
        net.zero_gradients()
        net.forward(x)
        return net.backward(gradient)

    return both_ways


def network(work: Workload) -> loom.Network:
    """Builds the network of a workload."""
    if work.is_depthwise:
        return _depthwise(*work.sizes)
    if work.kind == "train_lstm":
        layers = [nn.LSTM(work.sizes[2]), nn.Dense(work.classes)]
        return loom.Sequential(layers, input_shape=work.input_shape)
    if work.kind == "train_gpt":
        return _gpt(work.sizes)
    return _cnn() if work.kind == "train_cnn" else _mlp(work.sizes)


def describe() -> str:
    """Names the version, the instruction set and the threads."""
    isa, threads = _native.machine()
    return f"loom {loom.__version__}, {isa}, {threads} threads"


def _mlp(sizes: tuple[int, ...]) -> loom.Network:
    layers = [nn.Dense(units, activation="relu") for units in sizes[1:-1]]
    return loom.Sequential([*layers, nn.Dense(sizes[-1])], input_shape=sizes[0])


def _cnn() -> loom.Network:
    return loom.Sequential(
        [
            nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(64, kernel_size=3, padding=1, activation="relu"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(128, activation="relu"),
            nn.Dense(10),
        ],
        input_shape=(1, 28, 28),
    )


def _depthwise(channels: int, size: int) -> loom.Network:
    layer = nn.Conv2D(channels, kernel_size=3, padding=1, groups=channels, activation="relu")
    return loom.Sequential(
        [*[layer] * DEPTHWISE, nn.GlobalAvgPool2D(), nn.Dense(10)], input_shape=(channels, size, size)
    )


def _gpt(sizes: tuple[int, ...]) -> loom.Network:
    time, width, heads, blocks, hidden, vocabulary = sizes
    attention = nn.MultiHeadAttention(heads, causal=True, bias=False)
    block = [
        nn.Residual([nn.RMSNorm(), attention]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(hidden)]),
    ]
    return loom.Sequential(
        [nn.Embedding(vocabulary, width), *blocks * block, nn.RMSNorm(), nn.Dense(vocabulary, bias=False)],
        input_shape=time,
    )
