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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import flag, real, whole
from loom._settings.encoding import NamedFamily, Tagged
from loom._settings.logits import OF_LOGITS
from loom._settings.spellings import attribute_error
from loom._settings.suggestions import shown
from loom._typing import ArrayLike, LossName, Precision, RealArray, TargetKind
from loom.convert import as_numpy, as_real_array
from loom.data import as_target
from loom.errors import ConfigError, DataError, LoomError, ShapeError
from loom.losses.computed import ComputedLoss
from loom.losses.contrast import Contrastive, Triplet
from loom.losses.cosine import Cosine
from loom.losses.ctc import CTC, padded_labels
from loom.losses.dice import Dice
from loom.losses.own import Loss, LossFunction, OwnLoss
from loom.losses.preference import DPO

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


AUTO: Final = "auto"
"""What `TrainingConfig` says where the loss is chosen by the targets; see `suited`."""


LossLike: TypeAlias = "LossName | Loss | LossFunction | Mapping[str, Any]"

ClassWeight: TypeAlias = "Mapping[int, float] | Mapping[str, float] | Sequence[float]"

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


@FAMILY.register("huber")
@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic up to `delta` away from the target, linear beyond; the mean over all elements.

    Args:
        delta: Where the two meet; above zero.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", real("Huber", "delta", self.delta, above=0.0))


@FAMILY.register("expr")
@dataclass(frozen=True)
class Expr(Loss):
    """A loss of one's own, written as text: the mean of it over all elements.

    `y` is an element of the output and `t` the target's; the rest is as in `nn.Expr`, sums and means over
    axes of a sample included. The derivative is made by rule. It runs on every device, takes weights of
    samples, and is saved as text.

    Args:
        expression: The text, in which both stand.

    Raises:
        ConfigError: The text is no expression, with a caret below the place.

    Examples:
        >>> value, gradient = loom.losses.value_and_gradient(
        ...     loom.losses.Expr("abs(y - t) ** 1.5"), [[1.0], [4.0]], [[1.0], [0.0]]
        ... )
        >>> value, gradient.tolist()
        (4.0, [[0.0], [1.5]])
    """

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ConfigError(f"losses.Expr: expression must be text, got {shown(self.expression)}")
        try:
            _native.check_expression(self.expression)
        except LoomError as error:
            raise ConfigError(f"losses.Expr: {error}") from None


@FAMILY.register("quantile")
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


@FAMILY.register("binary_focal")
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


@FAMILY.register("focal")
@dataclass(frozen=True)
class Focal(Loss):
    """The focal loss over classes (Lin et al. 2017): cross-entropy that looks away from what is right.

    -sum t (1 - p)^gamma log p over the classes with p = softmax(o), the mean over rows and positions; targets
    are class indices or rows of shares. The paper's alpha is a weight for each class, `class_weight`; the
    mean is divided by the sum of weights then, as that of cross_entropy is.

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
        # The functions here stand for the losses that they are of, which the engine computes itself.
        named = getattr(value, "__name__", "") if getattr(value, "__module__", "") == __name__ else ""
        return FAMILY.resolve(named) if named in FAMILY.names() else OwnLoss(value)
    return FAMILY.resolve(value)


def name_of(value: LossLike | str) -> str:
    """Returns the canonical name of a loss."""
    loss = resolve(value)
    return loss if isinstance(loss, str) else loss.kind


def decides_at_zero(value: LossLike | str) -> bool:
    """Whether a loss takes scores on both sides of zero, such as logits: above it they mean class 1.

    Args:
        value: A name, a loss, or its JSON form.
    """
    return name_of(value) in OF_LOGITS


def is_classification(value: LossLike | str) -> bool:
    """Returns whether the loss takes class indices as targets."""
    loss = resolve(value)
    # One of the user's own says what its targets are.
    return name_of(loss) in {"cross_entropy", "focal", "nll"} or bool(getattr(loss, "classes", False))


def is_own(value: LossLike | str) -> bool:
    """Returns whether a loss is of the user's own: by expression, or a function in Python."""
    return isinstance(resolve(value), (Cosine, Expr, OwnLoss))


def is_undecided(value: LossLike | str) -> bool:
    """Returns whether a loss of the user's own has seen no target yet, which may be class indices."""
    loss = resolve(value)
    return isinstance(loss, OwnLoss) and not loss.labelled and loss.classes is None


def target_kind(value: LossLike | str) -> TargetKind:
    """Returns what a loss takes as targets.

    Args:
        value: A name, a loss, or its JSON form.
    """
    loss = resolve(value)
    if not is_classification(loss):
        return "numbers"
    if isinstance(loss, OwnLoss):
        return "labels" if loss.labelled else "indices"
    return "classes"


def suited(output_shape: Sequence[int], target: NDArray[Any]) -> Literal["cross_entropy", "mse"]:
    """Returns the name of the loss that targets ask for, where nobody names one.

    Args:
        output_shape: One sample's output, without the batch.
        target: The targets, or the first of them.

    Returns:
        "cross_entropy" for whole numbers or texts without the class axis of an output with more than one
        class, and for booleans where there are two; otherwise "mse".

    Examples:
        >>> loom.losses.suited((10,), np.array([3, 1]))
        'cross_entropy'
        >>> loom.losses.suited((1,), np.array([3, 1]))
        'mse'
    """
    classes = class_count(output_shape) > 1 and target.ndim == len(output_shape)
    told = target.dtype.kind in "iuU" or (target.dtype.kind == "b" and class_count(output_shape) == 2)
    return "cross_entropy" if classes and told else "mse"


def names() -> list[str]:
    """Returns every loss's name, sorted."""
    return FAMILY.names()


def cross_entropy(
    output: ArrayLike,
    target: ArrayLike,
    *,
    from_logits: bool = True,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Cross-entropy of logits, and its gradient.

    Args:
        output: (rows, ..., classes) logits; images are (rows, classes, height, width).
        target: Class indices without the class axis, or rows shaped like the output.
        from_logits: False says that the output came from a `Softmax` layer; the
            gradient is then the one that goes back through that layer.
        weight: (rows,) how much each row counts.
        label_smoothing: Share of each target spread evenly over all classes.
        class_weight: How much each class counts: a mapping (1 for those left out), or
            one weight per class.

    Returns:
        The mean loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A class index or a setting is out of range.

    Examples:
        >>> loss, gradient = loom.losses.cross_entropy(np.zeros((2, 4)), np.array([0, 3]))
        >>> round(loss, 4), gradient.shape
        (1.3863, (2, 4))
    """
    name = "cross_entropy" if flag("cross_entropy", "from_logits", from_logits) else "nll"
    return value_and_gradient(name, output, target, weight, label_smoothing, class_weight)


def nll(
    output: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Negative log-likelihood of probabilities, and its gradient.

    Args:
        output: (rows, ..., classes) probabilities, not their logarithms.
        target: Class indices without the class axis, or rows shaped like the output.
        weight: (rows,) how much each row counts.
        label_smoothing: Share of each target spread evenly over all classes.
        class_weight: How much each class counts.

    Returns:
        The mean loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: An output is negative; a class index or setting is out of range.
    """
    return value_and_gradient("nll", output, target, weight, label_smoothing, class_weight)


def focal(
    output: ArrayLike,
    target: ArrayLike,
    gamma: float = 2.0,
    *,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """The focal loss of logits over classes, and its gradient; see `Focal`.

    Args:
        output: (rows, ..., classes) logits; images are (rows, classes, height, width).
        target: Class indices without the class axis, or rows shaped like the output.
        gamma: How strongly it looks away from what is right already; above zero.
        weight: (rows,) how much each row counts.
        label_smoothing: Share of each target spread evenly over all classes.
        class_weight: How much each class counts.

    Returns:
        The mean loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        ConfigError: Gamma is not above zero.
        InvalidValueError: A class index or a setting is out of range.

    Examples:
        >>> loss, gradient = loom.losses.focal(np.zeros((2, 4)), np.array([0, 3]))
        >>> round(loss, 4), gradient.shape
        (0.7798, (2, 4))
    """
    return value_and_gradient(Focal(gamma), output, target, weight, label_smoothing, class_weight)


def kl_divergence(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """How far distributions are from those of logits (Kullback and Leibler 1951), and its gradient.

    sum t (log t - log softmax(o)) over the classes, the mean over rows and positions; what t has no share
    of costs nothing. The gradient is cross-entropy's: the two differ by the targets' own entropy, so that
    this one is 0 where the network says what it should.

    Args:
        output: (rows, ..., classes) logits; images are (rows, classes, height, width).
        target: Distributions shaped like the output.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A target is not from 0 to 1.

    Examples:
        >>> loss, gradient = loom.losses.kl_divergence(np.zeros((1, 2)), [[0.5, 0.5]])
        >>> abs(round(loss, 6)), gradient.tolist()
        (0.0, [[0.0, 0.0]])
    """
    return value_and_gradient("kl_divergence", output, target, weight)


def mse(output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None) -> tuple[float, RealArray]:
    """Mean squared error over all elements, and its gradient.

    Args:
        output: (rows, ...) what the network gave.
        target: (rows, ...) what was wanted.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
    """
    return value_and_gradient("mse", output, target, weight)


def mae(output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None) -> tuple[float, RealArray]:
    """Mean absolute error over all elements, and its gradient.

    Args:
        output: (rows, ...) what the network gave.
        target: (rows, ...) what was wanted.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
    """
    return value_and_gradient("mae", output, target, weight)


def log_cosh(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """Mean logarithm of the error's cosh over all elements, and its gradient.

    Args:
        output: (rows, ...) what the network gave.
        target: (rows, ...) what was wanted.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
    """
    return value_and_gradient("log_cosh", output, target, weight)


def huber(
    output: ArrayLike, target: ArrayLike, delta: float = 1.0, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """Huber's loss over all elements, and its gradient.

    Args:
        output: (rows, ...) what the network gave.
        target: (rows, ...) what was wanted.
        delta: Where it turns from quadratic to linear; above zero.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        ConfigError: Delta is not above zero.
    """
    return value_and_gradient(Huber(delta), output, target, weight)


def binary_cross_entropy(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """Binary cross-entropy of logits over all elements, and its gradient.

    Args:
        output: (rows, ...) logits.
        target: (rows, ...) from 0 to 1.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
    """
    return value_and_gradient("binary_cross_entropy", output, target, weight)


def quantile(
    output: ArrayLike, target: ArrayLike, quantile: float = 0.5, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """The pinball loss over all elements, and its gradient.

    Args:
        output: (rows, ...) what the network gave.
        target: (rows, ...) what was wanted.
        quantile: Which share of targets is to lie below the output; between 0 and 1.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        ConfigError: The quantile is not between 0 and 1.
    """
    return value_and_gradient(Quantile(quantile), output, target, weight)


def poisson(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """The Poisson loss exp(o) - t o over all elements, and its gradient.

    Args:
        output: (rows, ...) logarithms of rates.
        target: (rows, ...) counts, of at least 0.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A target is negative.
    """
    return value_and_gradient("poisson", output, target, weight)


def binary_focal(
    output: ArrayLike, target: ArrayLike, gamma: float = 2.0, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """The focal loss of logits over all elements, and its gradient.

    Args:
        output: (rows, ...) logits.
        target: (rows, ...) from 0 to 1.
        gamma: How strongly it looks away from what is right already; above zero.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        ConfigError: Gamma is not above zero.
        InvalidValueError: A target is not from 0 to 1.
    """
    return value_and_gradient(BinaryFocal(gamma), output, target, weight)


def hinge(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """The hinge loss max(0, 1 - t o) over all elements, and its gradient.

    Args:
        output: (rows, ...) scores.
        target: (rows, ...) -1 and 1.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A target is not from -1 to 1.
    """
    return value_and_gradient("hinge", output, target, weight)


def squared_hinge(
    output: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> tuple[float, RealArray]:
    """The squared hinge loss max(0, 1 - t o)^2 over all elements, and its gradient.

    Args:
        output: (rows, ...) scores.
        target: (rows, ...) -1 and 1.
        weight: (rows,) how much each row counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A target is not from -1 to 1.
    """
    return value_and_gradient("squared_hinge", output, target, weight)


def value_and_gradient(
    loss: LossLike | str,
    output: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Computes any loss, and its gradient; the functions of single losses say what they take.

    Args:
        loss: The loss, or its name.
        output: (rows, ...) what the network gave.
        target: What was wanted.
        weight: (rows,) how much each row counts.
        label_smoothing: How much of the weight goes to all classes alike.
        class_weight: How much each class counts.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output, target and weight do not fit together.
        DataError: Nothing has a weight, or there are more or fewer targets than rows.
        ConfigError: A setting is out of range.
    """
    given = as_numpy(output, what="output")
    precision: Precision = "float64" if given.dtype == np.float64 else "float32"
    scores = as_real_array(given, precision, what="output")
    if scores.ndim < 2 or scores.size == 0:
        raise ShapeError(f"output: expected (rows, ...) with at least one row, got shape {scores.shape}")
    resolved = resolve(loss)
    wanted = as_target(
        target, scores.shape[1:], classification=is_classification(resolved), precision=precision
    )
    if len(wanted) != len(scores):
        raise DataError(f"output has {len(scores)} rows but target {len(wanted)}")
    weights = None
    if weight is not None:
        counts = as_real_array(weight, "float64", what="weight")
        if counts.shape != (len(scores),):
            raise ShapeError(f"weight must be ({len(scores)},), a number for each row, got {counts.shape}")
        if not counts.any():
            raise DataError("the weight of every row is zero, and at least one must count")
        weights = counts.tolist()
    own = getattr(resolved, "value_and_gradient", None)
    if own is not None:
        made: tuple[float, RealArray] = own(scores, wanted, weights)
        return made
    config: object = resolved if isinstance(resolved, str) else resolved.to_config()
    if isinstance(resolved, (Cosine, Expr)):
        config = {"expression": resolved.expression}
    return _native.loss_and_gradient(
        json.dumps(config),
        scores,
        wanted,
        weights,
        real(name_of(resolved), "label_smoothing", label_smoothing, least=0.0, below=1.0),
        expand_class_weight(class_weight, class_count(scores.shape[1:])),
    )


def behind_softmax(
    loss: LossLike | str,
    output: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    class_weight: ClassWeight | None = None,
) -> tuple[float, RealArray]:
    """Computes a loss over classes of what a softmax has made, and its gradient with respect to that.

    Training takes a softmax that ends a network into such a loss; this is the same loss of its output.

    Args:
        loss: One that takes class indices.
        output: (rows, ...) probabilities.
        target: What was wanted.
        weight: (rows,) how much each row counts.
        label_smoothing: How much of the weight goes to all classes alike.
        class_weight: How much each class counts.
    """
    if name_of(loss) != "focal":
        return value_and_gradient("nll", output, target, weight, label_smoothing, class_weight)
    shares = np.maximum(as_numpy(output, what="output"), 1e-12)
    value, gradient = value_and_gradient(loss, np.log(shares), target, weight, label_smoothing, class_weight)
    return value, np.divide(gradient, shares, dtype=gradient.dtype)


def class_count(output_shape: Sequence[int]) -> int:
    """Returns the extent of the class axis: the last, or the channels of an image."""
    if not output_shape:
        return 1
    return output_shape[0] if len(output_shape) == 3 else output_shape[-1]


def expand_class_weight(value: ClassWeight | None, classes: int) -> list[float] | None:
    """Returns one weight for each class.

    Args:
        value: A mapping from class to weight, 1 for those left out, or the weights.
        classes: How many classes there are.

    Returns:
        The weights, or None where None was given.

    Raises:
        ConfigError: A class is out of range, a weight negative, or their number wrong.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        weights = [1.0] * classes
        for key, weight in value.items():
            index = whole("class_weight", "a class", key, least=0)
            if not index < classes:
                raise ConfigError(f"class_weight names class {key}, but there are {classes} classes, from 0")
            weights[index] = real("class_weight", f"the weight of class {key}", weight, least=0.0)
        return weights
    weights = [real("class_weight", "a weight", weight, least=0.0) for weight in value]
    if len(weights) != classes:
        raise ConfigError(f"class_weight has {len(weights)} weights, but there are {classes} classes")
    return weights


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
