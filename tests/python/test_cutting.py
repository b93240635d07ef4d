"""Networks cut short; what is frozen and how fast layers learn."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, mlp, quiet
from trained_networks import dense, samples, trained

# Cut


def test_a_cut_network_is_the_first_layers() -> None:
    net = trained()
    x = samples()
    net.forward(x, training=False)
    for layer in net.layers:
        features = net.cut(until=layer)
        np.testing.assert_array_equal(features.predict(x), layer.activation)
    features = net.cut(until="0.0.0.2").freeze()
    before = net.state_dict()
    features[0, 0, 0].add(nn.Dense(3))
    held = features.layers[0].weight
    features.fit(blobs(40), quiet(epochs=1, device="cpu"))
    np.testing.assert_array_equal(features.layers[0].weight, held)
    assert all(np.array_equal(values, before[name]) for name, values in net.state_dict().items())


def test_a_cut_keeps_links_and_cells_in_their_places() -> None:
    net = loom.Network(input_shape=4, grid=(1, 4), precision="float64")
    for column in range(4):
        net[0, column].add(nn.Dense(4, activation="tanh"), nn.Dense(4))
    net.link((0, 0), (0, 2)).link((0, 1), (0, 3), combine="concat")
    x = samples(width=4)
    features = net.cut(until=(0, 0, 2, 0))
    assert features.grid == net.grid
    assert len(features.config.links) == 1
    first = dense(np.tanh(dense(x, net[0, 0][0])), net[0, 0][1])
    second = dense(np.tanh(dense(first, net[0, 1][0])), net[0, 1][1])
    expected = np.tanh(dense(first + second, net[0, 2][0]))
    np.testing.assert_allclose(features.predict(x), expected, rtol=0, atol=1e-9)
    back = loom.Network(input_shape=4, grid=(1, 3))
    for column in range(3):
        back[0, column].add(nn.Dense(4), nn.Dense(4))
    back.link((0, 2), (0, 1))
    with pytest.raises(loom.errors.ConfigError, match=r"the link from cell \(0, 0, 2\) to cell \(0, 0, 1\)"):
        back.cut(until=(0, 0, 1, 0))
    tied = loom.Network(input_shape=5, grid=(1, 2))
    tied[0, 0].add(nn.Embedding(11, 4), nn.TiedHead(11, tied_to=(0, 0, 0, 0)))
    ids = np.arange(10).reshape(2, 5)
    np.testing.assert_array_equal(tied.cut(until=tied.layers[-1]).predict(ids), tied.predict(ids))
    assert len(tied.cut(until=tied.layers[-1]).state_dict()) == 1


def test_a_context_that_only_layers_behind_the_cut_read_is_left_out() -> None:
    net = loom.Network(input_shape=(6, 4), grid=(1, 2), precision="float64", seed=0)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net[0, 1].add(nn.LayerNorm(), nn.Residual([nn.MultiHeadAttention(2, cross=True)]), nn.GRU(3))
    net.link((0, 0), (0, 1), combine="context")
    x = np.random.default_rng(0).normal(size=(3, 6, 4))
    net.forward(x, training=False)
    for layer in net.layers:
        features = net.cut(until=layer)
        np.testing.assert_array_equal(features.predict(x), layer.activation)
        assert len(features.config.links) == (layer.kind in {"residual", "gru"})


@pytest.mark.parametrize("combine", ["concat", "replace", "add"])
def test_a_cut_network_may_have_links_that_its_layers_read(combine: Any) -> None:
    """Links came after the layers, whose weights then did not fit what reached them."""
    net = loom.Network(input_shape=4, grid=(1, 4), seed=0)
    net[0, 0].add(nn.Dense(5))
    net[0, 1].add(nn.Dense(5 if combine == "add" else 3))
    net.link((0, 0), (0, 2), combine=combine)[0, 2].add(nn.Dense(6))
    if combine == "replace":
        net.link((0, 1), (0, 2), combine="concat")
    net[0, 3].add(nn.Dense(2))
    x = samples(width=4)
    expected = net.activations(x, ["0.0.2.0"])["0.0.2.0"]
    np.testing.assert_array_equal(net.cut(until="0.0.2.0").predict(x), expected)


# What is learned, and how fast


def test_what_is_frozen_by_pattern_kind_handle_and_function() -> None:
    net = loom.Sequential(
        [nn.Dense(4), nn.Parallel([nn.Dense(3), nn.Dense(3)], combine="add"), nn.LayerNorm(), nn.Dense(2)],
        input_shape=6,
    )

    def frozen() -> list[bool]:
        return [not layer.trainable for layer in net.layers]

    assert net.freeze() is net
    assert frozen() == [True] * 4
    net.unfreeze(lambda layer: layer.index > 1)
    assert frozen() == [True, True, False, False]
    net.unfreeze().freeze("dense")
    assert frozen() == [True, False, False, True]
    net.unfreeze().freeze(["0.0.0.[12]", net.layers[3]])
    assert frozen() == [False, True, True, True]
    net.unfreeze().freeze(net.layers[:1])
    assert frozen() == [True, False, False, False]
    net.unfreeze().freeze("0.0.0.1.branches.1.*").freeze("*.bias")
    assert frozen() == [False] * 4
    assert net.layers[0].frozen == ("bias",)
    assert set(net.layers[1].frozen) == {
        "branches.0.0.bias",
        "branches.1.0.weight",
        "branches.1.0.bias",
    }
    before = net.state_dict()
    net.fit((blobs(40)[0], np.ones((40, 2))), quiet(epochs=1, device="cpu", loss="mse"))
    moved = {name for name, values in net.state_dict().items() if not np.array_equal(values, before[name])}
    assert moved == {"0.0.0.0.weight", "0.0.0.1.branches.0.0.weight", "0.0.0.2.weight", "0.0.0.3.weight"}
    net.unfreeze("0.0.0.1")
    assert net.layers[1].frozen == ()


def test_rates_by_layer_are_one_mechanism() -> None:
    x, y = blobs(20)

    def step(**options: Any) -> loom.Network:
        net = mlp(precision="float64")
        config = quiet(epochs=1, batch_size=20, learning_rate=0.5, optimizer=loom.SGD(), device="cpu")
        net.fit((x, y), config, **options)
        return net

    start, plain = mlp(precision="float64"), step()
    scaled = step(rate_scale={"dense": 0.1, "0.0.1.*": 1})
    assert [layer.rate_factor for layer in scaled.layers] == [0.1, 1.0, 1.0]
    moved = plain.layers[0].weight - start.layers[0].weight
    np.testing.assert_allclose(
        scaled.layers[0].weight, start.layers[0].weight + 0.1 * moved, rtol=0, atol=1e-12
    )
    np.testing.assert_array_equal(scaled.layers[2].weight, plain.layers[2].weight)
    copied = copy.deepcopy(scaled)
    assert copied.layers[0].rate_factor == 0.1
    tied = loom.Network(input_shape=5, grid=(1, 2))
    tied[0, 0].add(nn.Embedding(11, 4), nn.TiedHead(11, tied_to=(0, 0, 0, 0)))
    tied.scale_rates({"*": 0.5})
    assert [layer.rate_factor for layer in tied.layers] == [0.5, 1.0]
