"""What reaches the first layers of deep sigmoid networks: gradients, gaps and updates, layer by layer.

    python benches/learning/depth.py MNIST [--device DEVICE] [--seeds N] [--only ROW]

Networks of 5 and of 50 sigmoid layers of 64 units learn MNIST for one epoch at a rate chosen from a grid
with seed 1000. For each trainer: error in training and on test images, and the norms, in the first step,
of the gradient, the gap and the update of the first, the middle and the last hidden layer.
"""

from __future__ import annotations

import numpy as np

import common
import loom
from chase import TWEENS
from loom import nn

DEPTHS = (5, 50)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
ROWS = ("sgd", "adam", *TWEENS)


def network(depth: int, seed: int) -> loom.Network:
    """Builds the network."""
    hidden = [nn.Dense(64, activation="sigmoid") for _ in range(depth)]
    return loom.Sequential([*hidden, nn.Dense(10)], input_shape=784, seed=seed)


def settings(row: str, rate: float, seed: int, device: str) -> loom.TrainingConfig:
    """Returns how a training goes."""
    return loom.TrainingConfig(
        batch_size=64,
        learning_rate=rate / 10 if row == "adam" else rate,
        loss="cross_entropy",
        optimizer=loom.Adam() if row == "adam" else loom.SGD(momentum=0.9),
        on_nonfinite="skip",
        seed=seed,
        device=device,
        verbose=False,
    )


def first_step(row: str, depth: int, rate: float, seed: int, data: common.Parts) -> dict[str, float]:
    """Returns norms of the first step, of the first, the middle and the last hidden layer."""
    net = network(depth, seed)
    x, y = data[0].x[:64], data[0].y[:64]
    net.backward(loom.losses.cross_entropy(net.forward(x), y)[1])
    gradients = [np.linalg.norm(layer.gradients["weight"]) for layer in net.layers]
    net.zero_gradients()
    before = [np.array(layer.weight) for layer in net.layers]
    if row in TWEENS:
        state = loom.TweenState(net, TWEENS[row], settings(row, rate, seed, "cpu"))
        state.step(x, y)
        gaps = state.gaps
    else:
        trainer = loom.Trainer(net, settings(row, rate, seed, "cpu"), observe=True)
        trainer.step(x, y)
        gaps = net.measures.gaps
    updates = [np.linalg.norm(layer.weight - old) for layer, old in zip(net.layers, before, strict=True)]
    places = {"first": 0, "middle": depth // 2, "last": depth - 1}
    found = {}
    for place, layer in places.items():
        found[f"gradient {place}"] = float(gradients[layer])
        found[f"gap {place}"] = float(gaps[layer])
        found[f"update {place}"] = float(updates[layer])
    return {name: float(np.log10(max(value, 1e-30))) for name, value in found.items()}


def learn(row: str, depth: int, rate: float, seed: int, device: str, data: common.Parts) -> dict[str, float]:
    """Trains for one epoch; returns errors in percent."""
    net = network(depth, seed)
    training = settings(row, rate, seed, device)
    if row in TWEENS:
        loom.TweenTrainer(net, TWEENS[row]).fit(data[0], training)
    else:
        loom.train(net, data[0], training, observe=loom.Observe(detect_explosions=True))
    return {
        name: common.error(net, part)
        for name, part in zip(("train", "validation", "test"), data, strict=True)
    }


def main() -> None:
    """Fills the table."""
    options = common.options("What reaches the first layers of deep networks.", seeds=3).parse_args()
    data = common.digits(options.folder, flat=True)
    places = [
        f"{what} {place}" for place in ("first", "middle", "last") for what in ("gradient", "gap", "update")
    ]
    names = ["train", "test", "rate", *places]
    table = common.Table("depth", ["layers", "row", "seed"], names)
    for depth in DEPTHS:
        for row in ROWS if options.only is None else [options.only]:
            tried = {
                rate: learn(row, depth, rate, 1000, options.device, data)["validation"] for rate in RATES
            }
            rate = min(tried, key=lambda rate: np.nan_to_num(tried[rate], nan=100.0))
            for seed in common.seeds(options):
                found = learn(row, depth, rate, seed, options.device, data)
                norms = first_step(row, depth, rate, seed, data)
                table.add([depth, row, seed], {**found, **norms, "rate": rate})
            print(depth, row, rate, flush=True)
    table.show()


if __name__ == "__main__":
    main()
