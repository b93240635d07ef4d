"""Losses beyond single elements: of distributions, overlaps, distances, sequences of labels."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import losses, nn
from networks import quiet, weights

GOLDEN = Path(__file__).parents[1] / "golden"
RNG = np.random.default_rng(4)

# The loss, a batch's output, its target.
EXAMPLES: list[tuple[Any, Any, Any]] = [
    ("kl_divergence", RNG.normal(size=(4, 5)), RNG.dirichlet(np.ones(5), 4)),
    (losses.Dice(), RNG.normal(size=(3, 2, 4, 4)), RNG.integers(0, 2, (3, 2, 4, 4)).astype(float)),
    (losses.Dice(smooth=0.5), RNG.normal(size=(3, 7)), RNG.uniform(size=(3, 7))),
    (losses.Dice(by_class=True), RNG.normal(size=(3, 4, 5, 5)), RNG.integers(0, 4, (3, 5, 5))),
    (losses.Dice(by_class=True), RNG.normal(size=(3, 4)), RNG.dirichlet(np.ones(4), 3)),
    (losses.Dice(by_class=True), RNG.normal(size=(3, 6, 4)), RNG.integers(0, 4, (3, 6))),
    (losses.Triplet(), RNG.normal(size=(9, 3)), np.array([0, 1, 2, 0, 1, 0, 7, 7, 5])),
    (losses.Triplet(0.3, "all"), RNG.normal(size=(9, 3)), np.array([0, 1, 2, 0, 1, 0, 7, 7, 5])),
    (losses.Contrastive(), RNG.normal(size=(8, 3)), np.array([0, 1, 2, 0, 1, 0, 9, 9])),
    (losses.Contrastive(2.5), RNG.normal(size=(8, 2)), np.array([0, 1, 2, 0, 1, 0, 9, 9])),
    (losses.CTC(), RNG.normal(size=(3, 6, 4)), losses.padded_labels([[1, 1, 2], [3], []], 6)),
    (losses.CTC(blank=3), RNG.normal(size=(2, 4, 4)), losses.padded_labels([[0, 0], [2, 1, 0]], 4)),
    (losses.Cosine(), RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))),
    (losses.Cosine(), RNG.normal(size=(3, 2, 6)), RNG.normal(size=(3, 2, 6))),
]


@pytest.mark.parametrize(("loss", "output", "target"), EXAMPLES)
def test_gradients_are_those_of_the_mean(loss: Any, output: Any, target: Any) -> None:
    loss = resolved(loss, target)
    weight = np.linspace(0.5, 2.0, len(output))
    for given in (None, weight):
        if given is not None and isinstance(loss, (losses.Triplet, losses.Contrastive)):
            # Of the whole batch, whose rows count alike.
            continue
        _, gradient = losses.value_and_gradient(loss, output, target, given)
        assert gradient.shape == output.shape
        for place in range(0, output.size, 3):
            step = np.zeros(output.size)
            step[place] = 1e-5
            step = step.reshape(output.shape)
            high, low = (losses.value_and_gradient(loss, output + d, target, given)[0] for d in (step, -step))
            assert gradient.ravel()[place] == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-8)


def test_targets_say_whether_they_are_class_indices() -> None:
    """As in training, so in the manual loop."""
    loss, output, target = EXAMPLES[3]
    shares = np.moveaxis(np.eye(4)[target], -1, 1)
    value, gradient = losses.value_and_gradient(loss, output, target)
    wanted, slope = losses.value_and_gradient(loss, output, shares)
    assert value == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-12)

    def own(output: Any, target: Any) -> Any:
        return float(target.sum()), np.zeros_like(output)

    assert losses.value_and_gradient(own, output, target)[0] == target.sum()


def resolved(loss: Any, target: Any) -> Any:
    """With what its targets are, which training finds out."""
    return loss.of_classes(classes=target.dtype.kind == "i") if getattr(loss, "classes", 0) is None else loss


def test_dice_by_loops() -> None:
    loss, output, target = EXAMPLES[1]
    found = []
    for row, channel in itertools.product(range(3), range(2)):
        p, t = 1 / (1 + np.exp(-output[row, channel])), target[row, channel]
        found.append(1 - (2 * np.sum(p * t) + 1) / (p.sum() + t.sum() + 1))
    assert losses.value_and_gradient(loss, output, target)[0] == pytest.approx(np.mean(found), rel=1e-12)
    loss, output, target = EXAMPLES[3]
    found = []
    for row, kind in itertools.product(range(3), range(4)):
        powers = np.exp(output[row])
        p, t = powers[kind] / powers.sum(axis=0), target[row] == kind
        found.append(1 - (2 * np.sum(p * t) + 1) / (p.sum() + t.sum() + 1))
    value = losses.value_and_gradient(resolved(loss, target), output, target)[0]
    assert value == pytest.approx(np.mean(found), rel=1e-12)


def test_cosines_are_learned_where_the_network_is(gpu: str) -> None:
    x, y = RNG.normal(size=(40, 6)), RNG.normal(size=(40, 3))
    nets = [
        loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6, seed=1) for _ in "ab"
    ]
    with warnings.catch_warnings():
        # A step that waits for the host would be told of.
        warnings.simplefilter("error")
        for net, device in zip(nets, ("cpu", gpu), strict=True):
            loom.train(net, (x, y), quiet(loss="cosine", epochs=5, device=device))
    np.testing.assert_allclose(nets[1].predict(x), nets[0].predict(x), rtol=0, atol=2e-4)


def test_cosines_by_loops() -> None:
    for loss, output, target in EXAMPLES[-2:]:
        pairs = zip(output.reshape(-1, output.shape[-1]), target.reshape(-1, output.shape[-1]), strict=True)
        costs = [1 - a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs]
        assert losses.value_and_gradient(loss, output, target)[0] == pytest.approx(np.mean(costs), rel=1e-12)
    value, gradient = losses.value_and_gradient("cosine", [[0.0, 0.0], [2.0, 0.0]], [[1.0, 2.0], [-3.0, 0.0]])
    assert value == 1.5
    assert not gradient.any()


def test_triples_and_pairs_by_loops() -> None:
    for loss, output, target in EXAMPLES[6:10]:
        count = len(output)
        d = [[float(np.linalg.norm(a - b)) for b in output] for a in output]
        costs: list[float] = []
        if isinstance(loss, losses.Contrastive):
            for i, j in itertools.combinations(range(count), 2):
                alike = target[i] == target[j]
                costs.append((d[i][j] if alike else max(0.0, loss.margin - d[i][j])) ** 2 / 2)
        for a in range(count if isinstance(loss, losses.Triplet) else 0):
            alike = [d[a][p] for p in range(count) if p != a and target[p] == target[a]]
            other = [d[a][n] for n in range(count) if target[n] != target[a]]
            if loss.mining == "hard" and alike:
                costs.append(max(0.0, max(alike) - min(other) + loss.margin))
            if loss.mining == "all":
                every = (p - n + loss.margin for p, n in itertools.product(alike, other))
                costs += [cost for cost in every if cost > 0]
        value = losses.value_and_gradient(loss, output, target)[0]
        assert value == pytest.approx(np.mean(costs), rel=1e-12)


def test_batches_without_triples_cost_nothing() -> None:
    for loss in (losses.Triplet(), losses.Triplet(mining="all")):
        for target in ([0, 0, 0], [0, 1, 2]):
            value, gradient = losses.value_and_gradient(loss, np.eye(3), np.array(target))
            assert (value, bool(gradient.any())) == (0, False)
    # Points in one place pull nowhere.
    _, gradient = losses.value_and_gradient(losses.Contrastive(), np.ones((3, 2)), np.array([0, 0, 1]))
    assert not gradient.any()


def test_sequences_of_labels_are_optax_s() -> None:
    for case in json.loads((GOLDEN / "ctc.json").read_text())["cases"]:
        logits = np.array(case["logits"])
        target = losses.padded_labels(case["labels"], logits.shape[1])
        loss = losses.CTC(case["blank"])
        for row, expected in enumerate(case["losses"]):
            rows = slice(row, row + 1)
            value, gradient = losses.value_and_gradient(loss, logits[rows], target[rows])
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)
            np.testing.assert_allclose(gradient, np.array(case["gradient"])[rows], rtol=1e-7, atol=1e-10)
        together, _ = losses.value_and_gradient(loss, logits, target)
        assert together == pytest.approx(np.mean(case["losses"]), rel=1e-9)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, 2, -1], "need 4 steps"),
        ([1, -1, 2, -1], "behind its first -1"),
        ([0, -1, -1, -1], "is the blank"),
        ([3, -1, -1, -1], "none of 3 classes"),
    ],
)
def test_labels_that_cannot_be_said_are_refused(labels: list[int], message: str) -> None:
    # One step less than four.
    logits = np.zeros((1, 4 if "steps" not in message else 3, 3))
    with pytest.raises(loom.InvalidValueError, match=message):
        losses.value_and_gradient(losses.CTC(), logits, np.array([labels[: logits.shape[1]]]))


def network(loss: Any) -> tuple[Any, Any, Any, Any]:
    """A network for a loss, its data, and the config's loss."""
    kind = losses.name_of(loss)
    rng = np.random.default_rng(2)
    if kind == "ctc":
        layers: list[Any] = [nn.GRU(8, return_sequences=True), nn.Dense(4)]
        x = rng.normal(size=(12, 6, 3))
        y: Any = losses.padded_labels([[1 + row % 3, 1 + row % 2] for row in range(12)], 6)
        return loom.Sequential(layers, input_shape=(6, 3), seed=1), x, y, loss
    if kind == "dice":
        by_class = loss.by_class
        x = rng.normal(size=(12, 1, 6, 6))
        y = (x[:, 0] > 0).astype(int) if by_class else (x > 0).astype(float)
        layers = [nn.Conv2D(4, 3, padding="same", activation="relu"), nn.Conv2D(2 if by_class else 1, 1)]
        return loom.Sequential(layers, input_shape=(1, 6, 6), seed=1), x, y, loss
    x = rng.normal(size=(24, 4))
    layers = [nn.Dense(8, activation="tanh"), nn.Dense(3)]
    y = np.arange(24) % 4
    if kind == "kl_divergence":
        y = rng.dirichlet(np.ones(3), 24)
    return loom.Sequential(layers, input_shape=4, seed=1), x, y, loss


LOSSES = [
    "kl_divergence",
    losses.Dice(),
    losses.Dice(by_class=True),
    losses.Triplet(),
    losses.Contrastive(),
    losses.CTC(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_networks_learn_by_them_and_resume_to_the_same_bits(loss: Any, tmp_path: Path) -> None:
    whole, x, y, _ = network(loss)
    parts = network(loss)[0]
    settings = {"loss": loss, "batch_size": 6, "learning_rate": 0.01}
    course = loom.train(whole, (x, y), quiet(epochs=12, **settings))
    assert course.loss_history[-1] < course.loss_history[0]
    loom.train(parts, (x, y), quiet(epochs=4, **settings))
    parts.save(tmp_path / "net.loom", optimizer=True)
    again = loom.load(tmp_path / "net.loom")
    loom.train(again, (x, y), quiet(epochs=12, **settings), resume=True)
    assert weights(again) == weights(whole)


@pytest.mark.filterwarnings("ignore:the loss .* is computed by Python")
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_devices_agree(loss: Any, gpu: str) -> None:
    found = []
    for device in ("cpu", gpu):
        net, x, y, _ = network(loss)
        net = net.to(device)
        loom.train(net, (x, y), quiet(epochs=2, loss=loss, batch_size=6, optimizer="sgd"))
        found.append(net.state_dict())
    for name, here in found[0].items():
        np.testing.assert_allclose(found[1][name], here, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_softmax_at_the_end_is_absorbed() -> None:
    x, y = RNG.normal(size=(12, 4)), RNG.dirichlet(np.ones(3), 12)
    plain = loom.Sequential([nn.Dense(3)], input_shape=4, seed=1)
    ends = loom.Sequential([nn.Dense(3), nn.Softmax()], input_shape=4, seed=1)
    one, two = (loom.train(net, (x, y), quiet(loss="kl_divergence", epochs=3)) for net in (plain, ends))
    assert one.loss_history == pytest.approx(two.loss_history, rel=1e-6)
    crossed = loom.Sequential([nn.Dense(3)], input_shape=4, seed=1)
    loom.train(crossed, (x, y), quiet(loss="cross_entropy", epochs=3))
    assert weights(crossed) == weights(plain)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not isinstance(loss, str)], ids=str)
def test_they_are_settings(loss: Any) -> None:
    config = loom.TrainingConfig(loss=loss)
    assert loom.TrainingConfig.from_config(json.loads(json.dumps(config.to_config()))) == config
    for made in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert made == loss
        assert made.number != loss.number
    assert losses.resolve(losses.name_of(loss)) == type(loss)()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.Dice(smooth=0.0), "smooth"),
        (lambda: losses.Triplet(margin=-1.0), "margin"),
        (lambda: losses.Triplet(mining="soft"), "mining"),  # type: ignore[arg-type]
        (lambda: losses.Contrastive(margin=0.0), "margin"),
        (lambda: losses.CTC(blank=-1), "blank"),
        (lambda: loom.TrainingConfig(loss="kl_divergence", label_smoothing=0.1), "label_smoothing"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        make()


def test_targets_that_are_no_distribution_are_refused() -> None:
    with pytest.raises(loom.InvalidValueError, match="kl_divergence takes targets from 0 to 1"):
        losses.kl_divergence(np.zeros((1, 2)), [[1.5, -0.5]])
    with pytest.raises(loom.ShapeError):
        losses.kl_divergence(np.zeros((2, 3)), np.array([0, 1]))
