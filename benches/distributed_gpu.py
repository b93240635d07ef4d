"""Several GPUs of one host beside one: the same bits, the time of a step, where it goes, and PyTorch's.

Usage: python benches/distributed_gpu.py [--small] [--ranks 2] [--shards 8] [--steps 12] [--rows 48]
       [--device gpu]

For a transformer of about 100 million weights (--small: of 80 thousand, for software), in float32, it prints

1. how fast this machine copies between GPUs and the host, where PyTorch is there to try;
2. whether one GPU and all come to the same bits, with as many shards as GPUs and with --shards;
3. milliseconds of a step at a constant batch a GPU: on one GPU whole and in shards, on all in shards; the
   efficiency, which is the time of one GPU's whole step over that of all;
4. where a step's time goes on all GPUs (see `TrainingResult.step_parts`), and how fast the gradient travels;
5. the same steps of PyTorch's DistributedDataParallel with NCCL, where PyTorch and CUDA devices are there.
"""

from __future__ import annotations

import argparse

from distributed_scaling import Found, Size, in_torch, network, on

import loom


def copies() -> None:
    """Prints how fast PyTorch copies a gradient's bytes from and to a GPU."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    count = 100_000_000
    there, here = torch.zeros(count, device="cuda"), torch.zeros(count, pin_memory=True)
    for name, to, source in (("from", here, there), ("to", there, here)):
        speeds = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            to.copy_(source, non_blocking=True)
            end.record()
            torch.cuda.synchronize()
            speeds.append(4 * count / begin.elapsed_time(end) / 1e6)
        print(f"copies {name} a GPU (PyTorch): {max(speeds):.1f} GB/s")


def show(name: str, found: list[Found], whole: float) -> None:
    """Prints a line of the table."""
    seconds = found[0].seconds
    print(f"{name:32s} | {1e3 * seconds:8.1f} | {whole / seconds:10.3f}", flush=True)


def show_parts(found: list[Found]) -> None:
    """Prints where a step's time goes in each rank."""
    for rank, one in enumerate(found):
        parts = dict(one.parts)
        size = parts.pop("bytes", 0.0)
        told = ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in parts.items())
        print(f"  rank {rank}, ms: {told}")
        if not size:
            continue
        speeds = {name: parts[name] for name in ("fetching", "adding", "sending") if parts.get(name)}
        speeds["all of it"] = sum(parts[name] for name in ("fetching", "meeting", "sending"))
        shown = ", ".join(f"{name} {size / seconds / 1e9:.1f}" for name, seconds in speeds.items())
        print(f"  rank {rank}, {size / 1e6:.0f} MB, GB/s: {shown}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rows", type=int, default=48, help="of each rank's batch")
    parser.add_argument("--device", default="gpu", help='"gpu" or "cpu"')
    given = parser.parse_args()
    size = Size(2, 2, 48, 16) if given.small else Size(8, 16, 1024, 256)
    ranks, rows, steps, device = given.ranks, given.rows, given.steps, given.device
    for each in loom.devices():
        print(f"{each.name}: {each.hardware}, {each.driver}")
    weights = sum(values.size for values in network(size).state_dict().values())
    print(f"{weights / 1e6:.2f} million weights, context {size.context}, {rows} rows a rank, {ranks} ranks")
    copies()

    for shards in sorted({ranks, given.shards}):
        bits = {
            count: {each.weights for each in on(count, size, rows * ranks, 3, shards, device)}
            for count in (1, ranks)
        }
        same = len(set.union(*bits.values())) == 1
        told = "the same" if same else f"NOT THE SAME: {bits}"
        print(f"bits of 1 and {ranks} ranks, {shards} shards: {told}", flush=True)

    print(f"{'loom':32s} | ms a step | efficiency")
    alone = on(1, size, rows, steps, None, device)
    whole = alone[0].seconds
    show("1 rank, whole", alone, whole)
    for shards in sorted({ranks, given.shards}):
        show(f"1 rank, {shards} shards", on(1, size, rows, steps, shards, device), whole)
    for shards in sorted({ranks, given.shards}):
        found = on(ranks, size, rows * ranks, steps, shards, device)
        show(f"{ranks} ranks, {shards} shards", found, whole)
        show_parts(found)
    if device != "gpu" or given.small:
        return
    one = in_torch(1, size, rows, steps)
    if one is None:
        return
    print(f"{'PyTorch, DistributedDataParallel':32s} | {1e3 * one:8.1f} | on 1 GPU")
    several = in_torch(ranks, size, rows, steps)
    if several is not None:
        print(f"{'':32s} | {1e3 * several:8.1f} | {one / several:10.3f} on {ranks} GPUs")


if __name__ == "__main__":
    main()
