"""Weights of steps, of places of volumes and of pixels, beside what NumPy makes of single elements."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import loom
from loom import losses, nn

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


def series(outputs: int = 4) -> Any:
    layers: list[nn.Layer] = [nn.GRU(4, return_sequences=True), nn.Dense(outputs)]
    return loom.Sequential(layers, input_shape=(5, 3), seed=0, precision="float64")


def volumes() -> Any:
    layers: list[nn.Layer] = [nn.Conv3D(3, 1), nn.Permute((1, 2, 3, 0))]
    return loom.Sequential(layers, input_shape=(2, 2, 3, 2), seed=0, precision="float64")


def images(channels: int, *more: nn.Layer) -> Any:
    layers = [nn.Conv2D(channels, 1), *more]
    return loom.Sequential(layers, input_shape=(3, 4, 5), seed=0, precision="float64")


def entropy(scores: Any, labels: Any) -> Any:
    """(..., classes) against (...)."""
    logits = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return -np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def mean(each: Any, weight: Any) -> float:
    return float((each * weight).sum() / weight.sum())


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


def pixel_losses(loss: str, outputs: Any, targets: Any) -> Any:
    """(rows, height, width): what each pixel costs, and how many numbers that is a sum of."""
    last = np.moveaxis(outputs, 1, -1)
    if loss == "cross_entropy":
        return entropy(last, targets), 1
    apart = last - np.moveaxis(targets, 1, -1)
    return ((apart**2) if loss == "mse" else np.abs(apart)).sum(-1), outputs.shape[1]


VALUES = RNG.normal(size=(6, 2, 4, 5))


def went_down(net: Any, before: Any, rate: float, tolerance: float) -> None:
    """Checks that a network is a step of plain gradient descent away from one that has the gradients."""
    for mine, other in zip(net.layers, before.layers, strict=True):
        for name, gradient in other.gradients.items():
            wanted = other.parameters[name] - rate * gradient
            np.testing.assert_allclose(mine.parameters[name], wanted, atol=tolerance)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "mae"])
def test_trainings_weigh_pixels_as_numpy_does(loss: str) -> None:
    targets = MASKS if loss == "cross_entropy" else VALUES
    net, counted = images(2), OF_PIXELS > 0
    outputs = net.predict(IMAGES)
    costs, numbers = pixel_losses(loss, outputs, targets)
    expected = mean(costs, OF_PIXELS) / numbers
    metrics: list[Any] = ["accuracy", "sklearn.accuracy_score"] if loss == "cross_entropy" else ["mae", "r2"]
    settings: dict[str, Any] = {"loss": loss, "metrics": metrics}
    if loss == "cross_entropy":
        right = float((outputs.argmax(1) == MASKS)[counted].mean())
        wanted = {"accuracy": right, "accuracy_score": right}
    else:
        given, truth = (np.moveaxis(each, 1, -1)[counted] for each in (outputs, targets))
        share = ((given - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        wanted = {"mae": float(np.abs(given - truth).mean()), "r2": 1 - float(share)}
    for weight in (OF_PIXELS, OF_PIXELS[:, None], OF_PIXELS.reshape(6, -1)):
        found = net.evaluate((IMAGES, targets, weight), batch_size=4, **settings)
        assert found == pytest.approx({"loss": expected, **wanted})
        fitted = net.fit(
            [(IMAGES, targets, weight)],
            validation=(IMAGES, targets, weight),
            learning_rate=0.0,
            **settings,
            **QUIET,
        )
        assert fitted.loss_history == pytest.approx([expected])
        for name, value in wanted.items():
            assert fitted.metrics[name] == pytest.approx([value])
            assert fitted.metrics[f"val_{name}"] == pytest.approx([value])
    config = loom.TrainingConfig(loss=cast("Any", loss))
    assert loom.LBFGS(net, config).fit(IMAGES, targets, OF_PIXELS, iterations=1)[0] == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", loom.losses.Expr("abs(y - t) ** 1.5")])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_goes_down_the_gradient_of_weighed_pixels(loss: Any, accumulate: int) -> None:
    targets = MASKS if loss == "cross_entropy" else VALUES
    net, by_hand = images(2), images(2)
    rate, size = 0.1, 6 // accumulate
    config: dict[str, Any] = {**QUIET, "loss": loss, "optimizer": "sgd", "learning_rate": rate}
    config |= {"batch_size": size, "accumulate": accumulate, "shuffle": False}
    net.fit(IMAGES, targets, sample_weight=OF_PIXELS, **config)
    # Batches that are added up have one mean.
    _, gradient = loom.losses.value_and_gradient(loss, by_hand.forward(IMAGES), targets, OF_PIXELS)
    by_hand.backward(gradient)
    went_down(net, by_hand, rate, 1e-12)
    # Of central differences, too.
    weight = net[0, 0, 0, 0].weight
    _, gradient = loom.losses.value_and_gradient(loss, net.forward(IMAGES), targets, OF_PIXELS)
    net.zero_gradients()
    net.backward(gradient)
    slope, step = float(net[0, 0, 0, 0].gradients["weight"][1, 2, 0, 0]), 1e-5
    sides = []
    for sign in (1, -1):
        moved = weight.copy()
        moved[1, 2, 0, 0] += sign * step
        net[0, 0, 0, 0].weight = moved
        sides.append(net.evaluate((IMAGES, targets, OF_PIXELS), loss=loss)["loss"])
    assert slope == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6)


def test_pixels_weigh_the_same_on_a_gpu_and_in_shards(gpu: str) -> None:
    settings: dict[str, Any] = {**QUIET, "optimizer": "sgd", "shuffle": False, "metrics": ["accuracy"]}
    square = loom.losses.Expr("(y - t) ** 2")
    cases: list[Any] = [("cross_entropy", MASKS), ("mse", VALUES), (square, VALUES)]
    for loss, targets in cases:
        made = []
        for extra in ({}, {"device": gpu}, {"shards": 2}):
            net = loom.Sequential([nn.Conv2D(2, 3, padding=1)], input_shape=(3, 4, 5), seed=3)
            result = net.fit(IMAGES, targets, sample_weight=OF_PIXELS, loss=loss, **settings, **extra)
            made.append((result.loss_history[0], net.state_dict(), result.metrics["accuracy"]))
        for loss_of, states, accuracy in made[1:]:
            assert loss_of == pytest.approx(made[0][0], rel=1e-5)
            assert accuracy == made[0][2]
            for mine, other in zip(states.values(), made[0][1].values(), strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5)


def test_a_loss_of_whole_images_takes_no_weights_of_pixels() -> None:
    one = images(1)
    for loss in (squared, "dice", "cosine"):
        name = {"dice": "dice", "cosine": '"cosine" adds up'}.get(str(loss), "squared")
        with pytest.raises((loom.ConfigError, loom.InvalidValueError), match=name):
            one.evaluate((IMAGES, MASKS[:, None] * 1.0, OF_PIXELS), loss=loss)


@pytest.mark.parametrize("loss", ["cosine", losses.Expr("sum((y - t) ** 2, axis=-1) ** 0.5")], ids=str)
def test_a_loss_with_a_value_for_each_step_takes_weights_of_steps(loss: Any) -> None:
    """Against NumPy, and slopes against differences."""
    x, wanted = RNG.normal(size=(7, 5, 2)), RNG.normal(size=(7, 5, 3))
    weight = RNG.integers(0, 3, (7, 5)) * 0.5

    def each(made: Any) -> Any:
        if loss == "cosine":
            lengths = np.linalg.norm(made, axis=-1) * np.linalg.norm(wanted, axis=-1)
            return 1 - (made * wanted).sum(-1) / lengths
        return np.linalg.norm(made - wanted, axis=-1)

    net = loom.Sequential([nn.Dense(3)], input_shape=(5, 2), precision="float64", seed=3)
    expected = np.average(each(net.predict(x)), weights=weight)
    assert net.evaluate((x, wanted, weight), loss=loss)["loss"] == pytest.approx(expected, rel=1e-12)
    made = net.predict(x)
    value, slope = losses.value_and_gradient(loss, made, wanted, weight)
    assert value == pytest.approx(expected, rel=1e-12)
    for place in [(0, 0, 0), (3, 4, 2), (6, 2, 1)]:
        step = np.zeros_like(made)
        step[place] = 1e-6
        ends = [np.average(each(made + way * step), weights=weight) for way in (1, -1)]
        assert slope[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)
    assert (slope[weight == 0] == 0).all()
    before, step = net.state_dict()["0.0.0.0.bias"], slope.sum((0, 1))
    settings = {**QUIET, "optimizer": "sgd", "learning_rate": 0.1, "epochs": 1, "batch_size": 7}
    net.fit(x, wanted, sample_weight=weight, loss=loss, **settings)
    np.testing.assert_allclose(net.state_dict()["0.0.0.0.bias"], before - 0.1 * step, rtol=1e-9)
    with pytest.raises(loom.InvalidValueError, match="adds up over steps"):
        losses.value_and_gradient(losses.Expr("mean((y - t) ** 2)"), made, wanted, weight)


def test_labels_beyond_the_classes_are_told_of_weights() -> None:
    odd = MASKS.copy()
    odd[0, 0, 0] = 255
    runs: list[Any] = [
        lambda: images(2).evaluate((IMAGES, odd), loss="cross_entropy"),
        lambda: images(2).fit(IMAGES, odd, loss="cross_entropy", **QUIET),
        lambda: images(2).fit(IMAGES, np.where(odd == 255, -1, odd), loss="cross_entropy", **QUIET),
    ]
    for run in runs:
        with pytest.raises((loom.DataError, loom.InvalidValueError), match="a weight of 0"):
            run()


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
    message = "squared: it is one number for each row, in which steps or pixels cannot count"
    for data in ((SERIES, values, OF_STEPS), [(SERIES, values, OF_STEPS)]):
        with pytest.raises(loom.ConfigError, match=message):
            net.evaluate(data, loss=squared)
    for loss in (squared, loom.losses.Dice()):
        with pytest.raises(loom.ShapeError, match="no number for each element"):
            loom.losses.value_and_gradient(loss, net.forward(SERIES), np.abs(values) % 1, OF_STEPS)
    with pytest.raises(loom.InvalidValueError, match="adds up over steps"):
        loom.losses.value_and_gradient(
            loom.losses.Expr("sum(y * t, axis=0)"), net.forward(SERIES), values, OF_STEPS
        )
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


def named(steps: int | None) -> Any:
    net = loom.Network(input_shape=(steps, 3), grid=(1, 3), seed=1)
    net[0, 0].add(nn.GRU(4, return_sequences=True))
    net[0, 1].add(nn.Dense(4))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    return net.output("states", (0, 1)).output("values", (0, 2))


def test_named_outputs_of_fixed_steps_weigh_as_numpy_says() -> None:
    values = RNG.normal(size=(7, 5, 2))
    loss: dict[str, Any] = {"states": "cross_entropy", "values": "mse"}
    of_values = weights(7)
    net = named(5)
    targets, weight = {"states": STATES, "values": values}, {"states": OF_STEPS, "values": of_values}
    scores = net.predict(SERIES)
    states = entropy(scores["states"], STATES)
    squares = ((scores["values"] - values) ** 2).mean(-1)
    expected = {
        "states_loss": float((states * OF_STEPS).mean()),
        "values_loss": float((squares * of_values[:, None]).mean()),
        "states_accuracy": float((scores["states"].argmax(-1) == STATES)[OF_STEPS > 0].mean()),
        "values_mae": float(np.abs(scores["values"] - values)[of_values > 0].mean()),
    }
    expected["loss"] = expected["states_loss"] + expected["values_loss"]
    metrics: Any = {"states": ["accuracy"], "values": ["mae"]}
    found = net.evaluate((SERIES, targets, weight), loss=loss, metrics=metrics, batch_size=3)
    assert found == pytest.approx(expected)
    # Where sequences have any length the same weights come step by step.
    listed = {"states": list(OF_STEPS), "values": of_values}
    opened = named(None)
    assert opened.evaluate((SERIES, targets, listed), loss=loss)["states_loss"] == pytest.approx(
        expected["states_loss"], rel=1e-5
    )
    fitted = net.fit(
        SERIES, targets, sample_weight=weight, learning_rate=0.0, loss=loss, metrics=metrics, **QUIET
    )
    for name in metrics_of(metrics):
        assert fitted.metrics[name] == pytest.approx([expected[name]])
    own: dict[str, Any] = {"states": "cross_entropy", "values": squared}
    found = net.evaluate((SERIES, targets, weight), loss=own)
    assert found["values_loss"] == pytest.approx(expected["values_loss"])
    apart = {"values": OF_STEPS}
    with pytest.raises(loom.ConfigError, match="loss squared: it is one number for each row"):
        net.evaluate((SERIES, targets, apart), loss=own)
    with pytest.raises(loom.DataError, match=r'output "states" must be \(7,\).*\(7, 5\), one for each'):
        net.evaluate((SERIES, targets, {"states": OF_STEPS[:, :4]}), loss=loss)


def metrics_of(metrics: dict[str, list[str]]) -> list[str]:
    return [f"{output}_{name}" for output, names in metrics.items() for name in names]


def test_weights_of_steps_and_pixels_by_output_learn_the_same_on_a_gpu(gpu: str) -> None:
    values = RNG.normal(size=(6, 2))

    def made() -> Any:
        net = loom.Network(input_shape=(3, 4, 5), grid=(1, 3), seed=1)
        net[0, 0].add(nn.Conv2D(4, 3, padding=1, activation="relu"))
        net[0, 1].add(nn.Conv2D(2, 1))
        net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.GlobalAvgPool2D(), nn.Dense(2))
        return net.output("mask", (0, 1)).output("values", (0, 2))

    loss: dict[str, Any] = {"mask": "cross_entropy", "values": "mse"}
    targets = {"mask": MASKS, "values": values}
    weight = {"mask": OF_PIXELS, "values": np.array([1, 0, 2, 0, 1, 0.5])}
    net = made()
    outputs = net.forward(IMAGES)
    pixels, _ = pixel_losses("cross_entropy", outputs["mask"], MASKS)
    squares = ((outputs["values"] - values) ** 2).mean(-1) * weight["values"]
    expected = float((pixels * OF_PIXELS).mean() + squares.mean())
    assert net.evaluate((IMAGES, targets, weight), loss=loss)["loss"] == pytest.approx(expected, rel=1e-5)
    settings: dict[str, Any] = {**QUIET, "batch_size": 6, "optimizer": "sgd", "learning_rate": 0.1}
    settings["metrics"] = {"mask": ["accuracy"], "values": ["mae"]}
    learned = []
    for extra in ({}, {"device": gpu}, {"shards": 2}):
        each = made()
        result = each.fit(IMAGES, targets, sample_weight=weight, loss=loss, **settings, **extra)
        assert result.loss_history == pytest.approx([expected], rel=1e-5)
        right = float((outputs["mask"].argmax(1) == MASKS)[OF_PIXELS > 0].mean())
        assert result.metrics["mask_accuracy"] == pytest.approx([right])
        apart = np.abs(outputs["values"] - values)[weight["values"] > 0].mean()
        assert result.metrics["values_mae"] == pytest.approx([apart], rel=1e-5)
        learned.append(each)
    _, of_mask = loom.losses.cross_entropy(outputs["mask"], MASKS, weight=OF_PIXELS)
    _, of_values = loom.losses.mse(outputs["values"], values, weight=weight["values"])
    shares = OF_PIXELS.mean(), weight["values"].mean()
    net.backward({"mask": of_mask * np.float32(shares[0]), "values": of_values * np.float32(shares[1])})
    for each in learned:
        went_down(each, net, 0.1, 1e-5)
