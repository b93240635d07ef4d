"""Networks of one, two and three layers: how much of what they are shown do they learn by heart?

    python benches/learning/shallow.py MNIST [--device DEVICE] [--seeds N] [--only ROW] [--epochs N]
        [--layers N]

Dense networks of tanh layers of 128 units and a last layer of 10 learn the first 5,000 images of MNIST in
batches of 32. For each trainer: accuracy on those images at the end, and on the 10,000 test images. Rates
come from one grid, by the accuracy on 5,000 other images with seed 1000. "frozen lower layers" learns in the
last layer alone; a network of one layer has no lower ones.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import common
import loom
from chase import FROZEN, TWEENS
from loom import nn

DEPTHS = (1, 2, 3)
IMAGES = 5000
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
MODES = {name: TWEENS[name] for name in ("chain rule", "chain rule, 4 local steps")}
MODES |= {
    name + steps: dataclasses.replace(TWEENS[name], local_steps=4 if steps else 1)
    for name in ("layerwise", "difference", "difference reconstruction")
    for steps in ("", ", 4 local steps")
}
ROWS = ("sgd", "adam", FROZEN, *MODES)


def learn(
    row: str, depth: int, rate: float, seed: int, epochs: int, device: str, part: loom.datasets.Part
) -> loom.Network:
    """Returns a network that one trainer has taught."""
    hidden = [nn.Dense(128, activation="tanh") for _ in range(depth - 1)]
    net = loom.Sequential([*hidden, nn.Dense(10)], input_shape=784, seed=seed)
    if row == FROZEN:
        for layer in range(depth - 1):
            net[0, 0, 0, layer].trainable = False
    training = loom.TrainingConfig(
        epochs=epochs,
        batch_size=32,
        learning_rate=rate / 10 if row == "adam" else rate,
        loss="cross_entropy",
        optimizer=loom.Adam() if row == "adam" else loom.SGD(momentum=0.9),
        on_nonfinite="skip",
        seed=seed,
        device=device,
        verbose=False,
    )
    if row in MODES:
        loom.TweenTrainer(net, MODES[row]).fit(part, training)
    else:
        loom.train(net, part, training, observe=loom.Observe(detect_explosions=True))
    return net


def accuracy(net: loom.Network, part: loom.datasets.Part) -> float:
    """Returns the share of right classes, in percent; what is not finite is not right."""
    return 100.0 - float(np.nan_to_num(common.error(net, part), nan=100.0))


def main() -> None:
    """Fills the table."""
    parser = common.options("Networks of one, two and three layers.", seeds=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--layers", type=int, choices=DEPTHS, default=None)
    options = parser.parse_args()
    digits, _, test = common.digits(options.folder, flat=True)
    shown = loom.datasets.Part(digits.x[:IMAGES], digits.y[:IMAGES])
    other = loom.datasets.Part(digits.x[IMAGES : 2 * IMAGES], digits.y[IMAGES : 2 * IMAGES])
    table = common.Table("shallow", ["layers", "row", "seed"], ["train", "test", "rate"])
    for depth in DEPTHS if options.layers is None else [options.layers]:
        for row in ROWS if options.only is None else [options.only]:
            if depth == 1 and row == FROZEN:
                continue
            tried = {}
            for rate in RATES:
                net = learn(row, depth, rate, 1000, options.epochs, options.device, shown)
                tried[rate] = accuracy(net, other)
            rate = max(tried, key=lambda rate: tried[rate])
            for seed in common.seeds(options):
                net = learn(row, depth, rate, seed, options.epochs, options.device, shown)
                found = {"train": accuracy(net, shown), "test": accuracy(net, test), "rate": rate}
                table.add([depth, row, seed], found)
            print(depth, row, rate, flush=True)
    table.show()


if __name__ == "__main__":
    main()
