"""A step of fine-tuning by an adapter on a GPU: loom over packed weights, PyTorch over float16 ones.

A Llama's shape of 1.1 billion parameters (or 135 million) with random weights; adapters of rank 16 beside
every product of attention and of the gated layers, LoRA or DoRA; one row of 2,048 tokens, AdamW.
Milliseconds a step, medians, and the memory that each asks the device for at its peak:

    python benches/peers/adapters_gpu.py --shape 1b --types q4_0 int4 --precision mixed --decomposed
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Literal

import numpy as np

import loom
from language_decode import SHAPES
from language_decode_gpu import llama
from loom._typing import NumericTypeName, Precision
from loom.callbacks import LambdaCallback

RANK, ALPHA, TOKENS, STEPS = 16, 32.0, 2048, 12


def in_loom(
    shape: str,
    dtype: NumericTypeName,
    precision: Precision,
    device: str,
    checkpoints: bool,
    decomposed: bool,
    saved: Literal["float16", "bfloat16"] | None,
) -> tuple[float, float]:
    """Returns milliseconds a step, and GiB of the device's memory."""
    net = llama(shape, dtype, precision, steps=TOKENS, checkpoints=checkpoints)
    targets = ["multi_head_attention", "swiglu"]
    net.add_adapter("default", rank=RANK, alpha=ALPHA, targets=targets, decomposed=decomposed)
    random = np.random.default_rng(0)
    x = random.integers(0, SHAPES[shape][-1], (STEPS, TOKENS))
    config = loom.TrainingConfig(
        epochs=6,
        loss="cross_entropy",
        optimizer=loom.AdamW(),
        learning_rate=1e-5,
        batch_size=1,
        device=device,
        verbose=False,
        saved_activations=saved,
    )
    held: list[int] = []
    looking = LambdaCallback(on_epoch_end=lambda *_: held.append(loom.frame_statistics(device).memory))
    times = loom.train(net, (x, x), config, callbacks=[looking]).epoch_times
    return 1e3 * statistics.median(times[2:]) / STEPS, max(held) / 2**30


def in_torch(shape: str, checkpoints: bool, decomposed: bool) -> tuple[float, float]:
    """Returns milliseconds a step, and GiB at the peak, of float16 weights and autocast to float16."""
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    width, blocks, heads, shared, hidden, words = SHAPES[shape]
    size = width // heads
    half = {"device": "cuda", "dtype": torch.float16}

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(outputs, inputs, **half) * 0.02, requires_grad=False)
            self.a = torch.nn.Parameter(torch.randn(RANK, inputs, device="cuda") * 0.02)
            self.b = torch.nn.Parameter(torch.zeros(outputs, RANK, device="cuda"))
            if decomposed:
                self.magnitude = torch.nn.Parameter(self.weight.float().norm(dim=1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            beside = functional.linear(functional.linear(x, self.a), self.b)
            both = functional.linear(x, self.weight) + ALPHA / RANK * beside
            if not decomposed:
                return both
            # As peft has it: the length is no part of the gradient.
            with torch.no_grad():
                lengths = (self.weight + ALPHA / RANK * (self.b @ self.a)).norm(dim=1)
            return both * (self.magnitude / lengths)

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, **half) for _ in range(2))
            self.query, self.output = Adapted(width, width), Adapted(width, width)
            self.key, self.value = Adapted(width, shared * size), Adapted(width, shared * size)
            self.gate, self.up, self.down = (
                Adapted(width, hidden),
                Adapted(width, hidden),
                Adapted(hidden, width),
            )
            self.norms.requires_grad_(False)

        def rotated(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat([-second, first], -1) * sin

        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            read = self.norms[0](x)
            query, key, value = (
                made.view(1, TOKENS, -1, size).transpose(1, 2)
                for made in (self.query(read), self.key(read), self.value(read))
            )
            gathered = functional.scaled_dot_product_attention(
                self.rotated(query, cos, sin),
                self.rotated(key, cos, sin),
                value,
                is_causal=True,
                enable_gqa=True,
            )
            x = x + self.output(gathered.transpose(1, 2).reshape(1, TOKENS, width))
            read = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(read)) * self.up(read))

    table = torch.nn.Embedding(words, width, **half).requires_grad_(False)
    stack = torch.nn.ModuleList(Block() for _ in range(blocks))
    norm = torch.nn.RMSNorm(width, **half).requires_grad_(False)
    angles = torch.outer(torch.arange(TOKENS), 10000.0 ** (-torch.arange(0, size, 2) / size)).cuda()
    cos, sin = (torch.cat([made, made], -1).half() for made in (angles.cos(), angles.sin()))
    learned = [one for one in stack.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learned, 1e-5, fused=True)
    x = torch.randint(0, words, (1, TOKENS), device="cuda")
    times = []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(15):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.autocast("cuda", torch.float16):
            y = table(x)
            for block in stack:
                y = checkpoint(block, y, cos, sin, use_reentrant=False) if checkpoints else block(y, cos, sin)
            scores = functional.linear(norm(y), table.weight)
            loss = functional.cross_entropy(scores.view(TOKENS, words), x.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times[5:]), torch.cuda.max_memory_allocated() / 2**30


def main() -> None:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=sorted(SHAPES), default="1b")
    parser.add_argument("--types", nargs="+", default=["q4_0"])
    parser.add_argument("--precision", nargs="+", choices=["float32", "mixed"], default=["mixed"])
    parser.add_argument("--checkpoints", action="store_true", help="compute blocks again, in both")
    parser.add_argument("--decomposed", action="store_true", help="DoRA instead of LoRA, in both")
    parser.add_argument("--saved", choices=["float16", "bfloat16"], help="what loom keeps activations in")
    parser.add_argument("--device", default="gpu")
    options = parser.parse_args()
    for precision in options.precision:
        for dtype in options.types:
            told = (options.device, options.checkpoints, options.decomposed, options.saved)
            step, memory = in_loom(options.shape, dtype, precision, *told)
            print(f"loom, {dtype}, {precision}: {step:.1f} ms a step, {memory:.2f} GiB", flush=True)
    try:
        step, memory = in_torch(options.shape, options.checkpoints, options.decomposed)
        print(f"PyTorch, float16: {step:.1f} ms a step, {memory:.2f} GiB")
    except ImportError:
        print("PyTorch is not installed")


if __name__ == "__main__":
    main()
