"""Going on where a run stopped: recurrent states, callbacks, files, processes that were killed."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.engine import engine_of
from networks import blobs, mlp, quiet, weights
from programs import answer, run


def recurrent(seed: int = 2) -> loom.Network:
    """A stateful recurrent network with dropout, on sequences of five steps."""
    return loom.Sequential(
        [nn.LSTM(8, stateful=True), nn.Dropout(0.2), nn.Dense(3, activation="tanh"), nn.Dense(1)],
        input_shape=(5, 2),
        seed=seed,
    )


def sequences(rows: int = 48) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, 5, 2)).astype(np.float32)
    return x, x.sum(axis=(1, 2))[:, None]


def steady(**settings: Any) -> loom.TrainingConfig:
    return quiet(**{"loss": "mse", "batch_size": 8, "shuffle": False, "learning_rate": 0.02, **settings})


class StopAt(loom.Callback):
    """Ends training in the middle of an epoch."""

    def __init__(self, epoch: int, batch: int) -> None:
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise loom.StopTraining


# What stateful layers carry


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batches", [False, True])
def test_a_stateful_network_resumes_from_a_file_bit_for_bit(
    tmp_path: Path, shuffle: bool, batches: bool
) -> None:
    resumes_from_a_file(tmp_path, "cpu", steady(epochs=3, shuffle=shuffle), batches)


def test_a_stateful_network_resumes_from_a_file_on_a_gpu(tmp_path: Path, gpu: str) -> None:
    for shuffle in (False, True):
        resumes_from_a_file(tmp_path, gpu, steady(epochs=3, shuffle=shuffle), False)


def resumes_from_a_file(tmp_path: Path, device: str, config: loom.TrainingConfig, batches: bool) -> None:
    x, y = sequences()
    data: Any = [(x[row : row + 8], y[row : row + 8]) for row in range(0, 48, 8)] if batches else (x, y)
    whole, part = recurrent().to(device), recurrent().to(device)
    expected = loom.train(whole, data, config)
    loom.train(part, data, config, callbacks=[StopAt(1, 3)])
    part.save(tmp_path / "part.loom", optimizer=True)
    resumed = loom.load(tmp_path / "part.loom").to(device)
    rest = loom.train(resumed, data, config, resume=True)
    assert weights(resumed) == weights(whole)
    assert rest.loss_history == expected.loss_history[1:]
    carried = {name for name in whole.state_dict() if name.endswith("state_l0")}
    # What comes in batches is never shuffled.
    assert bool(carried) == (batches or not config.shuffle)


def test_what_a_layer_carries_is_read_and_set() -> None:
    x, y = sequences()
    net = recurrent()
    assert net[0, 0, 0, 0].states == {}
    loom.train(net, (x, y), steady())
    layer = net[0, 0, 0, 0]
    carried = layer.states["state_l0"]
    assert carried.shape == (8, 2, 8)
    assert np.abs(carried).max() > 0.01
    expected = net.forward(x[:8])
    # The same by way of another network, and of the dict of all states.
    for take in ("set_state", "load_state_dict"):
        other = recurrent()
        other.load_state_dict(net.state_dict())
        other.reset_states()
        assert other[0, 0, 0, 0].states == {}
        if take == "set_state":
            other[0, 0, 0, 0].set_state("state_l0", carried)
        else:
            other.load_state_dict({**net.state_dict(), "0.0.0.0.state_l0": carried})
        np.testing.assert_array_equal(other[0, 0, 0, 0].states["state_l0"], carried)
    again = recurrent()
    again.load_state_dict({name: values for name, values in net.state_dict().items() if "state" not in name})
    assert again[0, 0, 0, 0].states == {}
    assert not np.array_equal(again.forward(x[:8]), expected)
    with pytest.raises(loom.StateError, match=r"8 rows.*reset_states"):
        layer.set_state("state_l0", carried[:3])
    net.reset_states()
    layer.set_state("state_l0", carried[:3])
    assert layer.states["state_l0"].shape == (3, 2, 8)
    with pytest.raises(loom.InvalidValueError, match="state_l0"):
        layer.set_state("state_l1", carried)
    with pytest.raises(loom.ShapeError, match="state_l0"):
        layer.set_state("state_l0", carried[:3, :1])


def test_a_callback_begins_new_sequences_where_it_likes() -> None:
    x, y = sequences(16)
    reset = loom.LambdaCallback(on_epoch_begin=lambda epoch, logs: net.reset_states())
    net = recurrent()
    loom.train(net, (x, y), steady(epochs=2), callbacks=[reset])
    by_hand = recurrent()
    loom.train(by_hand, (x, y), steady(epochs=2), callbacks=[StopAt(0, 1)])
    loom.train(by_hand, (x, y), steady(epochs=1), resume=True)
    by_hand.reset_states()
    loom.train(by_hand, (x, y), steady(epochs=2), resume=True)
    assert weights(by_hand) == weights(net)


def test_what_is_carried_goes_along_from_device_to_device(gpu: str) -> None:
    x, y = sequences()
    net = recurrent()
    loom.train(net, (x, y), steady())
    before = net[0, 0, 0, 0].states["state_l0"]
    net.to(gpu)
    np.testing.assert_array_equal(net[0, 0, 0, 0].states["state_l0"], before)
    net.to("cpu")
    np.testing.assert_array_equal(net[0, 0, 0, 0].states["state_l0"], before)


# Files without training state


def test_a_file_without_training_state_is_not_resumed(tmp_path: Path) -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(epochs=2))
    net.save(tmp_path / "weights.loom")
    loaded = loom.load(tmp_path / "weights.loom")
    before = weights(loaded)
    tween = loom.TweenTrainer(loaded)
    for resume in (
        lambda: loom.train(loaded, blobs(), quiet(epochs=4), resume=True),
        lambda: tween.fit(blobs(), quiet(epochs=4), resume=True),
        lambda: loom.TweenState(loaded, None, quiet(), resume=True),
        lambda: loom.Trainer(loaded, quiet(), resume=True).step(*blobs(20)),
    ):
        with pytest.raises(loom.StateError, match=r"optimizer=True.*without resume"):
            resume()
    assert weights(loaded) == before
    # It can be trained anew, and that can be resumed.
    loom.train(loaded, blobs(), quiet(epochs=1))
    assert len(loom.train(loaded, blobs(), quiet(epochs=3), resume=True).loss_history) == 2
    # What was never trained begins.
    assert len(loom.train(mlp(), blobs(), quiet(epochs=2), resume=True).loss_history) == 2


# Within an epoch


def within_epoch(data: Any, **settings: Any) -> loom.Network:
    """A network whose training stopped after two steps of its second epoch."""
    seen: list[int] = []

    def stop(batch: int, logs: Any) -> None:
        seen.append(batch)
        if seen[-2:] == [0, 1] and seen.count(1) == 2:
            raise loom.StopTraining

    net = mlp()
    watch = loom.LambdaCallback(on_train_batch_end=stop)
    assert loom.train(net, data, quiet(epochs=3, **settings), callbacks=[watch]).stop_reason == "stopped"
    return net


@pytest.mark.parametrize("filed", [False, True])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch_size": 8}, r"batch_size \* accumulate was 16 and is 8"),
        ({"accumulate": 2}, r"batch_size \* accumulate was 16 and is 32"),
        ({"seed": 5}, r"seed was 0 and is 5"),
        ({"shuffle": False}, "shuffle was True and is False"),
        ({"validation_split": 0.5}, "samples was .* and is"),
    ],
)
def test_the_rest_of_an_epoch_is_of_the_order_that_it_began_with(
    change: dict[str, Any], told: str, filed: bool, tmp_path: Path
) -> None:
    net = within_epoch(blobs(), batch_size=16)
    if filed:
        net.save(tmp_path / "within.loom", optimizer=True)
        net = loom.load(tmp_path / "within.loom")
    before = weights(net)
    settings = {"batch_size": 16, **change}
    with pytest.raises(loom.ConfigError, match=rf"{told}.*epochs=2, and change this then"):
        loom.train(net, blobs(), quiet(epochs=3, **settings), resume=True)
    assert weights(net) == before
    loom.train(net, blobs(), quiet(epochs=2, batch_size=16), resume=True)
    assert len(loom.train(net, blobs(), quiet(epochs=3, **settings), resume=True).loss_history) == 1


def test_as_many_samples_a_step_are_the_same_order() -> None:
    net, other = within_epoch(blobs(), batch_size=16), within_epoch(blobs(), batch_size=16)
    loom.train(net, blobs(), quiet(epochs=2, batch_size=16), resume=True)
    loom.train(other, blobs(), quiet(epochs=2, batch_size=8, accumulate=2), resume=True)
    np.testing.assert_allclose(net.layers[0].weight, other.layers[0].weight, rtol=1e-4)


def test_batches_that_are_given_are_counted_one_by_one() -> None:
    x, y = blobs()
    batches = [(x[at : at + 16], y[at : at + 16]) for at in range(0, len(x), 16)]
    net = within_epoch(batches)
    with pytest.raises(loom.ConfigError, match="accumulate was 1 and is 2"):
        loom.train(net, batches, quiet(epochs=3, accumulate=2), resume=True)
    assert len(loom.train(net, batches, quiet(epochs=3), resume=True).loss_history) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch_size": 8}, "batch_size was 16 and is 8"),
        ({"seed": 3}, "seed was 0 and is 3"),
        ({"window": 32}, "window was 64 and is 32"),
        ({"shuffle": False}, "shuffle was True and is False"),
    ],
)
def test_data_that_knows_its_order_says_so(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    x, y = blobs()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)

    def stream(**more: Any) -> Any:
        settings = {"batch_size": 16, "window": 64, "seed": 0, **more}
        return loom.data.stream(tmp_path / "x.npy", tmp_path / "y.npy", **settings)

    net = within_epoch(stream())
    with pytest.raises(loom.ConfigError, match=told):
        loom.train(net, stream(**change), quiet(epochs=3), resume=True)
    assert len(loom.train(net, stream(), quiet(epochs=3), resume=True).loss_history) == 2


# Callbacks


class Falls(loom.Callback):
    """A log that goes its own way."""

    def __init__(self, *values: float) -> None:
        self.values = values


def scripted(*values: float) -> tuple[Falls, dict[str, Any]]:
    """A callback that knows the epoch, and the settings of a run whose "score" it makes."""
    script = Falls(*values)

    def score(outputs: Any, targets: Any) -> float:
        net: Any = script.network
        # In validation the epoch has ended.
        return script.values[max(engine_of(net).native.training_state()["epoch"] - 1, 0)]

    return script, {"metrics": [score]}


@pytest.mark.parametrize("same_objects", [False, True])
@pytest.mark.parametrize("through_file", [False, True])
def test_a_resumed_checkpoint_remembers_its_best(
    tmp_path: Path, same_objects: bool, through_file: bool
) -> None:
    def watchers() -> list[loom.Callback]:
        return [
            loom.ModelCheckpoint(
                tmp_path / "best.loom", monitor="val_score", save_best_only=True, mode="min"
            ),
            loom.ModelCheckpoint(tmp_path / "last.loom"),
            loom.History(),
            loom.CSVLogger(tmp_path / "log.csv"),
        ]

    script, settings = scripted(3.0, 0.149, 2.07, 1.0, 0.1)
    net = mlp()
    began = watchers()
    loom.train(net, blobs(), quiet(epochs=2, **settings), blobs(40, 1), callbacks=[script, *began])
    best = (tmp_path / "best.loom").read_bytes()
    if through_file:
        net = loom.load(tmp_path / "last.loom")
    went_on = began if same_objects else watchers()
    resumed = {"callbacks": [script, *went_on], "resume": True}
    loom.train(net, blobs(), quiet(epochs=4, **settings), blobs(40, 1), **resumed)
    assert (tmp_path / "best.loom").read_bytes() == best
    assert went_on[0].best == 0.149  # type: ignore[attr-defined]
    assert went_on[2].epoch == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert went_on[2].history["val_score"] == [3.0, 0.149, 2.07, 1.0]  # type: ignore[attr-defined]
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", "0", "1", "2", "3"]
    loom.train(net, blobs(), quiet(epochs=5, **settings), blobs(40, 1), **resumed)
    assert (tmp_path / "best.loom").read_bytes() != best
    # A run that begins anew forgets.
    loom.train(net, blobs(), quiet(epochs=1, **settings), blobs(40, 1), callbacks=[script, *went_on])
    assert went_on[0].best == 3.0  # type: ignore[attr-defined]
    assert went_on[2].epoch == [0]  # type: ignore[attr-defined]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
@pytest.mark.parametrize("through_file", [False, True])
def test_early_stopping_waits_on_where_it_was(tmp_path: Path, stop: int, through_file: bool) -> None:
    values = (5.0, 2.0, 3.0, 4.0, 3.5, 1.0, 0.5)

    def stopping() -> loom.EarlyStopping:
        return loom.EarlyStopping("val_score", patience=3, mode="min", restore_best_weights=True)

    script, settings = scripted(*values)
    whole = mlp()
    expected = stopping()
    config = quiet(epochs=7, **settings)
    result = loom.train(whole, blobs(), config, blobs(40, 1), callbacks=[script, expected])
    assert len(result.loss_history) == 5
    part = mlp()
    saved = tmp_path / "last.loom"
    begun = [script, stopping(), loom.ModelCheckpoint(saved)]
    loom.train(part, blobs(), quiet(epochs=stop, **settings), blobs(40, 1), callbacks=begun)
    resumed = loom.load(saved) if through_file else pickle.loads(pickle.dumps(loom.load(saved)))
    went_on = stopping()
    rest = loom.train(resumed, blobs(), config, blobs(40, 1), callbacks=[script, went_on], resume=True)
    assert len(rest.loss_history) == 5 - stop
    assert rest.message == result.message
    assert (went_on.best, went_on.best_epoch) == (expected.best, expected.best_epoch) == (2.0, 1)
    assert weights(resumed) == weights(whole)
    # What stopped for want of patience stops again, at once; with more patience it goes on.
    again = loom.train(resumed, blobs(), config, blobs(40, 1), callbacks=[script, stopping()], resume=True)
    assert (again.loss_history, again.message) == ([], result.message)
    patient = loom.EarlyStopping("val_score", patience=9, mode="min")
    more = loom.train(resumed, blobs(), config, blobs(40, 1), callbacks=[script, patient], resume=True)
    assert len(more.loss_history) == 2
    assert patient.best == 0.5


class Counting(loom.Callback):
    """A user's own callback, with a state of every kind."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"count": 0, "seen": [], "mean": np.zeros((2, 3)), "names": ("a", None)}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state["count"] += 1
        self.state["seen"].append({"loss": np.float32(logs["loss"]), "epoch": epoch})
        self.state["mean"] += 0.5

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = dict(state)


def test_callbacks_of_one_s_own_have_a_state_too(tmp_path: Path) -> None:
    def run(net: loom.Network, epochs: int, callbacks: list[loom.Callback], resume: bool) -> None:
        loom.train(net, blobs(), quiet(epochs=epochs), callbacks=callbacks, resume=resume)

    net = mlp()
    first, second = Counting(), Counting()
    second.state["count"] = 100
    run(net, 2, [first, loom.ModelCheckpoint(tmp_path / "{epoch}.loom"), second], resume=False)
    for path, epochs in (("1.loom", 1), ("2.loom", 2)):
        one, two = Counting(), Counting()
        run(loom.load(tmp_path / path), 3, [one, two], resume=True)
        assert (one.state["count"], two.state["count"]) == (3, 103), epochs
        assert [seen["epoch"] for seen in one.state["seen"]] == [0, 1, 2]
        np.testing.assert_array_equal(one.state["mean"], np.full((2, 3), 1.5))
        assert one.state["names"] == ["a", None]
    bad = Counting()
    bad.state["object"] = object()
    with pytest.raises(loom.ConfigError, match=r"callback Counting holds object.*NumPy arrays"):
        run(mlp(), 1, [bad], resume=False)


def test_a_checkpoint_without_training_state_is_small_and_says_so(tmp_path: Path) -> None:
    net = mlp()
    with_state = loom.ModelCheckpoint(tmp_path / "whole.loom")
    without = loom.ModelCheckpoint(tmp_path / "weights.loom", optimizer=False)
    loom.train(net, blobs(), quiet(epochs=2), callbacks=[with_state, without])
    assert (tmp_path / "weights.loom").stat().st_size < (tmp_path / "whole.loom").stat().st_size / 2
    loaded = loom.load(tmp_path / "weights.loom")
    loaded.save(tmp_path / "again.loom", optimizer=True)
    copies = [copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded)), loom.load(tmp_path / "again.loom")]
    for each in [loaded, *copies]:
        with pytest.raises(loom.StateError, match="nothing to resume"):
            loom.train(each, blobs(), quiet(epochs=3), resume=True)
    loom.train(copies[0], blobs(), quiet(epochs=2))
    assert len(loom.train(copy.deepcopy(copies[0]), blobs(), quiet(epochs=3), resume=True).loss_history) == 1
    rest = loom.train(loom.load(tmp_path / "whole.loom"), blobs(), quiet(epochs=3), resume=True)
    assert len(rest.loss_history) == 1


def test_a_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    net = mlp()
    loom.train(net, blobs(), quiet(epochs=3), callbacks=[loom.CSVLogger(path)])
    earlier = path.read_text()
    appended = [loom.CSVLogger(path, append=True), loom.ModelCheckpoint(tmp_path / "{epoch}.loom")]
    loom.train(net, blobs(), quiet(epochs=4), callbacks=appended)
    expected = path.read_text()
    # As a killed process leaves it: later lines, and half of one.
    path.write_text(expected + "4,0.25\n5,0.1")
    resumed = loom.load(tmp_path / "2.loom")
    loom.train(resumed, blobs(), quiet(epochs=4), callbacks=[loom.CSVLogger(path, append=True)], resume=True)
    assert path.read_text() == expected
    assert expected.startswith(earlier)


# Bytes


def test_the_same_network_is_the_same_bytes(tmp_path: Path) -> None:
    net = recurrent()
    x, y = sequences()
    watchers = [loom.EarlyStopping("loss", patience=9, restore_best_weights=True), loom.History()]
    loom.train(net, (x, y), steady(epochs=2, metrics=["mae"]), callbacks=watchers)
    for optimizer in (False, True):
        saved = set()
        for number in range(6):
            net.save(tmp_path / f"{number}.loom", optimizer=optimizer)
            saved.add((tmp_path / f"{number}.loom").read_bytes())
        loom.load(tmp_path / "0.loom").save(tmp_path / "again.loom", optimizer=optimizer)
        saved.add((tmp_path / "again.loom").read_bytes())
        assert len(saved) == 1
    pickled = pickle.dumps(net)
    assert pickle.dumps(net) == pickled
    assert pickle.dumps(pickle.loads(pickled)) == pickled
    assert pickle.dumps(copy.deepcopy(net)) == pickled
    code = (
        "import hashlib, json, pickle, sys\n"
        "net = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "net.save(sys.argv[2], optimizer=True)\n"
        "print(json.dumps(hashlib.sha256(pickle.dumps(net)).hexdigest()))\n"
    )
    (tmp_path / "net.pickle").write_bytes(pickled)
    digests = set()
    for number in range(2):
        target = tmp_path / f"elsewhere{number}.loom"
        digests.add(answer(code, tmp_path / "net.pickle", target))
        assert target.read_bytes() == (tmp_path / "0.loom").read_bytes()
    assert digests == {hashlib.sha256(pickled).hexdigest()}


# A whole program

PROGRAM = """
import json, os, signal, sys
import numpy as np
import loom
from loom import nn

folder, mode = sys.argv[1:]
x = np.random.default_rng(0).normal(size=(96, 5, 2)).astype(np.float32)
y = x.sum(axis=(1, 2))[:, None]
config = loom.TrainingConfig(
    epochs=12, batch_size=8, shuffle=False, learning_rate=0.05, loss="mse", verbose=False, seed=7,
    schedule=loom.schedules.Warmup(5, then="cosine"), gradient_clip=1.0, metrics=["mae"], device="cpu",
    early_stopping=loom.EarlyStopping(patience=3, min_delta=3.0, restore_best_weights=True),
)
checkpoint = os.path.join(folder, "last.loom")

class Kill(loom.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_batch_end(self, batch, logs=None):
        if mode == f"kill {self.epoch}" and batch == 5:
            os.kill(os.getpid(), signal.SIGKILL)

if mode.startswith("kill") or mode == "whole":
    net = loom.Sequential(
        [nn.LSTM(8, stateful=True), nn.Dropout(0.2), nn.Dense(1)], input_shape=(5, 2), seed=3
    )
else:
    net = loom.load(checkpoint)
history = loom.History()
callbacks = [
    loom.ModelCheckpoint(checkpoint),
    loom.ModelCheckpoint(os.path.join(folder, "best.loom"), save_best_only=True),
    history,
    loom.CSVLogger(os.path.join(folder, "log.csv")),
    Kill(),
]
validation = (x[:16] + 1, y[:16] + 10)
result = loom.train(net, (x, y), config, validation, callbacks, resume=mode == "resume")
net.save(os.path.join(folder, "end.loom"), optimizer=True)
print(json.dumps({"history": history.history, "epochs": history.epoch, "message": result.message}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")
@pytest.mark.parametrize("epoch", [2, 4])
def test_a_run_that_was_killed_goes_on_as_if_it_never_was(tmp_path: Path, epoch: int) -> None:
    def program(folder: str, mode: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        return run(PROGRAM, tmp_path / folder, mode)

    whole = program("whole", "whole")
    assert whole.returncode == 0, whole.stderr
    killed = program("parts", f"kill {epoch}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = program("parts", "resume")
    assert resumed.returncode == 0, resumed.stderr
    expected = json.loads(whole.stdout)
    assert json.loads(resumed.stdout) == expected
    assert "has not improved" in expected["message"]
    assert len(expected["epochs"]) < 12
    assert all(math.isfinite(value) for value in expected["history"]["val_loss"])
    for name in ("end.loom", "best.loom", "last.loom"):
        one, two = (loom.load(tmp_path / folder / name) for folder in ("whole", "parts"))
        assert weights(one) == weights(two), name
    logs = [(tmp_path / folder / "log.csv").read_text() for folder in ("whole", "parts")]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("optimizer", [loom.Adam(), loom.SGD(momentum=0.9)], ids=["adam", "momentum"])
@pytest.mark.parametrize("made_again", [False, True], ids=["dropped", "made again"])
def test_dropped_masters_take_the_optimizers_progress_along(
    tmp_path: Path, optimizer: loom.Optimizer, made_again: bool
) -> None:
    """Its moments go with the masters, so that it starts anew: in the network, its copies and its files."""
    x, y = blobs()
    config = quiet(epochs=2, optimizer=optimizer, learning_rate=0.01, seed=3)
    net = mlp()
    loom.train(net, (x, y), config)
    net.morph("int8").drop_master()
    if made_again:
        net.unpack()
    path = tmp_path / "dropped.loom"
    net.save(path, optimizer=True)
    copies = [loom.load(path), copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    for other in copies:
        np.testing.assert_array_equal(other.predict(x), net.predict(x))
    if not made_again:
        return
    for one in (net, *copies):
        loom.train(one, (x, y), replace(config, epochs=4), resume=True)
    assert all(weights(other) == weights(net) for other in copies)
