"""What a `loss=` argument means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from loom._settings.encoding import NamedFamily, Tagged
from loom._typing import LossName
from loom.losses.computed import ComputedLoss
from loom.losses.contrast import Contrastive, Triplet
from loom.losses.cosine import Cosine
from loom.losses.ctc import CTC
from loom.losses.dice import Dice
from loom.losses.expression import Expr
from loom.losses.own import Loss, LossFunction, OwnLoss
from loom.losses.parametric import BinaryFocal, Focal, Huber, Quantile
from loom.losses.preference import DPO

__all__ = ["FAMILY", "LossLike", "name_of", "names", "resolve"]

# The module of the functions for the manual loop, which imports this one.
_FUNCTIONS = f"{__package__}.functions"

LossLike: TypeAlias = "LossName | Loss | LossFunction | Mapping[str, Any]"


FAMILY: NamedFamily[Loss] = NamedFamily(
    "loss",
    plain=(
        "mse",
        "mae",
        "log_cosh",
        "poisson",
        "cross_entropy",
        "nll",
        "kl_divergence",
        "binary_cross_entropy",
        "hinge",
        "squared_hinge",
        "mean_output",
    ),
    aliases={"crossentropy": "cross_entropy", "cross-entropy": "cross_entropy"},
)


FAMILY.register("dice")(Dice)
FAMILY.register("cosine")(Cosine)
FAMILY.register("triplet")(Triplet)
FAMILY.register("contrastive")(Contrastive)
FAMILY.register("dpo")(DPO)
FAMILY.register("ctc")(CTC)
FAMILY.register("huber")(Huber)
FAMILY.register("expr")(Expr)
FAMILY.register("quantile")(Quantile)
FAMILY.register("binary_focal")(BinaryFocal)
FAMILY.register("focal")(Focal)


def resolve(value: LossLike | str) -> str | Loss:
    """Returns the bare name or the object that a `loss=` argument means.

    Args:
        value: A name, an object, or the JSON form of one.

    Returns:
        The name where it has no parameter, otherwise the object.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    if isinstance(value, Loss):
        return value
    # Layers and the like only look as though they were functions.
    if callable(value) and not isinstance(value, (type, Tagged)):
        # Those functions stand for the losses that they are of, which the engine computes itself.
        ours = getattr(value, "__module__", "") == _FUNCTIONS
        named = getattr(value, "__name__", "") if ours else ""
        return FAMILY.resolve(named) if named in FAMILY.names() else OwnLoss(value)
    return FAMILY.resolve(value)


def name_of(value: LossLike | str) -> str:
    """Returns the canonical name of a loss; of a function that is called as one of loom's, another."""
    loss = resolve(value)
    if isinstance(loss, str):
        return loss
    if isinstance(loss, OwnLoss) and not isinstance(loss, ComputedLoss) and loss.kind in FAMILY.names():
        # What it takes, and what its outputs mean, does not follow from what it is called.
        return loss.to_config()
    return loss.kind


def names() -> list[str]:
    """Returns every loss's name, sorted."""
    return FAMILY.names()
