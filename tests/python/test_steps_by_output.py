"""Outputs with names that tell something of each step, of samples of any length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.errors import DataError
from networks import Killed
from one_step import assert_one_step_follows
from open_ports import TOLD, config, sentences, tagger


def test_steps_by_output_weigh_as_numpy_says() -> None:
    net, (x, y) = tagger(), sentences(14)
    rng = np.random.default_rng(8)
    weight = {"odd": [rng.uniform(0, 2, len(each)) for each in x], "long": rng.uniform(0, 2, 14)}
    output: Any = net.predict(x)
    assert [each.shape for each in output["odd"]] == [(len(each), 2) for each in x]
    assert output["long"].shape == (14, 1)
    means = []
    for number in range(14):
        scores = output["odd"][number]
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        odd = -logs[np.arange(len(scores)), y["odd"][number]] * weight["odd"][number]
        total = (output["sum"][number] - y["sum"][number]) ** 2
        long = (output["long"][number, 0] - y["long"][number]) ** 2 * weight["long"][number]
        means.append(odd.mean() + 0.5 * total.mean() + long)
    settings = config(
        epochs=1,
        batch_size=14,
        shuffle=False,
        optimizer="sgd",
        learning_rate=0.1,
        loss=TOLD,
        loss_weights={"sum": 0.5},
        metrics={"odd": ["accuracy"]},
    )
    data: Any = (x, y, weight)
    found = net.evaluate(data, settings)
    assert abs(found["loss"] - np.mean(means)) < 1e-12
    small = net.evaluate(data, settings, batch_size=3)
    assert abs(small["loss"] - found["loss"]) < 1e-12
    hits = [o.argmax(1) == t for o, t in zip(output["odd"], y["odd"], strict=True)]
    assert abs(found["odd_accuracy"] - np.concatenate(hits).mean()) < 1e-12
    plain = net.evaluate((x, y), settings)
    parts = plain["odd_loss"] + 0.5 * plain["sum_loss"] + plain["long_loss"]
    assert abs(plain["loss"] - parts) < 1e-12
    assert_one_step_follows(net, data, settings)


def test_a_tagger_of_several_outputs_learns(tmp_path: Path) -> None:
    x, y = sentences(300)
    words = {**y, "odd": [np.array(["even", "odd"])[each] for each in y["odd"]]}
    net = tagger(precision="float32")
    result = loom.train(
        net,
        (x, words),
        config(
            epochs=40,
            batch_size=32,
            learning_rate=0.02,
            loss=TOLD,
            metrics={"odd": ["accuracy"]},
            validation_split=0.2,
        ),
    )
    assert result.metrics["odd_accuracy"][-1] > 0.97
    assert result.metrics["val_odd_accuracy"][-1] > 0.9
    net.save(tmp_path / "net.loom")
    found: Any = loom.load(tmp_path / "net.loom").predict_classes(x[:30])
    right = [np.array(said) == truth for said, truth in zip(found["odd"], words["odd"], strict=False)]
    assert np.concatenate(right).mean() > 0.95


def test_steps_by_output_learn_the_same_on_a_gpu_and_in_runs(tmp_path: Path, gpu: str) -> None:
    x, y = sentences()
    nets = [tagger(precision="float32") for _ in range(3)]
    settings: Any = {"loss": TOLD, "epochs": 2, "accumulate": 2}
    loom.train(nets[0], (x, y), config(**settings))
    loom.train(nets[1], (x, y), config(device=gpu, **settings))
    with pytest.raises(RuntimeError, match="killed"):
        loom.train(
            tagger(precision="float32"), (x, y), config(**settings), callbacks=[Killed(2)], run=tmp_path
        )
    loom.train(nets[2], (x, y), config(**settings), run=tmp_path)
    assert nets[2].fingerprint() == nets[0].fingerprint()
    ours: Any = nets[0].predict(x)
    theirs: Any = nets[1].predict(x)
    for one, other in zip(ours["odd"], theirs["odd"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-4)


@pytest.mark.parametrize("accumulate", [2, 3])
def test_accumulated_batches_of_steps_by_output_are_those_of_lists(accumulate: int) -> None:
    x, y = sentences(15)
    rng = np.random.default_rng(2)
    weight = {"odd": [rng.uniform(0, 2, len(each)) for each in x], "long": rng.uniform(0, 2, 15)}
    listed: Any = [
        tuple(
            {name: each[cut] for name, each in part.items()} if isinstance(part, dict) else part[cut]
            for part in (x, y, weight)
        )
        for cut in (slice(start, start + 4) for start in range(0, 15, 4))
    ]
    settings: Any = {"loss": TOLD, "accumulate": accumulate, "batch_size": 4, "shuffle": False}
    metrics: Any = {"odd": ["accuracy"]}
    nets = [tagger() for _ in range(2)]
    one = loom.train(nets[0], (x, y, weight), config(metrics=metrics, **settings))
    two = loom.train(nets[1], listed, config(metrics=metrics, **settings))
    assert one.history == two.history
    assert nets[0].fingerprint() == nets[1].fingerprint()
    # The step goes where the slope of the whole loss says.
    plain = tagger()
    assert_one_step_follows(
        plain, listed, config(loss=TOLD, epochs=1, accumulate=4, optimizer="sgd", learning_rate=0.1)
    )


def test_weights_of_samples_are_what_the_mean_of_outputs_with_steps_is_over() -> None:
    x, y = sentences(14)
    weight = np.random.default_rng(3).uniform(0.2, 3, 14)
    plain, net = config(loss=TOLD, epochs=1), tagger()
    # Each sample's loss, by itself.
    each = [
        net.evaluate(([x[number]], {name: part[number : number + 1] for name, part in y.items()}), plain)
        for number in range(14)
    ]
    found = net.evaluate((x, y, weight), replace(plain, validation_batch_size=4))
    for name, value in found.items():
        expected = sum(w * one[name] for w, one in zip(weight, each, strict=True)) / weight.sum()
        assert abs(value - expected) < 1e-12, name
    # How large weights are all together is no matter, in steps of several batches neither.
    nets = [tagger() for _ in range(2)]
    settings = config(loss=TOLD, epochs=1, batch_size=3, accumulate=2, optimizer="sgd", learning_rate=0.3)
    for other, factor in zip(nets, (1.0, 7.0), strict=True):
        loom.train(other, (x, y, factor * weight), settings)
    for name, values in nets[0].state_dict().items():
        np.testing.assert_allclose(nets[1].state_dict()[name], values, rtol=0, atol=1e-12, err_msg=name)
    assert_one_step_follows(net, (x, y, weight), replace(settings, batch_size=7, learning_rate=0.1))
    for call in (loom.train, loom.evaluate):
        with pytest.raises(DataError, match="weight of every sample is zero"):
            call(net, (x, y, np.zeros(14)), plain)


def test_labels_of_steps_may_be_whole_numbers_with_gaps() -> None:
    x, y = sentences(30)
    named = {**y, "odd": [np.array([4, 9])[each] for each in y["odd"]]}
    weighted = {"odd": {9: 3.0}}, {"odd": {1: 3.0}}
    net, other = tagger(), tagger()
    one = loom.train(net, (x, named), config(loss=TOLD, class_weight=weighted[0], validation_split=0.2))
    two = loom.train(other, (x, y), config(loss=TOLD, class_weight=weighted[1], validation_split=0.2))
    assert one.history == two.history
    assert net.evaluate((x, named)) == other.evaluate((x, y))
    said: Any = net.predict_classes(x)
    places: Any = other.predict_classes(x)
    for found, place in zip(said["odd"], places["odd"], strict=True):
        np.testing.assert_array_equal(found, np.array([4, 9])[place])
