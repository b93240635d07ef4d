"""The chase and avoid task, one labelled sample a step: does learning by targets survive a switch?

    python benches/learning/chase.py [--seeds N] [--only ROW] [--steps N]

An agent and a target move in the unit square. The network sees agent, target, their difference, their
distance and a flag of the task; the right action goes along the larger difference, toward the target or
(between a third and two thirds of the run) away from it. The agent acts on the network's own choice. The
rate of every trainer is chosen from the same grid with seeds of their own.

Controls learn nothing: the last label repeated, a constant, chance, and the rule itself; or they learn in
the last layer alone.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Protocol

import common
import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

STEP, WALK = 0.02, 0.005
MOVES = np.array([[0.0, 1.0], [0.0, -1.0], [-1.0, 0.0], [1.0, 0.0]]) * STEP
WINDOWS = 10
TUNING_SEEDS = (1000, 1001)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
LOSSES = ("sigmoid mse", "softmax")


def label(difference: NDArray[np.float64], avoids: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the right action for each difference of target and agent."""
    vertical = np.abs(difference[..., 1]) >= np.abs(difference[..., 0])
    up = (difference[..., 1] > 0) != avoids
    right = (difference[..., 0] > 0) != avoids
    return np.where(vertical, np.where(up, 0, 1), np.where(right, 3, 2))


def observe(
    agent: NDArray[np.float64], target: NDArray[np.float64], avoids: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Returns what the network sees: (rows, 8)."""
    difference = target - agent
    distance = np.linalg.norm(difference, axis=-1, keepdims=True)
    flag = avoids.astype(float)[..., None]
    return np.concatenate([agent, target, difference, distance, flag], axis=-1).astype(np.float32)


class Learner(Protocol):
    """Chooses an action for what it sees, and learns the right one."""

    def choose(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns an action for each row."""

    def learn(self, x: NDArray[np.float32], action: int) -> None:
        """Learns one row's right action."""


class Net:
    """A network under some trainer."""

    def __init__(self, row: str, loss: str, rate: float, seed: int) -> None:
        layers = [nn.Dense(units, activation="leaky_relu") for units in (64, 48, 32)]
        self.softmax = loss == "softmax"
        layers.append(nn.Dense(4, activation="linear" if self.softmax else "sigmoid"))
        self.net = loom.Sequential(layers, input_shape=8, seed=seed)
        if row == "frozen lower layers":
            for layer in range(3):
                self.net[0, 0, 0, layer].trainable = False
        training = loom.TrainingConfig(
            learning_rate=rate,
            loss="cross_entropy" if self.softmax else "mse",
            optimizer=loom.Adam() if row.startswith("adam") else loom.SGD(momentum=0.9),
            on_nonfinite="skip",
            device="cpu",
        )
        self.state: loom.TweenState | None = None
        self.trainer: loom.Trainer | None = None
        config = tween(row)
        if config is not None:
            self.state = loom.TweenState(self.net, config, training)
        else:
            observe = loom.Observe(detect_explosions=not row.endswith(UNWATCHED))
            self.trainer = loom.Trainer(self.net, training, observe=observe)
        self.targets = np.eye(4, dtype=np.float32)

    def choose(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the action of the largest output."""
        return np.argmax(self.net.predict(x), axis=1)

    def learn(self, x: NDArray[np.float32], action: int) -> None:
        """Takes one step."""
        y = np.array([action]) if self.softmax else self.targets[[action]]
        if self.state is not None:
            self.state.step(x, y)
        elif self.trainer is not None:
            self.trainer.step(x, y)


class Control:
    """Something that learns nothing."""

    def __init__(self, row: str, seed: int) -> None:
        self.row, self.last = row, 0
        self.random = np.random.default_rng([seed, 99])

    def choose(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the last label, always up, anything, or the right action."""
        if self.row == "oracle":
            return label(x[:, 4:6].astype(float), x[:, 7] > 0.5)
        if self.row == "random":
            return self.random.integers(0, 4, len(x))
        return np.full(len(x), self.last if self.row == "repeat last label" else 0)

    def learn(self, x: NDArray[np.float32], action: int) -> None:
        """Remembers the label."""
        self.last = action


TWEENS = {
    "chain rule": loom.TweenConfig.tween(),
    "chain rule, 4 local steps": loom.TweenConfig.tween(local_steps=4, gradient_scale=1.0),
    "target_prop preset": loom.TweenConfig.target_prop(),
    "layerwise": loom.TweenConfig.tween(mode="layerwise"),
    "difference": loom.TweenConfig(mode="difference", depth_scale="none", target_rate=1.0),
    "difference reconstruction": loom.TweenConfig(
        mode="difference_reconstruction", depth_scale="none", target_rate=1.0, feedback_steps=2
    ),
}


def tween(row: str) -> loom.TweenConfig | None:
    """Returns how a row learns by targets; None where it does not."""
    config = TWEENS.get(row.removesuffix(UNWATCHED))
    if config is None or not row.endswith(UNWATCHED):
        return config
    return dataclasses.replace(config, detect_explosions=False)


UNWATCHED = ", explosions let be"
CONTROLS = ("repeat last label", "constant", "random", "oracle")
TRAINERS = tuple(f"{row}{handling}" for handling in ("", UNWATCHED) for row in ("sgd", "adam", *TWEENS))
TRAINERS += ("frozen lower layers",)


def run(learner: Learner, seed: int, steps: int) -> dict[str, float]:
    """Runs the task; returns accuracies in percent."""
    random = np.random.default_rng(seed)
    agent, target = np.array([0.5, 0.5]), random.uniform(0.0, 1.0, 2)
    probe_agents, probe_targets = random.uniform(0, 1, (500, 2)), random.uniform(0.1, 0.9, (500, 2))
    right = np.zeros(steps)
    probes = []
    for step in range(steps):
        avoids = np.array(steps // 3 <= step < 2 * (steps // 3))
        x = observe(agent[None], target[None], avoids[None])
        action = int(label(target - agent, avoids))
        chosen = int(learner.choose(x)[0])
        right[step] = chosen == action
        learner.learn(x, action)
        agent = np.clip(agent + MOVES[chosen], 0.0, 1.0)
        target = np.clip(target + random.uniform(-WALK, WALK, 2), 0.1, 0.9)
        if (step + 1) % (steps // WINDOWS) == 0:
            flags = np.broadcast_to(avoids, 500)
            seen = observe(probe_agents, probe_targets, flags)
            probes.append(float(np.mean(learner.choose(seen) == label(probe_targets - probe_agents, flags))))
    windows = right[: steps // WINDOWS * WINDOWS].reshape(WINDOWS, -1).mean(axis=1)
    # The worst 200 steps in a row within the tenth of the run after each switch.
    after = [
        np.convolve(right[start : start + steps // 10], np.ones(200) / 200, "valid").min()
        for start in (steps // 3, 2 * (steps // 3))
    ]
    figures = {
        "stream": windows.mean(),
        "switch 1": after[0],
        "switch 2": after[1],
        "probes": np.mean(probes),
    }
    figures |= {f"window {number}": window for number, window in enumerate(windows)}
    return {name: 100.0 * float(value) for name, value in figures.items()}


def best_rate(row: str, loss: str, steps: int) -> float:
    """Returns the rate of the grid with the best mean on the stream."""
    scores = {}
    for rate in RATES if not row.startswith("adam") else [rate / 10 for rate in RATES]:
        runs = [run(Net(row, loss, rate, seed), seed, steps // 3)["stream"] for seed in TUNING_SEEDS]
        scores[rate] = float(np.mean(runs))
    return max(scores, key=lambda rate: scores[rate])


def main() -> None:
    """Fills the table."""
    parser = argparse.ArgumentParser(description="The chase and avoid task.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--only", default=None, help="one row of the table alone")
    options = parser.parse_args()
    names = [
        "stream",
        "switch 1",
        "switch 2",
        "probes",
        *(f"window {number}" for number in range(WINDOWS)),
        "rate",
    ]
    table = common.Table("chase", ["row", "loss", "seed"], names)
    wanted = [*CONTROLS, *TRAINERS] if options.only is None else [options.only]
    for row in wanted:
        for loss in LOSSES if row in TRAINERS else ["-"]:
            rate = best_rate(row, loss, options.steps) if row in TRAINERS else 0.0
            make: Callable[[int], Learner] = (
                (lambda seed, row=row, loss=loss, rate=rate: Net(row, loss, rate, seed))
                if row in TRAINERS
                else (lambda seed, row=row: Control(row, seed))
            )
            for seed in range(options.seeds):
                table.add([row, loss, seed], {**run(make(seed), seed, options.steps), "rate": rate})
            print(row, loss, rate, flush=True)
    table.show()


if __name__ == "__main__":
    main()
