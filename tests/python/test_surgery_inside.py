"""Surgery with layers inside others: they are copied, frozen and grafted as layers of cells are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.analysis import graft

Array = NDArray[Any]


def nested(seed: int = 3) -> loom.Network:
    block = [nn.Dense(8, activation="tanh"), nn.Parallel([nn.Dense(3), [nn.LayerNorm(), nn.Dense(2)]])]
    layers = [nn.Dense(5), nn.Residual(block, projection=nn.Dense(5, bias=False)), nn.Dense(2)]
    return loom.Sequential(layers, input_shape=4, precision="float64", seed=seed).build()


def samples(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape)


def test_a_layer_inside_another_is_copied_into_a_cell() -> None:
    net, other = nested(), nested(seed=9)
    dense = other.layers[1].layers[0]
    dense.weight = dense.weight + 1.0
    net[0, 0, 0].insert(1, dense)
    net[0, 0, 0][2] = other.layers[1].layers[1].branches[1][0].config
    net[0, 0, 0].pop(3)
    assert [layer.kind for layer in net.layers] == ["dense", "dense", "layer_norm"]
    x = samples(6, 4)
    first = x @ net.layers[0].weight.T + net.layers[0].bias
    hidden = np.tanh(first @ dense.weight.T + dense.bias)
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    wanted = centred / np.sqrt((hidden.var(axis=1, keepdims=True)) + 1e-5)
    np.testing.assert_allclose(net.predict(x), wanted, atol=1e-9)
    before = dense.weight
    net.fit((x, samples(6, 8)), loom.TrainingConfig(epochs=2))
    assert (dense.weight == before).all()
    assert (net.layers[1].weight != before).any()


def test_layers_inside_others_are_grafted() -> None:
    net = nested()
    parallel, dense = net.layers[1].layers[1], net.layers[1].layers[0]
    with pytest.raises(loom.ShapeError, match="branches read one input"):
        graft([parallel, dense])
    both = graft([parallel, nested(seed=5).layers[1].layers[1]])
    assert len(both.layers[0].branches) == 4
    x = samples(7, 8)
    inside = net.activations(samples(7, 4), [dense, parallel])
    made = both.predict(inside[dense.path])
    np.testing.assert_allclose(made[:, :5], inside[parallel.path], atol=1e-12)
    alone = graft([parallel.branches[0][0]]).predict(x)
    np.testing.assert_allclose(
        alone, x @ parallel.branches[0][0].weight.T + parallel.branches[0][0].bias, atol=1e-12
    )


def test_layers_inside_others_are_frozen_by_handle_path_and_kind() -> None:
    names = ("layers.0.weight", "layers.0.bias")
    for where in (nested().layers[1].layers[0].path, "0.0.0.1.layers.0.*"):
        assert set(nested().freeze(where).layers[1].frozen) == set(names)
    net = nested()
    net.freeze(net.layers[1].layers[0])
    assert set(net.layers[1].frozen) == set(names)
    assert net.layers[1].trainable
    assert not net.layers[1].layers[0].trainable
    before = {path: values.copy() for path, values in net.state_dict().items()}
    net.fit((samples(8, 4), samples(8, 2)), loom.TrainingConfig(epochs=2))
    moved = {path for path, values in net.state_dict().items() if (values != before[path]).any()}
    assert moved == before.keys() - {f"0.0.0.1.{name}" for name in names}
    # By kind everywhere: whole layers, and those inside others.
    net = nested().freeze("dense")
    assert [layer.trainable for layer in net.layers] == [False, True, False]
    left = {name for name in net.layers[1].parameters if name not in net.layers[1].frozen}
    assert left == {"layers.1.branches.1.0.weight", "layers.1.branches.1.0.bias"}
    assert not net.unfreeze("dense").layers[1].frozen
    # What was frozen as a whole is let go in part.
    net = nested().freeze().unfreeze(["*.branches.1.0.bias", "0.0.0.2"])
    assert [layer.trainable for layer in net.layers] == [False, True, True]
    assert set(net.layers[1].parameters) - set(net.layers[1].frozen) == {"layers.1.branches.1.0.bias"}


def test_what_only_whole_layers_can_do_is_refused_by_name() -> None:
    net = nested()
    inner = net.layers[1].layers[0]
    with pytest.raises(
        loom.ConfigError, match=r"cut: layer 0\.0\.0\.1\.layers\.0 is inside layer 0\.0\.0\.1"
    ):
        net.cut(until=inner)
    with pytest.raises(loom.ConfigError, match="names parameters"):
        net.scale_rates({"0.0.0.1.layers.0": 0.5})
    with pytest.raises(loom.ConfigError, match=r'unknown layer "0\.0\.0\.1\.layers\.7"'):
        net.cut(until="0.0.0.1.layers.7")
