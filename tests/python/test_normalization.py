"""Networks with normalisations, the softmax's kin and soft clusters: they learn, and come back from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, quiet

# What stands between two dense layers of twelve units.
BETWEEN: list[nn.Layer] = [
    nn.LayerNorm(),
    nn.RMSNorm(),
    nn.GroupNorm(3),
    nn.BatchNorm(),
    nn.GridSoftmax(3, 4),
    nn.HierarchicalSoftmax(3, 9),
    nn.AdaptiveSoftmax([4]),
    nn.MixtureSoftmax(2),
    nn.GumbelSoftmax(2.0),
    nn.MaskedSoftmax([True] * 11 + [False]),
    nn.Sparsemax(),
    nn.Entmax(),
    nn.Entmax(1.25),
    nn.KMeans(5),
]


@pytest.mark.parametrize("layer", BETWEEN, ids=repr)
def test_networks_learn_and_come_back_from_files(tmp_path: Path, layer: nn.Layer) -> None:
    net = loom.Sequential([nn.Dense(12), layer, nn.Dense(3)], input_shape=6, seed=4)
    x, y = blobs()
    result = loom.train(net, (x, y), quiet(epochs=15, batch_size=30, optimizer="adam", learning_rate=0.02))
    assert result.final_loss < 0.2 * result.loss_history[0]
    net.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(x), net.predict(x))


def test_batch_norm_needs_more_than_one_row_to_train() -> None:
    net = loom.Sequential([nn.BatchNorm(), nn.Dense(3)], input_shape=6, seed=4)
    x, y = blobs(31)
    with pytest.raises(ValueError, match="more than one value a channel"):
        loom.train(net, (x, y), quiet(epochs=1, batch_size=30))


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    for layer, message in [
        (nn.GridSoftmax(3, 5), r"15\), 3 rows of 5"),
        (nn.HierarchicalSoftmax(3, 12), r"15\), 3 groups and 12 leaves"),
        (nn.AdaptiveSoftmax([11]), "more than 11 words"),
        (nn.MixtureSoftmax(5), r"5 \+ 5 n"),
        (nn.MaskedSoftmax([True] * 5), "5 places on the last axis"),
        (nn.GroupNorm(5), "a multiple of 5 channels"),
    ]:
        net = loom.Sequential([nn.Dense(12), layer], input_shape=6)
        with pytest.raises(loom.ShapeError, match=message):
            net.predict(np.zeros((1, 6), np.float32))


def test_frozen_batch_norm_goes_on_by_the_batch_as_freeze_says() -> None:
    """As PyTorch's with requires_grad=False; what computes once, by predict, stays as Keras has it."""
    draws = np.random.default_rng(5)
    x = draws.normal(3.0, 2.0, size=(64, 4))
    y = x[:, :1] - x[:, 1:2]
    settings: dict[str, Any] = {"batch_size": 64, "verbose": False, "ignore_findings": "all"}

    def made(momentum: float = 0.1) -> loom.Network:
        layers = [nn.BatchNorm(momentum=momentum), nn.Dense(3, activation="tanh"), nn.Dense(1)]
        net = loom.Sequential(layers, input_shape=4, precision="float64", seed=2).build()
        net.layers[0].set_state("running_mean", np.full(4, 1.0))
        return net.freeze("batch_norm")

    for momentum in (0.1, 0.0):
        net = made(momentum)
        output = net.forward(x)
        normalised = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
        np.testing.assert_allclose(net.layers[0].activation, normalised, atol=1e-12)
        assert output.shape == (64, 1)
        net.zero_gradients()
        net = made(momentum)
        net.fit(x, y, epochs=1, **settings)
        wanted = (1 - momentum) * 1.0 + momentum * x.mean(axis=0)
        np.testing.assert_allclose(net.layers[0].states["running_mean"], wanted, atol=1e-12)
        np.testing.assert_array_equal(net.layers[0].parameters["weight"], np.ones(4))
    base = made().cut(until="0.0.0.0")
    before = base.fingerprint()
    head = loom.Sequential([nn.Dense(1)], input_shape=4, precision="float64", seed=3)
    head.fit(base.predict(x), y, epochs=30, learning_rate=0.1, **settings)
    assert base.fingerprint() == before
    whole = loom.Sequential([*base.layers, *head.layers], input_shape=4, precision="float64")
    np.testing.assert_allclose(whole.predict(x), head.predict((x - 1.0) / np.sqrt(1.0 + 1e-5)), atol=1e-12)
