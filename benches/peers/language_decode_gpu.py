"""Times token by token decoding of a Llama's shape on a GPU, beside PyTorch where it is installed.

Random weights of 135 million parameters (576 wide, 30 blocks, 9 heads over 3, 1,536 hidden, 49,152 words)
or of 1.1 or 8 billion, at a context of 512 to 640. Tokens a second, the best of 0.7 seconds each: step by
step; many tokens a frame (`session.follow`); a prompt of 512; 32 sequences side by side; tokens drawn by
temperature, top_k and top_p of scores that come to the host, and on the GPU, of one sequence and of 32; 32
sequences at places of their own by eight tokens a frame, as answers of `loom serve` are made, the likeliest
and drawn ones.

    python benches/peers/language_decode_gpu.py --types float16 q4_0 --shapes 135m 1b
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import loom
from language_decode import SHAPES
from loom import nn
from loom._typing import NumericTypeName, Precision
from loom.network.slots import Slots
from loom.text import Sampling
from loom.text.sampling import Sampler

_CONTEXT, _CAPACITY = 512, 640
_SECONDS = 0.7


def llama(
    shape: str,
    dtype: NumericTypeName,
    precision: Precision,
    *,
    steps: int = _CAPACITY,
    checkpoints: bool = False,
) -> loom.Network:
    """Makes a network of random weights, packed and without masters; blocks may be computed again."""
    width, blocks, heads, shared, hidden, words = SHAPES[shape]
    attention = nn.MultiHeadAttention(
        heads, key_value_heads=shared, causal=True, rotary=nn.Rotary(), bias=False
    )
    block = [
        nn.Residual([nn.RMSNorm(epsilon=1e-5), attention]),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(hidden)]),
    ]
    part = [nn.Checkpoint(block)] if checkpoints else block
    layers = [nn.Embedding(words, width), *blocks * part, nn.RMSNorm(epsilon=1e-5), nn.TiedHead(words)]
    net = loom.Sequential(layers, input_shape=steps, precision=precision)
    net.build()
    if dtype != "float32":
        net.morph(dtype).drop_master()
    return net


def _best(tokens: int, work: Callable[[], object]) -> float:
    """Returns tokens a second of the best round; a device that was idle takes a while to come to speed."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < _SECONDS:
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return tokens / min(times)


def _samplers(rows: int, words: int) -> list[Sampler]:
    wanted = Sampling(temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=1)
    return [Sampler(wanted, [5], words, stream=row) for row in range(rows)]


def speeds(net: loom.Network, words: int) -> list[float]:
    """Returns tokens a second: by steps, by frames, of a prompt, of 32 sequences; then of tokens drawn."""
    prompt = np.arange(10, 10 + _CONTEXT)[None]
    session = net.session(_CAPACITY)

    def read() -> None:
        session.rewind(0)
        session(prompt, last=True)

    read()
    prefill = _best(_CONTEXT, read)

    def by_steps() -> None:
        for token in range(60):
            session(np.array([[10 + token]]))
        session.rewind(_CONTEXT)

    by_steps()
    steps = _best(60, by_steps)

    def followed() -> None:
        session.follow(np.array([[7]]), 120)
        session.rewind(_CONTEXT)

    followed()
    many = _best(120, followed)
    (sampler,) = _samplers(1, words)

    def drawn_by_host() -> None:
        token = 7
        for _ in range(30):
            token = sampler.choose(session([[token]])[0, -1]).token
        session.rewind(_CONTEXT)

    def drawn() -> None:
        session.follow([[7]], 120, samplers=[sampler])
        session.rewind(_CONTEXT)

    drawn_by_host()
    drawn()
    drawing = [_best(30, drawn_by_host), _best(120, drawn)]
    side_by_side = net.session(_CAPACITY, rows=32)
    # By pieces: what a prompt takes beside the cache grows with its steps.
    for first in range(0, 480, 32):
        side_by_side(np.repeat(prompt[:, first : first + 32], 32, axis=0), last=True)

    def follow_all() -> None:
        side_by_side.follow(np.full((32, 1), 7), 60)
        side_by_side.rewind(480)

    samplers = _samplers(32, words)

    def draw_all() -> None:
        side_by_side.follow(np.full((32, 1), 7), 60, samplers=samplers)
        side_by_side.rewind(480)

    follow_all()
    draw_all()
    together = [_best(60 * 32, follow_all), *drawing, _best(60 * 32, draw_all)]
    return [steps, many, prefill, *together, *_at_own_places(net, samplers)]


def _at_own_places(net: loom.Network, samplers: list[Sampler]) -> list[float]:
    """Returns tokens a second of as many sequences as samplers, each with another number of steps."""
    count = len(samplers)
    slots = Slots(net, count, _CAPACITY)
    read = [480 - 7 * number for number in range(count)]
    for number, steps in enumerate(read):
        slots(np.arange(10, 10 + steps)[None], [number], last=True)

    def served(drawing: list[Sampler] | None) -> None:
        newest = [7] * count
        for _ in range(8):
            made = slots.follow(newest, range(count), [8] * count, samplers=drawing)
            newest = [tokens[-1] for tokens in made]
        for number, steps in enumerate(read):
            slots.rewind(number, steps)

    speeds = []
    for drawing in (None, samplers):
        served(drawing)
        speeds.append(_best(64 * count, partial(served, drawing)))
    return speeds


def in_torch(shape: str) -> list[tuple[str, float]]:
    """Returns tokens a second of the same shape in float16: eager, and as a CUDA graph."""
    import torch
    from torch.nn import functional

    width, blocks, heads, shared, hidden, words = SHAPES[shape]
    size = width // heads
    made = {"device": "cuda", "dtype": torch.float16}

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, **made) for _ in range(2))
            self.read = torch.nn.Linear(width, width + 2 * shared * size, bias=False, **made)
            self.write = torch.nn.Linear(width, width, bias=False, **made)
            self.up = torch.nn.Linear(width, 2 * hidden, bias=False, **made)
            self.down = torch.nn.Linear(hidden, width, bias=False, **made)
            self.keys = torch.zeros(1, shared, _CAPACITY, size, **made)
            self.values = torch.zeros_like(self.keys)

        def forward(self, x: torch.Tensor, place: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            parts = self.read(self.norms[0](x)).split([width, shared * size, shared * size], -1)
            queries, keys, values = (
                part.view(1, -1, part.shape[-1] // size, size).transpose(1, 2) for part in parts
            )
            self.keys.index_copy_(2, place, keys)
            self.values.index_copy_(2, place, values)
            gathered = functional.scaled_dot_product_attention(
                queries, self.keys, self.values, attn_mask=mask, enable_gqa=True
            )
            x = x + self.write(gathered.transpose(1, 2).reshape(1, -1, width))
            gate, up = self.up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    table = torch.nn.Embedding(words, width, **made)
    stack = [Block() for _ in range(blocks)]
    norm = torch.nn.RMSNorm(width, **made)
    token = torch.tensor([[5]], device="cuda")
    place = torch.tensor([_CONTEXT + 8], device="cuda")
    mask = torch.ones(1, 1, 1, _CAPACITY, dtype=torch.bool, device="cuda")

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step() -> torch.Tensor:
        x = table(token)
        for block in stack:
            x = block(x, place, mask)
        return functional.linear(norm(x), table.weight)

    def speed(work: Callable[[], object]) -> float:
        for _ in range(5):
            work()
        torch.cuda.synchronize()

        def together() -> None:
            for _ in range(60):
                work()
            torch.cuda.synchronize()

        return _best(60, together)

    eager = speed(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return [("eager", eager), ("CUDA graph", speed(graph.replay))]


def main() -> None:
    """Prints a line for each shape, type and program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", nargs="+", default=["float16", "q4_0", "float32"])
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["135m"])
    parser.add_argument("--precision", choices=["float32", "mixed"], default="float32")
    parser.add_argument("--device", default="gpu")
    options = parser.parse_args()
    print(loom.init_gpu(options.device))
    print(
        "tokens/s: step by step, many a frame, prompt of 512, 32 sequences; drawn by the host, on the GPU, 32"
        "; at places of their own 32, drawn"
    )
    for shape in options.shapes:
        for dtype in options.types:
            net = llama(shape, dtype, options.precision).to(options.device)
            told = " ".join(f"{value:8.0f}" for value in speeds(net, SHAPES[shape][-1]))
            print(f"{shape:5} {dtype:8} loom             {told}", flush=True)
            del net
        try:
            for name, value in in_torch(shape):
                print(f"{shape:5} float16  PyTorch, {name:10} {value:6.0f}", flush=True)
        except ImportError:
            print("PyTorch is not installed")


if __name__ == "__main__":
    main()
