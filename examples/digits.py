"""Learns to read handwritten digits: trains, saves, loads, packs the weights, draws what it learned.

The data are scikit-learn's 1,797 real images, 8 x 8, of which a stratified fifth is
held out. Writes the network and two pictures to out/.

    python examples/digits.py [--device DEVICE] [--epochs N] [--seed SEED] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import loom
from loom import nn


def network(seed: int) -> loom.Network:
    """Builds a convolutional network in two cells: one that looks, one that decides."""
    net = loom.Network(input_shape=(1, 8, 8), grid=(1, 1, 2), seed=seed)
    net[0, 0, 0].add(
        nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
        nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(64, kernel_size=3, padding=1, activation="relu"),
        nn.MaxPool2D(2),
    )
    net[0, 0, 1].add(
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Dense(128, activation="relu"),
        nn.Dropout(0.25),
        nn.Dense(10),
    )
    return net


def configuration(seed: int, epochs: int = 20, device: str = "auto") -> loom.TrainingConfig:
    """Says how the network is trained."""
    return loom.TrainingConfig(
        epochs=epochs,
        batch_size=32,
        learning_rate=2e-3,
        optimizer=loom.AdamW(),
        schedule=loom.schedules.OneCycle(),
        loss="cross_entropy",
        metrics=["accuracy"],
        device=device,
        seed=seed,
        verbose=True,  # also where the output goes to a file
    )


def main() -> None:
    """Trains and shows."""
    parser = argparse.ArgumentParser(description="Learns to read handwritten digits.")
    parser.add_argument("--device", default="auto", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--epochs", type=int, default=20, help="how often the images are gone through; 20")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and dropout; 0")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where files are written; out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    (x, y), held_out = loom.datasets.digits(test_fraction=0.2, seed=0)
    net = network(options.seed)
    net.summary()
    print(f"\n{len(x)} images to learn from, {len(held_out.x)} held out")
    config = configuration(options.seed, options.epochs, options.device)
    result = loom.train(net, (x, y), config, validation=held_out)
    speed = f"{result.throughput:,.0f} images a second"
    print(f"trained in {result.total_time:.1f} s on {result.device}, {speed}\n")

    path = options.out / "digits.loom"
    net.save(path)
    loaded = loom.load(path).to(net.device)
    same = np.array_equal(loaded.predict(held_out.x), net.predict(held_out.x))
    print(f"saved to {path} and loaded: {'the same bits' if same else 'DIFFERENT OUTPUTS'}")

    for dtype in ("float32", "int8"):
        loaded.morph(dtype)
        measured = loaded.evaluate(held_out, loss="cross_entropy", metrics=["accuracy"])
        size = f"{loaded.weight_bytes:,} bytes of weights"
        print(f"{dtype:<8} {100 * measured['accuracy']:.2f} % of the held-out images right, {size}")
    packed = options.out / "digits-int8.loom"
    loaded.save(packed)

    curves, pictures = options.out / "training.png", options.out / "predictions.png"
    loom.plot.training_curves(result, curves)
    shown = slice(0, 20)
    loom.plot.predictions(
        held_out.x[shown], loaded.predict(held_out.x[shown]), held_out.y[shown], path=pictures
    )
    print(f"drawn: {', '.join(os.fspath(picture) for picture in (curves, pictures))}")


if __name__ == "__main__":
    main()
