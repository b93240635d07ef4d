"""How training scales over the GPUs of one host, or ranks that share one: bits, time, PyTorch's beside it.

Usage: python benches/distributed_scaling.py [--small] [--ranks 1,2,4] [--steps 20] [--rows 8] [--device gpu]

It prints

1. whether 1, 2, ... ranks come to the same bits of weights, of the same batch in as many shards;
2. the table of scaling at a constant batch for each rank: time of a step, samples in a second, and the
   efficiency, which is that rate over the rate of one rank alone, by the number of ranks; and the same of
   PyTorch's DistributedDataParallel with NCCL, where PyTorch and as many CUDA devices are there;
3. how fast gradients go to the host and back, and what the exchange takes beyond that.

The network is a transformer of about 100 million weights (--small: of 80 thousand, for software). Ranks are
threads of this process, each with a device of its own; with fewer devices than ranks, several share one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue

import numpy as np

import loom
from loom import nn
from loom.callbacks import Logs

VOCABULARY = 256


@dataclass(frozen=True)
class Size:
    """A transformer's extents."""

    blocks: int
    heads: int
    width: int
    context: int


def network(size: Size) -> loom.Network:
    """Builds it."""
    attention = nn.MultiHeadAttention(size.heads, causal=True, bias=False)
    hidden = nn.Sequential(
        [nn.Dense(4 * size.width, activation="relu", bias=False), nn.Dense(size.width, bias=False)]
    )
    block = [nn.Residual([nn.LayerNorm(), attention]), nn.Residual([nn.LayerNorm(), hidden])]
    layers = [nn.Embedding(VOCABULARY, size.width), *size.blocks * block, nn.LayerNorm()]
    return loom.Sequential([*layers, nn.Dense(VOCABULARY, bias=False)], input_shape=size.context, seed=1)


class Clock(loom.Callback):
    """Notes when steps end, in rank 0."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Notes the time."""
        self.ends.append(time.perf_counter())

    def seconds(self) -> float:
        """The time of a step."""
        return settled(np.diff(self.ends).tolist())


@dataclass(frozen=True)
class Found:
    """What a training has come to: its weights, a step's seconds, and those of its parts."""

    weights: str
    seconds: float
    parts: dict[str, float]


def settled(values: list[float]) -> float:
    """The median without the first ones, which compile kernels and take memory."""
    return float(statistics.median(values[len(values) // 3 :])) if values else float("nan")


def trained(
    size: Size,
    rows: int,
    steps: int,
    shards: int | None,
    ranks: loom.distributed.Communicator | None,
    device: str,
) -> Found:
    """Trains for some steps of so many rows in all."""
    random = np.random.default_rng(0)
    text = random.integers(0, VOCABULARY, (rows * steps, size.context + 1))
    net, clock = network(size), Clock()
    config = loom.TrainingConfig(
        epochs=1,
        batch_size=rows,
        loss="cross_entropy",
        optimizer=loom.AdamW(),
        learning_rate=1e-4,
        shards=shards,
        device=device,
        shuffle=False,
        track_perf=True,
        ignore_findings="all",
        verbose=False,
    )
    result = loom.train(net, (text[:, :-1], text[:, 1:]), config, callbacks=[clock], distributed=ranks)
    parts = {name: settled(values) for name, values in result.step_parts.items()}
    return Found(net.fingerprint(), clock.seconds(), parts)


def on(count: int, size: Size, rows: int, steps: int, shards: int | None, device: str) -> list[Found]:
    """The same on so many ranks."""
    if count == 1:
        return [trained(size, rows, steps, shards, None, device)]
    return loom.distributed.threads(count, lambda ranks: trained(size, rows, steps, shards, ranks, device))


def torch_step(
    rank: int, count: int, size: Size, rows: int, steps: int, port: int, results: SimpleQueue[float]
) -> None:
    """One rank of PyTorch's training; the first one tells the time of a step."""
    import torch
    from torch import distributed
    from torch.nn import functional

    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("nccl", init_method=address, rank=rank, world_size=count)

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(size.width), torch.nn.LayerNorm(size.width)
            self.qkv = torch.nn.Linear(size.width, 3 * size.width, bias=False)
            self.out = torch.nn.Linear(size.width, size.width, bias=False)
            self.up = torch.nn.Linear(size.width, 4 * size.width, bias=False)
            self.down = torch.nn.Linear(4 * size.width, size.width, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, context, width = x.shape
            parts = self.qkv(self.first(x)).view(batch, context, 3, size.heads, -1).permute(2, 0, 3, 1, 4)
            found = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(found.transpose(1, 2).reshape(batch, context, width))
            return x + self.down(functional.relu(self.up(self.second(x))))

    layers = [torch.nn.Embedding(VOCABULARY, size.width), *(Block() for _ in range(size.blocks))]
    layers += [torch.nn.LayerNorm(size.width), torch.nn.Linear(size.width, VOCABULARY, bias=False)]
    model = torch.nn.Sequential(*layers).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = torch.randint(0, VOCABULARY, (rows, size.context + 1), device="cuda")
    ends = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        output = model(text[:, :-1])
        functional.cross_entropy(output.reshape(-1, VOCABULARY), text[:, 1:].reshape(-1)).backward()
        optimizer.step()
        torch.cuda.synchronize()
        ends.append(time.perf_counter())
    if rank == 0:
        results.put(float(statistics.median(np.diff(ends)[steps // 3 :])))
    distributed.destroy_process_group()


def in_torch(count: int, size: Size, rows: int, steps: int) -> float | None:
    """PyTorch's time of a step on so many GPUs; None where they are not there."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available() or torch.cuda.device_count() < count:
        return None
    # float32 throughout, as loom computes.
    torch.backends.cuda.matmul.allow_tf32 = False
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    port = 29500 + count
    torch.multiprocessing.spawn(torch_step, (count, size, rows, steps, port, results), count)
    return float(results.get())


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=8, help="of each rank's batch")
    parser.add_argument("--device", default="gpu", help='"gpu" or "cpu"')
    given = parser.parse_args()
    size = Size(2, 2, 48, 16) if given.small else Size(8, 16, 1024, 256)
    counts = sorted({int(count) for count in given.ranks.split(",")} | {1})
    for device in loom.devices():
        print(f"{device.name}: {device.hardware}, {device.driver}")
    weights = sum(values.size for values in network(size).state_dict().values())
    print(f"{weights / 1e6:.2f} million weights, context {size.context}, {given.rows} rows a rank")

    most, steps = counts[-1], given.steps
    bits = {
        count: {each.weights for each in on(count, size, given.rows * most, 4, most, given.device)}
        for count in counts
    }
    same = len(set.union(*bits.values())) == 1
    told = "the same" if same else f"NOT THE SAME: {bits}"
    print(f"bits of {', '.join(map(str, counts))} ranks, {most} shards: {told}")

    whole = on(1, size, given.rows, steps, None, given.device)[0].seconds
    print(f"one rank, whole steps: {1e3 * whole:.1f} ms")
    print("ranks | loom ms | samples/s | efficiency | torch DDP ms | samples/s | efficiency | loom/torch")
    rows, times, torch_alone = given.rows, {}, None
    for count in counts:
        # A rank alone is in no need of shards; that is what efficiency is measured by.
        alone = count == 1
        seconds = whole if alone else on(count, size, rows * count, steps, count, given.device)[0].seconds
        times[count] = seconds
        line = f"{count:5d} | {1e3 * seconds:7.1f} | {rows * count / seconds:9.1f} | {whole / seconds:10.3f}"
        beside = in_torch(count, size, rows, steps) if given.device == "gpu" else None
        if beside is not None:
            torch_alone = torch_alone or beside
            line += f" | {1e3 * beside:12.1f} | {rows * count / beside:9.1f} | {torch_alone / beside:10.3f}"
            line += f" | {beside / seconds:10.3f}"
        print(line, flush=True)
    sharded = on(1, size, rows, steps, 1, given.device)[0].seconds
    extra = sharded - whole
    if extra > 0:
        speed = 2 * 4 * weights / extra / 1e9
        print(f"gradients to the host and back, one rank: {1e3 * extra:.1f} ms more, {speed:.2f} GB/s")
    for count in counts[1:]:
        exchange = times[count] - sharded
        print(f"exchange of {count} ranks: {1e3 * exchange:.1f} ms beyond one shard's step")


if __name__ == "__main__":
    main()
