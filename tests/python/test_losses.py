"""The losses of the manual loop against their definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def softmax(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def numeric(function: Callable[[Array], float], x: Array) -> Array:
    """Central differences."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        gradient[index] = (function(up) - function(down)) / 2e-6
    return gradient


def check(
    call: Callable[[Array], tuple[float, Any]], expected: Callable[[Array], float], output: Array
) -> None:
    value, gradient = call(output)
    assert value == pytest.approx(expected(output), rel=1e-12)
    np.testing.assert_allclose(gradient, numeric(expected, output), rtol=1e-6, atol=1e-9)
    small, rounded = call(output.astype(np.float32))
    assert small == pytest.approx(value, rel=1e-5)
    assert rounded.dtype == np.float32


def test_regression_losses(random: np.random.Generator) -> None:
    output, target = random.normal(size=(5, 4)), random.normal(size=(5, 4))
    error = lambda o: o - target  # noqa: E731
    check(lambda o: losses.mse(o, target), lambda o: float(np.mean(error(o) ** 2)), output)
    check(lambda o: losses.mae(o, target), lambda o: float(np.mean(np.abs(error(o)))), output)

    def huber(o: Array) -> float:
        size = np.abs(error(o))
        return float(np.mean(np.where(size <= 0.7, 0.5 * size**2, 0.7 * (size - 0.35))))

    check(lambda o: losses.huber(o, target, 0.7), huber, output)


def test_binary_cross_entropy(random: np.random.Generator) -> None:
    output, target = random.normal(size=(6, 2)), random.uniform(size=(6, 2))

    def expected(o: Array) -> float:
        p = 1 / (1 + np.exp(-o))
        return float(-np.mean(target * np.log(p) + (1 - target) * np.log(1 - p)))

    check(lambda o: losses.binary_cross_entropy(o, target), expected, output)
    huge, gradient = losses.binary_cross_entropy(np.array([[1000.0], [-1000.0]]), np.array([[1], [1]]))
    assert huge == pytest.approx(500.0)
    np.testing.assert_allclose(gradient, [[0.0], [-0.5]])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_indices(random: np.random.Generator, smoothing: float, weighted: bool) -> None:
    output, classes = random.normal(size=(6, 4)), random.integers(0, 4, 6)
    class_weight = [0.5, 1.0, 2.0, 3.0] if weighted else None

    def expected(o: Array) -> float:
        w = np.array(class_weight or [1.0] * 4)
        logs = np.log(softmax(o))
        own = -logs[np.arange(6), classes] * w[classes]
        spread = -(logs * w).sum(axis=1) / 4
        return float(((1 - smoothing) * own + smoothing * spread).sum() / w[classes].sum())

    check(
        lambda o: losses.cross_entropy(o, classes, label_smoothing=smoothing, class_weight=class_weight),
        expected,
        output,
    )


def test_cross_entropy_of_rows_images_and_weights(random: np.random.Generator) -> None:
    rows, soft = random.normal(size=(5, 3)), softmax(random.normal(size=(5, 3)))
    check(
        lambda o: losses.cross_entropy(o, soft),
        lambda o: float(-np.mean((soft * np.log(softmax(o))).sum(axis=1))),
        rows,
    )
    images, classes = random.normal(size=(2, 3, 2, 2)), random.integers(0, 3, (2, 2, 2))
    check(
        lambda o: losses.cross_entropy(o, classes),
        lambda o: float(-np.mean(np.take_along_axis(np.log(softmax(o, 1)), classes[:, None], axis=1))),
        images,
    )
    weight = np.array([1.0, 0.0, 2.0, 0.5, 1.0])
    labels = random.integers(0, 3, 5)
    check(
        lambda o: losses.cross_entropy(o, labels, weight=weight),
        lambda o: float(-(np.log(softmax(o))[np.arange(5), labels] * weight).sum() / weight.sum()),
        rows,
    )


def test_nll_takes_probabilities(random: np.random.Generator) -> None:
    output, classes = softmax(random.normal(size=(6, 4))), random.integers(0, 4, 6)
    check(
        lambda o: losses.nll(o, classes), lambda o: float(-np.mean(np.log(o[np.arange(6), classes]))), output
    )
    with pytest.raises(loom.InvalidValueError, match=r"probabilit|logarithm"):
        losses.nll(np.log(output), classes)


def test_from_logits_false_is_the_same_through_a_softmax_layer(random: np.random.Generator) -> None:
    x, classes = random.normal(size=(7, 5)), random.integers(0, 4, 7)
    plain = loom.Sequential([nn.Dense(4)], input_shape=5, precision="float64")
    ended = loom.Sequential([nn.Dense(4), nn.Softmax()], input_shape=5, precision="float64")
    loss, gradient = losses.cross_entropy(plain.forward(x), classes)
    same, through = losses.cross_entropy(ended.forward(x), classes, from_logits=False)
    assert same == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(ended.backward(through), plain.backward(gradient), rtol=1e-9, atol=1e-12)
    trained = [
        loom.train(net, (x, classes), loom.TrainingConfig(loss="cross_entropy", verbose=False))
        for net in (plain, ended)
    ]
    assert trained[0].final_loss == pytest.approx(trained[1].final_loss, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: losses.cross_entropy(np.zeros((2, 3)), [0, 3]), loom.InvalidValueError, "3"),
        (lambda: losses.cross_entropy(np.zeros((2, 3)), [0, -1]), loom.InvalidValueError, "-1"),
        (lambda: losses.cross_entropy(np.zeros((2, 3)), [0.0, 1.0]), loom.DTypeError, "must be integers"),
        (lambda: losses.cross_entropy(np.zeros((2, 3)), [0, 1, 2]), loom.DataError, "2 rows but target 3"),
        (lambda: losses.cross_entropy(np.zeros(3), [0, 1, 2]), loom.ShapeError, r"\(rows, ...\)"),
        (lambda: losses.cross_entropy(np.zeros((0, 3)), []), loom.ShapeError, "at least one row"),
        (lambda: losses.mse(np.zeros((2, 3)), np.zeros((2, 2))), loom.ShapeError, r"\(rows, 3\)"),
        (lambda: losses.huber(np.zeros((2, 3)), np.zeros((2, 3)), 0.0), loom.ConfigError, "delta"),
        (
            lambda: losses.cross_entropy(np.zeros((2, 3)), [0, 1], class_weight={3: 1.0}),
            loom.ConfigError,
            "class 3, but there are 3 classes",
        ),
        (
            lambda: losses.cross_entropy(np.zeros((2, 3)), [0, 1], class_weight=[1.0]),
            loom.ConfigError,
            "1 weights, but there are 3 classes",
        ),
        (
            lambda: losses.cross_entropy(np.zeros((2, 3)), [0, 1], weight=[1.0]),
            loom.ShapeError,
            r"weight must be \(2,\)",
        ),
        (
            lambda: losses.mse(np.zeros((2, 3, 1)), np.zeros((2, 3, 1)), weight=np.ones((2, 2))),
            loom.ShapeError,
            r"weight must be \(2,\), a number for each row, or \(2, 3\), one for each place, got \(2, 2\)",
        ),
        (
            # Every row would count once for each of the others.
            lambda: losses.value_and_gradient(
                losses.Dice(), np.zeros((2, 3)), np.zeros((2, 3)), np.ones((2, 1))
            ),
            loom.ShapeError,
            r"weight must be \(2,\)",
        ),
        (
            lambda: losses.mse(np.zeros((2, 3)), np.zeros((2, 3)), weight=np.zeros(2)),
            loom.DataError,
            "every row is zero",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], object], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
