"""A function for each loss of the engine, for the manual loop: the loss of an output, and its gradient."""

from __future__ import annotations

from loom._settings.checks import flag
from loom._typing import ArrayLike, RealArray
from loom.losses.classes import ClassWeight
from loom.losses.computing import value_and_gradient
from loom.losses.parametric import BinaryFocal, Focal, Huber, Quantile

__all__ = [
    "binary_cross_entropy",
    "binary_focal",
    "cross_entropy",
    "focal",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mae",
    "mse",
    "nll",
    "poisson",
    "quantile",
    "squared_hinge",
]


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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.
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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.
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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.
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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

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
        weight: (rows,) how much each row counts, or (rows, ...) how much each place does, such as a pixel.

    Returns:
        The loss, and its gradient with respect to the output.

    Raises:
        ShapeError: Output and target do not fit together.
        InvalidValueError: A target is not from -1 to 1.
    """
    return value_and_gradient("squared_hinge", output, target, weight)
