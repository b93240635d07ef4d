"""Ctrl-C between any two lines: the network can be trained on, the handler is the user's, nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom._interrupts import Interrupts
from loom.engine import engine_of
from networks import blobs, mlp, quiet
from programs import answer

PACKAGE = str(Path(loom.__file__).parent)


class OneLine:
    """Sends SIGINT before one of the lines of loom's that are run while it is entered."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = 0

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                signal.raise_signal(signal.SIGINT)
        return self._trace

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)


class Run:
    """A short run of training, over and over on one network."""

    def __init__(self, batches: bool) -> None:
        x, y = blobs(24)
        self.net = mlp()
        self.data: Any = [(x[:12], y[:12]), (x[12:], y[12:])] if batches else (x, y)
        self.validation = blobs(12, 1)
        self.history = loom.History()
        self.config = quiet(epochs=2, batch_size=12, metrics=["accuracy"])

    def __call__(self) -> loom.TrainingResult:
        hooks = [loom.LambdaCallback(on_epoch_end=lambda epoch, logs: None), self.history]
        return loom.train(self.net, self.data, self.config, self.validation, hooks)

    def check(self) -> None:
        """What holds after every run, however it has ended."""
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        state = engine_of(self.net).native.training_state()
        assert self.history.epoch == list(range(state["epoch"]))
        assert {len(series) for series in self.history.history.values()} <= {state["epoch"]}
        assert np.isfinite(self.net.predict(blobs(2)[0])).all()
        assert self().stop_reason == "finished"


class Stepping:
    """A short run of a clocked mesh."""

    def __init__(self) -> None:
        self.net = loom.Sequential([nn.Dense(3, activation="tanh")], input_shape=2)
        self.mesh = loom.Mesh(self.net, window=2)

    def samples(self) -> Iterator[Any]:
        for _ in range(5):
            yield np.ones((1, 2)), np.full((1, 3), 0.5)

    def __call__(self) -> loom.SteppingResult:
        return loom.train_stepping(self.mesh, self.samples(), loom.TrainingConfig(learning_rate=0.01))

    def check(self) -> None:
        """What holds after every run."""
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert self().updates == 5


RUNS: dict[str, Callable[[], Any]] = {
    "arrays": lambda: Run(batches=False),
    "batches": lambda: Run(batches=True),
    "stepping": Stepping,
}


@pytest.mark.parametrize("kind", RUNS)
def test_ctrl_c_before_any_line_leaves_a_network_that_trains(kind: str) -> None:
    run = RUNS[kind]()
    run()
    counted = OneLine(0)
    with counted:
        run()
    assert counted.lines > 100
    # All lines with LOOM_SOAK=1; otherwise some fifty, others in each kind of run.
    step = 1 if os.environ.get("LOOM_SOAK") == "1" else max(counted.lines // 50, 1)
    interrupted = 0
    for number in range(1 + len(kind) % step, counted.lines, step):
        try:
            with OneLine(number):
                result = run()
            interrupted += result.interrupted
        except KeyboardInterrupt:
            interrupted += 1
        run.check()
    # No Ctrl-C is swallowed, but for those that come when all is done.
    assert interrupted >= 0.9 * len(range(1 + len(kind) % step, counted.lines, step))


PROGRAM = """
import json, os, random, signal, sys, threading, time
import numpy as np
import loom
from loom import nn
from loom.engine import engine_of

wanted = int(sys.argv[1])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 6)).astype(np.float32), rng.integers(0, 3, 24)
net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6)
history = loom.History()
config = loom.TrainingConfig(epochs=3, batch_size=12, loss="cross_entropy", verbose=False, device="cpu")
hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
loom.train(net, (x, y), config, callbacks=[history])
rounds = hits = wedged = handlers = lost = 0
usual = 0.01
delays = random.Random(int(sys.argv[2]))

def send(delay, sent):
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGINT)
    sent.set()

while hits < wanted and rounds < 50 * wanted:
    rounds += 1
    sent = threading.Event()
    result = None
    thread = threading.Thread(target=send, args=(delays.uniform(0, 1.2 * usual), sent))
    try:
        thread.start()
        result = loom.train(net, (x, y), config, (x, y), callbacks=[hook, history])
        hits += result.interrupted
        sent.wait()
        time.sleep(0.001)
    except KeyboardInterrupt:
        hits += result is None
    thread.join()
    handlers += signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    lost += history.epoch != list(range(engine_of(net).native.training_state()["epoch"]))
    try:
        started = time.perf_counter()
        loom.train(net, (x, y), config, (x, y), callbacks=[hook, history])
        usual = time.perf_counter() - started
    except loom.StateError:
        wedged += 1
print(json.dumps({"hits": hits, "wedged": wedged, "handlers": handlers, "lost": lost}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("seed", [1, 2])
def test_signals_at_any_time_leave_a_network_that_trains(seed: int) -> None:
    hits = 2000 if os.environ.get("LOOM_SOAK") == "1" else 30
    assert answer(PROGRAM, hits, seed) == {"hits": hits, "wedged": 0, "handlers": 0, "lost": 0}


# The handler


def test_ctrl_c_waits_for_a_check_or_an_open_block() -> None:
    reached: list[str] = []
    interrupts = Interrupts()
    with interrupts:
        signal.raise_signal(signal.SIGINT)
        reached.append("after the signal")
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts.open:
            reached.append("never")
        with pytest.raises(KeyboardInterrupt), interrupts.open:
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(ValueError, match="own"), interrupts.open:
            raise ValueError("own")
        # Again held.
        signal.raise_signal(signal.SIGINT)
        reached.append("after the blocks")
    assert reached == ["after the signal", "after the blocks"]
    assert interrupts.came_late()
    assert not interrupts.came_late()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_s_own_handler_is_called_when_it_can_do_no_harm() -> None:
    calls: list[int] = []

    class MineError(Exception):
        pass

    def own(number: int, frame: FrameType | None) -> None:
        calls.append(number)
        if len(calls) == 3:
            raise MineError

    previous = signal.signal(signal.SIGINT, own)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert not calls
            interrupts.check()
            assert len(calls) == 1
            with interrupts.open:
                signal.raise_signal(signal.SIGINT)
                assert len(calls) == 2
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(MineError):
                interrupts.check()
            signal.raise_signal(signal.SIGINT)
        assert not interrupts.came_late()
        assert len(calls) == 4
        assert signal.getsignal(signal.SIGINT) is own
        # Its own error ends a run, and lets go of the network.
        net = mlp()
        calls[:] = [1, 1]
        hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: signal.raise_signal(signal.SIGINT))
        with pytest.raises(MineError):
            loom.train(net, blobs(), quiet(epochs=3), callbacks=[hook])
        assert signal.getsignal(signal.SIGINT) is own
        assert loom.train(net, blobs(), quiet()).stop_reason == "finished"
    finally:
        signal.signal(signal.SIGINT, previous)


def test_ignored_signals_and_new_handlers_stay() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, previous)

        def new(number: int, frame: FrameType | None) -> None: ...

        # Put in place while a run goes on.
        hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: signal.signal(signal.SIGINT, new))
        loom.train(mlp(), blobs(), quiet(), callbacks=[hook])
        assert signal.getsignal(signal.SIGINT) is new
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_run_within_a_run_is_interrupted_alone() -> None:
    inner: list[loom.TrainingResult] = []

    def train(epoch: int, logs: object) -> None:
        stop = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: signal.raise_signal(signal.SIGINT))
        inner.append(loom.train(mlp(), blobs(), quiet(epochs=5), callbacks=[stop]))

    outer = loom.train(mlp(), blobs(), quiet(epochs=2), callbacks=[loom.LambdaCallback(on_epoch_end=train)])
    assert [result.stop_reason for result in inner] == ["interrupted", "interrupted"]
    assert outer.stop_reason == "finished"


def test_every_callback_hears_of_an_epoch_that_one_is_interrupted_in() -> None:
    history = loom.History()
    hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: signal.raise_signal(signal.SIGINT))
    result = loom.train(mlp(), blobs(), quiet(epochs=5), callbacks=[hook, history])
    assert result.interrupted
    assert history.epoch == [0]
