"""The workloads in PyTorch, on the CPU, as its users would write them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from workloads import DEPTHWISE, Workload


def step(work: Workload) -> Callable[[], object] | None:
    """Builds one step of a workload."""
    torch.manual_seed(0)
    if work.is_product:
        a, b = torch.randn(2, work.sizes[0], work.sizes[0])
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)
    if work.kind == "attention":
        return _attention(work)
    model = network(work)
    if work.kind == "train_gpt":
        x = torch.randint(0, work.sizes[-1], (work.batch, *work.input_shape))
        y = torch.randint(0, work.classes, (x.numel(),))
        return _train(model, x, y)
    x = torch.randn(work.batch, *work.input_shape)
    if work.kind in ("infer_mlp", "infer_depthwise"):

        def infer() -> object:
            with torch.inference_mode():
                return model(x)

        return infer
    return _train(model, x, torch.randint(0, work.classes, (work.batch,)))


def _train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def train() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x).flatten(0, -2), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return train


def _attention(work: Workload) -> Callable[[], object]:
    time, width, heads = work.sizes
    layer = _Attention(width, heads)
    x = torch.randn(work.batch, time, width, requires_grad=True)
    gradient = torch.randn_like(x)

    def both_ways() -> object:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(gradient)
        return x.grad

    return both_ways


def network(work: Workload) -> nn.Module:
    """Builds the network of a workload."""
    if work.is_depthwise:
        return _depthwise(work.sizes[0])
    if work.kind == "train_lstm":
        return _Recurrent(*work.sizes[1:])
    if work.kind == "train_gpt":
        return _gpt(work.sizes)
    return _cnn() if work.kind == "train_cnn" else _mlp(work.sizes)


def describe() -> str:
    """Names the version and the threads."""
    return f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"


class _Recurrent(nn.Module):
    def __init__(self, features: int, units: int, classes: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(features, units, batch_first=True)
        self.decide = nn.Linear(units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(x)
        return self.decide(states[:, -1])


def _mlp(sizes: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def _depthwise(channels: int) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(DEPTHWISE):
        layers += [nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class _Attention(nn.Module):
    """Causal attention, queries, keys and values from one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.taken = nn.Linear(width, 3 * width, bias=False)
        self.given = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = self.taken(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.given(y.transpose(1, 2).reshape(batch, time, width))


class _Gated(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.attention = _Attention(width, heads)
        self.gated = _Gated(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.gated(self.norms[1](x))


def _gpt(sizes: tuple[int, ...]) -> nn.Module:
    _, width, heads, blocks, hidden, vocabulary = sizes
    return nn.Sequential(
        nn.Embedding(vocabulary, width),
        *[_Block(width, heads, hidden) for _ in range(blocks)],
        nn.RMSNorm(width),
        nn.Linear(width, vocabulary, bias=False),
    )
