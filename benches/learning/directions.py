"""How near the updates of difference targets come to backpropagation's direction, layer by layer.

    python benches/learning/directions.py MNIST [--seeds N] [--only ROW]

A network of five tanh layers, whose weights stand still while its feedback maps learn from MNIST; the cosine
of each layer's update with the gradient of the loss, over one batch of 1,000 images, before and after.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import common
import loom
from loom import nn

ROWS = ("untaught", "difference", "difference_reconstruction")
LAYERS = 5


def network(seed: int) -> loom.Network:
    """Builds the network."""
    hidden = [nn.Dense(128, activation="tanh") for _ in range(LAYERS - 1)]
    return loom.Sequential([*hidden, nn.Dense(10)], input_shape=784, seed=seed)


def cosines(state: loom.TweenState, x: NDArray[np.float32], y: NDArray[np.int64]) -> list[float]:
    """Returns the cosine of every layer's update with the gradient; the weights are as before afterwards."""
    net = state.network
    before = [np.array(layer.weight) for layer in net.layers]
    state.forward(x)
    state.backward(y)
    state.measure()
    state.apply(1e-2)
    moves = [old - layer.weight for layer, old in zip(net.layers, before, strict=True)]
    for layer, old in zip(net.layers, before, strict=True):
        layer.weight = old
    net.backward(loom.losses.cross_entropy(net.forward(x), y)[1])
    gradients = [layer.gradients["weight"] for layer in net.layers]
    net.zero_gradients()
    return [
        float((move * gradient).sum() / np.sqrt((move**2).sum() * (gradient**2).sum()))
        for move, gradient in zip(moves, gradients, strict=True)
    ]


def learn(row: str, seed: int, data: common.Parts) -> dict[str, float]:
    """Teaches the feedback maps for one epoch; returns the cosine of every layer."""
    train, validation, _ = data
    net = network(seed)
    tween = loom.TweenConfig(
        mode=cast("Any", "difference_reconstruction" if row == "untaught" else row),
        base_rate=0.0,
        momentum=0.0,
        depth_scale="none",
        # Small enough for the limit, large enough for single precision.
        target_rate=10.0,
        feedback_optimizer=loom.Adam(),
        feedback_rate=1e-3,
        feedback_noise=0.1,
        feedback_steps=4,
    )
    training = loom.TrainingConfig(batch_size=128, loss="cross_entropy", seed=seed, verbose=False)
    trainer = loom.TweenTrainer(net, tween)
    rows = 128 if row == "untaught" else len(train.x)
    trainer.fit((train.x[:rows], train.y[:rows]), training)
    found = cosines(trainer.state, validation.x[:1000], validation.y[:1000])
    return {f"layer {number}": cosine for number, cosine in enumerate(found)}


def main() -> None:
    """Fills the table."""
    # The device is the CPU: the network goes from one pass to another.
    options = common.options("Directions of updates by difference targets.", seeds=3).parse_args()
    data = common.digits(options.folder, flat=True)
    table = common.Table("directions", ["row", "seed"], [f"layer {number}" for number in range(LAYERS)])
    for row in ROWS if options.only is None else [options.only]:
        for seed in common.seeds(options):
            found = learn(row, seed, data)
            table.add([row, seed], found)
            print(row, seed, found, flush=True)
    table.show()


if __name__ == "__main__":
    main()
