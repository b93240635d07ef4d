"""Layers inside others: their handles."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from nested_networks import every, nested, samples, sequences
from networks import quiet

Array = NDArray[Any]


def test_layers_inside_others_have_handles() -> None:
    net = nested()
    skip = net[0, 0, 0, 1]
    assert [layer.path for layer in skip.layers] == [f"0.0.0.1.layers.{place}" for place in range(3)]
    assert [layer.kind for layer in skip.layers] == ["dense", "parallel", "dense"]
    assert skip.projection == []
    parallel = skip.layers[1]
    assert [[layer.kind for layer in branch] for branch in parallel.branches] == [
        ["dense"],
        [],
        ["dense", "dense"],
    ]
    assert [layer.kind for layer in parallel.gate] == ["flatten", "dense"]
    row = net[0, 0, 0, 2]
    assert [layer.path for layer in row.layers] == ["0.0.0.2.0", "0.0.0.2.1"]
    assert [layer.path for layer in row.layers[0].projection] == ["0.0.0.2.0.projection.0"]
    assert skip.layers[0].input_shape == (4,)
    assert skip.layers[0].output_shape == (6,)
    assert skip.layers[0].whole == skip
    assert skip.layers[0].at == (0, 0, 0, 1)
    assert repr(skip.layers[0]) == "Layer 0.0.0.1.layers.0: Dense(units=6, activation='gelu')"
    assert len({*every(net), *every(net)}) == len(every(net)) == 15


def test_the_paths_are_those_of_the_blueprint_and_of_the_state_dict() -> None:
    for net in (nested(), sequences(causal=True)):

        def paths(layers: Any) -> list[str]:
            return [path for layer in layers for path in (layer.path, *paths(layer.layers))]

        told = paths(net.blueprint().layers)
        found = [layer.path for layer in every(net)]
        assert set(told) <= set(found)
        # What a gate flattens has no entry of its own there.
        assert all(path.endswith("gate.0") for path in set(found) - set(told))
        state = net.state_dict()
        own = {f"{layer.path}.{name}": layer[name] for layer in every(net) for name in layer.parameters}
        assert set(state) <= set(own)
        for name, values in own.items():
            if name in state:
                np.testing.assert_array_equal(values, state[name])


def test_parameters_are_those_of_the_layer_of_the_cell() -> None:
    net = nested()
    whole, inner = net[0, 0, 0, 1], net[0, 0, 0, 1].layers[1].branches[2][0]
    assert list(inner.parameters) == ["weight", "bias"]
    np.testing.assert_array_equal(inner.weight, whole["layers.1.branches.2.0.weight"])
    inner.bias = np.ones(3)
    np.testing.assert_array_equal(whole["layers.1.branches.2.0.bias"], np.ones(3))
    np.testing.assert_array_equal(inner.decoded("bias"), np.ones(3))
    with pytest.raises(
        AttributeError, match=r"layer 0.0.0.1.layers.1.branches.2.0 \(dense\) has no attribute"
    ):
        _ = inner.wieght
    with pytest.raises(loom.ConfigError, match='did you mean "weight"'):
        inner["wieght"]
    with pytest.raises(loom.ShapeError):
        inner.weight = np.ones((2, 2))
    with pytest.raises(AttributeError, match="layers"):
        _ = inner.layers
    assert not hasattr(whole, "gate")
    assert hasattr(whole, "projection")


def test_gradients_are_those_of_the_layer_of_the_cell() -> None:
    net = nested()
    inner = net[0, 0, 0, 2].layers[0].projection[0]
    net.forward(samples((5,)))
    net.backward(np.ones((7, 3)))
    np.testing.assert_array_equal(
        inner.gradients["weight"], net[0, 0, 0, 2].gradients["0.projection.0.weight"]
    )
    assert np.abs(inner.gradients["weight"]).max() > 0


def test_states_are_those_of_the_layer_of_the_cell() -> None:
    net = loom.Sequential([nn.Residual([nn.Dense(4), nn.BatchNorm()])], input_shape=4)
    norm = net[0, 0, 0, 0].layers[1]
    net.forward(samples((4,)))
    assert set(norm.states) == {"running_mean", "running_var"}
    norm.states = {"running_mean": np.full(4, 2.0)}
    np.testing.assert_array_equal(net[0, 0, 0, 0].states["layers.1.running_mean"], np.full(4, 2.0))
    norm.set_state("running_var", np.full(4, 3.0))
    assert norm.states["running_var"][0] == 3.0
    with pytest.raises(loom.LoomError):
        norm.states = {"running_mean": np.zeros(4), "running_mode": np.zeros(4)}
    assert norm.states["running_mean"][0] == 2.0


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_a_layer_inside_another_is_frozen_by_its_parameters() -> None:
    net = nested()
    inner = net[0, 0, 0, 1].layers[0]
    assert inner.trainable
    assert inner.frozen == ()
    inner.trainable = False
    assert not inner.trainable
    assert inner.frozen == ("weight", "bias")
    assert net[0, 0, 0, 1].frozen == ("layers.0.weight", "layers.0.bias")
    before, other = inner.weight, net[0, 0, 0, 1].layers[2].weight
    net.fit((samples((5,), 32), samples((3,), 32)), quiet(epochs=1, loss="mse"))
    np.testing.assert_array_equal(inner.weight, before)
    assert (net[0, 0, 0, 1].layers[2].weight != other).any()
    inner.unfreeze("bias")
    assert inner.frozen == ("weight",)
    assert inner.trainable
    net[0, 0, 0, 1].trainable = False
    with pytest.raises(loom.ConfigError, match=r"is inside layer 0\.0\.0\.1, which is not trained"):
        inner.trainable = True
    assert inner.rate_factor == 1.0
    with pytest.raises(
        loom.ConfigError, match=r"learns at the rate of layer 0\.0\.0\.1: set rate_factor there"
    ):
        inner.rate_factor = 0.5


def test_packed_weights_are_those_of_the_layer_of_the_cell() -> None:
    net = nested(precision="float32").morph("int8")
    inner = net[0, 0, 0, 1].layers[0]
    assert inner.dtype == inner.weights.dtype == "int8"
    assert inner.weights.stored["weight"].dtype == "int8"
    assert inner.weights.stored["bias"].dtype == "float32"
    assert inner.weights.nbytes() == sum(stored.nbytes for stored in inner.weights.stored.values())
    assert inner.weights.packed("weight").codes.size == 24
    assert np.abs(inner.decoded("weight") - inner.weight).max() < 0.02
    with pytest.raises(loom.ConfigError, match="ask that one"):
        inner.weights.nbytes("int4")
    assert net[0, 0, 0, 1].layers[1].gate[0].dtype is None
    net.morph("float32").morph("int4", where=lambda it: it.index == 1, parameters="layers.2.weight")
    assert net[0, 0, 0, 1].layers[2].dtype == "int4"
    assert net[0, 0, 0, 1].layers[0].dtype == "float32"


def test_handles_are_places() -> None:
    net = nested()
    inner = net[0, 0, 0, 1].layers[1].gate[1]
    assert copy.copy(inner) == inner
    assert inner != net[0, 0, 0, 1]
    assert inner != net[0, 0, 0, 1].layers[1]
    for copied in (copy.deepcopy(inner), pickle.loads(pickle.dumps(inner))):
        assert copied.path == inner.path
        assert copied != inner
        np.testing.assert_array_equal(copied.weight, inner.weight)


def test_what_is_listed_is_there() -> None:
    net = nested()
    for layer in every(net):
        assert all(hasattr(layer, name) for name in ("layers", "gate") if name in dir(layer))
    assert "layers" in dir(net.layers[1])
    assert "gate" not in dir(net.layers[1])
    assert not {"layers", "branches"} & set(dir(net.layers[0]))


@dataclass(frozen=True)
class Twice(nn.Composed, name="twice inside"):
    width: int

    def layers(self) -> list[nn.Layer]:
        return [nn.Dense(self.width), nn.Residual([nn.Dense(self.width, activation="relu")])]


def test_layers_that_users_compose_hold_layers() -> None:
    net, x = loom.Sequential([nn.Residual([Twice(4)]), nn.Dense(2)], input_shape=4), samples((4,))
    composed = net.layers[0].layers[0]
    assert isinstance(composed.config, Twice)
    assert [layer.path for layer in composed.layers] == ["0.0.0.0.layers.0.0", "0.0.0.0.layers.0.1"]
    assert composed.layers[1].layers[0].path in net.activations(x, composed.inner)


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_callbacks_look_while_a_network_trains() -> None:
    x, y = samples((5,), 16).astype(np.float32), samples((3,), 16).astype(np.float32)
    seen: list[Array] = []

    class Looking(loom.Callback):
        def on_train_batch_end(self, batch: int, logs: Any) -> None:
            seen.append(net.activations(x, ["0.0.0.1.layers.0"])["0.0.0.1.layers.0"])
            seen.append(net.input_gradients(x, target=0))

    made = []
    for callbacks in ([], [Looking()]):
        net = nested(precision="float32")
        net.fit((x, y), quiet(epochs=2, loss="mse", batch_size=4), callbacks=callbacks)
        made.append(net.predict(x))
    np.testing.assert_array_equal(*made)
    assert len(seen) == 16
    assert (seen[0] != seen[2]).any()


def test_gradients_of_the_input_need_no_master() -> None:
    net, x = nested(precision="float32").morph("int8"), samples((5,)).astype(np.float32)
    before = net.input_gradients(x, target=1)
    net.drop_master()
    np.testing.assert_array_equal(net.input_gradients(x, target=1), before)
