"""Several local steps toward each target, against SGD and Adam, at equal samples and at equal time.

    python benches/learning/local_steps.py MNIST [--device DEVICE] [--seeds N] [--only ROW] [--epochs N]

One network of three dense layers learns MNIST by each trainer. Every trainer's rate (and, for several local
steps, how far targets are moved) is chosen from a grid by the error on held-out images after one epoch with
seed 1000. "equal samples" gives every trainer `--epochs` passes; "equal time" gives every trainer the
seconds that SGD took for them.
"""

from __future__ import annotations

import itertools
import time

import common
import loom
from loom import nn

ROWS = ("sgd", "adam", "local steps 1", "local steps 2", "local steps 4", "local steps 8")
GRIDS = {
    "sgd": (0.003, 0.01, 0.03, 0.1, 0.3),
    "adam": (3e-4, 1e-3, 3e-3),
    "tween": (0.003, 0.01, 0.03, 0.1, 0.3),
}

SCALES = (0.1, 1.0, 10.0)


def network(seed: int) -> loom.Network:
    """Builds the network."""
    layers = [nn.Dense(256, activation="tanh"), nn.Dense(128, activation="tanh"), nn.Dense(10)]
    return loom.Sequential(layers, input_shape=784, seed=seed)


def learn(
    row: str, chosen: tuple[float, float], seed: int, passes: float, device: str, train: loom.datasets.Part
) -> tuple[loom.Network, float]:
    """Trains a network for so many passes, the last of which may be a part; returns it and the seconds."""
    # On a CPU that others use, too, the time that this process had is what counts.
    clock = time.process_time if device == "cpu" else time.perf_counter
    net = network(seed)
    whole, rest = divmod(round(passes * len(train.x)), len(train.x))
    parts = [(train, whole)] if whole else []
    if rest:
        parts.append((loom.datasets.Part(train.x[:rest], train.y[:rest]), 1))
    seconds = 0.0
    for part, epochs in parts:
        training = loom.TrainingConfig(
            epochs=epochs,
            batch_size=64,
            learning_rate=chosen[0],
            loss="cross_entropy",
            optimizer=loom.Adam() if row == "adam" else loom.SGD(momentum=0.9),
            seed=seed,
            device=device,
            verbose=False,
        )
        started = clock()
        if row in ("sgd", "adam"):
            loom.train(net, part, training)
        else:
            steps = int(row.rsplit(maxsplit=1)[-1])
            tween = loom.TweenConfig(local_steps=steps, gradient_scale=chosen[1], depth_scale="none")
            loom.TweenTrainer(net, tween).fit(part, training)
        seconds += clock() - started
    return net, seconds


def main() -> None:
    """Fills the table."""
    parser = common.options("Several local steps against SGD and Adam.", seeds=5)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    train, validation, test = common.digits(options.folder, flat=True)
    table = common.Table("local_steps", ["row", "budget", "seed"], ["test", "rate", "scale", "seconds"])
    time_of_sgd: dict[int, float] = {}
    for row in ROWS if options.only is None else ["sgd", options.only]:
        # How far a target is moved makes no difference to a single step.
        scales = SCALES if row.startswith("local") and row != "local steps 1" else (0.1,)
        errors = {}
        for chosen in itertools.product(GRIDS.get(row, GRIDS["tween"]), scales):
            net, _ = learn(row, chosen, 1000, 1.0, options.device, train)
            errors[chosen] = common.error(net, validation)
        chosen = min(errors, key=lambda chosen: errors[chosen])
        print(row, "rate and scale", errors, flush=True)
        for seed in common.seeds(options):
            net, seconds = learn(row, chosen, seed, float(options.epochs), options.device, train)
            found = {
                "test": common.error(net, test),
                "rate": chosen[0],
                "scale": chosen[1],
                "seconds": seconds,
            }
            table.add([row, "equal samples", seed], found)
            time_of_sgd.setdefault(seed, seconds)
            passes = options.epochs * time_of_sgd[seed] / seconds
            net, seconds = learn(row, chosen, seed, passes, options.device, train)
            found = {
                "test": common.error(net, test),
                "rate": chosen[0],
                "scale": chosen[1],
                "seconds": seconds,
            }
            table.add([row, "equal time", seed], found)
            print(row, seed, found, flush=True)
    table.show()


if __name__ == "__main__":
    main()
