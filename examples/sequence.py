"""Remembers over 200 steps: an LSTM and a GRU learn the adding problem.

Each step brings a number from 0 to 1 and a marker; two steps are marked, one in each
half, and the answer is the sum of their numbers (Hochreiter and Schmidhuber 1997). Who
always answers 1 is off by 0.167 in mean square; to do better, a network must carry what
it saw through up to 200 steps.

    python examples/sequence.py [--device DEVICE] [--length N] [--steps N] [--seed SEED]
"""

from __future__ import annotations

import argparse
import time
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Batch: TypeAlias = "tuple[NDArray[np.float32], NDArray[np.float32]]"

BATCH = 64
# Every so many steps the sequences held out are tried.
ROUND = 250


def sequences(count: int, length: int, random: np.random.Generator) -> Batch:
    """Draws inputs (count, length, 2) and answers (count, 1)."""
    x = np.zeros((count, length, 2), np.float32)
    x[:, :, 0] = random.random((count, length))
    rows = np.arange(count)
    half = length // 2
    for first, end in ((0, half), (half, length)):
        x[rows, random.integers(first, end, count), 1] = 1
    return x, (x[:, :, 0] * x[:, :, 1]).sum(1, keepdims=True)


def network(layer: nn.Layer, length: int, seed: int) -> loom.Network:
    """Puts one linear unit on the layer's last state."""
    return loom.Sequential([layer, nn.Dense(1)], input_shape=(length, 2), seed=seed)


def learn(net: loom.Network, options: argparse.Namespace, held_out: Batch) -> float:
    """Trains on ever new sequences until the answers are good; returns the last mean squared error."""
    config = loom.TrainingConfig(
        batch_size=BATCH,
        learning_rate=2e-3,
        optimizer=loom.AdamW(weight_decay=0.0),
        gradient_clip=1.0,
        loss="mse",
        device=options.device,
        seed=options.seed,
    )
    random = np.random.default_rng(options.seed)
    trainer = loom.Trainer(net, config)
    started = time.perf_counter()
    error = float("nan")
    for step in range(1, options.steps + 1):
        trainer.step(*sequences(BATCH, net.input_shape[0], random))
        if step % ROUND == 0 or step == options.steps:
            error = float(np.mean((net.predict(held_out[0]) - held_out[1]) ** 2))
            print(f"  step {step:>5}  error {error:.5f}  {time.perf_counter() - started:6.1f} s", flush=True)
            if error < options.target:
                break
    return error


def main() -> None:
    """Trains both networks and compares them with the constant answer."""
    parser = argparse.ArgumentParser(description="Learns the adding problem.")
    parser.add_argument("--device", default="auto", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--length", type=int, default=200, help="steps of a sequence; 200")
    parser.add_argument("--units", type=int, default=64, help="of each layer; 64")
    parser.add_argument("--steps", type=int, default=4000, help="the most training steps; 4000")
    parser.add_argument("--target", type=float, default=1e-3, help="the error to stop at; 0.001")
    parser.add_argument("--seed", type=int, default=0, help="of weights and sequences; 0")
    options = parser.parse_args()

    held_out = sequences(2000, options.length, np.random.default_rng(options.seed + 1_000_000))
    baseline = float(np.mean((held_out[1] - 1.0) ** 2))
    print(f"the adding problem over {options.length} steps; always answering 1: error {baseline:.4f}")
    for name, layer in (("LSTM", nn.LSTM(options.units)), ("GRU", nn.GRU(options.units))):
        print(f"{name}, {options.units} units")
        error = learn(network(layer, options.length, options.seed), options, held_out)
        print(f"  {name}: error {error:.5f}, {baseline / error:,.0f} times better than the constant\n")


if __name__ == "__main__":
    main()
