"""Small networks and data that several tests use."""

from __future__ import annotations

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
