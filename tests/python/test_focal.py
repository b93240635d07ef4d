"""The focal loss over classes: against NumPy, behind a softmax, by weights of classes, on both devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn
from loom.errors import ConfigError, InvalidValueError


def formula(
    scores: NDArray[Any], target: NDArray[Any], gamma: float, weights: NDArray[Any] | None = None
) -> float:
    """Equation 4 of Lin et al. 2017 for a softmax; rows of shares, or class indices with weights."""
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    rows = target if target.ndim == scores.ndim else np.eye(scores.shape[-1])[target]
    each = -((1 - shares) ** gamma * np.log(shares))
    if weights is None:
        return float((rows * each).sum(axis=-1).mean())
    return float((rows * weights * each).sum() / (rows * weights).sum())


@pytest.mark.parametrize("seed", range(20))
def test_values_and_gradients_are_those_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, classes, gamma = int(rng.integers(1, 6)), int(rng.integers(2, 30)), float(rng.uniform(0.3, 4))
    scores = rng.normal(size=(rows, classes)) * 3
    target: Any = rng.integers(0, classes, rows) if seed % 2 else rng.dirichlet(np.ones(classes), rows)
    weights = rng.uniform(0.1, 3, classes) if seed % 4 == 1 else None
    given = None if weights is None else weights.tolist()
    value, gradient = losses.focal(scores, target, gamma, class_weight=given)
    assert abs(value - formula(scores, target, gamma, weights)) < 1e-12
    for place in [(0, 0), (rows - 1, classes - 1)]:
        ends = []
        for change in (1e-6, -1e-6):
            moved = scores.copy()
            moved[place] += change
            ends.append(formula(moved, target, gamma, weights))
        assert abs(gradient[place] - (ends[0] - ends[1]) / 2e-6) < 1e-8


def test_what_is_certain_has_no_loss_and_no_gradient() -> None:
    scores = np.array([[800.0, 0.0, -800.0], [0.0, 500.0, 0.0]])
    value, gradient = losses.focal(scores, np.array([0, 1]), 0.5)
    assert value == 0
    assert not np.isnan(gradient).any()
    assert np.abs(gradient).max() < 1e-12


def rare(rows: int = 800) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 4)).astype("float32")
    y = np.where(x[:, 0] > 1.5, 2, np.where(x[:, 1] > 0, 1, 0))
    return x, y


def net(*end: nn.Layer) -> loom.Network:
    return loom.Sequential([nn.Dense(16, activation="relu"), nn.Dense(3), *end], input_shape=4, seed=2)


SETTINGS: Any = {"epochs": 15, "learning_rate": 0.02, "verbose": False, "device": "cpu"}


def test_training_tells_rare_classes_and_takes_a_softmax_in(gpu: str) -> None:
    x, y = rare()
    loss = losses.Focal(gamma=1.5)
    here, behind, there = net(), net(nn.Softmax()), net()
    here.fit(x, y, loss=loss, class_weight={2: 3.0}, **SETTINGS)
    behind.fit(x, y, loss=loss, class_weight={2: 3.0}, **SETTINGS)
    there.fit(x, y, loss=loss, class_weight={2: 3.0}, **{**SETTINGS, "device": gpu})
    found = here.evaluate((x, y), metrics=["accuracy"])
    assert found["accuracy"] > 0.95
    weights = np.array([1.0, 1.0, 3.0])
    assert found["loss"] == pytest.approx(formula(here.predict(x).astype(float), y, 1.5, weights), rel=1e-4)
    np.testing.assert_allclose(behind.predict(x), here.predict_probabilities(x), rtol=0, atol=2e-5)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=0, atol=5e-3)


def test_names_labels_and_settings_are_known() -> None:
    x, y = rare(60)
    one = net()
    one.fit(x, np.array(["a", "b", "c"])[y], loss="focal", **{**SETTINGS, "epochs": 2})
    assert set(one.predict_classes(x)) <= {"a", "b", "c"}
    assert losses.resolve({"focal": {"gamma": 3.0}}) == losses.Focal(3.0)
    config = loom.TrainingConfig(loss=losses.Focal(0.5))
    assert loom.TrainingConfig.from_config(config.to_config()) == config
    value, gradient = losses.behind_softmax(losses.Focal(), [[0.2, 0.8]], [0])
    assert value == pytest.approx(-(0.8**2) * np.log(0.2))
    assert gradient.shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: losses.Focal(0), ConfigError, "gamma must be a finite number above 0"),
        (lambda: losses.focal(np.zeros((1, 2)), [2]), InvalidValueError, "class index 2"),
        (lambda: loom.TrainingConfig(loss="focal_los"), ConfigError, "focal"),
    ],
)
def test_mistakes_are_told(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
