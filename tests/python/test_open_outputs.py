"""Sequences of any length and images of any size into several outputs; labels of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import DataError
from networks import Killed
from one_step import assert_one_step_follows

ROWS = 60


def heads(shape: tuple[int | None, ...], *layers: nn.Layer, precision: str = "float64") -> loom.Network:
    """What layers make of samples, told in two ways."""
    net = loom.Network(shape, grid=(1, 3), precision=precision, seed=1)  # type: ignore[arg-type]
    net[0, 0].add(*layers)
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    return net.output("kind", (0, 1)).output("score", (0, 2))


def texts(precision: str = "float64") -> tuple[loom.Network, list[Any], dict[str, Any]]:
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 20, rng.integers(1, 12)) for _ in range(ROWS)]
    y = {"kind": np.array([len(each) % 2 for each in x]), "score": np.array([each.mean() / 20 for each in x])}
    return heads((None,), nn.Embedding(20, 4), nn.GRU(5), precision=precision), x, y


LOSS: Any = {"kind": "cross_entropy", "score": loom.losses.Expr("abs(y - t) ** 1.5")}


def config(**settings: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {"epochs": 2, "batch_size": 8, "loss": LOSS, "verbose": False, "device": "cpu"}
    return loom.TrainingConfig(**{**usual, **settings})


def test_each_sample_gives_the_bits_of_a_network_of_its_own_length() -> None:
    net, x, _ = texts("float32")
    together: Any = net.predict(x)
    for number, each in enumerate(x[:20]):
        alone: Any = net.resized((len(each),)).predict(each[None])
        for name in ("kind", "score"):
            assert np.array_equal(together[name][number], alone[name][0])


def test_the_loss_is_that_of_numpy_and_steps_follow_its_gradient() -> None:
    net, x, y = texts()
    rng = np.random.default_rng(1)
    weights = {"kind": rng.uniform(0, 2, ROWS)}
    output: Any = net.predict(x)
    logs = output["kind"] - np.log(np.exp(output["kind"]).sum(axis=1, keepdims=True))
    kind = -logs[np.arange(ROWS), y["kind"]] * weights["kind"]
    score = np.abs(output["score"][:, 0] - y["score"]) ** 1.5
    settings = config(epochs=1, batch_size=ROWS, shuffle=False, optimizer="sgd", learning_rate=0.1)
    data: Any = (x, y, weights)
    assert abs(net.evaluate(data, settings)["loss"] - kind.mean() - score.mean()) < 1e-12
    assert_one_step_follows(net, data, settings)


def test_files_runs_batches_and_forms_learn_the_same(tmp_path: Path) -> None:
    net, x, y = texts("float32")
    whole = config(epochs=4, metrics={"kind": ["accuracy"]}, validation_split=0.2)
    result = loom.train(net, (x, y), whole)
    assert len(result.metrics["val_kind_accuracy"]) == 4
    with pytest.raises(RuntimeError, match="killed"):
        loom.train(texts("float32")[0], (x, y), whole, callbacks=[Killed(9)], run=tmp_path / "run")
    parts, _, _ = texts("float32")
    loom.train(parts, (x, y), whole, run=tmp_path / "run")
    assert parts.fingerprint() == net.fingerprint()
    net.save(tmp_path / "net.loom")
    again: Any = loom.load(tmp_path / "net.loom").predict(x)
    known: Any = net.predict(x)
    longest = max(map(len, x))
    padded = loom.data.Padded(
        np.array([np.pad(each, (0, longest - len(each))) for each in x]), [len(each) for each in x]
    )
    other: Any = net.predict(padded)
    for name in ("kind", "score"):
        assert np.array_equal(known[name], again[name])
        assert np.array_equal(known[name], other[name])
    cut = [slice(start, start + 8) for start in range(0, ROWS, 8)]
    listed: Any = [(x[rows], {name: each[rows] for name, each in y.items()}) for rows in cut]
    one, two = texts()[0], texts()[0]
    loom.train(one, (x, y), config(shuffle=False))
    loom.train(two, listed, config())
    assert one.fingerprint() == two.fingerprint()


def test_forward_and_backward_go_by_name() -> None:
    net, x, _ = texts()
    output: Any = net.forward(x, training=False)
    assert {name: each.shape for name, each in output.items()} == {"kind": (ROWS, 2), "score": (ROWS, 1)}
    net.backward({"kind": np.ones((ROWS, 2)), "score": np.zeros((ROWS, 1))})
    assert abs(np.asarray(net[0, 1][0].gradients["bias"]) - ROWS).max() < 1e-9


def test_images_of_any_size_tell_two_things() -> None:
    rng = np.random.default_rng(2)
    x = [rng.normal(size=(1, *rng.integers(6, 9, 2))) for _ in range(30)]
    y = {"kind": [str(each.shape[1] > 7) for each in x], "score": [each.mean() for each in x]}
    net = heads((1, None, None), nn.Conv2D(3, kernel_size=3), nn.AdaptiveAvgPool2D(1), nn.Flatten())
    net.fit(x, y, epochs=2, loss=LOSS, verbose=False, device="cpu")
    found: Any = net.predict_classes(x)
    assert set(found["kind"]) <= {"True", "False"}
    for number in (0, 7):
        alone: Any = net.predict([x[number]])
        together: Any = net.predict(x)
        np.testing.assert_allclose(alone["score"][0], together["score"][number], rtol=0, atol=1e-12)


def test_gpu_learns_the_same(gpu: str) -> None:
    here, x, y = texts("float32")
    there, _, _ = texts("float32")
    loom.train(here, (x, y), config())
    loom.train(there, (x, y), config(device="gpu"))
    ours, theirs = here.predict(x), there.predict(x)
    for name in ("kind", "score"):
        np.testing.assert_allclose(theirs[name], ours[name], rtol=0, atol=2e-4)  # type: ignore[index]


def tagger() -> tuple[loom.Network, list[Any], list[Any]]:
    rng = np.random.default_rng(3)
    x = [rng.integers(0, 6, rng.integers(1, 9)) for _ in range(200)]
    layers = [nn.Embedding(6, 6), nn.GRU(8, return_sequences=True), nn.Dense(2)]
    return loom.Sequential(layers, input_shape=(None,), seed=1), x, [each % 2 for each in x]


def test_steps_have_labels_that_come_back(tmp_path: Path) -> None:
    named, x, odd = tagger()
    numbers, _, _ = tagger()
    words = [np.array(["even", "odd"])[each] for each in odd]
    settings: Any = {"epochs": 6, "learning_rate": 0.02, "verbose": False, "device": "cpu"}
    named.fit(x, words, validation_split=0.2, **settings)
    numbers.fit(x, odd, loss="cross_entropy", validation_split=0.2, **settings)
    assert named.state_dict().keys() == numbers.state_dict().keys()
    for name, weights in named.state_dict().items():
        assert np.array_equal(weights, numbers.state_dict()[name])
    named.save(tmp_path / "tagger.loom")
    again = loom.load(tmp_path / "tagger.loom")
    found: Any = again.predict_classes(x[:5])
    for said, truth in zip(found, words, strict=False):
        assert said.tolist() == truth.tolist()
    assert again.evaluate((x, words), metrics=["accuracy"], loss="cross_entropy")["accuracy"] == 1.0
    longest = max(map(len, x))
    table = np.array([[*each, *[""] * (longest - len(each))] for each in words])
    padded = loom.data.Padded(
        np.array([np.pad(each, (0, longest - len(each))) for each in x]), [len(each) for each in x]
    )
    other, _, _ = tagger()
    other.fit(padded, table, epochs=1, verbose=False, device="cpu")
    assert other.card.labels == ("even", "odd")
    with pytest.raises(DataError, match=r"target of sample 0: .* of no class"):
        named.evaluate((x[:1], [np.full(len(x[0]), "prime")]))
