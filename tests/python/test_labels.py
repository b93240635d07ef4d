"""Labels of any kind are classes, which the network remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.data import Classes
from networks import weights as weights_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = np.argmax(X[:, :3], axis=1)
KINDS: dict[str, Any] = {
    "text": np.array(["ant", "bee", "cat"])[Y],
    "list": [["ant", "bee", "cat"][place] for place in Y],
    "object": np.array(["ant", "bee", "cat"], object)[Y],
    "integer": np.array([3, 7, 40])[Y],
}


def net(outputs: int = 3, **settings: Any) -> loom.Network:
    return loom.Sequential([nn.Dense(outputs)], input_shape=4, seed=0, **settings)


def of_two_outputs() -> loom.Network:
    """Returns a network that tells a kind, of three, and a size."""
    made = loom.Network(inputs={"x": 4}, grid=(1, 2), seed=0)
    made[0, 0].add(nn.Dense(3))
    made.link((0, 0), (0, 1), combine="replace")[0, 1].add(nn.Dense(1))
    return made.output("kind", (0, 0)).output("size", (0, 1))


@pytest.mark.parametrize("loss", ["auto", "cross_entropy"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_learned_as_indices_are(tmp_path: Path, kind: str, loss: str) -> None:
    plain, named = net(), net()
    plain.fit(X, Y, epochs=4, loss="cross_entropy", metrics=["accuracy"], learning_rate=0.1, verbose=False)
    named.fit(X, KINDS[kind], epochs=4, loss=loss, metrics=["accuracy"], learning_rate=0.1, verbose=False)
    np.testing.assert_array_equal(named.layers[0].weight, plain.layers[0].weight)
    assert plain.card.labels is None
    labels = np.asarray(KINDS[kind])
    assert named.card.labels == tuple(map(str, np.unique(labels)))
    named.save(tmp_path / "named.loom")
    again = loom.load(tmp_path / "named.loom")
    found = again.predict_classes(X)
    np.testing.assert_array_equal(found, np.unique(labels)[plain.predict(X).argmax(axis=1)])
    np.testing.assert_array_equal(plain.predict_classes(X), plain.predict(X).argmax(axis=1))
    assert again.evaluate((X, KINDS[kind])) == plain.evaluate((X, Y))
    report = loom.analysis.classification(again, (X, KINDS[kind]))
    assert report.accuracy == pytest.approx(np.mean(found == labels))


def likelihood(output: Any, target: Any) -> tuple[Any, Any]:
    """Cross-entropy by hand, of class indices."""
    shares = np.exp(output - output.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(target))
    losses = -np.log(shares[rows, target])
    shares[rows, target] -= 1
    return losses, shares


@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_ones_own_get_the_indices_of_labels(kind: str) -> None:
    plain, named = net(), net()
    settings: Any = {"loss": likelihood, "epochs": 3, "learning_rate": 0.1, "verbose": False}
    plain.fit(X, Y, metrics=["accuracy"], **settings)
    named.fit(X, KINDS[kind], metrics=["accuracy"], **settings)
    np.testing.assert_array_equal(named.layers[0].weight, plain.layers[0].weight)
    assert named.evaluate((X, KINDS[kind])) == plain.evaluate((X, Y))
    config = loom.TrainingConfig(loss=likelihood)
    assert loom.Trainer(named, config).step(X, KINDS[kind]) == loom.Trainer(plain, config).step(X, Y)


@pytest.mark.parametrize("make", [np.array, list])
def test_booleans_are_two_classes(make: Any) -> None:
    truth = make((Y == 0).tolist())
    network = net(2)
    network.fit(X, truth, epochs=30, learning_rate=0.1, verbose=False)
    found = network.predict_classes(X)
    assert found.dtype == bool
    assert np.mean(found == np.asarray(truth)) > 0.8
    assert network.evaluate((X, truth), metrics=["accuracy"])["accuracy"] == pytest.approx(
        np.mean(found == np.asarray(truth))
    )


def test_two_labels_of_a_single_logit() -> None:
    names = np.where(Y == 0, "yes", "no")
    network, plain = net(1), net(1)
    settings: Any = {"loss": "binary_cross_entropy", "epochs": 5, "learning_rate": 0.1, "verbose": False}
    network.fit(X, names, **settings)
    plain.fit(X, (Y == 0).astype(np.float32), **settings)
    np.testing.assert_array_equal(network.layers[0].weight, plain.layers[0].weight)
    np.testing.assert_array_equal(
        network.predict_classes(X), np.where(plain.predict(X)[:, 0] > 0, "yes", "no")
    )


def test_labels_that_nobody_knows_are_refused() -> None:
    network = net()
    network.fit(X, KINDS["text"], epochs=1, verbose=False)
    strange = KINDS["text"].astype(object)
    strange[[2, 5]] = "dog"
    with pytest.raises(
        loom.DataError, match=r"2 labels are of no class .* 'dog'; the classes are 'ant', 'bee', 'cat'"
    ):
        network.evaluate((X, strange))
    with pytest.raises(loom.DataError, match="of no class"):
        network.fit(X, strange, epochs=1, verbose=False)
    strange[3] = None
    with pytest.raises(loom.DataError, match="label of row 3 is missing"):
        network.evaluate((X, strange))
    # Those that it knows may be some of them, and indices are indices still.
    some = KINDS["text"][Y != 1]
    assert network.evaluate((X[Y != 1], some)) == network.evaluate((X[Y != 1], Y[Y != 1]))


def test_more_or_fewer_labels_than_outputs_are_refused() -> None:
    for outputs in (2, 4):
        with pytest.raises(loom.DataError, match=rf"3 labels \(ant, bee, cat\).* tells {outputs} classes"):
            net(outputs).fit(X, KINDS["text"], epochs=1, verbose=False)
    # Whoever names all of them need not show all.
    network = net(4)
    network.card = loom.ModelCard(labels=["dog", "cat", "bee", "ant"])
    network.fit(X, KINDS["text"], epochs=30, learning_rate=0.1, ignore_findings="all", verbose=False)
    assert np.mean(network.predict_classes(X) == KINDS["text"]) > 0.8
    assert network.predict(X).argmax(axis=1).min() == 1


def test_labels_in_batches() -> None:
    batches = [(X[:30], KINDS["text"][:30]), (X[30:], KINDS["text"][30:])]
    listed, plain = net(), net()
    listed.fit(batches, epochs=3, verbose=False)
    plain.fit([(X[:30], Y[:30]), (X[30:], Y[30:])], epochs=3, verbose=False)
    np.testing.assert_array_equal(listed.layers[0].weight, plain.layers[0].weight)

    class Batches:
        def __iter__(self) -> Any:
            return iter(batches)

    with pytest.raises(loom.DTypeError, match=r"net\.card = loom\.ModelCard\(labels=\[\.\.\.\]\)"):
        net().fit(Batches(), epochs=1, verbose=False)
    named = net()
    named.card = loom.ModelCard(labels=["ant", "bee", "cat"])
    named.fit(Batches(), epochs=3, verbose=False)
    np.testing.assert_array_equal(named.layers[0].weight, plain.layers[0].weight)
    assert named.evaluate(Batches()) == plain.evaluate((X, Y), batch_size=30)


@pytest.mark.parametrize("make", [list, np.array])
def test_labels_that_are_numbers_are_known_before_batches_come(tmp_path: Path, make: Any) -> None:
    labels = np.array([7, 3, 40])
    target = labels[Y]
    named, plain = net(), net()
    named.card = loom.ModelCard(labels=make(labels.tolist()))
    assert named.card.labels == ("7", "3", "40")
    named.card = loom.ModelCard(labels=named.card.labels, license="MIT")
    settings: Any = {"loss": "cross_entropy", "epochs": 3, "verbose": False, "class_weight": {40: 2.0}}
    named.fit(loom.data.stream(X, target, batch_size=20), **settings)
    settings["class_weight"] = {2: 2.0}
    plain.fit(loom.data.stream(X, Y, batch_size=20), **settings)
    np.testing.assert_array_equal(named.layers[0].weight, plain.layers[0].weight)
    named.save(tmp_path / "named.loom")
    again = loom.load(tmp_path / "named.loom")
    np.testing.assert_array_equal(again.predict_classes(X), labels[plain.predict(X).argmax(axis=1)])
    assert again.evaluate((X, target)) == plain.evaluate((X, Y))
    for wrong in ([3, "7"], [True, False], [0.5, 1.5]):
        with pytest.raises(loom.ConfigError, match="texts, or whole numbers"):
            loom.ModelCard(labels=wrong)  # type: ignore[arg-type]


def test_outputs_know_labels_that_are_numbers_before_batches_come() -> None:
    named, plain = of_two_outputs(), of_two_outputs()
    named.card = loom.ModelCard(labels={"kind": [3, 7, 40]})
    assert named.card.labels == {"kind": ("3", "7", "40")}
    loss = {"kind": "cross_entropy", "size": "mse"}
    for network, target in ((named, KINDS["integer"]), (plain, Y)):
        y = {"kind": target, "size": X[:, 0]}
        data: Any = loom.data.stream({"x": X}, y, batch_size=20)
        network.fit(data, loss=loss, epochs=2, verbose=False)
    np.testing.assert_array_equal(named.layers[0].weight, plain.layers[0].weight)
    found = named.predict_classes({"x": X})["kind"]
    np.testing.assert_array_equal(found, np.array([3, 7, 40])[plain.predict({"x": X})["kind"].argmax(axis=1)])


def test_validation_has_labels_too_and_runs_are_kept(tmp_path: Path) -> None:
    names = KINDS["text"]
    network = net()
    result = network.fit(X[:40], names[:40], validation_data=(X[40:], names[40:]), epochs=2,
                         run=tmp_path / "run", verbose=False)  # fmt: skip
    assert len(result.metrics["val_loss"]) == 2
    again = net()
    assert again.fit(X[:40], names[:40], validation_data=(X[40:], names[40:]), epochs=2, run=tmp_path / "run",
                     verbose=False).metrics == result.metrics  # fmt: skip
    assert again.predict_classes(X).tolist() == network.predict_classes(X).tolist()
    # The last samples are held out, by name as well.
    held = net().fit(X, names, validation_split=0.25, epochs=1, verbose=False)
    assert (
        held.metrics["val_loss"]
        == net().fit(X, Y, validation_split=0.25, epochs=1, verbose=False).metrics["val_loss"]
    )


def test_maps_of_labels() -> None:
    images = RNG.normal(size=(6, 1, 4, 4)).astype(np.float32)
    names = np.where(images[:, 0] > 0, "in", "out")
    network = loom.Sequential([nn.Conv2D(2, kernel_size=1)], input_shape=(1, 4, 4), seed=0)
    network.fit(images, names, epochs=60, learning_rate=0.2, verbose=False)
    assert np.mean(network.predict_classes(images) == names) > 0.95


def test_copies_and_pickles_remember(tmp_path: Path) -> None:
    import copy
    import pickle

    network = net()
    network.fit(X, KINDS["integer"], epochs=1, verbose=False)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert other.predict_classes(X).tolist() == network.predict_classes(X).tolist()
        assert other.predict_classes(X).dtype.kind == "i"


def test_classes_are_found_again() -> None:
    for values in (np.array(["b", "a", "b"]), np.array([5, -1, 5]), np.array([True, False, True])):
        classes = Classes.of(values)
        np.testing.assert_array_equal(classes.labels(classes.indices(values)), values)
        assert Classes.from_config(classes.to_config()) == classes
    with pytest.raises(loom.DTypeError, match="classes are 'a', 'b', got labels of dtype int"):
        Classes.of(np.array(["b", "a"])).indices(np.array([1, 2]))
    with pytest.raises(loom.ConfigError, match="same label"):
        Classes("text", ("a", "a"))


def test_looking_for_a_rate_leaves_the_network_as_it_is() -> None:
    network = net()
    before = network.to_bytes()
    assert len(loom.find_rate(network, (X, KINDS["text"]), steps=20).rates) > 5
    assert network.to_bytes() == before


def test_learning_by_targets_and_receipts_know_labels() -> None:
    network, plain = net(), net()
    config = loom.TrainingConfig(epochs=3, loss="cross_entropy", verbose=False)
    for each, labels in ((network, KINDS["text"]), (plain, Y)):
        loom.TweenTrainer(each, loom.TweenConfig.tween()).fit((X, labels), config)
    np.testing.assert_array_equal(network.layers[0].weight, plain.layers[0].weight)
    assert (
        network.predict_classes(X).tolist()
        == np.array(["ant", "bee", "cat"])[plain.predict_classes(X)].tolist()
    )
    result = net().fit(X, KINDS["text"], epochs=2, receipt=True, verbose=False)
    assert loom.reproduce(result.receipt, (X, KINDS["text"])).difference is None


def test_weights_of_classes_go_by_the_labels() -> None:
    rows = np.random.default_rng(4)
    x, places = rows.normal(size=(40, 3)), rows.integers(0, 2, 40)
    y = np.array([1, 3])[places]

    def made() -> loom.Network:
        return loom.Sequential([nn.Dense(2)], input_shape=3, precision="float64", seed=0)

    settings = {"loss": "cross_entropy", "epochs": 2, "verbose": False, "validation_split": 0.2}
    labelled, by_place, listed = made(), made(), made()
    one = labelled.fit(x, y, class_weight={1: 5.0}, **settings)
    two = by_place.fit(x, places, class_weight={0: 5.0}, **settings)
    three = listed.fit(x, y, class_weight=[5.0, 1.0], **settings)
    assert one.history == two.history == three.history
    assert labelled.fingerprint() != made().fingerprint()
    np.testing.assert_array_equal(labelled.layers[0].weight, by_place.layers[0].weight)
    np.testing.assert_array_equal(labelled.layers[0].weight, listed.layers[0].weight)
    # What is asked later, and step by step, means the same.
    loss = by_place.evaluate((x, places))["loss"]
    assert labelled.evaluate((x, y))["loss"] == loss
    config = loom.TrainingConfig(loss="cross_entropy", class_weight={3: 2.0})
    other = loom.TrainingConfig(loss="cross_entropy", class_weight={1: 2.0})
    assert labelled.evaluate((x, y), config)["loss"] == by_place.evaluate((x, places), other)["loss"]
    stepped = loom.Trainer(labelled, config).step(x, y), loom.Trainer(by_place, other).step(x, places)
    assert stepped[0] == stepped[1]
    assert loom.LBFGS(labelled, config).config.class_weight == (1.0, 2.0)
    assert loom.doctor(made(), (x, y), config).findings == loom.doctor(made(), (x, places), other).findings
    with pytest.raises(loom.ConfigError, match="class 0, which is none of the labels: 1, 3"):
        labelled.fit(x, y, class_weight={0: 5.0}, **settings)


# Those of 0, 2 and 5 of which the first two occur are right as they are, and mean something else.
GAPS: dict[str, list[Any]] = {"numbers": [0, 2, 5], "texts": ["ant", "bee", "cat"]}


def told_twice(kind: str) -> tuple[loom.Network, loom.Network, Any, Any, Any]:
    """Returns networks that learned labels and indices, and samples of two classes with both."""
    labels = np.array(GAPS[kind])
    named, plain = net(), net()
    for network, target in ((named, labels[Y]), (plain, Y)):
        network.fit(X, target, epochs=20, loss="cross_entropy", learning_rate=0.1, verbose=False)
    few = Y < 2
    return named, plain, X[few], labels[Y[few]], Y[few]


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", GAPS)
def test_steps_of_ones_own_know_labels(kind: str, weighed: bool) -> None:
    """Learning by targets, of a mesh, and of all samples at once took 2 for the third class."""
    named, plain, x, labels, indices = told_twice(kind)
    losses = []
    for network, target in ((named, labels), (plain, indices)):
        weights: Any = {target[0].item(): 2.0, target[-1].item(): 5.0} if weighed else None
        if kind == "texts" and weighed:
            weights = {int(indices[0]): 2.0, int(indices[-1]): 5.0}
        config = loom.TrainingConfig(
            loss="cross_entropy", class_weight=weights, learning_rate=0.0, optimizer="sgd"
        )
        stepper = loom.Stepper(loom.Mesh(network, window=2), config)
        state = loom.TweenState(network, loom.TweenConfig.tween(), loss=config)
        found = [stepper.step(x[row : row + 1], target[row : row + 1]) for row in range(3)]
        found.append(state.step(x, target))
        found.append(loom.LBFGS(network, config).fit(x, target, iterations=1)[0])
        losses.append(found)
    assert losses[0] == losses[1]
    with pytest.raises(loom.DataError, match="of no class"):
        loom.TweenState(named, loom.TweenConfig.tween(), loss="cross_entropy").step(
            x[:1], ["dog"] if kind == "texts" else [3]
        )


@pytest.mark.parametrize("kind", GAPS)
def test_gradients_are_those_of_labels(kind: str) -> None:
    """A histogram of them refused texts, and took numbers for indices, as gradients of inputs did."""
    named, plain, x, labels, indices = told_twice(kind)
    expected = plain.input_gradients(x, indices)
    np.testing.assert_array_equal(named.input_gradients(x, labels), expected)
    norms = []
    for network, target in ((named, labels), (plain, indices)):
        watcher = loom.WeightHistograms(sample=(x, target))
        config = loom.TrainingConfig(loss="cross_entropy", verbose=False, seed=3)
        network.fit((x, target), config, callbacks=[watcher])
        norms.append(watcher.gradients["0.0.0.0.weight"][-1].norm)
    assert norms[0] == norms[1]


def test_a_mesh_learns_by_labels_that_choose_the_loss() -> None:
    named, plain, x, labels, indices = told_twice("texts")
    found = []
    for network, target in ((named, labels), (plain, indices)):
        stepper = loom.Stepper(loom.Mesh(network, window=2), loom.TrainingConfig(learning_rate=0.0))
        found.append(stepper.step(x[:1], target[:1]))
        assert stepper.config.loss == "cross_entropy"
    assert found[0] == found[1]


def test_gradients_of_outputs_by_name_are_those_of_labels() -> None:
    found = []
    for target in (np.array([0, 2, 5])[Y], Y):
        network = of_two_outputs()
        loss = {"kind": "cross_entropy", "size": "mse"}
        y = {"kind": target, "size": X[:, 0]}
        network.fit(({"x": X}, y), loom.TrainingConfig(loss=loss, verbose=False))
        few = Y < 2
        part = {"kind": target[few], "size": X[few, 0]}
        gradients: Any = network.input_gradients({"x": X[few]}, part)
        config = loom.TrainingConfig(loss=loss)
        first = loom.LBFGS(network, config).fit({"x": X[few]}, part, iterations=1)[0]  # type: ignore[arg-type]
        found.append((gradients["x"], first))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("kind", GAPS)
@pytest.mark.parametrize("vote", ["mean", "majority", "weighted"])
def test_ensembles_and_matches_know_labels(kind: str, vote: Any) -> None:
    """Numbers with gaps were taken for indices, and texts refused or, by classes, compared with numbers."""
    named, plain, x, labels, indices = told_twice(kind)
    other, _, _, _, _ = told_twice(kind)
    assert loom.analysis.correctness([named], (x, labels)).mean() > 0.8
    np.testing.assert_array_equal(
        loom.analysis.correctness([named, plain], (x, labels))[0],
        loom.analysis.correctness([plain], (x, indices))[0],
    )
    ensemble = loom.analysis.Ensemble([plain, named, other], vote=vote)
    np.testing.assert_array_equal(ensemble.predict_classes(x), named.predict_classes(x))
    np.testing.assert_array_equal(
        loom.analysis.correctness([ensemble], (x, labels)), loom.analysis.correctness([named], (x, labels))
    )
    weights: Any = {0: 2.0, 1: 5.0} if kind == "texts" else {0: 2.0, 2: 5.0}
    config = loom.TrainingConfig(loss="cross_entropy", metrics=["accuracy"], class_weight=weights)
    expected = loom.TrainingConfig(loss="cross_entropy", metrics=["accuracy"], class_weight={0: 2.0, 1: 5.0})
    alone = loom.analysis.Ensemble([plain, plain, plain], vote=vote)
    assert ensemble.evaluate((x, labels), config) == alone.evaluate((x, indices), expected)
    if vote == "weighted":
        ensemble.fit_weights((x, labels), loss="cross_entropy")
        np.testing.assert_array_equal(ensemble.weights, alone.fit_weights((x, indices)).weights)


def test_labels_that_nobody_knows_are_told_from_indices() -> None:
    with pytest.raises(loom.DTypeError, match="expected class indices"):
        loom.analysis.correctness([net()], (X, KINDS["text"]))
    with pytest.raises(loom.DTypeError, match="expected class indices"):
        loom.metrics.Accuracy()(np.eye(3), ["ant", "bee", "cat"])


def test_ensembles_are_of_networks_with_the_same_labels() -> None:
    """Outputs of other classes were averaged without a word."""
    first, second = net(), net()
    first.fit(X, np.array(["ant", "bee", "cat"])[Y], epochs=1, verbose=False)
    second.fit(X, np.array(["bee", "cat", "dog"])[Y], epochs=1, verbose=False)
    with pytest.raises(loom.ConfigError, match=r"tells bee, cat, dog, .* ant, bee, cat"):
        loom.analysis.Ensemble([first, second])
    assert len(loom.analysis.Ensemble([first, net()])) == 2


def test_ensembles_of_named_outputs_know_labels() -> None:
    found = []
    for target in (np.array([0, 2, 5])[Y], Y):
        network = of_two_outputs()
        config = loom.TrainingConfig(loss={"kind": "cross_entropy", "size": "mse"}, verbose=False)
        network.fit(({"x": X}, {"kind": target, "size": X[:, 0]}), config)
        few = Y < 2
        part: Any = ({"x": X[few]}, {"kind": target[few], "size": X[few, 0]})
        ensemble = loom.analysis.Ensemble([network])
        found.append(ensemble.evaluate(part))
        chosen: Any = ensemble.predict_classes(part[0])
        alone: Any = network.predict_classes(part[0])
        assert chosen.keys() == alone.keys()
        np.testing.assert_array_equal(chosen["kind"], alone["kind"])
    assert found[0] == found[1]


@pytest.mark.parametrize("outputs", [1, 3])
def test_reports_of_classes_have_their_labels(outputs: int) -> None:
    labels = np.array(["ant", "bee", "cat"])[Y] if outputs == 3 else np.where(Y > 0, "yes", "no")
    network = net(outputs)
    loss: Any = "cross_entropy" if outputs == 3 else "binary_cross_entropy"
    network.fit(X, labels, epochs=2, loss=loss, verbose=False)
    assert loom.analysis.classification(network, (X, labels)).names == tuple(np.unique(labels).tolist())
    own = ["a", "b", "c"][: max(outputs, 2)]
    assert loom.analysis.classification(network, (X, labels), own).names == tuple(own)


def test_frames_go_wherever_a_network_is_measured() -> None:
    frame = {"a": X[:, 0], "b": X[:, 1], "kind": np.array(["u", "v"])[(X[:, 2] > 0) * 1], "y": KINDS["text"]}
    table = loom.data.columns(frame, target="y")
    network = loom.Sequential([nn.Dense(3)], input_shape=table.width, seed=0)
    network.fit(table, epochs=3, loss="cross_entropy", verbose=False)
    pair = (table.x, table.y)
    for given in (frame, table):
        np.testing.assert_array_equal(
            loom.analysis.correctness([network], given), loom.analysis.correctness([network], pair)
        )
        ensemble = loom.analysis.Ensemble([network])
        assert ensemble.evaluate(given)["loss"] == pytest.approx(network.evaluate(pair)["loss"])
        report = loom.analysis.sensitivity(network, given, dtypes=["int8"])
        assert report.base == network.evaluate(pair)["loss"]
        bits = network.fit_bits(given, max_drop=0.5, apply=False)
        assert bits.chosen.bytes <= network.weight_bytes


@pytest.mark.parametrize("kind", GAPS)
@pytest.mark.parametrize("loss", ["auto", "cross_entropy"])
@pytest.mark.parametrize("names", [[1, 2, 3, 9], ["elk", "fox", "gnu", "hen"], None])
def test_another_head_learns_labels_of_its_own(kind: str, loss: Any, names: list[Any] | None) -> None:
    """The labels of the head that had given way were those of the new one, which then took no others."""
    network, _, _, _, _ = told_twice(kind)
    network[0, 0, 0].pop()
    network[0, 0, 0].add(nn.Dense(4))
    more = np.where(X[:, 3] > 0, Y, 3)
    labels = more if names is None else np.array(names)[more]
    network.fit(X, labels, epochs=20, learning_rate=0.1, loss=loss, verbose=False)
    assert network.card.labels == (None if names is None else tuple(map(str, names)))
    assert np.mean(network.predict_classes(X) == labels) > 0.6
    assert network.evaluate((X, labels), metrics=["accuracy"])["accuracy"] > 0.6


@pytest.mark.parametrize("kind", GAPS)
def test_the_doctor_sees_labels_once(kind: str) -> None:
    """It made indices of them, which its rehearsal looked up among the labels again."""
    named, _, x, labels, _ = told_twice(kind)
    findings = loom.doctor(named, (x, labels), loom.TrainingConfig(loss="cross_entropy")).findings
    assert "training-refuses" not in [finding.name for finding in findings]


@pytest.mark.parametrize(
    ("labels", "given"),
    [
        (["cat", "dog", "eel"], {"dog": 5.0, "eel": 0.5}),
        (["cat", "dog", "eel"], {1: 5.0, 2: 0.5}),
        (["3", "7", "11"], {"3": 5.0, "7": 0.5}),
        (["3", "7", "-1"], {"-1": 5.0, "3": 0.5}),
        ([3, 4, 40], {4: 5.0, 40: 0.5}),
    ],
    ids=["text", "text by index", "numbers as text", "negative as text", "whole numbers"],
)
@pytest.mark.parametrize("named", [False, True])
def test_weights_of_classes_go_by_what_labels_are(
    labels: list[Any], given: dict[Any, float], named: bool
) -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(30, 4)).astype(np.float32)
    y = np.array(labels)[random.integers(0, 3, 30)]
    order = sorted(labels)
    by_place = isinstance(order[0], str) and isinstance(next(iter(given)), int)
    by_label = {order[key] if by_place else key: weight for key, weight in given.items()}
    expected = [by_label.get(label, 1.0) for label in order]

    def trained(weights: Any) -> bytes:
        made = net()
        settings: dict[str, Any] = {"loss": "cross_entropy", "class_weight": weights}
        if named:
            made.output("kind", (0, 0))
            settings = {name: {"kind": value} for name, value in settings.items()}
        made.fit(x, {"kind": y} if named else y, epochs=2, verbose=False, **settings)
        return weights_of(made)

    assert trained(given) == trained(expected)
    assert trained(expected) != trained([1.0, 1.0, 1.0])
    config = loom.TrainingConfig(loss="cross_entropy", class_weight=given)
    kept: Any = json.loads(json.dumps(config.to_config()))
    assert loom.TrainingConfig(**kept).class_weight == config.class_weight


def test_weights_of_classes_that_are_none_are_refused() -> None:
    net = loom.Sequential([nn.Dense(2)], input_shape=4, seed=0)
    x, texts = np.random.default_rng(0).normal(size=(8, 4)), ["cat", "dog"] * 4
    with pytest.raises(loom.ConfigError, match="class eel, which is none of the labels: cat, dog"):
        net.fit(x, texts, class_weight={"eel": 2.0}, verbose=False)
    fresh = loom.Sequential([nn.Dense(2)], input_shape=4, seed=0)
    with pytest.raises(loom.ConfigError, match='names class "cat", but the network has learned no labels'):
        fresh.fit(x, [0, 1] * 4, class_weight={"cat": 2.0}, verbose=False)


@pytest.mark.parametrize(
    ("names", "steps"),
    [(["a", "b", "c"], False), (["a", "b", "c"], True), ([3, 7, 40], False), ([0, 2, 40], True)],
)
def test_batches_of_any_length_are_looked_through_for_labels(names: list[Any], steps: bool) -> None:
    draws = np.random.default_rng(0)
    samples = [draws.normal(size=(length, 3)) for length in draws.integers(3, 9, 20)]
    indices = [draws.integers(0, 3, len(sample) if steps else ()) for sample in samples]
    found = []
    for known in (names, [0, 1, 2]):
        labels: Any = [np.array(known)[index] for index in indices]
        labels = labels if steps else np.array(labels)
        network = loom.Sequential(
            [nn.LSTM(4, return_sequences=steps), nn.Dense(3)], input_shape=(None, 3), seed=0
        )
        batches = [(samples[:12], labels[:12]), (samples[12:], labels[12:])]
        network.fit(batches, loss="cross_entropy", epochs=2, verbose=False)
        alone = network.evaluate((samples, labels), loss="cross_entropy", metrics=["accuracy"])
        found.append((network.predict(samples), network.predict_classes(samples)))
        assert alone == network.evaluate(batches, loss="cross_entropy", metrics=["accuracy"])
    for one, other in zip(*(each[0] for each in found), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(*(each[1] for each in found), strict=True):
        np.testing.assert_array_equal(one, np.array(names)[other])
