"""Optimizers: how a gradient becomes a change of the weights.

The learning rate stands in `TrainingConfig`, since schedules change it. In the
formulas g is the gradient, w the weight, lr the rate of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loom._settings.checks import flag, real
from loom._settings.encoding import Tagged, TaggedFamily
from loom._settings.suggestions import unknown
from loom.errors import ConfigError

__all__ = ["SGD", "Adam", "AdamW", "Lion", "Optimizer", "OptimizerLike", "RMSprop", "resolve"]


class Optimizer(Tagged):
    """Base of the optimizer configurations."""

    __slots__ = ()

    def _set(self, **settings: object) -> None:
        for name, value in settings.items():
            object.__setattr__(self, name, value)


OptimizerLike: TypeAlias = "str | Optimizer | Mapping[str, Any]"

_FAMILY: TaggedFamily[Optimizer] = TaggedFamily("optimizer")


@_FAMILY.register("sgd")
@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum v + g; w -= lr v.

    Args:
        momentum: How much of the last step is kept; from 0 to below 1.
        nesterov: Steps by g + momentum v instead of v; needs momentum.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_exempt: bool = False

    def __post_init__(self) -> None:
        self._set(
            momentum=real("SGD", "momentum", self.momentum, least=0.0, below=1.0),
            nesterov=flag("SGD", "nesterov", self.nesterov),
            **_decay("SGD", self.weight_decay, self.decay_exempt),
        )
        if self.nesterov and self.momentum == 0.0:
            raise ConfigError("SGD: nesterov needs a momentum above 0")


@_FAMILY.register("adam")
@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), bias-corrected, with weight decay added to the gradient.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay_exempt: bool = False

    def __post_init__(self) -> None:
        self._set(
            **_moments("Adam", self.beta1, self.beta2, self.epsilon),
            **_decay("Adam", self.weight_decay, self.decay_exempt),
        )


@_FAMILY.register("adamw")
@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    w -= lr (m / (sqrt(v) + epsilon) + weight_decay w), m and v bias-corrected.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Share of each weight taken away, times the rate.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decay_exempt: bool = False

    def __post_init__(self) -> None:
        self._set(
            **_moments("AdamW", self.beta1, self.beta2, self.epsilon),
            **_decay("AdamW", self.weight_decay, self.decay_exempt),
        )


@_FAMILY.register("lion")
@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion (Chen et al. 2023): steps of one size, with decoupled weight decay.

    w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); m = beta2 m + (1 - beta2) g.
    Every weight moves by lr, so that a third to a tenth of AdamW's rate suits it.

    Args:
        beta1: Share of the average m in what the sign is taken of; from 0 to below 1.
        beta2: Decay of the gradient's average; from 0 to below 1.
        weight_decay: Share of each weight taken away, times the rate.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    decay_exempt: bool = False

    def __post_init__(self) -> None:
        self._set(
            beta1=real("Lion", "beta1", self.beta1, least=0.0, below=1.0),
            beta2=real("Lion", "beta2", self.beta2, least=0.0, below=1.0),
            **_decay("Lion", self.weight_decay, self.decay_exempt),
        )


@_FAMILY.register("rmsprop")
@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop: v = alpha v + (1 - alpha) g^2; w -= lr g / (sqrt(v) + epsilon).

    Args:
        alpha: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the divisor; above zero.
        momentum: How much of the last step is kept; from 0 to below 1.
        centered: Takes the squared average gradient from v under the root.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
        epsilon_in_root: Adds epsilon below the root, to v, instead of to the root (Graves 2013).
    """

    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0
    decay_exempt: bool = False
    epsilon_in_root: bool = False

    def __post_init__(self) -> None:
        self._set(
            alpha=real("RMSprop", "alpha", self.alpha, least=0.0, below=1.0),
            epsilon=real("RMSprop", "epsilon", self.epsilon, above=0.0),
            momentum=real("RMSprop", "momentum", self.momentum, least=0.0, below=1.0),
            centered=flag("RMSprop", "centered", self.centered),
            epsilon_in_root=flag("RMSprop", "epsilon_in_root", self.epsilon_in_root),
            **_decay("RMSprop", self.weight_decay, self.decay_exempt),
        )


def resolve(value: OptimizerLike) -> Optimizer:
    """Returns the optimizer that an `optimizer=` argument means.

    Args:
        value: An optimizer, its name (sgd, adam, adamw, lion, rmsprop), or its JSON
            form.

    Returns:
        The optimizer, with its defaults where only the name was given.

    Raises:
        ConfigError: The name or a key is unknown, or a value out of range.
    """
    if isinstance(value, Optimizer):
        return value
    if isinstance(value, Mapping):
        return _FAMILY.from_config(value)
    name = str(value).lower()
    if name in _FAMILY.kinds:
        return _FAMILY.kinds[name]()
    raise unknown("optimizer", value, _FAMILY.kinds)


def _moments(where: str, beta1: float, beta2: float, epsilon: float) -> dict[str, object]:
    return {
        "beta1": real(where, "beta1", beta1, least=0.0, below=1.0),
        "beta2": real(where, "beta2", beta2, least=0.0, below=1.0),
        "epsilon": real(where, "epsilon", epsilon, above=0.0),
    }


def _decay(where: str, weight_decay: float, decay_exempt: bool) -> dict[str, object]:
    return {
        "weight_decay": real(where, "weight_decay", weight_decay, least=0.0),
        "decay_exempt": flag(where, "decay_exempt", decay_exempt),
    }
