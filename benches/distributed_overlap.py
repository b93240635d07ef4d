"""How much of an exchange hides behind the backward pass, where ranks reach each other slowly.

Usage: python benches/distributed_overlap.py [--ranks 2] [--width 1024] [--layers 8] [--steps 9]
       [--bandwidth 1e8,4e8,1e9]

Ranks are threads of this process, and what they send takes as long as it would at a bandwidth: they sleep
meanwhile, so that nothing is taken from whoever computes. Printed are the time of a step without that delay,
the delay of all messages of a step, the time of a step with it, and which share of the delay was hidden: all
of it where a step takes no longer than without.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np

import loom
from loom import nn
from loom.callbacks import Logs
from loom.distributed import Communicator


class Slow:
    """A communicator over a network of some bandwidth.

    Args:
        inner: What carries the bytes.
        bandwidth: Bytes in a second; endless where 0.
    """

    def __init__(self, inner: Communicator, bandwidth: float) -> None:
        self.inner, self.bandwidth = inner, bandwidth
        self.rank, self.size = inner.rank, inner.size
        self.slept = 0.0

    def _send(self, size: int) -> None:
        if self.bandwidth:
            seconds = size / self.bandwidth
            self.slept += seconds
            time.sleep(seconds)

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each a part, after a while."""
        self._send(sum(len(part) for rank, part in enumerate(parts) if rank != self.rank))
        return self.inner.to_each(parts)

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all the same, after a while."""
        self._send(len(part) * (self.size - 1))
        return self.inner.to_all(part)

    def fail(self, message: str) -> None:
        """Tells the others."""
        self.inner.fail(message)


class Clock(loom.Callback):
    """Notes when steps end, in rank 0, and how long was slept by then.

    Args:
        communicator: Who sleeps.
    """

    def __init__(self, communicator: Slow) -> None:
        self.communicator = communicator
        self.ends: list[float] = []
        self.slept: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Notes both."""
        self.ends.append(time.perf_counter())
        self.slept.append(self.communicator.slept)


def measured(ranks: int, width: int, layers: int, steps: int, bandwidth: float) -> tuple[float, float]:
    """Returns the median seconds of a step, and those of its delays."""
    random = np.random.default_rng(0)
    x = random.normal(size=(64 * ranks, width)).astype("float32")
    y = random.integers(0, 10, 64 * ranks)

    def train(inner: Communicator) -> Clock:
        communicator = Slow(inner, bandwidth)
        clock = Clock(communicator)
        hidden = [nn.Dense(width, activation="relu") for _ in range(layers)]
        net = loom.Sequential([*hidden, nn.Dense(10)], input_shape=width, seed=1)
        config = loom.TrainingConfig(
            epochs=steps,
            batch_size=len(x),
            loss="cross_entropy",
            optimizer=loom.optimizers.SGD(),
            learning_rate=1e-3,
            shards=ranks,
            device="cpu",
            ignore_findings="all",
            verbose=False,
        )
        loom.train(net, (x, y), config, callbacks=[clock], distributed=communicator)
        return clock

    clock = loom.distributed.threads(ranks, train)[0]
    half = steps // 3
    return (
        float(statistics.median(np.diff(clock.ends)[half:])),
        float(statistics.median(np.diff(clock.slept)[half:])),
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--bandwidth", default="1e8,4e8,1e9", help="bytes in a second")
    given = parser.parse_args()
    size = 4 * given.layers * given.width**2 / 1e6
    print(f"{given.ranks} ranks, {given.layers} layers of {given.width}: {size:.0f} MB of gradients")
    print("bandwidth MB/s | step without delay ms | delay ms | step ms | hidden")
    for bandwidth in map(float, given.bandwidth.split(",")):
        plain, _ = measured(given.ranks, given.width, given.layers, given.steps, 0.0)
        step, delay = measured(given.ranks, given.width, given.layers, given.steps, bandwidth)
        hidden = (plain + delay - step) / delay
        figures = " | ".join(f"{1e3 * seconds:.1f}" for seconds in (plain, delay, step))
        print(f"{bandwidth / 1e6:.0f} | {figures} | {hidden:.0%}", flush=True)


if __name__ == "__main__":
    main()
