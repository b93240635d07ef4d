"""Threads and Ctrl-C: several may predict, one may train, and an interruption keeps what was learned."""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import loom
from networks import blobs, cnn, mlp, quiet, weights
from programs import answer_when_interrupted
from racing_calls import Race


@pytest.mark.parametrize("make", [mlp, cnn])
def test_eight_threads_predict_at_once(make: object) -> None:
    assert callable(make)
    net, reference = make(), make()
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(rows, *net.input_shape)).astype(np.float32) for rows in (1, 3, 17, 40) * 20]
    expected = [reference.predict(x) for x in inputs]
    barrier = threading.Barrier(8)

    def first(x: np.ndarray) -> np.ndarray:
        barrier.wait()
        return net.predict(x)

    with ThreadPoolExecutor(8) as pool:
        # Even the very first call, which builds the network, may come from all of them.
        together = list(pool.map(first, inputs[:8]))
        rest = list(pool.map(net.predict, inputs[8:]))
    for found, wanted in zip(together + rest, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_other_threads_are_refused_while_one_trains() -> None:
    net = mlp()
    refused: list[str] = []
    done = threading.Event()

    def other() -> None:
        for call in (
            lambda: net.predict(blobs()[0]),
            lambda: net.forward(blobs()[0]),
            lambda: net.morph("int8"),
            lambda: net.evaluate(blobs()),
            lambda: setattr(net[0, 0, 0, 0], "bias", np.ones(24)),
            lambda: loom.train(net, blobs(), quiet()),
        ):
            with pytest.raises(loom.StateError) as raised:
                call()
            refused.append(str(raised.value))
        done.set()

    def hook(epoch: int, logs: object) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    loom.train(net, blobs(), quiet(), callbacks=[loom.LambdaCallback(on_epoch_end=hook)])
    assert done.is_set()
    assert len(refused) == 6
    assert "training in another thread" in refused[0]
    alone = mlp()
    loom.train(alone, blobs(), quiet())
    assert weights(net) == weights(alone)


def test_predicting_beside_training_never_crashes() -> None:
    net = mlp()
    net.build()
    stop = threading.Event()
    strange: list[BaseException] = []

    def predict() -> None:
        try:
            while not stop.is_set():
                with suppress(loom.StateError):
                    net.predict(blobs(rows=5)[0])
                time.sleep(0.0005)
        except BaseException as error:  # noqa: BLE001 - any other error fails the test
            strange.append(error)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        # A prediction may hold the network when training wants it.
        with suppress(loom.StateError):
            loom.train(net, blobs(), quiet(epochs=2))
    stop.set()
    for thread in threads:
        thread.join()
    assert not strange
    loom.train(net, blobs(), quiet())
    assert np.isfinite(net.predict(blobs()[0])).all()


@pytest.mark.filterwarnings("ignore")
def test_whatever_eight_threads_call_of_shared_networks_is_done_or_refused() -> None:
    race = Race(seed=3, threads=8)
    race.run(lambda made: made < 15)
    assert race.wrong == []
    # They do come into each other's way, and more is done than refused.
    assert race.counted["StateError"] > 0
    assert race.counted["done"] > 30
    assert sum(race.counted.values()) == 8 * 15


def test_training_works_in_another_thread() -> None:
    net, alone = mlp(), mlp()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(loom.train, net, blobs(), quiet(epochs=2)).result()
    loom.train(alone, blobs(), quiet(epochs=2))
    assert result.stop_reason == "finished"
    assert weights(net) == weights(alone)


PROGRAM = """
import json, sys
import numpy as np
import loom
from loom import nn
from loom.engine import engine_of

random = np.random.default_rng(0)
x, y = random.normal(size=(2000, 64)), random.integers(0, 10, 2000)

def network():
    return loom.Sequential([nn.Dense(256, activation="relu"), nn.Dropout(0.1), nn.Dense(10)], input_shape=64)

class Announce(loom.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            print("go", flush=True)

net = network()
settings = dict(loss="cross_entropy", verbose=False, seed=3)
result = loom.train(net, (x, y), loom.TrainingConfig(epochs=1_000_000, **settings), callbacks=[Announce()])
epochs = len(result.loss_history)
state = engine_of(net).native.training_state()
# What was learned is what a run of as many steps learns.
again = network()
class Stop(loom.Callback):
    def on_batch_end(self, batch, logs=None):
        if engine_of(self.network).native.training_state()["step"] == state["step"]:
            raise loom.StopTraining
loom.train(again, (x, y), loom.TrainingConfig(epochs=1_000_000, **settings), callbacks=[Stop()])
same = all(np.array_equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values()))
resumed = loom.train(net, (x, y), loom.TrainingConfig(epochs=epochs + 1, **settings), resume=True)
print(json.dumps({
    "interrupted": result.interrupted, "reason": result.stop_reason, "epochs": epochs, "same": same,
    "finite": bool(np.isfinite(result.loss_history).all()), "resumed": len(resumed.loss_history),
}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_keeps_the_network_and_returns_what_was_learned() -> None:
    found = answer_when_interrupted(PROGRAM, seconds=0.2)
    assert found.pop("epochs") >= 2
    assert found == {
        "interrupted": True,
        "reason": "interrupted",
        "same": True,
        "finite": True,
        "resumed": 1,
    }


def test_ctrl_c_in_a_callback_or_in_the_data_ends_the_run_too() -> None:
    def interrupt(epoch: int, logs: object) -> None:
        signal.raise_signal(signal.SIGINT)

    net = mlp()
    hook = loom.LambdaCallback(on_epoch_end=interrupt)
    result = loom.train(net, blobs(), quiet(epochs=9), callbacks=[hook])
    assert (result.interrupted, len(result.loss_history)) == (True, 1)

    def batches() -> object:
        yield blobs()
        signal.raise_signal(signal.SIGINT)

    result = loom.train(net, batches(), quiet())  # type: ignore[arg-type]
    assert (result.interrupted, result.loss_history) == (True, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_during_validation_keeps_the_epoch() -> None:
    class Interrupted:
        def __iter__(self) -> object:
            yield blobs(rows=10)
            signal.raise_signal(signal.SIGINT)

    result = loom.train(mlp(), blobs(), quiet(epochs=3), validation=Interrupted())  # type: ignore[arg-type]
    assert result.interrupted
    assert len(result.loss_history) == 1
    assert np.isnan(result.metrics["val_loss"]).tolist() == [True]
