"""The workloads in PyTorch on a GPU, one batch that stays on the device.

The variants: "eager" as most would write it, "fused" with AdamW in one kernel, and
"graph", the whole step captured as a CUDA graph and replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn import functional

from in_torch import network
from workloads import Workload


def measure(work: Workload, variant: str, seconds: float) -> float | None:
    """Returns the seconds of a step, over as many as fit the time."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = network(work).cuda()
    if work.kind == "train_gpt":
        steps, vocabulary = work.sizes[0], work.sizes[-1]
        x = torch.randint(0, vocabulary, (work.batch, steps), device="cuda")
        y = torch.randint(0, vocabulary, (work.batch * steps,), device="cuda")
    else:
        shape = (1, 28, 28) if work.kind == "train_cnn" else work.sizes[:1]
        x = torch.randn(work.batch, *shape, device="cuda")
        y = torch.randint(0, 8, (work.batch,), device="cuda")
    # Eager AdamW is PyTorch's own choice, which is not one kernel.
    settings = {} if variant == "eager" else {"fused": True, "capturable": True}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, **settings)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x).flatten(0, -2), y).backward()
        optimizer.step()

    return _over_many(step if variant != "graph" else captured(step, optimizer.zero_grad), seconds)


def captured(step: Callable[[], object], before: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Returns a step's replay as a CUDA graph; `before` is called between warming up and capturing."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    before()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def _over_many(step: Callable[[], None], seconds: float) -> float:
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(100):
            step()
        # Waited for now and then, so that the queue of what is to do stays short.
        torch.cuda.synchronize()
        done += 100
    return (time.perf_counter() - started) / done


def describe() -> str:
    """Names the version and the GPU."""
    return f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}"
