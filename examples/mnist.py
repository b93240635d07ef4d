"""Trains a small convolutional network on MNIST to 99 % test accuracy, and prints the seconds.

    python examples/mnist.py FOLDER [--device DEVICE] [--epochs N] [--seed SEED]

FOLDER holds the four IDX files, compressed or not. The seconds count from the first
touch of the device to the last weight learned; what starting a GPU took is also said.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import loom
from loom import nn


def network(seed: int) -> loom.Network:
    """Builds the network: two convolutions, two dense layers."""
    return loom.Sequential(
        [
            nn.Conv2D(16, kernel_size=5, activation="relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(32, kernel_size=3, activation="relu"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(128, activation="relu"),
            nn.Dense(10),
        ],
        input_shape=(1, 28, 28),
        seed=seed,
    )


def main() -> None:
    """Trains, evaluates, prints."""
    parser = argparse.ArgumentParser(description="Trains on MNIST.")
    parser.add_argument("folder", type=Path, help="where the IDX files are")
    parser.add_argument("--device", default="auto", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    train, test = loom.datasets.mnist(options.folder)
    net = network(options.seed)
    config = loom.TrainingConfig(
        epochs=options.epochs,
        batch_size=64,
        learning_rate=4e-3,
        schedule=loom.schedules.OneCycle(),
        loss="cross_entropy",
        metrics=["accuracy"],
        seed=options.seed,
    )
    started = time.perf_counter()
    net.to(options.device)
    start = time.perf_counter() - started
    result = loom.train(net, train, config)
    seconds = time.perf_counter() - started
    measured = net.evaluate(test, loss="cross_entropy", metrics=["accuracy"])
    print(
        f"test accuracy {100 * measured['accuracy']:.2f} % after {options.epochs} epochs, "
        f"{seconds:.2f} s on {result.device}, {start:.2f} s of them to start it "
        f"({result.throughput:,.0f} images a second)"
    )


if __name__ == "__main__":
    main()
