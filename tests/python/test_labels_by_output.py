"""Labels of named outputs, and weights of their classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.errors import ConfigError, DataError, DTypeError
from named_outputs import ROWS, samples

Array = NDArray[Any]
KINDS = np.array(["ant", "bee", "cat"])


def labelled() -> tuple[loom.Network, Array, dict[str, Any]]:
    """A network that tells classes by text, by truth, and by numbers with gaps."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(300, 3))
    net = loom.Network(3, grid=(1, 5), seed=3)
    net[0, 0].add(nn.Dense(16, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    for column, units in ((2, 2), (3, 2), (4, 1)):
        net.link((0, 0), (0, column), combine="replace")[0, column].add(nn.Dense(units))
    for column, name in enumerate(["kind", "wide", "size", "sweet"], 1):
        net.output(name, (0, column))
    y = {
        "kind": KINDS[np.digitize(x[:, 0], [-0.5, 0.5])],
        "wide": x[:, 1] > 0,
        "size": np.where(x[:, 2] > 0, 40, 7),
        "sweet": np.where(x[:, 0] > x[:, 1], "yes", "no").tolist(),
    }
    return net, x, y


LABELLED_LOSS: Any = {
    "kind": "cross_entropy",
    "wide": "cross_entropy",
    "size": "cross_entropy",
    "sweet": "binary_cross_entropy",
}


def test_labels_of_outputs_come_back(tmp_path: Path) -> None:
    net, x, y = labelled()
    numbers, _, _ = labelled()
    settings = {"epochs": 40, "learning_rate": 0.02, "verbose": False, "device": "cpu"}
    indices = {
        "kind": np.searchsorted(KINDS, y["kind"]),
        "wide": y["wide"].astype(int),
        "size": (y["size"] == 40).astype(int),
        "sweet": (np.array(y["sweet"]) == "yes").astype(int),
    }
    named = {name: ["accuracy"] for name in LABELLED_LOSS}
    net.fit(x, y, loss=LABELLED_LOSS, metrics=named, validation_data=(x, y), **settings)
    numbers.fit(x, indices, loss=LABELLED_LOSS, metrics=named, **settings)
    assert net.card.labels == {
        "kind": ("ant", "bee", "cat"),
        "wide": ("False", "True"),
        "size": ("7", "40"),
        "sweet": ("no", "yes"),
    }
    net.save(tmp_path / "net.loom")
    for known in (net, loom.load(tmp_path / "net.loom")):
        found: Any = known.predict_classes(x)
        plain: Any = numbers.predict(x)
        assert found["kind"].tolist() == KINDS[plain["kind"].argmax(axis=1)].tolist()
        assert found["wide"].tolist() == [bool(place) for place in plain["wide"].argmax(1)]
        assert found["size"].tolist() == np.array([7, 40])[plain["size"].argmax(axis=1)].tolist()
        assert found["sweet"].tolist() == ["yes" if each > 0 else "no" for each in plain["sweet"][:, 0]]
        assert np.mean(found["kind"] == y["kind"]) > 0.95
        said = known.evaluate((x, y), loss=LABELLED_LOSS, metrics=named)
        assert said["kind_accuracy"] == np.mean(found["kind"] == y["kind"])
        assert said == numbers.evaluate((x, indices), loss=LABELLED_LOSS, metrics=named)


def test_labels_go_with_batches_once_they_are_known() -> None:
    net, x, y = labelled()
    cut = [slice(start, start + 50) for start in range(0, 300, 50)]
    listed = [(x[rows], {name: each[rows] for name, each in y.items()}) for rows in cut]
    settings: Any = {"epochs": 1, "loss": LABELLED_LOSS, "verbose": False, "device": "cpu"}
    other, _, _ = labelled()
    other.fit(x, y, shuffle=False, batch_size=50, **settings)
    net.fit(listed, **settings)
    assert net.fingerprint() == other.fingerprint()
    again, _, _ = labelled()

    class Batches:
        def __iter__(self) -> Any:
            return iter(listed)

    with pytest.raises(DTypeError, match=r'output "kind".*ModelCard\(labels=\{"kind"'):
        again.fit(Batches(), **settings)
    again.card = loom.ModelCard(labels={"kind": ["ant", "bee", "cat"], "sweet": ["no", "yes"]})
    booleans = [(a, {**b, "size": (np.array(b["size"]) == 40).astype(int)}) for a, b in listed]

    class Known:
        def __iter__(self) -> Any:
            return iter(booleans)

    again.fit(Known(), **settings)
    assert again.fingerprint() == net.fingerprint()


def test_wrong_labels_are_told_by_output() -> None:
    net, x, y = labelled()
    settings: Any = {"epochs": 1, "loss": LABELLED_LOSS, "verbose": False, "device": "cpu"}
    four = {**y, "kind": np.where(x[:, 2] > 1, "dog", y["kind"])}
    with pytest.raises(DataError, match='target of output "kind": there are 4 labels'):
        net.fit(x, four, **settings)
    net.fit(x, y, **settings)
    with pytest.raises(DataError, match=r'target of output "kind": .* of no class'):
        net.evaluate((x, four))
    with pytest.raises(DataError, match=r'output "kind": .*row 3 is missing'):
        net.evaluate((x, {**y, "kind": [None if n == 3 else str(k) for n, k in enumerate(y["kind"])]}))
    with pytest.raises(ConfigError, match="unknown card: output"):
        net.card = loom.ModelCard(labels={"kid": ["a", "b"]})
    with pytest.raises(ConfigError, match='two classes have the same name among labels of output "kind"'):
        loom.ModelCard(labels={"kind": ["a", "a"]})


def test_frames_tell_labels_by_column() -> None:
    pandas = pytest.importorskip("pandas")
    net, x, y = labelled()
    frame = pandas.DataFrame({name: list(each) for name, each in y.items()})
    net.fit(x, frame, epochs=2, loss=LABELLED_LOSS, verbose=False, device="cpu")
    found: Any = net.predict_classes(x[:5])
    assert set(found["kind"]) <= set(KINDS)


def two_heads() -> loom.Network:
    """One trunk; three classes and a number."""
    net = loom.Network(3, grid=(1, 3), precision="float64", seed=1)
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    return net.output("kind", (0, 1)).output("age", (0, 2))


def weighted(weights: Any, **settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "epochs": 3,
        "batch_size": 8,
        "loss": {"kind": "cross_entropy", "age": "mse"},
        "class_weight": weights,
        "device": "cpu",
        "verbose": False,
    }
    return loom.TrainingConfig(**{**usual, **settings})


def test_weights_of_an_output_s_classes_go_by_its_labels() -> None:
    x, drawn = samples()
    places = {name: drawn[name] for name in ("kind", "age")}
    y = {**places, "kind": np.array([3, 7, 9])[places["kind"]]}
    by_label, by_place = {"kind": {7: 5.0, 9: 0.5}}, {"kind": {1: 5.0, 2: 0.5}}
    labelled, placed, listed = two_heads(), two_heads(), two_heads()
    one = loom.train(labelled, (x, y), weighted(by_label, validation_split=0.2))
    two = loom.train(placed, (x, places), weighted(by_place, validation_split=0.2))
    three = loom.train(listed, (x, y), weighted({"kind": [1.0, 5.0, 0.5]}, validation_split=0.2))
    assert one.history == two.history == three.history
    for name, expected in placed.state_dict().items():
        np.testing.assert_array_equal(labelled.state_dict()[name], expected, err_msg=name)
        np.testing.assert_array_equal(listed.state_dict()[name], expected, err_msg=name)
    # Weights that count for nothing would have led elsewhere.
    plain = two_heads()
    loom.train(plain, (x, y), weighted(None, validation_split=0.2))
    assert plain.fingerprint() != labelled.fingerprint()
    # By NumPy.
    output = labelled.predict(x)["kind"]
    logs = output - np.log(np.exp(output).sum(axis=1, keepdims=True))
    each = np.array([1.0, 5.0, 0.5])[places["kind"]]
    expected = -(each * logs[np.arange(ROWS), places["kind"]]).mean()
    assert abs(labelled.evaluate((x, y))["kind_loss"] - expected) < 1e-12
    # What is asked later, step by step, and after JSON, means the same.
    config, other = weighted({"kind": {9: 2.0}}), weighted({"kind": {2: 2.0}})
    read = loom.TrainingConfig.from_config(json.loads(json.dumps(config.to_config())))
    assert labelled.evaluate((x, y), read) == placed.evaluate((x, places), other)
    assert loom.Trainer(labelled, config).step(x, y) == loom.Trainer(placed, other).step(x, places)
    assert loom.LBFGS(labelled, config).config.class_weight == {"kind": (1.0, 1.0, 2.0)}
    found = loom.doctor(two_heads(), (x, y), config).findings
    assert found == loom.doctor(two_heads(), (x, places), other).findings
    rates = [
        loom.find_rate(two_heads(), (x, target), settings, steps=20).losses
        for target, settings in ((y, config), (places, other))
    ]
    np.testing.assert_array_equal(*rates)
    steppers = [
        loom.Stepper(loom.Mesh(net, rows=ROWS, window=4), settings, ticks=4)
        for net, settings in ((labelled, config), (placed, other))
    ]
    assert steppers[0].step(x, y) == steppers[1].step(x, places) is not None
    receipt = two_heads().fit(x, y, **weighted_fit(by_label), receipt=True).receipt
    assert loom.reproduce(receipt, (x, y)).difference is None
    with pytest.raises(ConfigError, match=r'output "kind" names class 1, which is none of the labels: 3, 7'):
        loom.train(labelled, (x, y), weighted({"kind": {1: 2.0}}))
    with pytest.raises(ConfigError, match="names class 3, but there are 3 classes"):
        loom.train(two_heads(), (x, places), weighted({"kind": {3: 2.0}}))


def weighted_fit(weights: Any) -> dict[str, Any]:
    loss = {"kind": "cross_entropy", "age": "mse"}
    return {"loss": loss, "class_weight": weights, "epochs": 2, "verbose": False}


def test_labels_weigh_in_a_named_output_what_they_weigh_in_a_single_one() -> None:
    x, places = samples()
    labels, weights = np.array([3, 7, 9])[places["kind"]], {7: 5.0, 9: 0.5}
    named = loom.Network(3, grid=(1, 1), precision="float64", seed=1)
    named[0, 0].add(nn.Dense(3))
    named.output("kind", (0, 0))
    single = loom.Sequential([nn.Dense(3)], input_shape=3, precision="float64", seed=1)
    # A single output's loss is divided by the labels' weights, those of several by the number of samples.
    mean = np.array([1.0, 5.0, 0.5])[places["kind"]].mean()
    usual: dict[str, Any] = {"epochs": 4, "batch_size": ROWS, "optimizer": "sgd", "shuffle": False}
    one = loom.train(
        named,
        (x, {"kind": labels}),
        weighted({"kind": weights}, loss={"kind": "cross_entropy"}, learning_rate=0.1, **usual),
    )
    two = loom.train(
        single, (x, labels), weighted(weights, loss="cross_entropy", learning_rate=0.1 * mean, **usual)
    )
    np.testing.assert_allclose(one.loss_history, np.array(two.loss_history) * mean, rtol=1e-12)
    for name, expected in single.state_dict().items():
        np.testing.assert_allclose(named.state_dict()[name], expected, rtol=0, atol=1e-12, err_msg=name)
