"""How long steps take that many processes share: latency, bandwidth and compute, and the model's error.

Usage: python benches/distributed_model.py [--latency 2e-6] [--bandwidth 12e9] [--rate 50e12]

An exchange of a gradient of b bytes between n processes is, in each of them,

    T(n, b) = 2 (n - 1) latency + 2 b (n - 1) / (n bandwidth)

since each hands a slice to each of the others, and then its sum. The latency is that of a message, the
bandwidth that of whoever sends, copies and additions included. Both are fitted, by least squares of the
relative error, to exchanges of threads of this process over many sizes, half of which are left out to
measure the error. A step is

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


def exchanges(ranks: int, sizes: list[int], repeats: int) -> list[float]:
    """Returns the median seconds of an exchange of gradients of so many bytes between threads."""

    def measure(communicator: Communicator) -> list[float]:
        found = []
        for size in sizes:
            parts = [bytes(size // ranks)] * ranks
            times = []
            for _ in range(repeats):
                communicator.to_all(b"")
                began = time.perf_counter()
                came = communicator.to_each(parts)
                total = np.frombuffer(came[0], np.uint8).copy()
                for part in came[1:]:
                    total += np.frombuffer(part, np.uint8)
                communicator.to_all(total.tobytes())
                times.append(time.perf_counter() - began)
            found.append(float(np.median(times)))
        return found

    return loom.distributed.threads(ranks, measure)[0]


def terms(ranks: int, size: float) -> tuple[float, float]:
    """Returns what latency and the inverse of bandwidth are multiplied by."""
    return 2.0 * (ranks - 1), 2.0 * size * (ranks - 1) / ranks


def fitted(measured: list[tuple[int, int, float]]) -> tuple[float, float]:
    """Returns latency and bandwidth, so that the sum of squared relative errors is least."""
    rows = np.array([terms(ranks, size) for ranks, size, _ in measured])
    seconds = np.array([each[2] for each in measured])
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
        sizes = [1 << power for power in range(10, 25)]
        measured = [
            (ranks, size, seconds)
            for ranks in (2, 4)
            for size, seconds in zip(sizes, exchanges(ranks, sizes, 9), strict=True)
        ]
        known = fitted(measured[::2])
        errors = [abs(exchange(n, size, *known) / seconds - 1) for n, size, seconds in measured[1::2]]
        print(f"fitted here: {1e6 * known[0]:.1f} us a message, {known[1] / 1e9:.2f} GB/s;", end=" ")
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
