"""Losses, by name or, where they have a parameter, as a small object.

The names: mse, mae, huber, log_cosh, quantile, poisson, cross_entropy, focal, nll, kl_divergence,
binary_cross_entropy, binary_focal, hinge, squared_hinge, cosine, and, computed on the CPU whatever the
device, dice, triplet, contrastive and ctc. `cross_entropy` and `focal` take logits and `nll` probabilities;
all three take class indices, one-hot rows or soft rows. `binary_cross_entropy` and `binary_focal` take logits
and targets from 0 to 1, the two hinges scores and targets of -1 and 1, `poisson` logarithms of rates and
counts.

The functions of the same names are for the manual loop: each returns the loss of an
output, and its gradient with respect to that output, which `Network.backward` takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.losses.classes import ClassWeight, class_count, expand_class_weight
from loom.losses.classes import has_weight as has_weight
from loom.losses.computed import ComputedLoss
from loom.losses.computing import behind_softmax, value_and_gradient
from loom.losses.contrast import Contrastive, Triplet
from loom.losses.cosine import Cosine
from loom.losses.ctc import CTC, padded_labels
from loom.losses.dice import Dice
from loom.losses.expression import Expr
from loom.losses.functions import (
    binary_cross_entropy,
    binary_focal,
    cross_entropy,
    focal,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mae,
    mse,
    nll,
    poisson,
    quantile,
    squared_hinge,
)
from loom.losses.own import Loss, LossFunction, OwnLoss
from loom.losses.parametric import BinaryFocal, Focal, Huber, Quantile
from loom.losses.preference import DPO
from loom.losses.resolving import FAMILY as FAMILY
from loom.losses.resolving import LossLike, name_of, names, resolve
from loom.losses.targets import (
    AUTO,
    decides_at_zero,
    is_classification,
    is_own,
    suited,
    target_kind,
)
from loom.losses.targets import is_undecided as is_undecided
from loom.losses.targets import read_as as read_as

__all__ = [
    "AUTO",
    "CTC",
    "DPO",
    "BinaryFocal",
    "ClassWeight",
    "ComputedLoss",
    "Contrastive",
    "Cosine",
    "Dice",
    "Expr",
    "Focal",
    "Huber",
    "Loss",
    "LossFunction",
    "LossLike",
    "OwnLoss",
    "Quantile",
    "Triplet",
    "behind_softmax",
    "binary_cross_entropy",
    "binary_focal",
    "class_count",
    "cross_entropy",
    "decides_at_zero",
    "expand_class_weight",
    "focal",
    "hinge",
    "huber",
    "is_classification",
    "is_own",
    "kl_divergence",
    "log_cosh",
    "mae",
    "mse",
    "name_of",
    "names",
    "nll",
    "padded_labels",
    "poisson",
    "quantile",
    "resolve",
    "squared_hinge",
    "suited",
    "target_kind",
    "value_and_gradient",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
