"""A way to train, drawn at random: the loss, its targets, the optimizer, the schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn, optimizers, schedules
from loom.losses import Huber
from trials.chance import Chance
from trials.drawing import Drawn
from trials.drawing_layers import Shape

# Layers whose output is a probability nowhere too close to zero, so that its logarithm may be taken.
_PROBABILITIES = (
    "Softmax",
    "GridSoftmax",
    "HierarchicalSoftmax",
    "AdaptiveSoftmax",
    "MixtureSoftmax",
    "KMeans",
)


# Passes of one run, so that a network takes milliseconds.
_MOST_STEPS = 6


@dataclass(frozen=True)
class Aim:
    """What is minimised.

    Args:
        loss: A name, or an object with a parameter.
        soft: Whether the targets of a loss over classes are distributions instead of indices.
        class_weight: How much each class counts.
        label_smoothing: Share of each target spread over all classes.
        weighted: Whether samples count differently.
        absorbed: The temperature of the softmax behind the network that the loss takes in; 0 where
            there is none.
        least: The smallest probability that a logarithm is taken of, in nll.
    """

    loss: Any
    soft: bool = False
    class_weight: Any = None
    label_smoothing: float = 0.0
    weighted: bool = False
    absorbed: float = 0.0
    least: float = 1e-12

    @property
    def name(self) -> str:
        """The loss's name."""
        return self.loss if isinstance(self.loss, str) else str(self.loss.kind)

    @property
    def over_classes(self) -> bool:
        """Whether it is a loss over classes."""
        return self.name in ("cross_entropy", "nll")


def class_axis(shape: Shape) -> int:
    """Returns where the classes of an output are: the last axis, or the channels of images."""
    return 0 if len(shape) == 3 else len(shape) - 1


def aim(chance: Chance, drawn: Drawn, shape: Shape) -> Aim:
    """Draws a loss that suits what the network gives."""
    last = drawn.layers[-1][1]
    # Empty cells behind the last layer hand its output on, unless a link brings something there.
    cell = max(at for at, layers in drawn.cells.items() if layers)
    behind = drawn.places[drawn.places.index(cell) + 1 :]
    final = not any(target in behind for _, target, _, _ in drawn.links)
    name = chance.one(
        ["mse", "mae", "huber", "log_cosh", "binary_cross_entropy", "cross_entropy", "cross_entropy", "nll"]
    )
    weighted = chance.happens(0.25)
    if name == "huber":
        return Aim(Huber(chance.real(0.2, 2.0)), weighted=weighted)
    if name in ("mse", "mae", "log_cosh", "binary_cross_entropy"):
        return Aim(name, weighted=weighted)
    if name == "nll" and not (final and type(last).__name__ in _PROBABILITIES):
        name = "cross_entropy"
    classes = shape[class_axis(shape)]
    given: Any = None
    if chance.happens(0.3):
        given = [chance.real(0.1, 3.0) for _ in range(classes)]
        if chance.happens(0.3):
            given = {number: weight for number, weight in enumerate(given) if chance.happens(0.6)} or None
    return Aim(
        name,
        soft=chance.happens(0.3),
        class_weight=given,
        label_smoothing=chance.real(0.0, 0.5) if chance.happens(0.3) else 0.0,
        weighted=weighted,
        absorbed=last.temperature if final and isinstance(last, nn.Softmax) else 0.0,
    )


def targets(random: np.random.Generator, aim: Aim, shape: Shape, rows: int) -> NDArray[Any]:
    """Draws what a network is to give."""
    axis = class_axis(shape)
    if aim.over_classes:
        rest = (*shape[:axis], *shape[axis + 1 :])
        if not aim.soft:
            return random.integers(0, shape[axis], (rows, *rest))
        shares = random.random((rows, *rest, shape[axis])) + 0.05
        shares /= shares.sum(axis=-1, keepdims=True)
        return np.moveaxis(shares, -1, 1 + axis).astype(np.float32).astype(np.float64)
    if aim.name == "binary_cross_entropy":
        return random.random((rows, *shape)).astype(np.float32).astype(np.float64)
    return random.normal(size=(rows, *shape)).astype(np.float32).astype(np.float64)


def weights(random: np.random.Generator, aim: Aim, rows: int) -> NDArray[Any] | None:
    """Draws how much each sample counts; one in ten not at all."""
    if not aim.weighted:
        return None
    drawn = random.uniform(0.2, 2.0, rows) * (random.random(rows) > 0.1)
    drawn[0] = 1.0
    return drawn.astype(np.float32).astype(np.float64)


@dataclass
class Course:
    """How a network is trained.

    Args:
        optimizer: The rule.
        rate: The learning rate.
        schedule: What multiplies it.
        epochs: How often the data is gone through.
        rows: How many samples there are.
        batch_size: How many make a batch; the last may be smaller.
        accumulate: Batches of one update.
        gradient_clip: The largest norm.
        clip_value: The largest element.
        depth_scale: How the rate changes with depth.
        untrained: Paths of layers that stay as they are.
        frozen: Paths of layers, and the parameters of each that stay as they are.
        factors: Paths of layers, and what the rate is multiplied by there.
        sizes: The rows of each batch, where the data comes batch by batch.
    """

    optimizer: optimizers.Optimizer
    rate: float
    schedule: schedules.Schedule = field(default_factory=schedules.Constant)
    epochs: int = 2
    rows: int = 7
    batch_size: int = 3
    accumulate: int = 1
    gradient_clip: float | None = None
    clip_value: float | None = None
    depth_scale: str = "none"
    untrained: list[str] = field(default_factory=list)
    frozen: dict[str, list[str]] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def set_up(self, net: loom.Network) -> None:
        """Tells a network which of its layers are trained, and how fast."""
        for layer in net.layers:
            if layer.path in self.untrained:
                layer.trainable = False
            if layer.path in self.frozen:
                layer.freeze(*self.frozen[layer.path])
            if layer.path in self.factors:
                layer.rate_factor = self.factors[layer.path]

    def config(self, aim: Aim, seed: int) -> loom.TrainingConfig:
        """Returns loom's settings."""
        return loom.TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.rate,
            optimizer=self.optimizer,
            schedule=self.schedule,
            loss=aim.loss,
            gradient_clip=self.gradient_clip,
            clip_value=self.clip_value,
            device="cpu",
            seed=seed,
            shuffle=False,
            verbose=False,
            class_weight=aim.class_weight,
            label_smoothing=aim.label_smoothing,
            accumulate=self.accumulate,
            depth_scale=cast("Any", self.depth_scale),
            metrics=[] if aim.over_classes else ["mse", "mae", "r2"],
        )

    @property
    def batches(self) -> list[slice]:
        """The rows of each batch of an epoch."""
        if self.sizes:
            ends = list(accumulate(self.sizes))
            return [slice(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]
        return [
            slice(start, min(start + self.batch_size, self.rows))
            for start in range(0, self.rows, self.batch_size)
        ]

    @property
    def steps(self) -> list[list[slice]]:
        """The batches of each step of an epoch."""
        each = self.batches
        return [each[start : start + self.accumulate] for start in range(0, len(each), self.accumulate)]


def rule(chance: Chance) -> optimizers.Optimizer:
    """Draws an optimizer with every option."""
    kind = chance.whole(0, 4)
    decay: dict[str, Any] = {}
    if chance.happens(0.4):
        decay = {"weight_decay": chance.real(0.001, 0.2), "decay_exempt": chance.happens(0.4)}
    if kind == 0:
        momentum = chance.real(0.1, 0.95) if chance.happens(0.6) else 0.0
        nesterov = momentum > 0 and chance.happens(0.4)
        return optimizers.SGD(momentum=momentum, nesterov=nesterov, **decay)
    if kind == 3:
        return optimizers.RMSprop(
            alpha=chance.real(0.7, 0.99),
            epsilon=chance.one([1e-8, 1e-6, 1e-3]),
            momentum=chance.real(0.1, 0.9) if chance.happens(0.4) else 0.0,
            centered=chance.happens(0.4),
            epsilon_in_root=chance.happens(0.3),
            **decay,
        )
    if kind == 4:
        return optimizers.Lion(beta1=chance.real(0.0, 0.95), beta2=chance.real(0.7, 0.999), **decay)
    moments: dict[str, Any] = {}
    if chance.happens(0.6):
        moments = {
            "beta1": chance.real(0.0, 0.95),
            "beta2": chance.real(0.7, 0.999),
            "epsilon": chance.one([1e-8, 1e-6, 1e-3]),
        }
    kinds = (optimizers.Adam, optimizers.AdamW)
    return kinds[kind - 1](**moments, **decay)


def schedule(chance: Chance, plain: bool = False) -> schedules.Schedule:
    """Draws a schedule with every option."""
    steps = chance.whole(1, 6) if chance.happens(0.5) else None
    end = chance.real(0.0, 0.5)
    kind = chance.whole(0, 7 if plain else 9)
    if kind == 1:
        return schedules.Linear(end_factor=end, steps=steps)
    if kind == 2:
        return schedules.Cosine(end_factor=end, steps=steps)
    if kind == 3:
        return schedules.CosineRestarts(
            chance.whole(1, 3), period_factor=chance.one([1.0, 2.0, 1.5]), end_factor=end
        )
    if kind == 4:
        return schedules.Exponential(chance.real(0.3, 1.2), steps=chance.whole(1, 4))
    if kind == 5:
        return schedules.Step(chance.whole(1, 3), gamma=chance.real(0.1, 0.9))
    if kind == 6:
        return schedules.Polynomial(power=chance.real(0.5, 3.0), end_factor=end, steps=steps)
    if kind == 7:
        # A rise that does not end at the very first step, where PyTorch divides by zero.
        return schedules.OneCycle(
            rise=chance.one([0.27, 0.31, 0.43]),
            div_factor=chance.one([25.0, 4.0]),
            final_div_factor=1e3,
            steps=steps,
        )
    if kind > 7:
        return schedules.Warmup(chance.whole(1, 4), then=schedule(chance, plain=True))
    return schedules.Constant()


def course(chance: Chance, drawn: Drawn, names: list[str]) -> Course:
    """Draws how a network is trained.

    Args:
        chance: What is drawn from.
        drawn: The network.
        names: Its parameters, by path and name.
    """
    made = Course(
        optimizer=rule(chance),
        rate=chance.one([0.01, 0.003, 0.05]),
        schedule=schedule(chance) if chance.happens(0.5) else schedules.Constant(),
        epochs=chance.whole(1, 3),
        rows=chance.whole(3, 7),
        batch_size=chance.whole(1, 5),
        accumulate=chance.one([1, 1, 2, 3]),
        gradient_clip=chance.one([0.05, 0.5, 3.0]) if chance.happens(0.3) else None,
        clip_value=chance.one([0.01, 0.1]) if chance.happens(0.2) else None,
        depth_scale=chance.one(["none", "none", "geometric", "inv_sqrt"]),
    )
    stateful = any(config.get("stateful") for config in drawn.configs)
    if stateful:
        # Every batch goes on from the one before, row by row, so that all have as many.
        made.rows = made.batch_size * chance.whole(1, 3)
    if drawn.has("batch_norm"):
        # A batch of one row may leave a channel one value, of which there is no variance.
        made.batch_size = max(made.batch_size, 2)
        if made.rows % made.batch_size == 1:
            made.rows += 1
        made.rows = max(made.rows, 2)
        if stateful:
            made.rows = made.batch_size * 2
    if not stateful and chance.happens(0.2):
        least = 2 if drawn.has("batch_norm") else 1
        made.sizes = [chance.whole(least, 6) for _ in range(chance.whole(1, 4))]
        made.rows = sum(made.sizes)
    # A few steps show what there is to see.
    made.epochs = min(made.epochs, max(1, _MOST_STEPS // len(made.batches)))
    paths = [path for path, _ in drawn.layers if any(name.startswith(f"{path}.") for name in names)]
    for path in paths:
        if chance.happens(0.08) and len(paths) > 1 and len(made.untrained) < len(paths) - 1:
            made.untrained.append(path)
        elif chance.happens(0.1):
            own = [name[len(path) + 1 :] for name in names if name.startswith(f"{path}.")]
            made.frozen[path] = [chance.one(own)]
        if chance.happens(0.1):
            made.factors[path] = chance.one([0.0, 0.3, 2.0])
    return made
