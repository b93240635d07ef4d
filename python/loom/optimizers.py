"""Optimizers: how a gradient becomes a change of the weights.

The learning rate stands in `TrainingConfig`, since schedules change it. In the
formulas g is the gradient, w the weight, lr the rate of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom._settings.checks import flag, real
from loom._settings.encoding import Tagged, TaggedFamily
from loom._settings.objects import optimizer_error
from loom._settings.spellings import attribute_error
from loom._settings.suggestions import shown, unknown
from loom._typing import OptimizerName
from loom.errors import ConfigError

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "OptimizerLike",
    "RAdam",
    "RMSprop",
    "resolve",
]


# Settings without an upper limit.
_AMOUNTS = {"weight_decay", "decay_power", "clip_threshold", "least_scale"}


class Optimizer(Tagged):
    """Base of the optimizer configurations."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise optimizer_error(type(self).__name__, name)

    def __post_init__(self) -> None:
        where = type(self).__name__
        for field in fields(cast(Any, self)):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                checked: object = flag(where, field.name, value)
            elif field.name == "epsilon":
                checked = real(where, field.name, value, above=0.0)
            else:
                below = None if field.name in _AMOUNTS else 1.0
                checked = real(where, field.name, value, least=0.0, below=below)
            object.__setattr__(self, field.name, checked)


OptimizerLike: TypeAlias = "OptimizerName | Optimizer | Mapping[str, Any]"

FAMILY: TaggedFamily[Optimizer] = TaggedFamily("optimizer")


@FAMILY.register("sgd")
@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum v + g; w -= lr v.

    Args:
        momentum: How much of the last step is kept; from 0 to below 1.
        nesterov: Steps by g + momentum v instead of v; needs momentum.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_exempt: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0.0:
            raise ConfigError("SGD: nesterov needs a momentum above 0")


@FAMILY.register("adam")
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

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("adamw")
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

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decay_exempt: bool = False


@FAMILY.register("lion")
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

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("rmsprop")
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

    _: KW_ONLY
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0
    decay_exempt: bool = False
    epsilon_in_root: bool = False


@FAMILY.register("adagrad")
@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): s += g^2; w -= lr g / (sqrt(s) + epsilon).

    Steps become smaller and smaller, soonest where gradients are large: for rare features, at a rate of
    about 0.01 to 0.1.

    Args:
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    epsilon: float = 1e-10
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("adadelta")
@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012): steps in the weights' own unit, for which a rate of 1 is made.

    v = rho v + (1 - rho) g^2; d = sqrt(u + epsilon) / sqrt(v + epsilon) g; u = rho u + (1 - rho) d^2;
    w -= lr d.

    Args:
        rho: Decay of both averages of squares; from 0 to below 1.
        epsilon: Added below both roots; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    rho: float = 0.9
    epsilon: float = 1e-6
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("adamax")
@dataclass(frozen=True)
class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2015, section 7.1): u = max(beta2 u, |g| + epsilon); w -= lr m / u.

    m is the gradient's bias-corrected average.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the largest gradient; from 0 to below 1.
        epsilon: Added to each magnitude; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("nadam")
@dataclass(frozen=True)
class NAdam(Optimizer):
    """Adam with Nesterov's look ahead (Dozat 2016), its momentum the same at every step, as in Optax.

    In the place of Adam's average stands beta1 m / (1 - beta1^(n + 1)) + (1 - beta1) g / (1 - beta1^n)
    at the n-th update.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("radam")
@dataclass(frozen=True)
class RAdam(Optimizer):
    """RAdam (Liu et al. 2020): Adam that warms itself up.

    Its first steps (five, with these settings) are those of momentum; later ones are Adam's, times a factor
    that grows to 1 as the variance of the squared gradient's average falls.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Adds weight_decay w to g.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("lamb")
@dataclass(frozen=True)
class LAMB(Optimizer):
    """LAMB (You et al. 2020): Adam whose steps are as long as each parameter's weights, for large batches.

    With d = m / (sqrt(v) + epsilon) + weight_decay w, m and v bias-corrected, w -= lr |w| / |d| d, where the
    norms are of a parameter: all of a weight, all of a bias. A parameter of zeros, or one with no direction,
    moves by lr d. As in Optax, biases and gains go by their norms, too.

    Args:
        beta1: Decay of the gradient's average; from 0 to below 1.
        beta2: Decay of the squared gradient's average; from 0 to below 1.
        epsilon: Added to the root in the divisor; above zero.
        weight_decay: Adds weight_decay w to the direction before its norm is taken.
        decay_exempt: Leaves biases and norm gains out of the decay.

    Examples:
        >>> loom.TrainingConfig(optimizer=loom.optimizers.LAMB(weight_decay=0.01)).optimizer.epsilon
        1e-06
    """

    _: KW_ONLY
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("adafactor")
@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018): second moments of a matrix from those of its rows and columns.

    v is the mean of g^2 + epsilon, of which the n-th counts n^-decay_power; of a matrix only its means r
    over columns and c over rows are kept, and v = r c / mean(r). d = g / sqrt(v), divided by its root mean
    square over clip_threshold where that is above 1; w -= lr (s d + weight_decay w) with s the root mean
    square of the parameter's weights, least_scale at least. So the rate is relative: 0.01 moves weights by
    about a hundredth.

    Every parameter with rows and columns is a matrix, however small; a convolution's kernel is that of its
    outputs by all that each reads. This is what Optax computes with `min_dim_size_to_factor=2`, but for the
    decay, which here goes by the rate, as in AdamW. There is no first moment. The means stand in one
    moment as long as the weights, half of what Adam keeps.

    Args:
        decay_power: How fast old squares are forgotten; at least 0.
        clip_threshold: The largest root mean square of d; 0 for any.
        epsilon: Added to every square; above zero.
        scale_by_weights: Whether s is as above, or 1.
        least_scale: The least that s is; at least 0.
        weight_decay: Share of each weight taken away, times the rate.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    decay_power: float = 0.8
    clip_threshold: float = 1.0
    epsilon: float = 1e-30
    scale_by_weights: bool = True
    least_scale: float = 1e-3
    weight_decay: float = 0.0
    decay_exempt: bool = False


@FAMILY.register("muon")
@dataclass(frozen=True)
class Muon(Optimizer):
    """Muon (Jordan 2024): for matrices momentum whose singular values are made about 1, AdamW for all else.

    m = momentum m + (1 - momentum) g; five steps X = a X + (b X X^T + c (X X^T)^2) X with a = 3.4445,
    b = -4.775, c = 2.0315 from X = m / (|m| + epsilon) give O, of which w -= lr (s O + weight_decay w).
    With nesterov X begins at momentum m + (1 - momentum) g of the new m.

    Matrices are all weights of products: of dense layers, attention, recurrent layers (all gates together),
    every expert's, and a convolution's kernel as that of its outputs by all that each reads. Biases, gains,
    embeddings and positions are moved by AdamW at the same rate, and so are weights of a single input or a
    single output, which have no other singular value than their norm. s = 0.2 sqrt(max(inputs, outputs))
    makes steps as large as AdamW's, so that its rates and decays suit (Liu et al. 2025); with match_adam
    off, s = sqrt(max(1, outputs / inputs)) as Jordan has it, for rates of about 0.02.

    Args:
        momentum: Decay of the average of matrices; from 0 to below 1.
        nesterov: Looks ahead.
        match_adam: Scales the steps of matrices as said.
        beta1: Decay of the average of all else; from 0 to below 1.
        beta2: Decay of its squares; from 0 to below 1.
        epsilon: Added to norms, and to the root in AdamW's divisor; above zero.
        weight_decay: Share of each weight taken away, times the rate.
        decay_exempt: Leaves biases and norm gains out of the decay.
    """

    _: KW_ONLY
    momentum: float = 0.95
    nesterov: bool = True
    match_adam: bool = True
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decay_exempt: bool = False


def resolve(value: OptimizerLike | str) -> Optimizer:
    """Returns the optimizer that an `optimizer=` argument means.

    Args:
        value: An optimizer, its name (sgd, adafactor, adagrad, adadelta, adam, adamax, adamw, lamb, lion,
            muon, nadam, radam, rmsprop), or its JSON form.

    Returns:
        The optimizer, with its defaults where only the name was given.

    Raises:
        ConfigError: The name or a key is unknown, or a value out of range.
    """
    if isinstance(value, Optimizer):
        return value
    if isinstance(value, Mapping):
        return FAMILY.from_config(value)
    given: object = value
    name = given.lower() if isinstance(given, str) else shown(given)
    if name in FAMILY.kinds:
        return FAMILY.kinds[name]()
    raise unknown("optimizer", value, FAMILY.kinds)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
