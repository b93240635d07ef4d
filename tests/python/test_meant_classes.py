"""Classes and probabilities are what outputs mean: scores, or probabilities already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.command_line import main

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 4)).astype("float32")
TWO = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
# Losses, what stands at the end, and the targets.
TELLS: dict[str, tuple[str, list[nn.Layer], Any]] = {
    "logit": ("binary_cross_entropy", [nn.Dense(1)], TWO),
    "focal": ("binary_focal", [nn.Dense(1)], TWO),
    "margin": ("hinge", [nn.Dense(1)], TWO * 2.0 - 1.0),
    "number": ("mse", [nn.Dense(1)], TWO * 1.0),
    "distance": ("mae", [nn.Dense(1)], TWO * 1.0),
    "sigmoid": ("mse", [nn.Dense(1, activation="sigmoid")], TWO * 1.0),
    "sigmoid layer": ("huber", [nn.Dense(1), nn.Activation("sigmoid")], TWO * 1.0),
    "in a row": ("mse", [nn.Sequential([nn.Dense(1), nn.Activation("sigmoid")]), nn.Dropout(0.1)], TWO * 1.0),
    "two scores": ("cross_entropy", [nn.Dense(2)], TWO),
}


def taught(name: str) -> tuple[loom.Network, Any]:
    loss, end, y = TELLS[name]
    net = loom.Sequential([nn.Dense(8, activation="tanh"), *end], input_shape=4, seed=1)
    settings = {"metrics": ["accuracy"], "ignore_findings": "all", "verbose": False}
    net.fit(X, y, loss=loss, epochs=150, learning_rate=0.03, **settings)
    return net, y


@pytest.mark.parametrize("name", TELLS)
def test_classes_are_what_accuracy_counts(name: str, tmp_path: Path) -> None:
    net, y = taught(name)
    share = net.evaluate((X, y))["accuracy"]
    assert share > 0.9
    net.save(tmp_path / "net.loom")
    net.save(tmp_path / "small.loom", deploy=True)
    for each in (net, loom.load(tmp_path / "net.loom"), loom.load(tmp_path / "small.loom")):
        assert np.mean(each.predict_classes(X) == TWO) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in TELLS if "sigmoid" in name or name == "in a row"])
def test_what_a_sigmoid_has_made_is_a_probability(name: str) -> None:
    net, _ = taught(name)
    np.testing.assert_array_equal(net.predict_probabilities(X), net.predict(X))


def test_several_questions_are_answered_one_by_one() -> None:
    several = loom.Sequential([nn.Dense(3, activation="sigmoid")], input_shape=4, seed=1)
    np.testing.assert_array_equal(several.predict_probabilities(X), several.predict(X))
    scores = loom.Sequential([nn.Dense(3)], input_shape=4, seed=1)
    np.testing.assert_allclose(scores.predict_probabilities(X).sum(axis=1), 1.0, rtol=1e-5)
    # Whoever applies a sigmoid of his own before a loss that does so means what the loss means.
    twice = loom.Sequential([nn.Dense(1, activation="sigmoid")], input_shape=4, seed=1)
    twice.fit(X, TWO, loss="binary_cross_entropy", epochs=1, ignore_findings="all", verbose=False)
    np.testing.assert_allclose(twice.predict_probabilities(X), 1 / (1 + np.exp(-twice.predict(X))), rtol=1e-5)


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "binary_focal", "dice", "mse"])
def test_masks_of_one_channel_and_steps_of_one_output_tell_two_classes(loss: str, tmp_path: Path) -> None:
    images = RNG.normal(size=(8, 1, 4, 5)).astype("float32")
    masks = (images > 0.2).astype("float32")
    net = loom.Sequential([nn.Conv2D(1, kernel_size=1)], input_shape=(1, 4, 5), seed=0)
    net.fit(images, masks, loss=loss, epochs=60, learning_rate=0.1, metrics=["accuracy"], verbose=False)
    share = net.evaluate((images, masks))["accuracy"]
    assert share > 0.85
    net.save(tmp_path / "net.loom", deploy=True)
    for each in (net, loom.load(tmp_path / "net.loom")):
        found = each.predict_classes(images)
        assert found.shape == (8, 4, 5)
        assert np.mean(found == masks[:, 0]) == pytest.approx(share, abs=1e-6)
        if loss != "mse":
            np.testing.assert_array_equal(found, each.predict_probabilities(images)[:, 0] > 0.5)


def test_single_outputs_that_nothing_trained_tell_two_classes_everywhere() -> None:
    x = RNG.normal(size=(6, 5, 2)).astype("float32")
    net = loom.Sequential([nn.GRU(3, return_sequences=True), nn.Dense(1)], input_shape=(5, 2), seed=1)
    scores = net.predict(x)
    np.testing.assert_array_equal(net.predict_classes(x), scores[..., 0] > 0)
    np.testing.assert_allclose(net.predict_probabilities(x), 1 / (1 + np.exp(-scores)), rtol=1e-5)
    shares = loom.Sequential([nn.Conv2D(1, 1, activation="sigmoid")], input_shape=(2, 3, 3), seed=1)
    images = RNG.normal(size=(6, 2, 3, 3)).astype("float32")
    np.testing.assert_array_equal(shares.predict_classes(images), shares.predict(images)[:, 0] > 0.5)
    np.testing.assert_array_equal(shares.predict_probabilities(images), shares.predict(images))


SERIES = RNG.normal(size=(90, 2, 5)).astype("float32")
STATES = np.digitize(SERIES.sum(axis=1), [-1.5, -0.5, 0.5, 1.5])
ENDS: dict[str, list[nn.Layer]] = {
    "bare": [nn.Conv1D(5, 3, padding="same")],
    "behind others": [nn.Conv1D(5, 3, padding="same"), nn.BatchNorm(), nn.Dropout(0.1), nn.Softmax()],
    "inside": [nn.Sequential([nn.Conv1D(5, 3, padding="same"), nn.Activation("tanh")])],
}


@pytest.mark.parametrize("end", ENDS)
def test_as_many_channels_as_steps_do_not_tell_where_classes_are(end: str) -> None:
    settings: dict[str, Any] = {"loss": "cross_entropy", "learning_rate": 0.05, "verbose": False}
    net = loom.Sequential(ENDS[end], input_shape=(2, 5), seed=1)
    before = net.build().fingerprint()
    message = r"do not tell which is meant.*nn\.Permute\(\(1, 0\)\).*nn\.Reshape\(\(5, 5\)\)"
    config = loom.TrainingConfig(**settings)
    for learns in (
        lambda: net.fit(SERIES, STATES, **settings),
        lambda: net.fit([(SERIES, STATES)], config),
        lambda: net.fit(SERIES, STATES, verbose=False),
        lambda: loom.Trainer(net, config).step(SERIES, STATES),
        lambda: loom.evaluate(net, (SERIES, STATES), config),
    ):
        with pytest.raises(loom.ShapeError, match=message):
            learns()
    assert net.fingerprint() == before
    # Shares tell by adding up to 1.
    shares = np.eye(5)[STATES]
    with pytest.raises(loom.ShapeError, match=r"along the channels of \(rows, 5, 5\).*targets go likewise"):
        net.fit(SERIES, shares.transpose(0, 2, 1), **settings)
    assert loom.evaluate(net, (SERIES, shares), config)["loss"] > 0
    # As both messages say.
    turned = loom.Sequential([*ENDS[end], nn.Permute((1, 0))], input_shape=(2, 5), seed=1)
    turned.fit(SERIES, STATES, epochs=60, ignore_findings="all", **settings)
    if end == "bare":
        assert turned.evaluate((SERIES, STATES), metrics=["accuracy"])["accuracy"] > 0.6
    meant = loom.Sequential([*ENDS[end], nn.Reshape((5, 5))], input_shape=(2, 5), seed=1)
    assert meant.fit(SERIES, STATES, ignore_findings="all", **settings).loss_history


def test_places_along_a_series_may_be_classes() -> None:
    """Where a span begins and ends, which other extents tell."""
    net = loom.Sequential([nn.Conv1D(2, 3, padding="same")], input_shape=(2, 5), seed=1)
    spans = np.stack([SERIES[:, 0].argmax(-1), SERIES[:, 1].argmin(-1)], axis=1)
    net.fit(SERIES, spans, loss="cross_entropy", epochs=60, learning_rate=0.1, verbose=False)
    assert net.evaluate((SERIES, spans), metrics=["accuracy"])["accuracy"] > 0.9


def test_outputs_under_dice_are_scores() -> None:
    """Its sigmoid is above one half where the output is above 0, and so are masks."""
    scores = np.array([[0.3, -0.3, 0.4, -2.0]]).reshape(1, 1, 2, 2)
    mask = np.array([[1.0, 0.0, 0.0, 0.0]]).reshape(1, 1, 2, 2)
    net = loom.Sequential([nn.Scale(1.0)], input_shape=(1, 2, 2), precision="float64")
    measured = ["accuracy", "iou", "sklearn.accuracy_score"]
    found = net.evaluate((scores, mask), loss="dice", metrics=measured)
    assert (found["accuracy"], found["iou"], found["accuracy_score"]) == (0.75, 0.5, 0.75)
    # Channels are masks of their own, several of which may be right at one place.
    two, both = np.concatenate([scores, scores], axis=1), np.concatenate([mask, mask], axis=1)
    several = loom.Sequential([nn.Scale(1.0)], input_shape=(2, 2, 2), precision="float64")
    assert several.evaluate((two, both), loss="dice", metrics=["accuracy"])["accuracy"] == 0.75
    # By class they are scores of classes, of which one is right.
    by_class = loom.losses.Dice(by_class=True)
    told = several.evaluate((two, mask[:, 0].astype(int)), loss=by_class, metrics=["accuracy"])
    assert told["accuracy"] == 0.75  # ties go to the first class
    several.fit(two, mask[:, 0].astype(int), loss=by_class, epochs=1, ignore_findings="all", verbose=False)
    np.testing.assert_allclose(several.predict_probabilities(two).sum(axis=1), 1.0)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_targets_of_margins_are_two_classes(loss: str) -> None:
    metrics = ["accuracy", "f1", "auc", "sklearn.accuracy_score", "sklearn.f1_score", "sklearn.roc_auc_score"]
    net = loom.Sequential([nn.Dense(1)], input_shape=4, seed=1)
    net.fit(X, TWO * 2.0 - 1.0, loss=loss, epochs=20, learning_rate=0.05, metrics=metrics, verbose=False)
    found = net.evaluate((X, TWO * 2.0 - 1.0))
    right = np.mean(net.predict_classes(X) == TWO)
    for mine, theirs in (("accuracy", "accuracy_score"), ("f1", "f1_score"), ("auc", "roc_auc_score")):
        assert found[theirs] == pytest.approx(found[mine], abs=1e-6)
    for y in (TWO * 2 - 1, TWO):
        assert loom.analysis.classification(net, (X, y)).accuracy == found["accuracy"] == pytest.approx(right)


def test_a_sigmoid_before_a_loss_that_takes_one_gives_scores() -> None:
    net = loom.Sequential([nn.Dense(1, activation="sigmoid")], input_shape=4, seed=1)
    assert 0 < net.predict_classes(X).mean() < 1
    settings = {"metrics": ["accuracy"], "ignore_findings": "all", "verbose": False}
    net.fit(X, TWO, loss="binary_cross_entropy", epochs=1, **settings)
    found = net.predict_classes(X)
    assert np.mean(found == TWO) == pytest.approx(net.evaluate((X, TWO))["accuracy"], abs=1e-6)
    np.testing.assert_array_equal(found, net.predict_probabilities(X)[:, 0] > 0.5)


def test_models_from_elsewhere_that_end_in_a_sigmoid(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    net = loom.Sequential([nn.Dense(1, activation="sigmoid")], input_shape=4, seed=1)
    loom.save_onnx(net, tmp_path / "net.onnx")
    again = loom.load(tmp_path / "net.onnx")
    np.testing.assert_allclose(again.predict_probabilities(X), net.predict(X), rtol=1e-5)
    found = again.predict_classes(X)
    np.testing.assert_array_equal(found, net.predict(X)[:, 0] > 0.5)
    assert 0 < found.mean() < 1


def test_named_outputs() -> None:
    net = loom.Network(input_shape=4, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(8, activation="tanh"))
    net[0, 1].add(nn.Dense(1, activation="sigmoid"))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(2))
    net.output("share", (0, 1)).output("kind", (0, 2))
    net.card = loom.ModelCard(labels={"share": ["low", "high"]})
    found: Any = net.predict_probabilities(X)
    outputs: Any = net.predict(X)
    np.testing.assert_array_equal(found["share"], outputs["share"])
    np.testing.assert_allclose(found["kind"].sum(axis=1), 1.0, rtol=1e-5)
    classes: Any = net.predict_classes(X)
    assert classes["share"].tolist() == np.where(outputs["share"][:, 0] > 0.5, "high", "low").tolist()
    assert set(classes["share"]) == {"low", "high"}


@pytest.mark.parametrize("labelled", [False, True])
def test_the_command_line_tells_the_same(labelled: bool, tmp_path: Path) -> None:
    y: Any = np.where(TWO, "yes", "no") if labelled else TWO
    net = loom.Sequential([nn.Dense(1)], input_shape=4, seed=1)
    settings = {"loss": "binary_cross_entropy", "epochs": 100, "learning_rate": 0.05, "verbose": False}
    net.fit(X, y, **settings)
    pixels = loom.Sequential([nn.Conv2D(3, kernel_size=1)], input_shape=(1, 4, 5), seed=1)
    images = RNG.normal(size=(6, 1, 4, 5)).astype("float32")
    for each, samples in ((net, X), (pixels, images)):
        each.save(tmp_path / "net.loom")
        np.save(tmp_path / "x.npy", samples)
        asked = ["predict", tmp_path / "net.loom", "--input", tmp_path / "x.npy", "--classes"]
        command = [*map(str, asked), "--output", str(tmp_path / "y.npy")]
        assert main(command) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), each.predict_classes(samples))
    assert np.mean(net.predict_classes(X) == y) > 0.9


def test_labels_of_a_named_output_count_one_by_one() -> None:
    labels = RNG.integers(0, 2, (len(X), 3))
    net = loom.Network(input_shape=4, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(6, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    net.output("tags", (0, 1)).output("size", (0, 2))
    loss = {"tags": "binary_cross_entropy", "size": "mse"}
    data = X, {"tags": labels.astype(float), "size": X[:, 0]}
    found = net.evaluate(data, loss=loss, metrics={"tags": ["accuracy"]})
    outputs: Any = net.predict(X)
    assert found["tags_accuracy"] == pytest.approx(((outputs["tags"] > 0) == labels).mean(), abs=1e-12)
