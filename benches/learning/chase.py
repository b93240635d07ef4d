"""The chase and avoid task, one labelled sample a step: does learning by targets survive a switch?

    python benches/learning/chase.py [--seeds N] [--only ROW] [--loss LOSS] [--steps N]

An agent and a target move in the unit square. The network sees agent, target, their difference, their
distance and a flag of the task; the right action goes along the larger difference, toward the target or
(between a third and two thirds of the run) away from it. The agent acts on the network's own choice. The
rate of every trainer is chosen from the same grid with seeds of their own.

Rows with ticks are clocked by a mesh: with a tick a layer the answer is to what is seen now; with one
tick, to what was seen three steps ago, which is compared with the label of now.

Controls learn nothing: the last label repeated, a constant, chance, the rule itself, and the rule three
steps late; or they learn in the last layer alone.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import common
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
        """Returns an action for each row, none of which is learned from."""

    def meet(self, x: NDArray[np.float32], action: int) -> int:
        """Returns an action for one row, and then learns the right one."""


class Net:
    """A network under some trainer."""

    def __init__(self, row: str, loss: str, rate: float, seed: int) -> None:
        layers = [nn.Dense(units, activation="leaky_relu") for units in (64, 48, 32)]
        self.softmax = loss == "softmax"
        layers.append(nn.Dense(4, activation="linear" if self.softmax else "sigmoid"))
        self.net = loom.Sequential(layers, input_shape=8, seed=seed)
        if row.startswith("frozen lower layers"):
            for layer in range(3):
                self.net[0, 0, 0, layer].trainable = False
        self.training = loom.TrainingConfig(
            learning_rate=rate,
            loss="cross_entropy" if self.softmax else "mse",
            optimizer=loom.Adam() if row.startswith("adam") else loom.SGD(momentum=0.9),
            on_nonfinite="skip",
            device="cpu",
        )
        self.targets = np.eye(4, dtype=np.float32)
        self.state: loom.TweenState | None = None
        self.trainer: loom.Trainer | None = None
        self.prepare(row)

    def prepare(self, row: str) -> None:
        """Makes what trains the network."""
        config = tween(row)
        if config is not None:
            self.state = loom.TweenState(self.net, config, self.training)
        else:
            self.trainer = loom.Trainer(self.net, self.training, observe=watched(row))

    def choose(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the action of the largest output."""
        return np.asarray(self.net.predict(x).argmax(axis=1), np.int64)

    def label(self, action: int) -> NDArray[np.generic]:
        """Returns an action as the loss takes it."""
        return np.array([action]) if self.softmax else self.targets[[action]]

    def meet(self, x: NDArray[np.float32], action: int) -> int:
        """Predicts, and takes one step."""
        chosen = int(self.choose(x)[0])
        if self.state is not None:
            self.state.step(x, self.label(action))
        elif self.trainer is not None:
            self.trainer.step(x, self.label(action))
        return chosen


class Clocked(Net):
    """A network that a mesh clocks; what it would choose for what it saw long enough is `choose`."""

    def prepare(self, row: str) -> None:
        """Makes the mesh, whose gradients reach the first layer."""
        depth = len(self.net.layers)
        self.mesh = loom.Mesh(self.net, window=depth)
        self.stepper = loom.Stepper(
            self.mesh,
            self.training,
            ticks=1 if ONE_TICK in row else depth,
            tween=tween(row),
            observe=watched(row) if tween(row) is None else False,
        )

    def meet(self, x: NDArray[np.float32], action: int) -> int:
        """Clocks a sample; what the last layer holds then is from before the update."""
        self.stepper.step(x, self.label(action))
        return int(np.argmax(self.mesh.output()))


class Control:
    """Something that learns nothing."""

    def __init__(self, row: str, seed: int) -> None:
        self.row, self.last = row, 0
        self.right: deque[int] = deque(maxlen=4)
        self.random = np.random.default_rng([seed, 99])

    def choose(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the last label, always up, anything, or the right action."""
        if self.row.startswith("oracle"):
            return label(x[:, 4:6].astype(float), x[:, 7] > 0.5)
        if self.row == "random":
            return self.random.integers(0, 4, len(x))
        return np.full(len(x), self.last if self.row == "repeat last label" else 0)

    def meet(self, x: NDArray[np.float32], action: int) -> int:
        """Chooses, and remembers the label."""
        self.right.append(action)
        chosen = self.right[0] if self.row == LATE else int(self.choose(x)[0])
        self.last = action
        return chosen


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


UNWATCHED = ", explosions let be"
ONE_TICK, ALL_TICKS = ", one tick", ", a tick a layer"
LATE = "oracle, three steps late"
CONTROLS = ("repeat last label", "constant", "random", "oracle", LATE)
FROZEN = "frozen lower layers"
TRAINERS = tuple(f"{row}{handling}" for handling in ("", UNWATCHED) for row in ("sgd", "adam", *TWEENS))
TRAINERS += (FROZEN,)
CLOCKED = tuple(f"{row}{ONE_TICK}{UNWATCHED}" for row in ("chain rule, 4 local steps", "layerwise", FROZEN))
CLOCKED += tuple(
    f"{row}{clock}"
    for clock in (ONE_TICK + UNWATCHED, ALL_TICKS + UNWATCHED, ONE_TICK)
    for row in ("sgd", "adam", "chain rule")
)


def losses(row: str) -> tuple[str, ...]:
    """Returns the losses that a row is run with; none where it does not learn."""
    if row in CONTROLS:
        return ()
    return LOSSES[1:] if row in CLOCKED else LOSSES


def tween(row: str) -> loom.TweenConfig | None:
    """Returns how a row learns by targets; None where it does not."""
    trainer = row.removesuffix(UNWATCHED).removesuffix(ONE_TICK).removesuffix(ALL_TICKS)
    config = TWEENS.get(trainer)
    if config is None or not row.endswith(UNWATCHED):
        return config
    return dataclasses.replace(config, detect_explosions=False)


def watched(row: str) -> bool | loom.Observe:
    """Returns how backpropagation is measured; where it is only looked at, not at all."""
    return False if row.endswith(UNWATCHED) else loom.Observe(detect_explosions=True)


def run(subject: Learner, seed: int, steps: int) -> dict[str, float]:
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
        chosen = subject.meet(x, action)
        right[step] = chosen == action
        agent = np.clip(agent + MOVES[chosen], 0.0, 1.0)
        target = np.clip(target + random.uniform(-WALK, WALK, 2), 0.1, 0.9)
        if (step + 1) % (steps // WINDOWS) == 0:
            flags = np.broadcast_to(avoids, 500)
            seen = observe(probe_agents, probe_targets, flags)
            probes.append(float(np.mean(subject.choose(seen) == label(probe_targets - probe_agents, flags))))
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


def learner(row: str, loss: str, rate: float, seed: int) -> Learner:
    """Makes the learner of a row."""
    if row in CLOCKED:
        return Clocked(row, loss, rate, seed)
    return Net(row, loss, rate, seed) if row in TRAINERS else Control(row, seed)


def best_rate(row: str, loss: str, steps: int) -> float:
    """Returns the rate of the grid with the best mean on the stream."""
    scores = {}
    for rate in RATES if not row.startswith("adam") else [rate / 10 for rate in RATES]:
        runs = [run(learner(row, loss, rate, seed), seed, steps // 3)["stream"] for seed in TUNING_SEEDS]
        scores[rate] = float(np.mean(runs))
    return max(scores, key=lambda rate: scores[rate])


def main() -> None:
    """Fills the table."""
    parser = argparse.ArgumentParser(description="The chase and avoid task.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--only", default=None, help="one row of the table alone")
    parser.add_argument("--loss", choices=LOSSES, default=None)
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
    wanted = [*CONTROLS, *TRAINERS, *CLOCKED] if options.only is None else [options.only]
    for row in wanted:
        for loss in ([options.loss] if options.loss else losses(row)) or ["-"]:
            rate = 0.0 if row in CONTROLS else best_rate(row, loss, options.steps)
            for seed in range(options.seeds):
                found = run(learner(row, loss, rate, seed), seed, options.steps)
                table.add([row, loss, seed], {**found, "rate": rate})
            print(row, loss, rate, flush=True)
    table.show()


if __name__ == "__main__":
    main()
