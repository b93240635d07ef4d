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


# One more Ctrl-C, and on_interrupt


def test_a_second_ctrl_c_does_not_wait() -> None:
    reached: list[str] = []

    def press() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("the first one waits")
        signal.raise_signal(signal.SIGINT)
        reached.append("never")

    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt), interrupts:
        press()
    assert reached == ["the first one waits"]
    assert interrupts.urged
    assert not interrupts.came_late()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_waits_for_what_lets_go_of_things() -> None:
    left: list[str] = []

    class Held:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            signal.raise_signal(signal.SIGINT)
            left.append("to its end")

    with Interrupts() as interrupts:
        interrupts.begin_ending()
        with Held():
            pass
        left.append("after it")
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert left == ["to its end", "after it"]
    assert interrupts.urged


class Twice(loom.Callback):
    """Presses Ctrl-C after the first epoch, and once more while the run ends."""

    # So that it is held back as in the callbacks of loom's own.
    __module__ = "loom.callbacks.twice"

    def __init__(self) -> None:
        self.reached: list[str] = []

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        signal.raise_signal(signal.SIGINT)
        self.reached.append(f"epoch {epoch}")

    def on_train_end(self, logs: object = None) -> None:
        signal.raise_signal(signal.SIGINT)
        self.reached.append("never")


def test_a_second_ctrl_c_raises_while_a_run_ends() -> None:
    net, history, twice = mlp(), loom.History(), Twice()
    with pytest.raises(KeyboardInterrupt):
        loom.train(net, blobs(), quiet(epochs=5), callbacks=[history, twice])
    assert twice.reached == ["epoch 0"]
    assert history.epoch == [0]
    assert loom.train(net, blobs(), quiet()).stop_reason == "finished"


@pytest.mark.parametrize("kind", RUNS)
def test_two_ctrl_c_at_any_lines_leave_a_network_that_trains(kind: str) -> None:
    run = RUNS[kind]()
    run()
    counted = OneLine(0)
    with counted:
        run()

    def go() -> None:
        run()
        # What has come too late for the run is told by the handler of Python's own.
        signal.raise_signal(signal.SIGINT)

    step = 1 if os.environ.get("LOOM_SOAK") == "1" else max(counted.lines // 40, 1)
    for number in range(1 + len(kind) % step, counted.lines, step):
        with pytest.raises(KeyboardInterrupt), TwoLines(number, 1 + number % 7):
            go()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        again = run()
        assert not again.interrupted
        if isinstance(run, Run):
            assert np.isfinite(run.net.predict(blobs(2)[0])).all()


class TwoLines(OneLine):
    """Sends SIGINT before a line, and again some lines later."""

    def __init__(self, number: int, later: int) -> None:
        super().__init__(number)
        self.second = number + later

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        found = super()._trace(frame, event, argument)
        if found is not None and event == "line" and self.lines == self.second:
            signal.raise_signal(signal.SIGINT)
        return found


@pytest.mark.parametrize("first", [0, 1])
def test_on_interrupt_raise_raises_when_all_is_kept(first: int, tmp_path: Path) -> None:
    def press(epoch: int, logs: object) -> None:
        if epoch == first:
            signal.raise_signal(signal.SIGINT)

    ended: list[object] = []
    hook = loom.LambdaCallback(on_epoch_end=press, on_train_end=ended.append)
    whole, net, history = mlp(), mlp(), loom.History()
    loom.train(whole, blobs(), quiet(epochs=4, device="cpu"))
    settings = quiet(epochs=4, device="cpu", on_interrupt="raise")
    with pytest.raises(KeyboardInterrupt):
        loom.train(net, blobs(), settings, callbacks=[hook, history], run=tmp_path / "run")
    assert len(ended) == 1
    assert history.epoch == list(range(first + 1))
    # How Ctrl-C is answered does not make a run another one: the folder goes on with either.
    fresh = mlp()
    assert (
        loom.train(fresh, blobs(), quiet(epochs=4, device="cpu"), run=tmp_path / "run").stop_reason
        == "finished"
    )
    assert fresh.fingerprint() == whole.fingerprint()
    if first == 0:
        mesh = Stepping()
        one = loom.TrainingConfig(learning_rate=0.01, on_interrupt="raise")

        def samples() -> Iterator[Any]:
            yield from mesh.samples()
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            loom.train_stepping(mesh.mesh, samples(), one)
        mesh.check()


def test_settings_with_on_interrupt_come_back() -> None:
    config = loom.TrainingConfig(on_interrupt="raise")
    assert loom.TrainingConfig.from_config(config.to_config()) == config
    assert "on_interrupt" not in loom.TrainingConfig().to_config()
    with pytest.raises(loom.ConfigError, match='did you mean "raise"'):
        loom.TrainingConfig(on_interrupt="rise")  # type: ignore[arg-type]
