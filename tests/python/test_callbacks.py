"""Callbacks: Keras's hook names, early stopping, checkpoints, logs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import ConfigError, callbacks


class Network:
    """As much of a network as callbacks ask for."""

    def __init__(self) -> None:
        self.state = {"0.0.0.0.weight": np.zeros(3, np.float32)}
        self.saved: list[str] = []
        self.optimizer = False

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = dict(state)

    def save(self, path: str | Path, optimizer: bool = False) -> None:
        self.saved.append(str(path))
        self.optimizer = optimizer


def run(watchers: list[loom.Callback], epochs: list[dict[str, float]], network: Network | None = None) -> str:
    """Runs the hooks as a training run would; returns why it stopped."""
    network = network or Network()
    hooks = callbacks.CallbackList(watchers, network, {"epochs": len(epochs), "steps": 2})
    hooks.run("on_train_begin")
    for epoch, logs in enumerate(epochs):
        hooks.run("on_epoch_begin", epoch)
        for batch in range(2):
            hooks.run("on_train_batch_begin", batch)
            hooks.run("on_train_batch_end", batch, {"loss": logs.get("loss", 0.0)})
        network.state["0.0.0.0.weight"] = np.full(3, epoch, np.float32)
        if hooks.run("on_epoch_end", epoch, logs):
            break
    hooks.run("on_train_end")
    return hooks.message


def losses_of(*values: float) -> list[dict[str, float]]:
    return [{"val_loss": value} for value in values]


def test_hooks_run_in_order_and_batch_hooks_have_two_names() -> None:
    calls: list[str] = []

    class Watcher(loom.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            calls.append(f"begin of {self.params['epochs']}")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            calls.append(f"epoch {epoch}")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            calls.append(f"batch {batch}")

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            calls.append(f"loss {logs['loss']}")

        def on_train_end(self, logs: Any = None) -> None:
            calls.append("end")

    run([Watcher()], [{"loss": 1.5}])
    assert calls == ["begin of 1", "epoch 0", "batch 0", "loss 1.5", "batch 1", "loss 1.5", "end"]


def test_batches_are_only_reported_to_those_who_listen() -> None:
    class Batches(loom.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    def wants(callback: loom.Callback) -> bool:
        return callbacks.CallbackList([callback], Network(), {}).wants_batches

    assert not wants(loom.History())
    assert not wants(loom.LambdaCallback(on_epoch_end=print))
    assert repr(loom.LambdaCallback(on_epoch_end=print)) == "LambdaCallback(on_epoch_end=...)"
    assert wants(Batches())
    assert wants(loom.LambdaCallback(on_batch_end=print))


def test_a_callback_has_its_network_only_while_training() -> None:
    callback = loom.Callback()
    with pytest.raises(loom.StateError, match="only while training"):
        _ = callback.network
    network = Network()
    callbacks.CallbackList([callback], network, {})
    assert callback.network is callback.model is network


def test_two_ways_to_stop() -> None:
    def raises(epoch: int, logs: Any) -> None:
        raise loom.StopTraining("enough")

    assert run([loom.LambdaCallback(on_epoch_end=raises)], losses_of(1, 1)) == "enough"

    class Sets(loom.Callback):
        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            self.stop_training = True

    assert run([Sets()], losses_of(1, 1)) == "Sets stopped training"


def test_other_errors_come_through() -> None:
    def fails(epoch: int, logs: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run([loom.LambdaCallback(on_epoch_end=fails)], losses_of(1))


def test_only_callbacks_are_taken() -> None:
    with pytest.raises(ConfigError, match=r"must derive from loom\.Callback"):
        callbacks.CallbackList([print], Network(), {})  # type: ignore[list-item]
    with pytest.raises(ConfigError, match='did you mean "on_epoch_end"'):
        loom.LambdaCallback(on_epoch_ends=print)


def test_history_fills_gaps_with_nan() -> None:
    history = loom.History()
    run([history], [{"loss": 3.0}, {"loss": 2.0, "val_loss": 4.0}, {"val_loss": 5.0}])
    assert history.epoch == [0, 1, 2]
    np.testing.assert_array_equal(history.history["loss"], [3.0, 2.0, math.nan])
    np.testing.assert_array_equal(history.history["val_loss"], [math.nan, 4.0, 5.0])
    run([history], [{"loss": 1.0}])
    assert history.history == {"loss": [1.0]}


@pytest.mark.parametrize(
    ("settings", "values", "epochs"),
    [
        ({"patience": 0}, (3, 2, 2, 1), 3),
        ({"patience": 1}, (3, 2, 2, 1), 3),
        ({"patience": 2}, (3, 2, 2, 1, 1, 1, 1), 6),
        ({"patience": 1, "min_delta": 0.5}, (3, 2.6, 1), 2),
        ({"patience": 1, "mode": "max"}, (1, 2, 3, 3), 4),
        ({"patience": 1}, (3, math.nan, math.nan, 2, 1), 5),
        ({"patience": 1, "monitor": "val_accuracy"}, (0.1, 0.2, 0.1, 0.3), 3),
    ],
)
def test_early_stopping_counts_as_keras_does(
    settings: dict[str, Any], values: tuple[float, ...], epochs: int
) -> None:
    history = loom.History()
    stopping = loom.EarlyStopping(**settings)
    message = run([history, stopping], [{stopping.monitor: value} for value in values])
    assert len(history.epoch) == epochs
    assert bool(message) == (epochs < len(values) or math.isclose(values[-1], values[-2]))


def test_early_stopping_gives_the_best_weights_back() -> None:
    network = Network()
    stopping = loom.EarlyStopping(patience=2, restore_best_weights=True)
    message = run([stopping], losses_of(3, 1, 2, 2, 2), network)
    assert stopping.best_epoch == 1
    assert "val_loss has not improved since epoch 2 (1)" in message
    np.testing.assert_array_equal(network.state["0.0.0.0.weight"], np.full(3, 1, np.float32))


def test_early_stopping_says_when_there_is_nothing_to_watch() -> None:
    with pytest.raises(ConfigError, match=r'no log "val_loss"; give validation data.*Logs: loss'):
        run([loom.EarlyStopping()], [{"loss": 1.0}])


def test_early_stopping_to_json_and_back() -> None:
    stopping = loom.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True)
    read = json.loads(json.dumps(stopping.to_config()))
    assert read == {
        "monitor": "loss",
        "patience": 3,
        "min_delta": 0.0,
        "mode": "auto",
        "restore_best_weights": True,
    }
    assert loom.EarlyStopping.from_config(read) == stopping
    with pytest.raises(ConfigError, match='did you mean "min"'):
        loom.EarlyStopping(mode="minimum")


def test_model_checkpoint_names_files_after_epoch_and_logs() -> None:
    network = Network()
    run([loom.ModelCheckpoint("run-{epoch:02d}-{val_loss:.1f}.loom")], losses_of(3, 2.25), network)
    assert network.saved == ["run-01-3.0.loom", "run-02-2.2.loom"]
    assert network.optimizer
    run([loom.ModelCheckpoint("weights.loom", optimizer=False)], losses_of(1), network)
    assert not network.optimizer


def test_model_checkpoint_keeps_the_best() -> None:
    network = Network()
    checkpoint = loom.ModelCheckpoint("best-{epoch}.loom", save_best_only=True)
    run([checkpoint], losses_of(3, 4, 2, math.nan), network)
    assert network.saved == ["best-1.loom", "best-3.loom"]
    assert checkpoint.last_path == Path("best-3.loom")


def test_model_checkpoint_explains_a_wrong_name() -> None:
    with pytest.raises(ConfigError, match="known: epoch, val_loss"):
        run([loom.ModelCheckpoint("{accuracy}.loom")], losses_of(1))


def test_csv_logger_writes_and_appends(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    run([loom.CSVLogger(path)], [{"loss": 3.0, "val_loss": 0.1}, {"loss": 2.0}])
    assert path.read_text() == "epoch,loss,val_loss\n0,3.0,0.1\n1,2.0,\n"
    run([loom.CSVLogger(path, append=True)], [{"val_loss": 0.5, "loss": 1.0}])
    assert path.read_text().splitlines()[3:] == ["0,1.0,0.5"]
    run([loom.CSVLogger(path)], [{"loss": 4.0}])
    assert path.read_text() == "epoch,loss\n0,4.0\n"


def test_csv_logger_says_where_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match="CSVLogger cannot write"):
        run([loom.CSVLogger(tmp_path / "missing" / "log.csv")], [])
