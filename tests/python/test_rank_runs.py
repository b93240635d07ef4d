"""Runs in folders that several processes share: killed, asked to end, silent; the same line goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.training import sharing

SOAK = os.environ.get("LOOM_SOAK") == "1"
HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).parent / "mpiexec"
RANDOM = np.random.default_rng(0)
DATA = (RANDOM.normal(size=(70, 6)).astype("float32"), RANDOM.integers(0, 3, 70))
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for its processes in /proc")


def network() -> loom.Network:
    layers = [nn.Dense(12, activation="tanh"), nn.Dropout(0.2), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, seed=1)


def settings(**changed: Any) -> loom.TrainingConfig:
    given = {"epochs": 3, "batch_size": 16, "loss": "cross_entropy", "shards": 4, "verbose": False}
    return loom.TrainingConfig(**{**given, **changed})


class Ends(loom.Callback):
    """Ends a training after some steps: by stopping it, or by an error."""

    def __init__(self, steps: int, error: type[BaseException] | None = None) -> None:
        self.left, self.error = steps, error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0 and self.error is not None:
            raise self.error
        self.stop_training = self.left <= 0


def test_a_run_goes_on_with_any_number_of_ranks_from_where_an_error_has_ended_it(tmp_path: Path) -> None:
    whole = network()
    expected = loom.train(whole, DATA, settings(), DATA)
    run = loom.RunFolder(tmp_path, every_steps=2, background=False)

    def cut(ranks: Any) -> None:
        callbacks = [Ends(5, RuntimeError)]
        loom.train(network(), DATA, settings(), DATA, callbacks=callbacks, run=run, distributed=ranks)

    def ended(ranks: Any) -> tuple[str, list[float]]:
        net = network()
        result = loom.train(net, DATA, settings(), DATA, run=run, distributed=ranks)
        return net.fingerprint(), result.loss_history

    for count in (3, 2):
        with pytest.raises((RuntimeError, loom.StateError)):
            loom.distributed.threads(count, cut)
    for count in (4, 1, 2):
        found = loom.distributed.threads(count, ended)
        assert found == [(whole.fingerprint(), expected.loss_history)] * count
    assert loom.read_run(tmp_path).finished
    assert loom.load(tmp_path / "final.loom").fingerprint() == whole.fingerprint()


def test_moments_in_parts_are_whole_in_the_folder_and_go_on_with_any_number(tmp_path: Path) -> None:
    whole = network()
    loom.train(whole, DATA, settings())
    run = loom.RunFolder(tmp_path, every_steps=2, background=False)

    def part(ranks: Any, *callbacks: loom.Callback) -> str:
        net = network()
        config = settings(split_moments=True)
        loom.train(net, DATA, config, callbacks=callbacks, run=run, distributed=ranks)
        return net.fingerprint()

    for count, steps in ((3, 4), (2, 3), (4, 3)):
        with pytest.raises((RuntimeError, loom.StateError)):
            loom.distributed.threads(count, lambda ranks, left=steps: part(ranks, Ends(left, RuntimeError)))
    assert loom.distributed.threads(3, part) == [whole.fingerprint()] * 3


def test_one_process_that_is_left_goes_on_in_shards_unasked(tmp_path: Path) -> None:
    whole = network()
    loom.train(whole, DATA, settings(shards=8))

    def cut(ranks: Any) -> None:
        run = loom.RunFolder(tmp_path, every_steps=2, background=False)
        config = settings(shards=None)
        loom.train(network(), DATA, config, callbacks=[Ends(6, ValueError)], run=run, distributed=ranks)

    with pytest.raises((ValueError, loom.StateError)):
        loom.distributed.threads(2, cut)
    net = network()
    loom.train(net, DATA, settings(shards=None), run=tmp_path)
    assert net.fingerprint() == whole.fingerprint()


def test_a_run_that_began_with_whole_steps_is_told_apart(tmp_path: Path) -> None:
    loom.train(network(), DATA, settings(shards=None), run=tmp_path)
    with pytest.raises(loom.ConfigError, match=r"training\.shards: none there, 4 here"):
        loom.train(network(), DATA, settings(), run=tmp_path)


def test_what_rank_0_cannot_keep_ends_all_ranks_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    messages = []

    def run(ranks: Any) -> None:
        try:
            loom.train(network(), DATA, settings(), run=tmp_path / "file", distributed=ranks)
        except (loom.StateError, OSError) as error:
            messages.append(str(error))

    loom.distributed.threads(2, run)
    assert len(messages) == 2
    assert all("there can be no run folder" in message for message in messages)


@pytest.mark.parametrize("stop", ["batch", "begin"])
def test_all_ranks_stop_after_the_step_after_which_rank_0_does(stop: str) -> None:
    class Stops(Ends):
        def on_train_begin(self, logs: Any = None) -> None:
            self.stop_training = stop == "begin"

    def run(ranks: Any) -> tuple[str, str]:
        net = network()
        config = settings(metrics=["accuracy"])
        result = loom.train(net, DATA, config, callbacks=[Stops(7)], distributed=ranks)
        return net.fingerprint(), result.stop_reason

    alone = run(None)
    assert loom.distributed.threads(3, run) == [alone] * 3


def test_ranks_that_differ_in_settings_or_arithmetic_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def other_settings(ranks: Any) -> None:
        loom.train(network(), DATA, settings(learning_rate=0.1 + ranks.rank), distributed=ranks)

    with pytest.raises(loom.ConfigError, match=r"differ: training\.learning_rate"):
        loom.distributed.threads(2, other_settings)

    def other_run(ranks: Any) -> None:
        loom.train(network(), DATA, settings(), run=None if ranks.rank else "unused", distributed=ranks)

    with pytest.raises(loom.ConfigError, match="differ: run"):
        loom.distributed.threads(2, other_run)
    numbers: Iterator[int] = iter(range(2))
    monkeypatch.setattr("loom.training.run.arithmetic", lambda: {"subnormal numbers": next(numbers) == 0})
    with pytest.raises(loom.ConfigError, match=r"differ: arithmetic\.subnormal numbers"):
        loom.distributed.threads(2, lambda ranks: loom.train(network(), DATA, settings(), distributed=ranks))


def test_a_process_knows_how_it_rounds() -> None:
    assert sharing.arithmetic()["subnormal numbers"]
    assert sharing.arithmetic()["rounding"] == [float(each).hex() for each in (1 / 3, -1 / 3, 0.1, -0.1)]


# Processes


def line(count: int, mpi: bool) -> list[str]:
    if mpi:
        return [str(MPIEXEC), "-n", str(count), sys.executable]
    return [sys.executable, "-m", "loom", "launch", "-n", str(count)]


def begun(
    folder: Path, count: int, seconds: float, *, kind: str = "arrays", mpi: bool = False, **more: str
) -> Any:
    program = [str(HERE / "rank_run.py"), str(folder), str(seconds), kind]
    environment = {**os.environ, "LOOM_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [*line(count, mpi), *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def told(process: Any) -> tuple[str, str]:
    """What a program has printed, once it has ended; it has to."""
    try:
        out, error = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return out, error


def ranks_of(process: Any) -> dict[int, int]:
    """The processes of the ranks: their numbers and ids."""
    found, waiting = {}, [process.pid]
    while waiting:
        parent = waiting.pop()
        try:
            waiting += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
            pairs = Path(f"/proc/{parent}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        known = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        number = known.get(b"LOOM_RANK", known.get(b"PMI_RANK"))
        if number is not None:
            found[int(number)] = parent
    return found


def alive(number: int) -> bool:
    """Whether a process is there, and not just what is left of it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(folder: Path, pattern: str) -> None:
    end = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> str:
    process = begun(tmp_path_factory.mktemp("run"), 1, 0.0, kind="drawn")
    out, error = told(process)
    assert process.returncode == 0, error
    return out.strip()


@linux
def test_whatever_kills_a_rank_the_same_line_ends_in_the_unbroken_runs_bits(
    tmp_path: Path, unbroken: str
) -> None:
    draw = random.Random(5)
    kills, wanted, number = 0, 200 if SOAK else 1, 0
    while kills < wanted:
        number += 1
        folder = tmp_path / str(number)
        for _ in range(20):
            mpi, count = draw.random() < 0.4, draw.randint(2, 4)
            process = begun(folder, count, 0.01, kind="drawn", mpi=mpi)
            if kills < wanted:
                # Those that have not found each other yet are waited for.
                wait_for(folder, "events.jsonl")
                time.sleep(draw.uniform(0.0, 0.5))
                ranks = ranks_of(process)
                if ranks and process.poll() is None:
                    os.kill(draw.choice(list(ranks.values())), signal.SIGKILL)
                    kills += 1
            out, error = told(process)
            if process.returncode == 0:
                break
            assert "Error" not in error or "has ended" in error or "not there" in error or mpi, error
        found = out.replace("\n", " ").split()
        assert sorted(found) == sorted(unbroken.split() * count), error


@linux
@pytest.mark.parametrize("whom", ["a rank", *(["all"] if SOAK else [])])
def test_a_request_to_end_is_kept_by_all_ranks(tmp_path: Path, unbroken: str, whom: str) -> None:
    process = begun(tmp_path, 3, 0.1, kind="drawn")
    wait_for(tmp_path, "states/epoch-0000000-batch-*")
    os.kill(ranks_of(process)[2] if whom == "a rank" else process.pid, signal.SIGTERM)
    out, error = told(process)
    assert (process.returncode, out, error) == (128 + signal.SIGTERM, "", "")
    assert not (tmp_path / "result.json").exists()
    process = begun(tmp_path, 2, 0.0, kind="drawn")
    out, error = told(process)
    assert sorted(out.split()) == sorted(unbroken.split() * 2), error


@linux
@pytest.mark.parametrize("mpi", [False, *([True] if SOAK else [])])
def test_a_silent_rank_is_named(tmp_path: Path, mpi: bool) -> None:
    process = begun(tmp_path, 3, 0.1, mpi=mpi, LOOM_RANK_TIMEOUT="1.5")
    wait_for(tmp_path, "states/epoch-0000000-batch-*")
    ranks = ranks_of(process)
    os.kill(ranks[1], signal.SIGSTOP)
    try:
        # Whoever has started a rank waits until it is gone.
        end = time.monotonic() + 60
        while time.monotonic() < end and alive(ranks[0]):
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(ranks[1], signal.SIGKILL)
    _, error = told(process)
    assert process.returncode != 0
    assert "rank 1 did not answer within 2 s" in error
