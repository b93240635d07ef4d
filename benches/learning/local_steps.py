"""Several local steps toward each target, against SGD and Adam, at equal samples and at equal time.

    python benches/learning/local_steps.py MNIST [--device DEVICE] [--seeds N] [--only ROW] [--epochs N]

One network of three dense layers learns MNIST by each trainer. Every trainer's rate is chosen from the same
grid by the error on held-out images after one epoch with seed 1000. "equal samples" gives every trainer
`--epochs` passes; "equal time" gives every trainer the seconds that SGD took for them.
"""

from __future__ import annotations

import time

import common

import loom
from loom import nn

ROWS = ("sgd", "adam", "local steps 1", "local steps 2", "local steps 4", "local steps 8")
GRIDS = {"adam": (3e-4, 1e-3, 3e-3), "tween": (0.003, 0.01, 0.03, 0.1, 0.3), "sgd": (0.003, 0.01, 0.03, 0.1, 0.3)}


def network(seed: int) -> loom.Network:
    """Builds the network."""
    layers = [nn.Dense(256, activation="tanh"), nn.Dense(128, activation="tanh"), nn.Dense(10)]
    return loom.Sequential(layers, input_shape=784, seed=seed)


class Clock(loom.Callback):
    """Stops a training after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> bool:
        """Says whether time is up."""
        return time.perf_counter() >= self.end


def learn(
    row: str, rate: float, seed: int, epochs: int, device: str, train: loom.datasets.Part, seconds: float | None
) -> tuple[loom.Network, float]:
    """Trains a network for these epochs, or for these seconds; returns it and the seconds."""
    net = network(seed)
    callbacks = [] if seconds is None else [Clock(seconds)]
    training = loom.TrainingConfig(
        epochs=epochs if seconds is None else 1000,
        batch_size=64,
        learning_rate=rate,
        loss="cross_entropy",
        optimizer=loom.Adam() if row == "adam" else loom.SGD(momentum=0.9),
        seed=seed,
        device=device,
        verbose=False,
    )
    started = time.perf_counter()
    if row in ("sgd", "adam"):
        loom.train(net, train, training, callbacks=callbacks)
    else:
        tween = loom.TweenConfig(local_steps=int(row.split()[-1]), depth_scale="none")
        loom.TweenTrainer(net, tween).fit(train, training, callbacks=callbacks)
    return net, time.perf_counter() - started


def main() -> None:
    """Fills the table."""
    parser = common.options("Several local steps against SGD and Adam.", seeds=5)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    train, validation, test = common.digits(options.folder, flat=True)
    table = common.Table("local_steps", ["row", "budget", "seed"], ["test", "rate", "seconds"])
    time_of_sgd: dict[int, float] = {}
    for row in ROWS if options.only is None else ["sgd", options.only]:
        rates = GRIDS.get(row, GRIDS["tween"])
        errors = {}
        for rate in rates:
            net, _ = learn(row, rate, 1000, 1, options.device, train, None)
            errors[rate] = common.error(net, validation)
        rate = min(errors, key=lambda rate: errors[rate])
        print(row, "rates", errors, flush=True)
        for seed in range(options.seeds):
            net, seconds = learn(row, rate, seed, options.epochs, options.device, train, None)
            found = {"test": common.error(net, test), "rate": rate, "seconds": seconds}
            table.add([row, "equal samples", seed], found)
            time_of_sgd.setdefault(seed, seconds)
            net, seconds = learn(row, rate, seed, options.epochs, options.device, train, time_of_sgd[seed])
            found = {"test": common.error(net, test), "rate": rate, "seconds": seconds}
            table.add([row, "equal time", seed], found)
            print(row, seed, found, flush=True)
    table.show()


if __name__ == "__main__":
    main()
