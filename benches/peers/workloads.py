"""The work that is compared: sizes that every framework's version shares."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "train_mlp",
    "train_cnn",
    "train_lstm",
    "train_gpt",
    "attention",
    "infer_mlp",
    "product",
    "infer_depthwise",
    "train_depthwise",
]


@dataclass(frozen=True)
class Workload:
    """One step of work on random data.

    Args:
        name: What it is called.
        kind: What a step does: a training step (forward, cross-entropy,
            backward, AdamW at 1e-3), one forward pass, attention forward and
            backward, or a matrix product.
        sizes: The widths of a perceptron; the steps, features, units and classes of a
            recurrent network; time, width, heads, and with a language model blocks, the
            gated layer's extent and the vocabulary; the extent of a square product; or the
            channels and the height and width of a depthwise convolution's images.
        batch: Rows per step.
        floats: Multiply-adds of one step, times two.
    """

    name: str
    kind: Kind
    sizes: tuple[int, ...]
    batch: int
    floats: float

    @property
    def is_product(self) -> bool:
        """Whether the figure of interest is GFLOP/s."""
        return self.kind == "product"

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a stack of depthwise convolutions."""
        return self.kind in ("infer_depthwise", "train_depthwise")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One row of the input."""
        match self.kind:
            case "train_cnn":
                return (1, 28, 28)
            case "train_lstm":
                return self.sizes[:2]
            case "infer_depthwise" | "train_depthwise":
                channels, size = self.sizes
                return channels, size, size
            case _:
                return self.sizes[:1]

    @property
    def classes(self) -> int:
        """How many classes a network tells apart."""
        return self.sizes[-1] if self.sizes and not self.is_depthwise else 10


def _mlp(sizes: tuple[int, ...], batch: int, passes: int) -> float:
    return 2.0 * passes * batch * sum(a * b for a, b in pairwise(sizes))


_MNIST = (784, 512, 512, 10)
_ONLINE = (128, 512, 512, 8)
_LSTM = (32, 64, 256, 10)
_CNN = 2.0 * 3 * (28 * 28 * 9 * 32 + 14 * 14 * 9 * 32 * 64 + 3136 * 128 + 128 * 10)

# Depthwise convolutions of a stack, each 3 x 3.
DEPTHWISE = 3


def _depthwise(name: str, kind: Kind, channels: int, size: int) -> Workload:
    # The first one's input needs no gradient.
    passes = 1 if kind == "infer_depthwise" else 3 - 1 / DEPTHWISE
    floats = 2.0 * passes * DEPTHWISE * 16 * channels * size * size * 9
    return Workload(name, kind, (channels, size), 16, floats)


def _lstm(steps: int, features: int, units: int, classes: int) -> float:
    return 2.0 * 3 * (steps * (features + units) * 4 * units + units * classes)


def _attention(batch: int, time: int, width: int) -> float:
    """Multiply-adds, times two, of one causal attention layer, forwards and backwards."""
    products = 3 * 4 * time * width * width
    # Two products of scores forwards; backwards five, the scores' own among them.
    scores = 7 * width * time * (time + 1) / 2
    return 2.0 * batch * (products + scores)


def _gpt(batch: int, sizes: tuple[int, ...]) -> float:
    time, width, _, blocks, hidden, vocabulary = sizes
    gated = 2.0 * 3 * batch * time * 3 * width * hidden
    head = 2.0 * 3 * batch * time * width * vocabulary
    return blocks * (_attention(batch, time, width) + gated) + head


_GPT = (128, 256, 8, 4, 682, 256)

WORKLOADS = {
    work.name: work
    for work in (
        Workload("mlp64", "train_mlp", _MNIST, 64, _mlp(_MNIST, 64, 3)),
        Workload("mlp1024", "train_mlp", _MNIST, 1024, _mlp(_MNIST, 1024, 3)),
        Workload("mlp1", "train_mlp", _ONLINE, 1, _mlp(_ONLINE, 1, 3)),
        Workload("cnn64", "train_cnn", (), 64, 64 * _CNN),
        _depthwise("dw64x56", "train_depthwise", 64, 56),
        _depthwise("dw256x28", "train_depthwise", 256, 28),
        _depthwise("dw64x56i", "infer_depthwise", 64, 56),
        _depthwise("dw256x28i", "infer_depthwise", 256, 28),
        Workload("lstm32", "train_lstm", _LSTM, 32, 32 * _lstm(*_LSTM)),
        Workload("gpt8", "train_gpt", _GPT, 8, _gpt(8, _GPT)),
        Workload("attention1024", "attention", (1024, 512, 8), 1, _attention(1, 1024, 512)),
        Workload("infer1", "infer_mlp", _ONLINE, 1, _mlp(_ONLINE, 1, 1)),
        Workload("sgemm1024", "product", (1024,), 1024, 2.0 * 1024**3),
        Workload("sgemm4096", "product", (4096,), 4096, 2.0 * 4096**3),
    )
}
GPU_WORKLOADS = {
    work.name: work
    for work in (
        WORKLOADS["mlp64"],
        WORKLOADS["mlp1024"],
        WORKLOADS["cnn64"],
        WORKLOADS["gpt8"],
        Workload("cnn1024", "train_cnn", (), 1024, 1024 * _CNN),
    )
}
