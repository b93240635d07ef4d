"""Throughput of a training on a machine's processors, cut into ranks: 1 x 16, 2 x 8, 4 x 4 threads, say.

Usage: python benches/distributed_processors.py [--cores 16] [--ranks 1,2,4] [--steps 12] [--mpi]

Each line is a training of its own, started by `loom launch`, or by mpiexec with --mpi; a step has as many
samples in all. What begins the weights' fingerprint is printed beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import numpy as np

import loom
from loom import nn
from loom.callbacks import Logs

ROWS = 256


class Clock(loom.Callback):
    """Notes when steps end, in rank 0."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Notes the time."""
        self.ends.append(time.perf_counter())


def networks() -> dict[str, tuple[loom.Network, tuple[np.ndarray, np.ndarray]]]:
    """Returns what is trained, with data of one step."""
    random = np.random.default_rng(0)
    wide = [nn.Dense(2048, activation="relu"), nn.Dense(2048, activation="relu"), nn.Dense(10)]
    block = nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(8, causal=True)])
    hidden = nn.Residual([nn.LayerNorm(), nn.Dense(1024, activation="relu"), nn.Dense(256)])
    reader = [nn.Embedding(256, 256), *4 * [block, hidden], nn.SequencePool("mean"), nn.Dense(10)]
    images = [
        nn.Conv2D(32, kernel_size=3, activation="relu"),
        nn.BatchNorm(synchronized=True),
        nn.Conv2D(64, kernel_size=3, stride=2, activation="relu"),
        nn.Flatten(),
        nn.Dense(10),
    ]
    labels = random.integers(0, 10, ROWS)
    return {
        "perceptron": (
            loom.Sequential(wide, input_shape=512, seed=1),
            (random.normal(size=(ROWS, 512)).astype("float32"), labels),
        ),
        "transformer": (
            loom.Sequential(reader, input_shape=64, seed=1),
            (random.integers(0, 256, (ROWS, 64)), labels),
        ),
        "convolution": (
            loom.Sequential(images, input_shape=(3, 32, 32), seed=1),
            (random.normal(size=(ROWS, 3, 32, 32)).astype("float32"), labels),
        ),
    }


def train(steps: int, shards: int) -> None:
    """One rank's part; rank 0 prints."""
    for name, (net, (x, y)) in networks().items():
        clock = Clock()
        config = loom.TrainingConfig(
            epochs=steps,
            batch_size=ROWS,
            loss="cross_entropy",
            shards=shards or None,
            device="cpu",
            ignore_findings="all",
            verbose=False,
        )
        loom.train(net, (x, y), config, callbacks=[clock])
        if loom.distributed.current().rank == 0:
            seconds = statistics.median(np.diff(clock.ends)[steps // 3 :])
            print(f"{name} {ROWS / seconds:.1f} {net.fingerprint()[:12]}", flush=True)


def main() -> None:
    """Starts the trainings, and prints their throughput."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--shards", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.shards is not None:
        train(given.steps, given.shards)
        return
    most = max(int(count) for count in given.ranks.split(","))
    print("ranks x threads | network samples/s bits")
    for count, shards in [(1, 0), *((int(count), most) for count in given.ranks.split(","))]:
        threads = max(given.cores // count, 1)
        line = [__file__, "--steps", str(given.steps), "--shards", str(shards)]
        start = (
            ["mpiexec", "-n", str(count)]
            if given.mpi
            else [sys.executable, "-m", "loom", "launch", "-n", str(count)]
        )
        line = [*start, sys.executable, *line] if given.mpi else [*start, *line]
        if count == 1:
            line = [sys.executable, *line[-5:]]
        environment = {**os.environ, "LOOM_NUM_THREADS": str(threads)}
        ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        found = " | ".join(ended.stdout.split("\n")[:-1]) or ended.stderr[-400:]
        print(f"{count} x {threads}{'' if shards else ', whole steps'} | {found}", flush=True)


if __name__ == "__main__":
    main()
