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
    model = network(work)
    x = torch.randn(work.batch, *work.input_shape)
    if work.kind in ("infer_mlp", "infer_depthwise"):

        def infer() -> object:
            with torch.inference_mode():
                return model(x)

        return infer
    y = torch.randint(0, work.classes, (work.batch,))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def train() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return train


def network(work: Workload) -> nn.Module:
    """Builds the network of a workload."""
    if work.is_depthwise:
        return _depthwise(work.sizes[0])
    if work.kind == "train_lstm":
        return _Recurrent(*work.sizes[1:])
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
