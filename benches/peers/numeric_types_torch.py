"""PyTorch's times for the networks of numeric_types.py: one row and 256, from NumPy array to NumPy array.

    python benches/peers/numeric_types_torch.py [--device cpu|cuda]

"eager" is PyTorch as most would write it, "graph" (on a GPU) the same captured as a CUDA graph and replayed,
"int8" (on a CPU) its dynamic quantisation of Linear layers. Weights are as they are drawn.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

import in_torch_gpu

Predict: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

CONTEXT, VOCABULARY, FEATURES, HEADS, HIDDEN = 64, 65, 128, 4, 341


class Attention(nn.Module):
    """Causal attention with rotary positions, from a norm and around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(FEATURES)
        self.project = nn.Linear(FEATURES, 3 * FEATURES, bias=False)
        self.out = nn.Linear(FEATURES, FEATURES, bias=False)
        width = FEATURES // HEADS
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(CONTEXT), frequencies)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Turns pairs of features by their position's angles."""
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = (even * self.cosine - odd * self.sine, even * self.sine + odd * self.cosine)
        return torch.stack(turned, -1).flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, CONTEXT, FEATURES) to the same."""
        parts = self.project(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = self.rotated(parts[0]), self.rotated(parts[1]), parts[2]
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(found.transpose(1, 2).flatten(-2))


class Gated(nn.Module):
    """SwiGLU, from a norm and around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(FEATURES)
        self.gate_and_up = nn.Linear(FEATURES, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, FEATURES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, CONTEXT, FEATURES) to the same."""
        gate, up = self.gate_and_up(self.norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


def digits() -> nn.Module:
    """A perceptron."""
    hidden = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(512, 10))


def convolution() -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        *[nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)],
    )


def wide() -> nn.Module:
    """Three hidden layers of 1,024."""
    layers: list[nn.Module] = []
    for inputs in (784, 1024, 1024):
        layers += [nn.Linear(inputs, 1024, bias=False), nn.BatchNorm1d(1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def characters() -> nn.Module:
    """Two blocks of attention and a gated layer."""
    blocks = [Attention(), Gated(), Attention(), Gated()]
    head = nn.Linear(FEATURES, VOCABULARY, bias=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, FEATURES), *blocks, nn.RMSNorm(FEATURES), head)


def inputs(name: str, rows: int) -> NDArray[Any]:
    """Draws rows to predict for."""
    generator = np.random.default_rng(0)
    if name == "characters":
        return generator.integers(0, VOCABULARY, (rows, CONTEXT))
    shape = (1, 28, 28) if name == "convolution" else (784,)
    return generator.random((rows, *shape), dtype=np.float32)


def eager(net: nn.Module, dtype: torch.dtype, device: str) -> Predict:
    """Returns a prediction, from array to array."""

    def predict(x: NDArray[Any]) -> NDArray[Any]:
        there = torch.from_numpy(x).to(device)
        there = there.to(dtype) if there.is_floating_point() else there
        found: NDArray[Any] = net(there).float().cpu().numpy()
        return found

    return predict


def graph(net: nn.Module, dtype: torch.dtype, x: NDArray[Any]) -> Predict:
    """Returns a prediction as a CUDA graph, for arrays of this shape."""
    held = torch.from_numpy(x).cuda()
    # Page-locked, so that the copies need no detour.
    source = torch.from_numpy(x).pin_memory()

    out: list[torch.Tensor] = []

    def step() -> None:
        # The last one's is what the graph writes to.
        out[:] = [net(held.to(dtype) if held.is_floating_point() else held).float()]

    replay = in_torch_gpu.captured(step)

    def predict(x: NDArray[Any]) -> NDArray[Any]:
        source.numpy()[...] = x
        held.copy_(source, non_blocking=True)
        replay()
        found: NDArray[Any] = out[0].cpu().numpy()
        return found

    return predict


def microseconds(predict: Predict, x: NDArray[Any]) -> float:
    """Returns the median time of a prediction for these rows."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - started < 0.5:
        before = time.perf_counter()
        predict(x)
        times.append(time.perf_counter() - before)
    return 1e6 * statistics.median(times[len(times) // 5 :])


def main() -> None:
    """Prints the times as a table, in Markdown."""
    parser = argparse.ArgumentParser(description="PyTorch's times beside those of the numeric types.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    about = torch.cuda.get_device_name(0) if device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {about}\n")
    print("| network | type | variant | batch 1, us | batch 256, us |\n|---|---|---|---:|---:|")
    for make in (digits, convolution, wide, characters):
        name = make.__name__
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            with torch.inference_mode():
                net = make().eval().to(device, dtype)
                predictions = {"eager": [eager(net, dtype, device)] * 2}
                if device == "cuda":
                    predictions["graph"] = [graph(net, dtype, inputs(name, rows)) for rows in (1, 256)]
                elif dtype == torch.float32:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        packed = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, torch.qint8)
                    predictions["int8"] = [eager(packed, dtype, device)] * 2
                for variant, (one, many) in predictions.items():
                    times = [
                        microseconds(one, inputs(name, 1)),
                        microseconds(many, inputs(name, 256)),
                    ]
                    cells = " | ".join(f"{value:,.0f}" for value in times)
                    print(f"| {name} | {str(dtype).removeprefix('torch.')} | {variant} | {cells} |")


if __name__ == "__main__":
    main()
