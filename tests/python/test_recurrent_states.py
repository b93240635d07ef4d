"""What stateful recurrent layers carry: read, set, saved and resumed, everywhere that they carry it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from programs import answer

CELLS: dict[str, Any] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
FIRST = (0, 0, 0, 0)


def sequences(batches: int, rows: int = 4, time: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(3).normal(size=(batches, rows, time, 2))


def stateful(cell: str, precision: str = "float64", **settings: Any) -> loom.Network:
    layer = CELLS[cell](5, stateful=True, **settings)
    return loom.Sequential([layer], input_shape=(3, 2), precision=precision, seed=5)


# Reading and setting


def test_states_are_assigned_by_name() -> None:
    net = stateful("lstm", layers=2)
    layer = net.layers[0]
    x = sequences(3)
    net.forward(x[0])
    kept = layer.states
    assert {name: values.shape for name, values in kept.items()} == {
        "state_l0": (4, 2, 5),
        "state_l1": (4, 2, 5),
    }
    expected = net.forward(x[1])
    assert not np.array_equal(layer.states["state_l0"], kept["state_l0"])
    layer.states = kept
    np.testing.assert_array_equal(net.forward(x[1]), expected)
    # One by itself leaves the others.
    after = layer.states
    layer.states = {"state_l1": np.zeros((4, 2, 5))}
    np.testing.assert_array_equal(layer.states["state_l0"], after["state_l0"])
    assert not layer.states["state_l1"].any()


def test_after_an_error_no_state_has_moved() -> None:
    net = stateful("gru", layers=2)
    layer = net.layers[0]
    good = np.ones((4, 1, 5))
    wrong: list[tuple[Any, type[Exception], str]] = [
        ({"state_l0": good, "state_l1": np.ones((4, 5))}, loom.ShapeError, "state_l1.*4, 1, 5"),
        ({"state_l0": good, "state_l7": good}, loom.InvalidValueError, "state_l7.*state_l1"),
        ({"state_l0": good, "state_l1": np.ones((3, 1, 5))}, loom.StateError, "4 rows.*reset_states"),
        ({"state_l0": good, "state_l1": np.full((4, 1, 5), np.nan)}, loom.NonFiniteError, "state_l1"),
        ([good], loom.ConfigError, "by name"),
    ]
    for begun in (False, True):
        if begun:
            net.forward(sequences(1)[0])
        before = layer.states
        assert bool(before) == begun
        for values, error, message in wrong:
            with pytest.raises(error, match=message):
                layer.states = values
            assert layer.states.keys() == before.keys()
            for name, state in before.items():
                np.testing.assert_array_equal(layer.states[name], state)


def test_layers_without_a_state_say_so() -> None:
    net = loom.Sequential([nn.LSTM(3), nn.Dense(2)], input_shape=(3, 2))
    for layer in net.layers:
        assert layer.states == {}
        with pytest.raises(loom.InvalidValueError, match=r"no state.*stateful"):
            layer.states = {"state_l0": np.zeros((1, 2, 3))}


# Saved and resumed, as whole programs

PROGRAM = """
import hashlib, json, sys

import numpy as np

import loom
from loom import nn

part, folder, device = sys.argv[1:]
data = np.random.default_rng(1).normal(size=(8, 6, 4, 2)).astype(np.float32)

def made():
    return loom.Sequential(
        [nn.LSTM(7, stateful=True, layers=2, dropout=0.3), nn.Dropout(0.2), nn.Dense(1)],
        input_shape=(4, 2), seed=9,
    ).to(device)

def manual(net, batches):
    for number in batches:
        out = net.forward(data[number])
        loss, gradient = loom.losses.mse(out, data[number].sum((1, 2))[:, None])
        losses.append(float(loss))
        net.backward(gradient)
        # Passes that only look on change nothing.
        net.predict(data[0])
        net.forward(data[1], training=False)
        net.apply_gradients(0.05)

def trained(net, epochs, resume):
    config = loom.TrainingConfig(
        epochs=epochs, batch_size=6, shuffle=False, loss="mse", learning_rate=0.01, optimizer="adam",
        verbose=False, device=device,
    )
    x = data.reshape(48, 4, 2)
    losses.extend(loom.train(net, (x, x.sum((1, 2))[:, None]), config, resume=resume).loss_history)

def ticked(mesh, batches):
    for number in batches:
        mesh.set_input(data[number])
        mesh.tick(2)
        mesh.backward(mesh.output() - data[number].sum((1, 2))[:, None])
        losses.append(float(np.square(mesh.output()).sum()))
        mesh.apply_gradients(0.01)

def run(way, path):
    losses.clear()
    if way == "mesh":
        if part == "second":
            mesh = loom.Mesh.load(path, device=device)
        else:
            mesh = loom.Mesh(made(), rows=6, window=3)
        ticked(mesh, {"whole": range(8), "first": range(3), "second": range(3, 8)}[part])
        if part == "first":
            mesh.save(path, optimizer=True)
        net, states = mesh.network, mesh.states((0, 0, 0, 0))
    else:
        net = loom.load(path).to(device) if part == "second" else made()
        if way == "manual":
            manual(net, {"whole": range(8), "first": range(3), "second": range(3, 8)}[part])
        else:
            trained(net, 2 if part == "first" else 4, part == "second")
        if part == "first":
            net.save(path, optimizer=True)
        states = net.layers[0].states
    kept = {**net.state_dict(), **{f"carried {name}": values for name, values in states.items()}}
    digest = {name: hashlib.sha256(np.ascontiguousarray(values)).hexdigest() for name, values in kept.items()}
    return {"losses": list(losses), "kept": digest, "states": sorted(states)}

losses = []
print(json.dumps({way: run(way, f"{folder}/{way}.loom") for way in ("train", "manual", "mesh")}))
"""


def goes_on(tmp_path: Path, device: str) -> None:
    whole, first, second = (answer(PROGRAM, part, tmp_path, device) for part in ("whole", "first", "second"))
    for way in ("train", "manual", "mesh"):
        assert second[way]["states"] == ["state_l0", "state_l1"], way
        assert second[way]["kept"] == whole[way]["kept"], way
        assert first[way]["kept"] != whole[way]["kept"], way
        assert first[way]["losses"] + second[way]["losses"] == whole[way]["losses"], way


def test_a_program_that_was_saved_goes_on_bit_for_bit(tmp_path: Path) -> None:
    goes_on(tmp_path, "cpu")


def test_a_program_that_was_saved_goes_on_bit_for_bit_on_a_gpu(tmp_path: Path, gpu: str) -> None:
    goes_on(tmp_path, gpu)


# Clock mode


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("window", [0, 3])
def test_a_mesh_carries_states_as_training_does(cell: str, window: int) -> None:
    net = stateful(cell, layers=2, return_sequences=True)
    mesh = loom.Mesh(stateful(cell, layers=2, return_sequences=True), rows=4, window=window)
    for x in sequences(5):
        mesh.set_input(x)
        mesh.tick()
        np.testing.assert_array_equal(mesh.output(), net.forward(x))
        for name, state in net.layers[0].states.items():
            np.testing.assert_array_equal(mesh.states(FIRST)[name], state)
    # Mesh and network have states of their own.
    assert mesh.network.layers[0].states == {}


def test_a_mesh_carries_states_on_a_gpu(gpu: str) -> None:
    nets = [stateful("lstm", "float32", layers=2).to(device) for device in ("cpu", gpu)]
    meshes = [loom.Mesh(net, rows=4, window=3) for net in nets]
    for x in sequences(5):
        for mesh in meshes:
            mesh.set_input(x)
            mesh.tick()
        one, other = meshes
        np.testing.assert_allclose(other.output(), one.output(), rtol=1e-5, atol=1e-6)
    for mesh in meshes:
        mesh.backward(np.ones((4, 5)))
    first, second = (mesh.network.layers[0].gradients for mesh in meshes)
    for name, gradient in first.items():
        np.testing.assert_allclose(second[name], gradient, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_a_mesh_begin_where_each_tick_began(cell: str) -> None:
    net = stateful(cell, layers=2)
    mesh = loom.Mesh(stateful(cell, layers=2), rows=4, window=3)
    batches = sequences(5)
    for x in batches:
        mesh.set_input(x)
        mesh.tick()
    given = np.random.default_rng(4).normal(size=(3, 4, 5))
    to_input = mesh.backward({(0, 0, 0): list(given)})
    # What the batches of a manual loop make: gradients end where each began.
    for x in batches[:2]:
        net.forward(x)
    for number, x in enumerate(batches[2:]):
        net.forward(x)
        np.testing.assert_allclose(to_input[number], net.backward(given[number]), rtol=1e-12, atol=1e-14)
    for name, gradient in net.layers[0].gradients.items():
        np.testing.assert_allclose(
            mesh.network.layers[0].gradients[name], gradient, rtol=1e-11, atol=1e-13, err_msg=name
        )


def test_states_of_a_mesh_are_read_set_and_reset() -> None:
    net = loom.Sequential([nn.GRU(5, stateful=True), nn.Dense(2)], input_shape=(3, 2), precision="float64")
    mesh = loom.Mesh(net, rows=4, window=2)
    assert not mesh.states(FIRST)["state_l0"].any()
    assert mesh.states((0, 0, 0, 1)) == {}
    mesh.set_input(sequences(1)[0])
    mesh.tick()
    first, held = mesh.states(FIRST)["state_l0"], mesh[0, 0, 0, 0]
    mesh.tick()
    assert not np.array_equal(mesh.states(FIRST)["state_l0"], first)
    mesh.set_state(FIRST, "state_l0", np.zeros((4, 1, 5)))
    mesh.tick()
    np.testing.assert_array_equal(mesh.states(FIRST)["state_l0"], first)
    mesh.tick()
    mesh.reset_states()
    ticks = mesh.ticks
    mesh.tick()
    np.testing.assert_array_equal(mesh[0, 0, 0, 0], held)
    assert mesh.ticks == ticks + 1
    mesh.reset()
    assert not mesh.states(FIRST)["state_l0"].any()
    wrong: list[tuple[Any, str, Any, type[Exception], str]] = [
        (FIRST, "state_l1", np.zeros((4, 1, 5)), loom.InvalidValueError, "state_l1.*state_l0"),
        (FIRST, "state_l0", np.zeros((4, 5)), loom.ShapeError, "state_l0"),
        (FIRST, "state_l0", np.zeros((3, 1, 5)), loom.ShapeError, "3 rows"),
        (FIRST, "state_l0", np.full((4, 1, 5), np.inf), loom.NonFiniteError, "state_l0"),
        ((0, 0, 0, 1), "state_l0", np.zeros((4, 1, 5)), loom.InvalidValueError, "no state"),
        ((0, 0, 0, 2), "state_l0", np.zeros((4, 1, 5)), loom.CellIndexError, "layer"),
        ((0, 0, 0), "state_l0", np.zeros((4, 1, 5)), loom.ConfigError, "place"),
    ]
    for layer, name, values, error, message in wrong:
        with pytest.raises(error, match=message):
            mesh.set_state(layer, name, values)


def test_a_mesh_remembers_by_its_states_alone() -> None:
    """Learns to say the sign before the last one, which no input shows any more."""
    net = loom.Network(input_shape=(1, 1), grid=(1, 2), seed=2)
    net[0, 0].add(nn.LSTM(8, stateful=True))
    net[0, 1].add(nn.Dense(1))
    shown = np.random.default_rng(0).choice([-1.0, 1.0], (600, 16, 1, 1))
    mesh = loom.Mesh(net, rows=16, window=4)
    config = loom.TrainingConfig(learning_rate=0.02, optimizer="adam")
    stream = ((x, shown[number - 2][:, 0] if number > 1 else None) for number, x in enumerate(shown))
    losses = loom.train_stepping(mesh, stream, config, update_every=1).losses
    assert np.mean(losses[-50:]) < 0.5 * np.mean(losses[:50])
