"""A convolutional network on MNIST by difference reconstruction (Ernoult et al. 2022), with controls.

    python benches/learning/convolution.py MNIST [--device DEVICE] [--seeds N] [--only ROW] [--epochs N]

Beside it the same network by backpropagation with the same rule and rate, and with its lower layers
frozen as they were drawn: what the last layer alone can do.
"""

from __future__ import annotations

from typing import Any

import common
import loom
from loom import nn

ROWS = ("difference reconstruction", "backpropagation", "frozen lower layers")


def network(seed: int) -> loom.Network:
    """Builds the network: two convolutions with pooling, two dense layers."""
    return loom.Sequential(
        [
            nn.Conv2D(32, kernel_size=5, activation="leaky_relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(64, kernel_size=3, activation="leaky_relu"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(128, activation="leaky_relu"),
            nn.Dense(10),
        ],
        input_shape=(1, 28, 28),
        seed=seed,
    )


def tween(**overrides: Any) -> loom.TweenConfig:  # noqa: ANN401 - the settings' own types
    """Returns how the feedback maps and the targets go."""
    settings: dict[str, Any] = {
        "mode": "difference_reconstruction",
        "depth_scale": "none",
        "optimizer": loom.Adam(),
        "target_rate": 10.0,
        "feedback_optimizer": loom.Adam(),
        "feedback_rate": 1e-3,
        "feedback_noise": 0.01,
        "feedback_steps": 3,
        "detect_explosions": False,
        **overrides,
    }
    return loom.TweenConfig(**settings)


def learn(row: str, seed: int, epochs: int, device: str, data: common.Parts) -> dict[str, float]:
    """Trains one network; returns its accuracies in percent, and the seconds it took."""
    train, validation, test = data
    net = network(seed)
    training = loom.TrainingConfig(
        epochs=epochs,
        batch_size=128,
        learning_rate=1e-3,
        schedule=loom.schedules.Cosine(),
        loss="cross_entropy",
        optimizer=loom.Adam(),
        seed=seed,
        device=device,
        verbose=False,
    )
    if row == "difference reconstruction":
        seconds = common.timed(lambda: loom.TweenTrainer(net, tween()).fit(train, training))
    else:
        if row == "frozen lower layers":
            for layer in range(6):
                net[0, 0, 0, layer].trainable = False
        seconds = common.timed(lambda: loom.train(net, train, training))
    parts = {"test": test, "validation": validation}
    return {**{name: 100.0 - common.error(net, part) for name, part in parts.items()}, "seconds": seconds}


def main() -> None:
    """Fills the table."""
    parser = common.options("A convolutional network by difference reconstruction, with controls.", seeds=3)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    data = common.digits(options.folder, flat=False)
    table = common.Table(
        "convolution", ["row", "epochs", "device", "seed"], ["test", "validation", "seconds"]
    )
    for row in ROWS if options.only is None else [options.only]:
        for seed in common.seeds(options):
            found = learn(row, seed, options.epochs, options.device, data)
            table.add([row, options.epochs, options.device.partition(":")[0], seed], found)
            print(row, seed, found, flush=True)
    table.show()


if __name__ == "__main__":
    main()
