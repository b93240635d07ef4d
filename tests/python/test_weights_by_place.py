"""Weights of steps, of places of volumes and of pixels, beside what NumPy makes of single elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(11)
QUIET: dict[str, Any] = {"epochs": 1, "batch_size": 3, "verbose": False, "ignore_findings": "all"}


def weights(*shape: int) -> Any:
    """Some count for nothing."""
    found = RNG.random(shape)
    found[found < 0.3] = 0.0
    return found


SERIES, STATES, OF_STEPS = RNG.normal(size=(7, 5, 3)), RNG.integers(0, 4, (7, 5)), weights(7, 5)
VOLUMES, PARTS, OF_PLACES = (
    RNG.normal(size=(4, 2, 2, 3, 2)),
    RNG.integers(0, 3, (4, 2, 3, 2)),
    weights(4, 2, 3, 2),
)
IMAGES, MASKS, OF_PIXELS = RNG.normal(size=(6, 3, 4, 5)), RNG.integers(0, 2, (6, 4, 5)), weights(6, 4, 5)


def series(outputs: int = 4) -> loom.Network:
    layers: list[nn.Layer] = [nn.GRU(4, return_sequences=True), nn.Dense(outputs)]
    return loom.Sequential(layers, input_shape=(5, 3), seed=0, precision="float64")


def volumes() -> loom.Network:
    layers: list[nn.Layer] = [nn.Conv3D(3, 1), nn.Permute((1, 2, 3, 0))]
    return loom.Sequential(layers, input_shape=(2, 2, 3, 2), seed=0, precision="float64")


def images(channels: int, *more: nn.Layer) -> loom.Network:
    layers = [nn.Conv2D(channels, 1), *more]
    return loom.Sequential(layers, input_shape=(3, 4, 5), seed=0, precision="float64")


def entropy(scores: Any, labels: Any) -> Any:
    """(..., classes) against (...)."""
    logits = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return -np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def mean(losses: Any, weight: Any) -> float:
    return float((losses * weight).sum() / weight.sum())


@pytest.mark.parametrize("of_one", [False, True])
def test_every_step_counts_by_its_weight(of_one: bool) -> None:
    net = series()
    weight = OF_STEPS[..., None] if of_one else OF_STEPS
    scores = net.predict(SERIES)
    expected = mean(entropy(scores, STATES), OF_STEPS)
    metrics: list[Any] = ["accuracy", "sklearn.accuracy_score"]
    settings: dict[str, Any] = {"loss": "cross_entropy", "metrics": metrics}
    found = net.evaluate((SERIES, STATES, weight), **settings)
    counted = OF_STEPS > 0
    right = float((scores.argmax(-1) == STATES)[counted].mean())
    assert found["loss"] == pytest.approx(expected)
    assert found["accuracy"] == pytest.approx(right)
    assert found["accuracy_score"] == pytest.approx(right)
    value, gradient = loom.losses.cross_entropy(scores, STATES, weight=weight)
    assert value == pytest.approx(expected)
    assert not gradient[~counted].any()
    config = loom.TrainingConfig(loss="cross_entropy")
    assert loom.LBFGS(net, config).fit(SERIES, STATES, weight, iterations=1)[0] == pytest.approx(expected)
    fitted = series().fit(SERIES, STATES, sample_weight=weight, learning_rate=0.0, **settings, **QUIET)
    assert fitted.metrics["accuracy"] == pytest.approx([right])


def test_every_place_of_a_volume_counts_by_its_weight() -> None:
    net = volumes()
    scores = net.predict(VOLUMES)
    counted = OF_PLACES > 0
    right = float((scores.argmax(-1) == PARTS)[counted].mean())
    settings: dict[str, Any] = {"loss": "cross_entropy", "metrics": ["accuracy", "sklearn.accuracy_score"]}
    for weight in (OF_PLACES, OF_PLACES.reshape(4, -1)):
        found = net.evaluate((VOLUMES, PARTS, weight), **settings)
        assert found["loss"] == pytest.approx(mean(entropy(scores, PARTS), OF_PLACES))
        assert found["accuracy"] == found["accuracy_score"] == pytest.approx(right)
        fitted = net.fit(VOLUMES, PARTS, sample_weight=weight, learning_rate=0.0, **settings, **QUIET)
        assert fitted.metrics["accuracy_score"] == pytest.approx([right])


def test_losses_by_hand_take_weights_of_pixels() -> None:
    scores = images(2).forward(IMAGES)
    value, gradient = loom.losses.cross_entropy(scores, MASKS, weight=OF_PIXELS, class_weight=[1.0, 3.0])
    by_class = np.array([1.0, 3.0])[MASKS] * OF_PIXELS
    last = np.moveaxis(scores, 1, -1)
    assert value == pytest.approx(mean(entropy(last, MASKS), by_class))
    shares = np.exp(last) / np.exp(last).sum(-1, keepdims=True) - np.eye(2)[MASKS]
    wanted = shares * (by_class / by_class.sum())[..., None]
    np.testing.assert_allclose(gradient, np.moveaxis(wanted, -1, 1), atol=1e-12)
    logits = images(1).forward(IMAGES)
    for weight in (OF_PIXELS, OF_PIXELS[:, None]):
        value, _ = loom.losses.mse(logits, MASKS[:, None] * 1.0, weight=weight)
        assert value == pytest.approx(mean((logits[:, 0] - MASKS) ** 2, OF_PIXELS))
    with pytest.raises(loom.ShapeError, match=r"\(6, 4, 5\), one for each place"):
        loom.losses.cross_entropy(scores, MASKS, weight=OF_PIXELS[:, :, 0])
    with pytest.raises(loom.DataError, match="zero"):
        loom.losses.cross_entropy(scores, MASKS, weight=(MASKS == 1) * 1.0, class_weight=[1.0, 0.0])
    with pytest.raises(loom.InvalidValueError, match="row 2 is -1"):
        loom.losses.cross_entropy(
            scores, MASKS, weight=np.where(np.arange(6) == 2, -1.0, 1.0)[:, None, None] + 0 * MASKS
        )


def test_trainings_say_how_pixels_become_steps() -> None:
    message = r"no weights of pixels.*nn\.Reshape\(\(2, 20\)\) and nn\.Permute\(\(1, 0\)\)"
    for learns in (
        lambda: images(2).fit(IMAGES, MASKS, sample_weight=OF_PIXELS, loss="cross_entropy", **QUIET),
        lambda: images(2).evaluate((IMAGES, MASKS, OF_PIXELS.reshape(6, -1)), loss="cross_entropy"),
        lambda: images(2).fit([(IMAGES, MASKS, OF_PIXELS)], loss="cross_entropy", **QUIET),
    ):
        with pytest.raises(loom.ShapeError, match=message):
            learns()
    # As the message says.
    net = images(2, nn.Reshape((2, 20)), nn.Permute((1, 0)))
    flat = IMAGES, MASKS.reshape(6, -1), OF_PIXELS.reshape(6, -1)
    expected, _ = loom.losses.cross_entropy(images(2).forward(IMAGES), MASKS, weight=OF_PIXELS)
    assert net.evaluate(flat, loss="cross_entropy")["loss"] == pytest.approx(expected)
    one = images(1, nn.Reshape((1, 20)), nn.Permute((1, 0)))
    targets = (MASKS[:, None] * 1.0).reshape(6, 1, -1).transpose(0, 2, 1)
    expected, _ = loom.losses.mse(images(1).forward(IMAGES), MASKS[:, None] * 1.0, weight=OF_PIXELS)
    assert one.evaluate((IMAGES, targets, flat[2]), loss="mse")["loss"] == pytest.approx(expected)


def test_other_shapes_are_refused() -> None:
    for weight in (OF_STEPS[:, :, None] * np.ones(4), OF_STEPS[:, :4]):
        with pytest.raises(loom.ShapeError, match=r"expected \(7,\).*\(7, 5\)"):
            series().evaluate((SERIES, STATES, weight), loss="cross_entropy")
    with pytest.raises(loom.DataError, match=r"weight must be \(7,\)"):
        series().evaluate((SERIES, STATES, OF_STEPS[:6]), loss="cross_entropy")


def squared(output: Any, target: Any) -> Any:
    """One number for each row."""
    apart = output - target
    return (apart**2).reshape(len(apart), -1).mean(1), 2 * apart / apart[0].size


def test_a_function_of_whole_rows_takes_no_weights_of_steps() -> None:
    values = RNG.normal(size=(7, 5, 2))
    net = series(2)
    message = "squared: it is one number for each row, in which steps cannot count"
    for data in ((SERIES, values, OF_STEPS), [(SERIES, values, OF_STEPS)]):
        with pytest.raises(loom.ConfigError, match=message):
            net.evaluate(data, loss=squared)
    for loss in (squared, loom.losses.Dice(), loom.losses.Cosine(), loom.losses.Expr("sum(y * t, axis=0)")):
        with pytest.raises(loom.ShapeError, match="no number for each element"):
            loom.losses.value_and_gradient(loss, net.forward(SERIES), np.abs(values) % 1, OF_STEPS)
    square = loom.losses.Expr("(y - t) ** 2")
    found = loom.losses.value_and_gradient(square, net.forward(SERIES), values, OF_STEPS)
    expected = loom.losses.mse(net.forward(SERIES), values, weight=OF_STEPS)
    assert found[0] == pytest.approx(expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    # Steps of a row that count alike are a weight of the row.
    whole = RNG.random(7)
    found = net.evaluate((SERIES, values, whole[:, None] * np.ones(5)), loss=squared)
    assert found == pytest.approx(net.evaluate((SERIES, values, whole), loss=squared))
    # Behind sequences of different lengths there is padding, which would count.
    layers: list[nn.Layer] = [nn.GRU(4, return_sequences=True), nn.Dense(2)]
    open_net = loom.Sequential(layers, input_shape=(None, 3), seed=0)
    short = [SERIES[0, :2], SERIES[1]], [values[0, :2], values[1]]
    with pytest.raises(loom.ConfigError, match="nor padding"):
        open_net.evaluate(short, loss=squared)
    assert open_net.evaluate(short, loss=loom.losses.Expr("(y - t) ** 2")) == pytest.approx(
        open_net.evaluate(short, loss="mse")
    )


def test_a_number_for_each_pair_goes_to_every_place_of_an_output() -> None:
    """A Siamese network: two points through the same layers, and a contrastive loss in Python."""

    def contrastive(output: Any, target: Any) -> Any:
        apart, same = output[:, 0] - output[:, 1], target[:, 0, 0]
        far = np.sqrt((apart**2).sum(1) + 1e-12)
        near = np.maximum(1 - far, 0)
        slope = 2 * (same * far - (1 - same) * near) / far
        gradient = slope[:, None] * apart
        return same * far**2 + (1 - same) * near**2, np.stack([gradient, -gradient], axis=1)

    pairs, same = RNG.normal(size=(40, 2, 6)), RNG.integers(0, 2, 40) * 1.0
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=(2, 6), seed=0)
    message = r"contrastive gets targets like the output, \(rows, 2, 2\).*np\.broadcast_to\(y\.reshape"
    with pytest.raises(loom.ShapeError, match=message):
        net.fit(pairs, same, loss=contrastive, **QUIET)
    # As the message says.
    targets = np.broadcast_to(same.reshape(-1, 1, 1), (len(same), 2, 2))
    expected, _ = contrastive(net.predict(pairs), targets)
    assert net.evaluate((pairs, targets), loss=contrastive)["loss"] == pytest.approx(
        expected.mean(), rel=1e-5
    )


def named(steps: int | None) -> loom.Network:
    net = loom.Network(input_shape=(steps, 3), grid=(1, 3), seed=1)
    net[0, 0].add(nn.GRU(4, return_sequences=True))
    net[0, 1].add(nn.Dense(4))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    return net.output("states", (0, 1)).output("values", (0, 2))


def test_named_outputs_of_fixed_steps_say_what_takes_weights_of_them() -> None:
    values = RNG.normal(size=(7, 5, 2))
    data = SERIES, {"states": STATES, "values": values}, {"states": OF_STEPS}
    loss = {"states": "cross_entropy", "values": "mse"}
    with pytest.raises(loom.DataError, match=r'output "states" must be \(7,\).*take None for the steps'):
        named(5).evaluate(data, loss=loss)
    assert named(None).evaluate(data, loss=loss)["loss"] > 0
    own: dict[str, Any] = {"states": "cross_entropy", "values": squared}
    with pytest.raises(loom.ConfigError, match="loss squared: it is one number for each row"):
        named(None).evaluate(data, loss=own)
