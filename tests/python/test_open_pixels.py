"""Images of different sizes whose pixels count by weights of their own, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
RNG = np.random.default_rng(12)
SIZES = [(4, 5), (3, 3), (4, 5), (6, 4), (3, 3), (4, 5)]
IMAGES = [RNG.normal(size=(2, *size)) for size in SIZES]
MASKS = [RNG.integers(0, 3, size) for size in SIZES]
VALUES = [RNG.normal(size=(3, *size)) for size in SIZES]
WEIGHTS = [RNG.integers(0, 3, size) * 0.75 for size in SIZES]
QUIET: dict[str, Any] = {"epochs": 1, "verbose": False, "optimizer": "sgd", "learning_rate": 0.05}


def painter() -> Any:
    layers = [nn.Conv2D(4, 3, padding=1, activation="tanh"), nn.Conv2D(3, 1)]
    return loom.Sequential(layers, input_shape=(2, None, None), precision="float64", seed=3)


def cross_entropy(net: Any, masks: list[Array] = MASKS, weights: list[Array] = WEIGHTS) -> float:
    """The mean over all pixels, by their weights."""
    total, count = 0.0, 0.0
    for made, mask, weight in zip(net.predict(IMAGES), masks, weights, strict=True):
        shares = made - np.log(np.exp(made).sum(0))
        total -= float((np.take_along_axis(shares, mask[None], 0)[0] * weight).sum())
        count += float(weight.sum())
    return total / count


def test_the_loss_is_the_weighted_mean_over_pixels() -> None:
    net = painter()
    data = (IMAGES, MASKS, WEIGHTS)
    found = net.evaluate(data, loss="cross_entropy", metrics=["accuracy"])
    assert found["loss"] == pytest.approx(cross_entropy(net), rel=1e-12)
    hits = [made.argmax(0) == mask for made, mask in zip(net.predict(IMAGES), MASKS, strict=True)]
    counted = np.concatenate([hit[weight > 0] for hit, weight in zip(hits, WEIGHTS, strict=True)])
    assert found["accuracy"] == pytest.approx(counted.mean())
    squares = [
        ((made - value) ** 2 * weight).sum() / 3
        for made, value, weight in zip(net.predict(IMAGES), VALUES, WEIGHTS, strict=True)
    ]
    expected = sum(squares) / sum(weight.sum() for weight in WEIGHTS)
    assert net.evaluate((IMAGES, VALUES, WEIGHTS), loss="mse")["loss"] == pytest.approx(expected, rel=1e-12)


def test_a_step_follows_the_gradient_of_that_loss() -> None:
    """Of one batch, whose images have one size."""
    net, chosen = painter(), [0, 2, 5]
    images, weights = ([each[n] for n in chosen] for each in (IMAGES, WEIGHTS))
    masks = [MASKS[n] for n in chosen]
    before = {name: np.array(values) for name, values in net.state_dict().items()}

    def loss() -> float:
        total = 0.0
        for made, mask, weight in zip(net.predict(images), masks, weights, strict=True):
            shares = made - np.log(np.exp(made).sum(0))
            total -= float((np.take_along_axis(shares, mask[None], 0)[0] * weight).sum())
        return total / sum(float(weight.sum()) for weight in weights)

    slopes = {}
    for layer in net.layers:
        for name, values in layer.parameters.items():
            slope = np.zeros_like(values)
            for place in np.ndindex(values.shape):
                ends = []
                for way in (1e-5, -1e-5):
                    moved = values.copy()
                    moved[place] += way
                    layer.parameters[name] = moved
                    ends.append(loss())
                slope[place] = (ends[0] - ends[1]) / 2e-5
            layer.parameters[name] = values
            slopes[f"{layer.path}.{name}"] = slope
    net.fit(images, masks, sample_weight=weights, loss="cross_entropy", batch_size=3, **QUIET)
    for name, values in net.state_dict().items():
        np.testing.assert_allclose((before[name] - values) / 0.05, slopes[name], atol=1e-8, err_msg=name)


def test_what_does_not_count_may_have_any_label() -> None:
    odd = [np.where(weight == 0, 255, mask) for mask, weight in zip(MASKS, WEIGHTS, strict=True)]
    made = []
    for masks in (MASKS, odd):
        net = painter()
        net.fit(IMAGES, masks, sample_weight=WEIGHTS, loss="cross_entropy", batch_size=2, **QUIET)
        made.append(net.state_dict())
    for name, values in made[0].items():
        np.testing.assert_array_equal(made[1][name], values)


def test_weights_of_one_size_may_be_an_array() -> None:
    images, masks, weights = (np.stack([each[n] for n in (0, 2, 5)]) for each in (IMAGES, MASKS, WEIGHTS))
    net = painter()
    apart = net.evaluate((list(images), list(masks), list(weights)), loss="cross_entropy")
    assert net.evaluate((images, masks, weights), loss="cross_entropy") == apart
    fixed = net.resized((2, 4, 5))
    assert fixed.evaluate((images, masks, weights), loss="cross_entropy")["loss"] == pytest.approx(
        apart["loss"]
    )


def test_devices_and_shards_agree(gpu: str) -> None:
    made = []
    for extra in ({"device": "cpu"}, {"device": gpu}, {"device": "cpu", "shards": 2}):
        net = loom.Sequential([nn.Conv2D(3, 3, padding=1)], input_shape=(2, None, None), seed=3)
        settings = {**QUIET, "shuffle": False, "epochs": 2, **extra}
        result = net.fit(IMAGES, MASKS, sample_weight=WEIGHTS, loss="cross_entropy", batch_size=2, **settings)
        made.append((result.loss_history, net.state_dict()))
    for history, states in made[1:]:
        np.testing.assert_allclose(history, made[0][0], rtol=1e-5)
        for name, values in made[0][1].items():
            np.testing.assert_allclose(states[name], values, atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (WEIGHTS[:5], "one for each sample"),
        ([weight[:2] for weight in WEIGHTS], "weight"),
        ([weight[0] for weight in WEIGHTS], "weight"),
        ([np.zeros(size) for size in SIZES], "zero"),
    ],
)
def test_others_are_refused(weights: Any, message: str) -> None:
    with pytest.raises((loom.DataError, loom.ShapeError), match=message):
        painter().evaluate((IMAGES, MASKS, weights), loss="cross_entropy")
