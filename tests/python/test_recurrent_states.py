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

way, part, path, device = sys.argv[1:]
data = np.random.default_rng(1).normal(size=(8, 6, 4, 2)).astype(np.float32)
losses = []

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
print(json.dumps({"losses": losses, "kept": digest, "states": sorted(states)}))
"""


def goes_on(tmp_path: Path, way: str, device: str) -> None:
    path = tmp_path / f"{way}.loom"
    whole, first, second = (answer(PROGRAM, way, part, path, device) for part in ("whole", "first", "second"))
    assert second["states"] == ["state_l0", "state_l1"]
    assert second["kept"] == whole["kept"]
    assert first["kept"] != whole["kept"]
    assert first["losses"] + second["losses"] == whole["losses"]


@pytest.mark.parametrize("way", ["train", "manual"])
def test_a_program_that_was_saved_goes_on_bit_for_bit(tmp_path: Path, way: str) -> None:
    goes_on(tmp_path, way, "cpu")


@pytest.mark.parametrize("way", ["train", "manual"])
def test_a_program_that_was_saved_goes_on_bit_for_bit_on_a_gpu(tmp_path: Path, way: str, gpu: str) -> None:
    goes_on(tmp_path, way, gpu)
