"""A process that is forked off works, or says why it does not; it never waits for threads that it has not."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import loom
from loom import nn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # What these tests are about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]

Busy = Callable[[Callable[[], object]], None]
SOAK = os.environ.get("LOOM_SOAK") == "1"
FORKS = 1000 if SOAK else 6
X = np.random.default_rng(0).normal(size=(256, 16)).astype(np.float32)
Y = np.zeros((256, 8), np.float32)
CONFIG = loom.TrainingConfig(epochs=1, device="cpu", verbose=False)


def small() -> loom.Network:
    return loom.Sequential([nn.Dense(64, activation="relu"), nn.Dense(8)], 16)


def in_child(work: Callable[[], object], seconds: float = 60.0) -> str:
    """What a child has to say, or "hangs"."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001 - it is told
            said = f"{type(error).__name__}: {error}"
        os.write(theirs, said.encode())
        os._exit(0)
    os.close(theirs)
    until = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(ours)
            return "hangs"
        time.sleep(0.001)
    with os.fdopen(ours, "rb") as told:
        return told.read().decode()


@pytest.fixture
def busy() -> Iterator[Busy]:
    """Does something over and over in threads while the test runs."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def begin(work: Callable[[], object]) -> None:
        def go_on() -> None:
            while not stop.is_set():
                work()

        threads.extend(threading.Thread(target=go_on) for _ in range(3))
        for thread in threads:
            thread.start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join()


def test_children_work_whatever_other_threads_predict(busy: Busy) -> None:
    net = small()
    before = net.predict(X)
    busy(lambda: net.predict(X))

    def work() -> str:
        np.testing.assert_array_equal(net.predict(X), before)
        loom.train(net, (X, Y), CONFIG)
        small().predict(X)
        return "worked"

    assert {in_child(work) for _ in range(FORKS)} == {"worked"}


def test_children_work_with_networks_that_other_threads_build(busy: Busy) -> None:
    newest = [small()]

    def make() -> None:
        newest[0] = net = small()
        net.predict(X)

    busy(make)

    def work() -> str:
        loom.train(newest[0], (X, Y), CONFIG)
        return "worked"

    assert {in_child(work) for _ in range(FORKS)} == {"worked"}


def test_what_another_thread_was_training_can_be_trained_in_the_child() -> None:
    net = small()
    begun, stop = threading.Event(), threading.Event()

    class Stop(loom.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            begun.set()
            self.stop_training = stop.is_set()

    def train() -> None:
        loom.train(net, (X, Y), replace(CONFIG, epochs=10**6), callbacks=[Stop()])

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    begun.wait()

    def work() -> str:
        loom.train(net, (X, Y), CONFIG)
        return "worked"

    try:
        told = {in_child(work) for _ in range(FORKS)}
    finally:
        stop.set()
        thread.join()
    assert told == {"worked"}
    assert np.isfinite(net.predict(X)).all()


def test_a_network_in_whose_middle_a_thread_was_left_says_so() -> None:
    """A fork does not wait for a call that takes seconds."""
    large = loom.Sequential([nn.Dense(1024), nn.Dense(1024), nn.Dense(1024)], 1024)
    rows = np.zeros((2_500, 1024), np.float32)
    other = small()
    other.predict(X)
    large.predict(rows[:1])
    thread = threading.Thread(target=lambda: large.forward(rows))
    thread.start()
    with pytest.raises(loom.StateError, match="in use"):  # noqa: PT012 - sooner or later
        while thread.is_alive():
            large.zero_gradients()

    def work() -> str:
        other.predict(X)
        loom.train(other, (X, Y), CONFIG)
        with pytest.raises(loom.StateError, match="forked off while another thread was using the network"):
            large.predict(rows[:1])
        with pytest.raises(loom.StateError, match="forked off"):
            loom.train(large, (rows[:1], rows[:1]), CONFIG)
        return "told"

    assert in_child(work) == "told"
    thread.join()
    large.predict(rows[:1])


def test_a_gpu_is_left_to_the_parent(gpu: str) -> None:
    net = small().to(gpu)
    before = net.predict(X)

    def work() -> str:
        with pytest.raises(loom.DeviceError, match=r"forked off.*spawn"):
            net.predict(X)
        with pytest.raises(loom.DeviceError, match="forked off"):
            small().to(gpu)
        net.to("cpu")
        np.testing.assert_allclose(net.predict(X), before, rtol=1e-4, atol=1e-5)
        loom.device.release_gpu()
        return "told"

    assert in_child(work) == "told"
    np.testing.assert_array_equal(net.predict(X), before)


def test_children_may_fork_in_turn() -> None:
    net = small()
    before = net.predict(X)

    def work() -> str:
        net.predict(X)
        return in_child(lambda: np.array_equal(net.predict(X), before))

    assert in_child(work) == "True"


def test_a_fork_in_the_middle_of_a_first_import_waits_for_it() -> None:
    code = """
import os, sys, threading, time
import loom
thread = threading.Thread(target=lambda: (loom.Network, loom.train, loom.analysis))
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    loom.Network, loom.train, loom.analysis
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
    for turn in range(600 if SOAK else 3):
        after = str(turn % 60 / 300 if SOAK else 0.02 * turn)
        command = [sys.executable, "-W", "ignore", "-c", code, after]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0, f"forked after {after} s"


def predicted(net: loom.Network) -> np.ndarray:
    return np.asarray(net.predict(X))


def test_pools_of_processes_work_by_fork() -> None:
    net = small()
    before = net.predict(X)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for result in pool.map(predicted, [net] * 4):
            np.testing.assert_array_equal(result, before)
