"""Losses with a parameter, which the engine computes."""

from __future__ import annotations

from dataclasses import dataclass

from loom._settings.checks import real
from loom.losses.own import Loss

__all__ = ["BinaryFocal", "Focal", "Huber", "Quantile"]


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic up to `delta` away from the target, linear beyond; the mean over all elements.

    Args:
        delta: Where the two meet; above zero.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", real("Huber", "delta", self.delta, above=0.0))


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss (Koenker and Bassett 1978): its least value is at a quantile of the targets.

    max(q (t - o), (q - 1) (t - o)), the mean over all elements.

    Args:
        quantile: Which share of targets is to lie below the output; between 0 and 1.
    """

    quantile: float = 0.5

    def __post_init__(self) -> None:
        checked = real("Quantile", "quantile", self.quantile, above=0.0, below=1.0)
        object.__setattr__(self, "quantile", checked)


@dataclass(frozen=True)
class BinaryFocal(Loss):
    """The focal loss of logits (Lin et al. 2017): binary cross-entropy that looks away from what is right.

    -(t (1 - p)^gamma log p + (1 - t) p^gamma log(1 - p)) with p = sigmoid(o), the mean over all elements.

    Args:
        gamma: How strongly; above 0, where it would be binary cross-entropy.
    """

    gamma: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", real("BinaryFocal", "gamma", self.gamma, above=0.0))


@dataclass(frozen=True)
class Focal(Loss):
    """The focal loss over classes (Lin et al. 2017): cross-entropy that looks away from what is right.

    -sum t (1 - p)^gamma log p over the classes with p = softmax(o), the mean over rows and positions; targets
    are class indices or rows of shares. The paper's alpha is a weight for each class, `class_weight`; of
    class indices the mean is divided by the sum of their weights then, as that of cross_entropy is.

    Args:
        gamma: How strongly; above 0, where it would be cross-entropy.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2)
        >>> result = net.fit(
        ...     np.eye(2), [0, 2], loss=loom.losses.Focal(gamma=1.5), class_weight=[1, 1, 4], verbose=False
        ... )
    """

    gamma: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", real("Focal", "gamma", self.gamma, above=0.0))
