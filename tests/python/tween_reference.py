"""Learning by targets on dense networks, in plain NumPy and float64: formula for formula, nothing shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "linear": (lambda z: z, np.ones_like),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(np.float64)),
}
CLAMPS = {"tanh": (-0.95, 0.95), "sigmoid": (0.05, 0.95)}


def softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def norm(values: Array) -> float:
    return float(np.sqrt((values**2).sum()))


@dataclass
class Layer:
    """One dense layer: a = f(x W^T + b)."""

    weight: Array
    bias: Array
    activation: str
    velocity: Array = field(init=False)
    bias_velocity: Array = field(init=False)
    feedback: Function | None = None

    def __post_init__(self) -> None:
        self.velocity, self.bias_velocity = np.zeros_like(self.weight), np.zeros_like(self.bias)

    def preactivation(self, x: Array) -> Array:
        return np.asarray(x @ self.weight.T + self.bias)

    def forward(self, x: Array) -> Array:
        return ACTIVATIONS[self.activation][0](self.preactivation(x))

    def state(self) -> tuple[Array, ...]:
        return tuple(map(np.copy, (self.weight, self.bias, self.velocity, self.bias_velocity)))

    def restore(self, state: tuple[Array, ...]) -> None:
        self.weight, self.bias, self.velocity, self.bias_velocity = map(np.copy, state)


@dataclass
class Reference:
    """A network of dense layers that learns by targets.

    `config` holds the settings by the names of `loom.TweenConfig`. With `softmax` a softmax layer follows
    the others, and the cross-entropy is one with it.
    """

    layers: list[Layer]
    loss: str
    config: Any
    softmax: bool = False

    def __post_init__(self) -> None:
        self.base = self.config.base_rate
        self.adaptive_rate = self.base
        self.prev_avg_gap = 0.0
        self.growth = 1.0
        self.explosions = 0
        self.losses: list[float] = []
        self.snapshot: list[tuple[Array, ...]] | None = None
        self.applied = False

    # Forward and the loss

    def forward(self, x: Array) -> Array:
        self.inputs, self.outputs = [], []
        for layer in self.layers:
            self.inputs.append(x)
            x = layer.forward(x)
            self.outputs.append(x)
        if self.softmax:
            self.inputs.append(x)
            self.outputs.append(softmax(x))
        return self.outputs[-1]

    def loss_and_gradient(self, o: Array) -> tuple[float, Array]:
        if self.loss == "mse":
            return float(((o - self.target) ** 2).mean()), 2 * (o - self.target) / o.size
        p = softmax(o)
        return float(-(self.target * np.log(p)).sum(axis=1).mean()), (p - self.target) / len(o)

    def derivative(self, i: int) -> Array:
        layer = self.layers[i]
        return ACTIVATIONS[layer.activation][1](layer.preactivation(self.inputs[i]))

    # Targets

    def backward(self, target: Array) -> float:
        self.target = target
        last = len(self.layers) - 1
        loss, gradient = self.loss_and_gradient(self.outputs[last])
        self.gradients = [gradient]
        for i in range(last, 0, -1):
            gradient = (gradient * self.derivative(i)) @ self.layers[i].weight
            self.gradients.insert(0, gradient)
        mode = self.config.mode
        batch = len(target)
        self.targets: list[Array] = [target]
        for i in range(last - 1, -1, -1):
            a, above, t = self.outputs[i], self.layers[i + 1], self.targets[0]
            if mode == "chain_rule":
                t = a - self.config.gradient_scale * batch * self.gradients[i]
            elif mode == "layerwise":
                t = self.weighted_mean(a, above.weight, t)
                low, high = CLAMPS.get(
                    self.layers[i].activation, (-self.config.activation_clamp, self.config.activation_clamp)
                )
                t = np.clip(t, low, high)
            elif i == last - 1:
                t = a - self.config.target_rate * self.gradients[i]
            else:
                assert above.feedback is not None
                t = a + above.feedback(t) - above.feedback(self.outputs[i + 1])
            self.targets.insert(0, t)
        if self.softmax:
            self.targets.append(target)
        self.losses.append(loss)
        return loss

    @staticmethod
    def weighted_mean(a: Array, weight: Array, t: Array) -> Array:
        sums = np.abs(weight).sum(axis=0)
        means = (t @ weight) / np.where(sums < 0.01, 1.0, sums)
        return np.where(sums < 0.01, a, means)

    # Measures

    def measure(self) -> None:
        meant = list(self.outputs)
        if self.loss == "cross_entropy":
            # What the logits mean, whether a softmax layer says so or not.
            last = len(self.layers) - 1
            meant[last:] = [softmax(meant[last])] * (len(meant) - last)
        squares = [float(((a - t) ** 2).mean()) for a, t in zip(meant, self.targets, strict=True)]
        self.gaps = np.sqrt(squares) if self.config.gap_metric == "rms" else np.array(squares)
        self.alignments = np.array(
            [
                0.5 if norm(a) * norm(t) == 0 else (1 + float((a * t).sum()) / (norm(a) * norm(t))) / 2
                for a, t in zip(meant, self.targets, strict=True)
            ]
        )
        self.gains = np.array([norm(a) / norm(x) for a, x in zip(self.outputs, self.inputs, strict=True)])
        chosen = self.gains if self.config.link_budget == "gain" else self.alignments
        self.budgets = chosen * self.config.link_budget_scale
        average = float(self.gaps.mean())
        known = self.prev_avg_gap > 0
        self.growth = average / self.prev_avg_gap if known else 1.0
        grown = known and average > self.config.gap_threshold and self.growth > self.config.explosion_limit
        self.exploded = self.config.detect_explosions and self.applied and grown
        if self.exploded:
            self.explosions += 1
            self.adaptive_rate *= self.config.recovery_rate
        else:
            self.prev_avg_gap = average
            self.adaptive_rate = min(self.base, self.adaptive_rate * 1.05)

    # Updates

    def apply(self, rate: float | None = None) -> None:
        if self.exploded:
            assert self.snapshot is not None
            for layer, state in zip(self.layers, self.snapshot, strict=True):
                layer.restore(state)
                layer.velocity[...] = layer.bias_velocity[...] = 0
            self.applied = False
            return
        self.snapshot = [layer.state() for layer in self.layers]
        for i, layer in enumerate(self.layers):
            factor = self.depth_scale(i) * self.gate(i)
            if self.gate(i) == 0:
                continue
            for _ in range(self.config.local_steps):
                d_weight, d_bias = self.local_gradient(i)
                r = (self.adaptive_rate if rate is None else rate) * factor
                layer.velocity = self.config.momentum * layer.velocity - r * d_weight
                layer.bias_velocity = self.config.momentum * layer.bias_velocity - r * d_bias
                layer.weight = layer.weight + layer.velocity
                layer.bias = layer.bias + layer.bias_velocity
        self.applied = True

    def local_gradient(self, i: int) -> tuple[Array, Array]:
        """The mean gradient of the layer's own loss, from where its weights are now; x and t stay."""
        layer, x, t = self.layers[i], self.inputs[i], self.targets[i]
        batch = len(x)
        z = layer.preactivation(x)
        a = ACTIVATIONS[layer.activation][0](z)
        derivative = ACTIVATIONS[layer.activation][1](z)
        if i == len(self.layers) - 1:
            delta = self.loss_and_gradient(a)[1] * derivative
        elif self.config.mode == "chain_rule":
            delta = (a - t) / (self.config.gradient_scale * batch) * derivative
        elif self.config.mode == "layerwise":
            delta = (a - t) / batch
        else:
            delta = 2 * (a - t) / batch * derivative
        return np.asarray(delta.T @ x), delta.sum(axis=0)

    def depth_scale(self, i: int) -> float:
        count = len(self.outputs)
        scales = {"none": 1.0, "geometric": 1.1**i, "inv_sqrt": 1 / np.sqrt(count - i)}
        return float(scales[self.config.depth_scale])

    def gate(self, i: int) -> float:
        if self.config.link_budget == "gain":
            return 1.0
        return 0.0 if self.budgets[i] < 0.2 else 0.5 + 0.5 * float(self.budgets[i])

    def step(self, x: Array, target: Array, rate: float | None = None) -> float:
        self.forward(x)
        loss = self.backward(target)
        self.measure()
        self.apply(rate)
        return loss
