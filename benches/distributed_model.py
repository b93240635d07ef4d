"""How long steps take that many processes share: latency, bandwidth and compute, and the model's error.

Usage: python benches/distributed_model.py [--latency 2e-6] [--bandwidth 12e9] [--rate 50e12]
       loom launch -n 4 benches/distributed_model.py, or mpiexec -n 4 python benches/distributed_model.py

An exchange of a gradient of b bytes between n processes is, in each of them,

    T(n, b) = 2 (n - 1) latency + 2 b (n - 1) / (n bandwidth)

since each hands a slice to each of the others, and then its sum. The latency is that of a message, the
bandwidth that of whoever sends, copies and additions included. Both are fitted, by least squares of the
relative error, to exchanges over many sizes, half of which are left out to measure the error: exchanges
of the processes that the script was started as, or of two and of four threads of one. A step is

    S(n) = 6 weights tokens / (n rate) + T(n, 4 weights)

for a fixed batch of so many tokens in all, with nothing of it hidden behind the other.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import loom
from loom.distributed import Communicator

NETWORKS = {
    "perceptron, 2 million": (2e6, 1 << 16),
    "transformer, 100 million": (100e6, 1 << 18),
    "transformer, 7 billion": (7e9, 1 << 22),
}


def exchanges(communicator: Communicator, sizes: list[int], repeats: int) -> list[float]:
    """Returns the median seconds of an exchange of gradients of so many bytes, in this rank."""
    found = []
    for size in sizes:
        parts = [bytes(4 * max(1, size // 4 // communicator.size))] * communicator.size
        times = []
        for _ in range(repeats):
            communicator.to_all(b"")
            began = time.perf_counter()
            came = communicator.to_each(parts)
            total = np.frombuffer(came[0], np.float32).copy()
            for part in came[1:]:
                total += np.frombuffer(part, np.float32)
            communicator.to_all(total.tobytes())
            times.append(time.perf_counter() - began)
        found.append(float(np.median(times)))
    return found


def measured(communicator: Communicator) -> list[tuple[int, int, float]]:
    """Returns ranks, bytes and seconds of many exchanges."""
    sizes = [1 << power for power in range(10, 27)]
    if communicator.size > 1:
        seconds = {communicator.size: exchanges(communicator, sizes, 9)}
    else:
        seconds = {
            ranks: loom.distributed.threads(ranks, lambda given: exchanges(given, sizes, 9))[0]
            for ranks in (2, 4)
        }
    return [(ranks, *each) for ranks, found in seconds.items() for each in zip(sizes, found, strict=True)]


def terms(ranks: int, size: float) -> tuple[float, float]:
    """Returns what latency and the inverse of bandwidth are multiplied by."""
    return 2.0 * (ranks - 1), 2.0 * size * (ranks - 1) / ranks


def fitted(found: list[tuple[int, int, float]]) -> tuple[float, float]:
    """Returns latency and bandwidth, so that the sum of squared relative errors is least."""
    rows = np.array([terms(ranks, size) for ranks, size, _ in found])
    seconds = np.array([each[2] for each in found])
    latency, inverse = np.linalg.lstsq(rows / seconds[:, None], np.ones(len(rows)), rcond=None)[0]
    return max(float(latency), 0.0), 1.0 / max(float(inverse), 1e-15)


def exchange(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """Returns the seconds that the model says."""
    of_latency, of_inverse = terms(ranks, size)
    return of_latency * latency + of_inverse / bandwidth


def main() -> None:
    """Measures, fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--latency", type=float, help="seconds of a message, in place of what is measured")
    parser.add_argument("--bandwidth", type=float, help="bytes in a second")
    parser.add_argument("--rate", type=float, default=50e12, help="operations in a second of a process")
    given = parser.parse_args()
    latency, bandwidth = given.latency, given.bandwidth
    if latency is None or bandwidth is None:
        communicator = loom.distributed.current()
        found = measured(communicator)
        if communicator.rank:
            return
        known = fitted(found[::2])
        errors = [abs(exchange(n, size, *known) / seconds - 1) for n, size, seconds in found[1::2]]
        name = type(communicator).__name__ if communicator.size > 1 else "threads"
        print(f"fitted here, {name}: {1e6 * known[0]:.1f} us a message, {known[1] / 1e9:.2f} GB/s;", end=" ")
        print(f"error on what was left out: median {np.median(errors):.0%}, most {max(errors):.0%}")
        latency = known[0] if latency is None else latency
        bandwidth = known[1] if bandwidth is None else bandwidth
    print(f"{1e6 * latency:.1f} us, {bandwidth / 1e9:.2f} GB/s, {given.rate / 1e12:.1f} TFLOP/s a process")
    print("network | ranks | compute ms | exchange ms | efficiency")
    for name, (weights, tokens) in NETWORKS.items():
        alone = 6 * weights * tokens / given.rate
        for ranks in (8, 64, 512, 4096):
            compute, moved = alone / ranks, exchange(ranks, 4 * weights, latency, bandwidth)
            share = compute / (compute + moved)
            print(f"{name} | {ranks} | {1e3 * compute:.2f} | {1e3 * moved:.2f} | {share:.1%}")


if __name__ == "__main__":
    main()
