"""Threads and Ctrl-C: several may predict, one may train, and an interruption keeps what was learned."""

from __future__ import annotations

import copy
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from loom.engine import engine_of
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


def test_who_comes_while_another_thread_builds_waits_for_that() -> None:
    def fresh() -> loom.Network:
        layers = [nn.Embedding(20, 600), nn.GRU(700, return_sequences=True), nn.Dense(20)]
        return loom.Sequential(layers, input_shape=(4,), seed=1)

    x = np.arange(4)[None] % 20
    expected = fresh().predict(x)
    wanted: list[Callable[[loom.Network], object]] = [
        lambda net: np.testing.assert_array_equal(net.predict(x), expected),
        lambda net: np.testing.assert_array_equal(net.session(4)(x), expected),
        lambda net: net.output_shape,
        lambda net: net.summary(),
        lambda net: net.state_dict(),
        lambda net: net.predict_probabilities(x),
    ]
    for _ in range(3):
        net, barrier = fresh(), threading.Barrier(len(wanted))

        def use(
            call: Callable[[loom.Network], object],
            net: loom.Network = net,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait()
            call(net)

        with ThreadPoolExecutor(len(wanted)) as pool:
            for done in [pool.submit(use, call) for call in wanted]:
                done.result(60)


def test_a_session_begins_while_others_predict() -> None:
    layers = [nn.Embedding(20, 64), nn.GRU(64, return_sequences=True), nn.Dense(20)]
    net = loom.Sequential(layers, input_shape=(64,), seed=1)
    x = np.random.default_rng(0).integers(0, 20, (32, 64))
    expected, begun = net.predict(x), threading.Event()

    def predict() -> None:
        while not begun.is_set():
            np.testing.assert_array_equal(net.predict(x), expected)

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(predict) for _ in range(2)]
        try:
            made = [net.session(64, rows=32)(x) for _ in range(10)]
        finally:
            begun.set()
        for other in others:
            other.result(60)
    for outputs in made:
        np.testing.assert_array_equal(outputs, expected)


def test_a_network_that_others_predict_by_is_stored_and_copied(tmp_path: Path) -> None:
    """What only reads needs no pause of those who predict, who hardly leave one."""
    net = cnn()
    x = np.random.default_rng(0).normal(size=(200, *net.input_shape)).astype(np.float32)
    expected = net.predict(x)
    stored = net.state_dict()
    done = threading.Event()

    def predict() -> None:
        while not done.is_set():
            np.testing.assert_array_equal(net.predict(x), expected)

    with ThreadPoolExecutor(3) as pool:
        predicting = [pool.submit(predict) for _ in range(3)]
        try:
            for turn in range(5):
                net.save(tmp_path / "whole.loom", optimizer=bool(turn % 2))
                net.save(tmp_path / "deployed.loom", deploy=True)
                copies = [
                    copy.deepcopy(net),
                    pickle.loads(pickle.dumps(net)),
                    loom.load(tmp_path / "whole.loom"),
                    loom.load(tmp_path / "deployed.loom"),
                    net.cut(net.layers[-1]),
                ]
                for made in copies:
                    np.testing.assert_array_equal(made.predict(x), expected)
                for name, values in net.state_dict().items():
                    np.testing.assert_array_equal(values, stored[name])
        finally:
            done.set()
    for thread in predicting:
        thread.result()


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


def morphed_by_another_thread(net: loom.Network, dtype: str) -> None:
    """Does what a call of `morph` comes to that another thread began before this one trained the network."""
    engine = engine_of(net)
    # What it notes comes after the change, and maybe after what this thread does next.
    engine.native.morph(dtype, None, (None, "absmax", "nearest"), None, None)


@pytest.mark.parametrize("made", ["float32", "bfloat16"])
def test_a_step_is_of_the_network_as_others_have_left_it(made: str) -> None:
    x, y = blobs()

    def run(change: Callable[[loom.Network, str], object]) -> tuple[object, ...]:
        net = mlp().morph(made)
        trainer = loom.Trainer(net, quiet())
        losses = [trainer.step(x, y)]
        for dtype in ("bfloat16", "int8", "float32", "int8", "bfloat16"):
            change(net, dtype)
            losses += [trainer.step(x, y), trainer.step(x, y)]
            # Packed as it is to be, from the weights as they are now.
            again = mlp().morph(dtype)
            again.load_state_dict(net.state_dict())
            np.testing.assert_array_equal(net.predict(x), again.predict(x))
        return losses, weights(net), net.predict(x).tobytes()

    assert run(morphed_by_another_thread) == run(lambda net, dtype: net.morph(dtype))


def test_a_config_that_was_read_during_a_change_is_not_kept() -> None:
    net = mlp()

    def change(native: object) -> None:
        assert net.config.to_config() == mlp().config.to_config()
        morphed_by_another_thread(net, "bfloat16")

    engine_of(net).change(change)
    assert net.config.to_config() == mlp().morph("bfloat16").config.to_config()


def test_a_training_goes_on_with_the_network_as_others_have_left_it() -> None:
    def run(change: Callable[[loom.Network, str], object]) -> tuple[object, ...]:
        net = mlp()
        types = iter(["bfloat16", "float32", "int8"] * 9)
        hook = loom.LambdaCallback(on_batch_end=lambda *_: change(net, next(types, "int8")))
        result = loom.train(net, blobs(), quiet(epochs=2), callbacks=[hook])
        return result.loss_history, weights(net), net.predict(blobs()[0]).tobytes()

    assert run(morphed_by_another_thread) == run(lambda net, dtype: net.morph(dtype))


def test_a_session_goes_on_with_no_other_weights_than_it_began_with() -> None:
    net = loom.Sequential([nn.GRU(4, return_sequences=True), nn.Dense(3)], input_shape=(8, 4), seed=1)
    steps = np.random.default_rng(0).normal(size=(2, 1, 4))
    for before, after in (("float32", "bfloat16"), ("bfloat16", "float32"), ("int8", "bfloat16")):
        session = net.morph(before).session(8, rows=2)
        session(steps)
        net.morph(after)
        with pytest.raises(loom.StateError, match="has changed since the session began"):
            session(steps)
        session.reset()
        np.testing.assert_array_equal(session(steps), net.session(8, rows=2)(steps))


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
