"""Batch normalisation over all shards of a step, as PyTorch's SyncBatchNorm over all processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(1.5, 2.0, size=(13, 4))
Y = RANDOM.normal(size=(13, 2))
IMAGES = RANDOM.normal(0.5, 2.0, size=(22, 2, 5, 5)).astype("float32")
KINDS = RANDOM.integers(0, 3, 22)
NORM, DENSE = "0.0.0.0.", "0.0.0.1.weight"


def settings(**changed: Any) -> loom.TrainingConfig:
    given: dict[str, Any] = {"epochs": 2, "batch_size": 11, "verbose": False, "shuffle": False}
    return loom.TrainingConfig(**{**given, "loss": "cross_entropy", **changed})


def by_hand(weight: Any, gain: Any, bias: Any, rate: float) -> dict[str, Any]:
    """One step of plain SGD over all rows: y = norm(x) @ weight, mean squared error; PyTorch's formulas."""
    mean, variance = X.mean(0), X.var(0)
    normal = (X - mean) / np.sqrt(variance + 1e-5)
    told = (normal * gain + bias) @ weight
    d_told = 2 * (told - Y) / Y.size
    d_y = d_told @ weight.T
    count = len(X)
    return {
        "bias": bias - rate * d_y.sum(0),
        "gain": gain - rate * (d_y * normal).sum(0),
        "weight": weight - rate * (normal * gain + bias).T @ d_told,
        "running_mean": 0.1 * mean,
        "running_var": 0.9 + 0.1 * variance * count / (count - 1),
    }


def test_a_step_is_that_of_the_whole_batch() -> None:
    for ranks, shards in ((1, 4), (3, 5), (2, 13), (4, 16)):

        def train(communicator: Any, shards: int = shards) -> dict[str, Any]:
            net = loom.Sequential(
                [nn.BatchNorm(synchronized=True), nn.Dense(2, bias=False)],
                input_shape=4,
                seed=1,
                precision="float64",
            )
            before = {name: values.copy() for name, values in net.state_dict().items()}
            config = settings(
                epochs=1,
                batch_size=13,
                loss="mse",
                optimizer=loom.optimizers.SGD(),
                learning_rate=0.3,
                shards=shards,
                ignore_findings="all",
            )
            loom.train(net, (X, Y), config, distributed=communicator)
            return {"before": before, "after": net.state_dict()}

        found = loom.distributed.threads(ranks, train)[0]
        before, after = found["before"], found["after"]
        weight = before[DENSE].T
        expected = by_hand(weight, np.ones(4), np.zeros(4), 0.3)
        np.testing.assert_allclose(after[DENSE].T, expected["weight"], rtol=1e-11)
        for name in ("gain", "bias", "running_mean", "running_var"):
            place = NORM + {"gain": "weight"}.get(name, name)
            np.testing.assert_allclose(after[place], expected[name], rtol=1e-10, err_msg=name)


def images(**settings_of_norm: Any) -> loom.Network:
    layers = [
        nn.Conv2D(3, kernel_size=3, activation="relu"),
        nn.BatchNorm(**settings_of_norm),
        nn.Conv2D(4, kernel_size=2),
        nn.Checkpoint([nn.BatchNorm(**settings_of_norm), nn.Activation("relu")]),
        nn.Flatten(),
        nn.Dense(3),
    ]
    return loom.Sequential(layers, input_shape=(2, 5, 5), seed=1)


def trained(communicator: Any, device: str = "cpu", **changed: Any) -> tuple[Any, ...]:
    net = images(synchronized=True)
    config = settings(device=device, metrics=["accuracy"], gradient_clip=1.0, **changed)
    result = loom.train(net, (IMAGES, KINDS), config, distributed=communicator)
    return net.fingerprint(), net.to_bytes(optimizer=True), result.loss_history, result.metrics


def test_the_bits_are_the_same_for_any_number_of_ranks() -> None:
    alone = trained(None, shards=8)
    for count in (1, 2, 3, 4, 8):
        for found in loom.distributed.threads(count, lambda ranks: trained(ranks, shards=8)):
            assert found[0] == alone[0], count
            assert found[1:] == alone[1:], count


def test_shards_change_nothing_but_rounding_where_their_norms_are_synchronized() -> None:
    whole = trained(None)
    shards = trained(None, shards=5)
    np.testing.assert_allclose(shards[2], whole[2], rtol=1e-4)
    net, other = images(), images(synchronized=True)
    for each in (net, other):
        loom.train(each, (IMAGES, KINDS), settings())
    # In one piece the setting changes no bit, but for the rounding of the unbiased variance.
    for name, values in net.state_dict().items():
        if name.endswith("running_var"):
            np.testing.assert_allclose(other.state_dict()[name], values, rtol=1e-6)
        else:
            assert other.state_dict()[name].tobytes() == values.tobytes(), name


def test_gpus_do_the_same(gpu: str) -> None:
    alone = trained(None, gpu, shards=4)
    for found in loom.distributed.threads(2, lambda ranks: trained(ranks, gpu, shards=4)):
        assert found == alone
    np.testing.assert_allclose(alone[2], trained(None, shards=4)[2], rtol=2e-3)


def test_one_value_in_all_is_refused_by_all() -> None:
    def train(communicator: Any) -> None:
        net = loom.Sequential([nn.BatchNorm(synchronized=True), nn.Dense(2)], input_shape=4)
        config = settings(loss="mse", shards=2, ignore_findings="all")
        loom.train(net, (X[:1], Y[:1]), config, distributed=communicator)

    with pytest.raises(loom.InvalidValueError, match="more than one value a channel"):
        loom.distributed.threads(2, train)
