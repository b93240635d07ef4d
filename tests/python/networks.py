"""Small networks, data and what ends a run, that several tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Arrays = tuple[NDArray[Any], NDArray[Any]]


def mlp(seed: int = 0, precision: str = "float32", units: int = 24) -> loom.Network:
    """A perceptron 6-24-3 with dropout, in two cells."""
    net = loom.Network(input_shape=6, grid=(1, 2), precision=precision, seed=seed)
    net[0, 0].add(nn.Dense(units, activation="tanh"), nn.Dropout(0.1))
    net[0, 1].add(nn.Dense(3))
    return net


def cnn(seed: int = 0, precision: str = "float32") -> loom.Network:
    """A convolutional network for one-channel 8 x 8 images, 4 classes."""
    return loom.Sequential(
        [
            nn.Conv2D(6, kernel_size=3, padding=1, activation="relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(8, kernel_size=3, activation="gelu"),
            nn.GlobalAvgPool2D(),
            nn.Dense(4),
        ],
        input_shape=(1, 8, 8),
        precision=precision,
        seed=seed,
    )


def blobs(rows: int = 300, seed: int = 0) -> Arrays:
    """Three clouds of points in six dimensions, that a small network can tell apart."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    centres = np.random.default_rng(99).normal(size=(3, 6)) * 2
    return (centres[y] + random.normal(size=(rows, 6))).astype(np.float32), y


def stripes(rows: int = 240, seed: int = 0) -> Arrays:
    """Images of horizontal, vertical and diagonal stripes and of checks, in noise."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, rows)
    row, column = np.mgrid[0:8, 0:8]
    patterns = np.stack([row % 2, column % 2, (row + column) // 2 % 2, (row // 2 + column // 2) % 2])
    x = patterns[y] + 0.3 * random.normal(size=(rows, 8, 8))
    return x[:, None].astype(np.float32), y


def quiet(**settings: Any) -> loom.TrainingConfig:
    """A configuration for classification that shows no progress."""
    return loom.TrainingConfig(**{"loss": "cross_entropy", "verbose": False, **settings})


def weights(net: loom.Network) -> bytes:
    """Every parameter's bytes, one after the other."""
    return b"".join(values.tobytes() for values in net.state_dict().values())


def llama(
    *, blocks: int = 2, tied: bool = False, rotary: nn.Rotary | None = None, **attention: Any
) -> loom.Network:
    """A network of Llama's family, of 50 words and 12 steps, whose vectors are random, too."""
    rotary = rotary or nn.Rotary(layout="half_split")
    attention = {"key_value_heads": 2, "head_dim": 16, "bias": False, **attention}
    # That of norms of heads, which is one for all norms in the files of others.
    epsilon = 1e-6 if attention.get("qk_norm") else 1e-5
    rows: list[nn.Layer] = []
    for _ in range(blocks):
        heads = nn.MultiHeadAttention(4, causal=True, rotary=rotary, **attention)
        rows.append(nn.Residual([nn.RMSNorm(epsilon=epsilon), heads]))
        rows.append(nn.Residual([nn.RMSNorm(epsilon=epsilon), nn.SwiGLU(96)]))
    head = nn.TiedHead(50, tied_to=(0, 0, 0, 0)) if tied else nn.Dense(50, bias=False)
    layers = [nn.Embedding(50, 32), *rows, nn.RMSNorm(epsilon=epsilon), head]
    net = loom.Sequential(layers, input_shape=12, seed=3)
    random = np.random.default_rng(5)
    state = net.state_dict()
    for name, array in state.items():
        state[name] = 1.5 * array if array.ndim == 2 else array + 0.3 * random.normal(size=array.shape)
    return net.load_state_dict(state)


def _drawn(net: loom.Network) -> loom.Network:
    """The network with gains that differ and larger weights."""
    random = np.random.default_rng(5)
    state = net.state_dict()
    for name, array in state.items():
        state[name] = 1.5 * array if array.ndim > 1 else array + 0.3 * random.normal(size=array.shape)
    return net.load_state_dict(state)


def decoders() -> dict[str, Callable[[], loom.Network]]:
    """Small language models of llama.cpp's architectures but Llama, Qwen 2 and 3: 50 words, 12 steps."""
    turning = nn.Rotary(layout="half_split")

    def attention(**settings: Any) -> nn.MultiHeadAttention:
        chosen = {"key_value_heads": 2, "head_dim": 16, "causal": True, "rotary": turning, "bias": False}
        return nn.MultiHeadAttention(4, **{**chosen, **settings})

    def norm() -> nn.RMSNorm:
        return nn.RMSNorm(epsilon=1e-6)

    def built(
        halves: list[list[nn.Layer]],
        *,
        scale: float | None = None,
        cap: float | None = None,
        tied: bool = False,
    ) -> loom.Network:
        head = nn.TiedHead(50, tied_to=(0, 0, 0, 0)) if tied else nn.Dense(50, bias=False)
        layers: list[nn.Layer] = [nn.Embedding(50, 32)]
        layers += [] if scale is None else [nn.Scale(scale)]
        layers += [*map(nn.Residual, halves), norm(), head]
        layers += [] if cap is None else [nn.SoftCap(cap)]
        return _drawn(loom.Sequential(layers, input_shape=12, seed=3))

    def before(blocks: int, feed_forward: nn.Layer, **settings: Any) -> list[list[nn.Layer]]:
        return [
            row for _ in range(blocks) for row in ([norm(), attention(**settings)], [norm(), feed_forward])
        ]

    def around(blocks: int, window: Callable[[int], int | None], **settings: Any) -> list[list[nn.Layer]]:
        def rotary(place: int) -> nn.Rotary:
            far = nn.Rotary(base=1e6, layout="half_split", scaling=8.0)
            return far if settings.get("qk_norm") and window(place) is None else turning

        gated = nn.GeGLU(96, activation="gelu_tanh")
        return [
            row
            for place in range(blocks)
            for row in (
                [norm(), attention(window=window(place), rotary=rotary(place), **settings), norm()],
                [norm(), gated, norm()],
            )
        ]

    def smollm3() -> loom.Network:
        rows = before(5, nn.SwiGLU(96))
        rows[6][1] = attention(rotary=None)
        return built(rows, tied=True)

    root = 32**0.5
    long = nn.Rotary(layout="half_split", scaling=4.0, dim=6, rule=nn.LongRopeRule(6, [1.0, 1.5, 2.5]))
    experts = nn.MixtureOfExperts(4, 2, 64)
    shared = nn.MixtureOfExperts(4, 2, 64, normalize=False, shared_units=96, shared_gate=True)
    # llama.cpp has these only with heads that are together as wide as the network.
    square = {"head_dim": 8}
    behind = {"qk_norm": "width", **square}
    return {
        "gemma": lambda: built(before(2, nn.GeGLU(96, activation="gelu_tanh")), scale=root, tied=True),
        "gemma2": lambda: built(
            around(3, lambda place: None if place % 2 else 4, soft_cap=5.0), scale=root, tied=True, cap=3.0
        ),
        "gemma3": lambda: built(
            around(7, lambda place: 4 if (place + 1) % 6 else None, qk_norm=True), scale=root, tied=True
        ),
        "phi3": lambda: built(before(2, nn.SwiGLU(96), window=5, **square)),
        "phi3, long": lambda: built(before(2, nn.SwiGLU(96), rotary=long, **square), tied=True),
        "smollm3": smollm3,
        "olmo2": lambda: built(
            [row for _ in range(2) for row in ([attention(**behind), norm()], [nn.SwiGLU(96), norm()])]
        ),
        "llama": lambda: built(before(2, experts)),
        "qwen2moe": lambda: built(before(2, shared, bias=True, output_bias=False, head_dim=8)),
        "qwen3moe": lambda: built(before(2, experts, qk_norm=True, qk_norm_epsilon=1e-6)),
    }


class Killed(loom.Callback):
    """Ends a run in the middle of an epoch."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_batch_end(self, batch: int, logs: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("killed")
