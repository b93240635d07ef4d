"""Transfer learning: a network that has learned to name digits learns from few images which are odd.

The data are scikit-learn's 1,797 real images, 8 x 8, of which a stratified fifth is held out. A network
learns to name the digits; its features, frozen, get a new head, which learns from one image of each digit
whether it is odd; then all of it is tuned, the features at a tenth of the rate. A network that starts from
nothing learns from the same few images, to compare with.

    python examples/transfer_learning.py [--device DEVICE] [--epochs N] [--images N] [--seed SEED]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

Split = tuple[NDArray[np.float32], NDArray[np.int64]]


def network(seed: int) -> loom.Network:
    """Builds a convolutional network that names digits: features, and a head."""
    layers = [
        nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
        nn.Flatten(),
        nn.Dense(32, activation="relu"),
        nn.Dense(10),
    ]
    return loom.Sequential(layers, input_shape=(1, 8, 8), seed=seed)


def few(x: NDArray[np.float32], y: NDArray[np.int64], images: int) -> Split:
    """Returns so many images of each digit, and whether each is odd."""
    chosen = np.concatenate([np.flatnonzero(y == digit)[:images] for digit in range(10)])
    return x[chosen], y[chosen] % 2


def main() -> None:
    """Learns to name digits, and goes on to odd and even ones."""
    parser = argparse.ArgumentParser(description="Goes on from what was learned for another task.")
    parser.add_argument("--device", default="auto", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--epochs", type=int, default=60, help="how often the few images are seen; 60")
    parser.add_argument("--images", type=int, default=1, help="of each digit, odd or even; 1")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order; 0")
    options = parser.parse_args()
    (x, y), held_out = loom.datasets.digits(test_fraction=0.2, seed=0)
    parity = few(x, y, options.images)
    unseen = held_out.x, held_out.y % 2
    config = loom.TrainingConfig(
        epochs=options.epochs,
        batch_size=10,
        learning_rate=5e-3,
        loss="cross_entropy",
        metrics=["accuracy"],
        device=options.device,
        seed=options.seed,
        verbose=False,
    )
    pretrained = network(options.seed)
    pretrained.fit((x, y), replace(config, epochs=4, batch_size=32, learning_rate=2e-3))
    named = pretrained.evaluate(held_out)["accuracy"]
    print(f"{len(x)} images to learn names from: {100 * named:.1f} % of {len(held_out.x)} others named right")

    # Transfer, in five lines.
    net = pretrained.cut(until=pretrained.layers[-2]).freeze()
    net[0, 0, 0].add(nn.Dense(2))
    net.fit(parity, config)
    net.unfreeze()
    net.fit(parity, config, rate_scale={"*": 0.1, net.layers[-1].path: 1.0})

    scratch = network(options.seed)
    scratch[0, 0, 0][-1] = nn.Dense(2)
    scratch.fit(parity, replace(config, epochs=2 * options.epochs))
    print(f"{len(parity[0])} images to learn odd and even from")
    for name, one in (("from nothing", scratch), ("from what was learned", net)):
        print(f"{name:<22} {100 * one.evaluate(unseen)['accuracy']:.1f} % of the others right")


if __name__ == "__main__":
    main()
