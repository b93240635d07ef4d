"""Runs in folders: killed, out of disk, damaged, changed; the same line goes on from all of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, mlp, quiet, weights
from programs import answer
from run_faults import SHIM

PATHS = os.pathsep.join([str(Path(__file__).parent), *sys.path])
SOAK = os.environ.get("LOOM_SOAK") == "1"
forks = pytest.mark.skipif(sys.platform == "win32", reason="forks and kills")


def small(**settings: Any) -> loom.TrainingConfig:
    return quiet(**{"epochs": 3, "batch_size": 16, "device": "cpu", **settings})


def go(folder: Any, net: loom.Network | None = None, **settings: Any) -> loom.TrainingResult:
    return loom.train(net or mlp(units=4), blobs(48), small(**settings), run=folder)


class Breaks(loom.Callback):
    """Raises within an epoch, as often as not."""

    def __init__(self, epoch: int, batch: int, error: type[BaseException]) -> None:
        self.at, self.error = (epoch, batch), error

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise self.error


# What it comes to


def test_a_run_in_a_folder_is_the_run_without_one(tmp_path: Path) -> None:
    plain, kept = mlp(), mlp()
    config = small(metrics=["accuracy"], schedule="cosine")
    expected = loom.train(plain, blobs(), config, blobs(40, 1))
    result = kept.fit(blobs(), config, blobs(40, 1), run=str(tmp_path / "deep" / "run"))
    assert weights(kept) == weights(plain)
    assert (result.loss_history, result.metrics) == (expected.loss_history, expected.metrics)
    run = loom.read_run(tmp_path / "deep" / "run")
    assert run.finished
    assert [row["val_accuracy"] for row in run.epochs] == result.metrics["val_accuracy"]


@pytest.mark.parametrize("packed", [False, True])
def test_an_adapter_s_run_goes_on_to_the_bits_of_one_that_nothing_ended(tmp_path: Path, packed: bool) -> None:
    def made() -> loom.Network:
        net = mlp(units=8)
        if packed:
            net.morph("int8").drop_master()
        return net.add_adapter("first", rank=2, dropout=0.1)

    unbroken, broken, again = made(), made(), made()
    expected = go(tmp_path / "unbroken", unbroken, epochs=4)
    config, run = small(epochs=4), loom.RunFolder(tmp_path / "broken", every_steps=1)
    with pytest.raises(ZeroDivisionError):
        loom.train(broken, blobs(48), config, callbacks=[Breaks(2, 1, ZeroDivisionError)], run=run)
    assert loom.train(again, blobs(48), config, run=run).loss_history == expected.loss_history
    assert again.fingerprint() == unbroken.fingerprint()
    best = loom.load(tmp_path / "broken" / "best.loom")
    assert best.fingerprint() == loom.load(tmp_path / "unbroken" / "best.loom").fingerprint()
    assert list(best.adapters) == ["first"]


def test_the_same_line_gives_the_result_of_a_run_that_has_ended(tmp_path: Path) -> None:
    config, history, again = small(epochs=5), loom.History(), loom.History()
    config = small(epochs=9, early_stopping=loom.EarlyStopping("loss", min_delta=9.0))
    net, other = mlp(), mlp()
    first = loom.train(net, blobs(), config, callbacks=[history], run=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert loom.train(other, blobs(), config, callbacks=[again], run=tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before
    assert first.stop_reason == "stopped"
    assert weights(other) == weights(net)
    assert (again.epoch, again.history) == (history.epoch, history.history)
    # It can be trained on, as what was trained here can.
    for each in (net, other):
        loom.train(each, blobs(), small(epochs=4), resume=True)
    assert weights(other) == weights(net)


def test_a_folder_holds_what_it_says(tmp_path: Path) -> None:
    net = mlp()
    run = loom.RunFolder(tmp_path, every_steps=1, keep=3, monitor="val_accuracy")
    config = small(loss="cross_entropy", epochs=4)
    with pytest.raises(loom.ConfigError, match='RunFolder: there is no log "val_accuracy"'):
        loom.train(mlp(), blobs(), config, blobs(40, 1), run=run)
    config = small(metrics=["accuracy"], epochs=4)
    result = loom.train(net, blobs(), config, blobs(40, 1), run=replace(run, on_change="restart"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("best.loom", "events.jsonl", "final.loom", "lock", "result.json", "run.json", "states")
    ]
    states = sorted(path.name for path in (tmp_path / "states").iterdir())
    assert states == [f"epoch-000000{epoch}-batch-000000000.loom" for epoch in (2, 3, 4)]
    assert weights(loom.load(tmp_path / "final.loom")) == weights(net)
    best = loom.load(tmp_path / "best.loom").evaluate(blobs(40, 1))
    assert best["accuracy"] == max(result.metrics["val_accuracy"])
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["identity"]["training"]["epochs"] == 4
    assert about["initial_weights"] == mlp().fingerprint()
    assert json.loads((tmp_path / "result.json").read_text())["loss_history"] == result.loss_history


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(loom.FileError, match="no run folder"):
        go(tmp_path / "file")
    for settings in ({"keep": 0}, {"every_steps": 0}, {"on_change": "ask"}, {"every_seconds": -1}):
        with pytest.raises(loom.ConfigError, match="RunFolder"):
            loom.RunFolder(tmp_path, **settings)
    with pytest.raises(loom.ConfigError, match="folder must be a string"):
        go(3)


# Killed


@forks
def test_a_run_that_is_killed_anywhere_ends_as_if_it_never_was(tmp_path: Path) -> None:
    """One process forks all, which then have everything loaded; by SIGKILL and by Ctrl-C."""
    program = """
import json, os, random, signal, sys, time, warnings
from pathlib import Path
from run_scenarios import SCENARIOS, killed_until_done, run_in_child
warnings.simplefilter("ignore")
folder, wanted, kills = Path(sys.argv[1]), int(sys.argv[2]), 0
for number, (name, scenario) in enumerate(SCENARIOS.items()):
    scenario(folder / "warm" / name)
    began, whole = time.perf_counter(), folder / "whole.json"
    assert os.waitpid(run_in_child(scenario, folder / name, whole), 0)[1] == 0
    took, chance = time.perf_counter() - began, random.Random(name)
    both = [(signal.SIGKILL,), (signal.SIGINT,)]
    for signals in both if wanted > 1 else [both[number % 2]]:
        done = runs = 0
        while done < wanted:
            place = folder / f"{name}-{signals[0]}-{runs}"
            found, more = killed_until_done(scenario, place, chance, 1.5 * took, signals)
            assert found == json.loads(whole.read_text()), place
            done, runs = done + more, runs + 1
        kills += done
print(json.dumps(kills))
"""
    wanted = 1000 if SOAK else 1
    kills = answer(program, tmp_path, wanted, LOOM_NUM_THREADS="1", PYTHONPATH=PATHS)
    assert kills >= wanted * 7


class Answering:
    """A stream that depends on what the mesh has answered, and says where it is; it may end with Ctrl-C."""

    def __init__(self, mesh: loom.Mesh, interrupted_at: int = -1) -> None:
        self.mesh, self.interrupted_at, self.next = mesh, interrupted_at, 0

    def __iter__(self) -> Iterator[Any]:
        while self.next < 60:
            if self.next == self.interrupted_at:
                raise KeyboardInterrupt
            self.next += 1
            yield self.mesh.output() / 2 + self.next % 3, np.ones((1, 1))

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: Any) -> None:
        self.next = state["next"]


def test_a_mesh_goes_on_with_a_stream_that_listens_to_it(tmp_path: Path) -> None:
    def step(folder: str, interrupted_at: int = -1, **settings: Any) -> tuple[loom.Mesh, loom.SteppingResult]:
        net = loom.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(1)], input_shape=1)
        mesh = loom.Mesh(net, window=6)
        stream = Answering(mesh, interrupted_at)
        run = loom.RunFolder(tmp_path / folder, every_steps=1)
        config = loom.TrainingConfig(learning_rate=0.05, **settings)
        return mesh, loom.train_stepping(mesh, stream, config, ticks=2, update_every=3, run=run)

    whole, expected = step("a")
    assert step("b", 40)[1].interrupted
    mesh, result = step("b")
    assert weights(mesh.network) == weights(whole.network)
    assert result.losses == expected.losses
    assert (result.samples, result.updates, mesh.ticks) == (60, 20, 120)
    again, same = step("b")
    assert same == result
    assert (again.output() == mesh.output()).all()
    with pytest.raises(loom.ConfigError, match=r"training\.loss"):
        step("b", loss="mae")


# Out of disk


@forks
def test_every_write_that_fails_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and LD_PRELOAD")
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    built = [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(built, check=True, capture_output=True)
    names = ["metrics", "callbacks", "augmented", "positioned", "stepping"] if SOAK else ["metrics"]
    program = [sys.executable, Path(__file__).with_name("run_faults.py"), tmp_path / "runs"]
    settings = {"LD_PRELOAD": str(library), "LOOM_NUM_THREADS": "1", "PYTHONPATH": PATHS}
    ended = subprocess.run(
        [*program, "1" if SOAK else "29", *names],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["told"] > found["failed"] / 2


@forks
def test_a_full_disk_is_told_and_the_last_good_state_is_intact(tmp_path: Path) -> None:
    program = """
import errno, json, resource, signal, sys
import loom
from networks import blobs, mlp, quiet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
told = []
for limit, background in ((1000, True), (5000, True), (12000, False)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    run = loom.RunFolder(sys.argv[1], every_steps=1, background=background)
    try:
        loom.train(mlp(units=4), blobs(48), quiet(epochs=3, batch_size=16, device="cpu"), run=run)
    except loom.FileError as error:
        told.append([error.errno == errno.EFBIG, str(error)])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps(told))
"""
    told = answer(program, tmp_path, PYTHONPATH=PATHS)
    assert [right for right, _ in told] == [True] * 3
    assert all("File too large" in message for _, message in told)
    expected = mlp(units=4)
    loom.train(expected, blobs(48), small())
    net = mlp(units=4)
    go(tmp_path, net)
    assert weights(net) == weights(expected)


# One at a time


def test_a_folder_is_one_run_s_at_a_time(tmp_path: Path) -> None:
    seen: list[str] = []

    def second(epoch: int, logs: Any) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    def other() -> None:
        with pytest.raises(
            loom.StateError, match=rf"being trained by process {os.getpid()} on .* of its own"
        ) as told:
            go(tmp_path)
        seen.append(str(told.value))

    hook = loom.LambdaCallback(on_epoch_end=second)
    loom.train(mlp(units=4), blobs(48), small(), callbacks=[hook], run=tmp_path)
    assert len(seen) == 3
    go(tmp_path, mlp(units=4))


@forks
def test_a_lock_dies_with_its_process_and_not_with_its_children(tmp_path: Path) -> None:
    # A child of a process that was killed lives on, as a loader of data may, and holds nothing.
    program = """
import os, signal, sys, time, loom
from networks import blobs, mlp, quiet
def fork(epoch, logs):
    if os.fork() == 0:
        # Until it runs it holds what its parent does.
        print("go", flush=True)
        os.close(1); os.close(2)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
loom.train(mlp(units=4), blobs(48), quiet(epochs=3, batch_size=16, device="cpu"),
           callbacks=[loom.LambdaCallback(on_epoch_end=fork)], run=sys.argv[1])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS, "LOOM_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        with pytest.raises(loom.StateError, match=f"process {process.pid}"):
            go(tmp_path)
        process.kill()
        process.wait()
        assert len(go(tmp_path).loss_history) == 3
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# Changed


def test_what_differs_is_said(tmp_path: Path) -> None:
    go(tmp_path)
    x, y = blobs(48)
    cases: list[tuple[Any, Any, str]] = [
        (mlp(units=4), ((x, y), small(epochs=4)), r"training.epochs: 3 there, 4 here\n.*\"continue\""),
        (
            mlp(units=4),
            ((x, y), small(optimizer="sgd")),
            r"training.optimizer.type: \"adamw\" there, \"sgd\"",
        ),
        (mlp(units=4), ((x + 1, y), small()), "data.input.values: other numbers"),
        (mlp(units=4), ((x[:40], y[:40]), small()), r"data.input.shape: \[48, 6\] there, \[40, 6\] here"),
        (mlp(units=4), ([(x, y)], small()), 'data.type: none there, "list" here'),
        (
            mlp(units=5),
            ((x, y), small()),
            r"network\..*units.*4 there, 5 here\n(?!.*\"continue\").*\"restart\"",
        ),
    ]
    for net, arguments, message in cases:
        with pytest.raises(loom.ConfigError, match=message):
            loom.train(net, *arguments, run=tmp_path)
    with pytest.raises(loom.ConfigError, match=r"validation: none there"):
        loom.train(mlp(units=4), (x, y), small(), (x, y), run=tmp_path)
    with pytest.raises(loom.ConfigError, match=r'learning: "backpropagation" there, "tweening" here'):
        loom.TweenTrainer(mlp(units=4)).fit((x, y), small(), run=tmp_path)
    # What shows nothing of the run but how it goes may be another one.
    assert len(go(tmp_path, track_perf=True).loss_history) == 3


def test_a_run_goes_on_with_more_epochs_or_begins_anew(tmp_path: Path) -> None:
    whole, net = mlp(units=4), mlp(units=4)
    expected = loom.train(whole, blobs(48), small(epochs=6))
    go(tmp_path)
    result = go(loom.RunFolder(tmp_path, on_change="continue"), net, epochs=6)
    assert result.loss_history == expected.loss_history
    assert weights(net) == weights(whole)
    # From here on it is that run.
    assert go(tmp_path, epochs=6) == result
    anew = go(loom.RunFolder(tmp_path, on_change="restart"), epochs=2)
    assert anew.loss_history == expected.loss_history[:2]
    assert go(tmp_path, epochs=2) == anew
    with pytest.raises(loom.ConfigError, match="network"):
        go(loom.RunFolder(tmp_path, on_change="continue"), mlp(units=5), epochs=2)


def test_other_initial_weights_are_told(tmp_path: Path) -> None:
    run = loom.RunFolder(tmp_path, every_steps=1)
    with pytest.raises(ZeroDivisionError):
        loom.train(mlp(units=4), blobs(48), small(), callbacks=[Breaks(1, 1, ZeroDivisionError)], run=run)
    net, whole = mlp(units=4, seed=0), mlp(units=4)
    net.load_state_dict({name: values + 1 for name, values in net.state_dict().items()})
    with pytest.warns(UserWarning, match="came with other weights"):
        go(run, net)
    loom.train(whole, blobs(48), small())
    assert weights(net) == weights(whole)


def test_a_notebook_s_cell_is_run_again_after_ctrl_c(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    whole, net = mlp(units=4), mlp(units=4)
    loom.train(whole, blobs(48), small())
    breaks = Breaks(1, 1, KeyboardInterrupt)
    first = loom.train(net, blobs(48), small(), callbacks=[breaks], run=tmp_path)
    assert first.interrupted
    assert not (tmp_path / "result.json").exists()
    result = loom.train(net, blobs(48), small(), run=tmp_path)
    assert weights(net) == weights(whole)
    assert len(result.loss_history) == 3
    assert not recwarn.list


def test_on_another_kind_of_device_bits_would_be_others(tmp_path: Path, gpu: str) -> None:
    run = loom.RunFolder(tmp_path, every_steps=1)
    breaks = Breaks(1, 1, KeyboardInterrupt)
    loom.train(mlp(units=4), blobs(48), small(), callbacks=[breaks], run=run)
    with pytest.raises(loom.ConfigError, match=rf"was on cpu, and would be on {gpu} now"):
        go(run, device=gpu)


def test_a_run_on_a_gpu_goes_on_there(tmp_path: Path, gpu: str) -> None:
    whole, net = mlp(units=4), mlp(units=4).to(gpu)
    expected = loom.train(whole, blobs(48), small(device=gpu))
    run = loom.RunFolder(tmp_path, every_steps=1)
    breaks = Breaks(1, 2, KeyboardInterrupt)
    loom.train(mlp(units=4), blobs(48), small(device=gpu), callbacks=[breaks], run=run)
    assert go(run, net, device=gpu).loss_history == expected.loss_history
    assert (weights(net), net.device) == (weights(whole), gpu)


# Damaged


@pytest.mark.parametrize("finished", [False, True])
def test_a_damaged_state_is_set_aside(tmp_path: Path, finished: bool) -> None:
    whole, net = mlp(units=4), mlp(units=4)
    loom.train(whole, blobs(48), small())
    run = loom.RunFolder(tmp_path, every_steps=1, keep=3)
    callbacks = [] if finished else [Breaks(2, 1, KeyboardInterrupt)]
    loom.train(mlp(units=4), blobs(48), small(), callbacks=callbacks, run=run)
    states = sorted((tmp_path / "states").iterdir())
    states[-1].write_bytes(states[-1].read_bytes()[:-100])
    if finished:
        (tmp_path / "final.loom").write_bytes(b"")
    with pytest.warns(UserWarning, match="cannot be read") as told:
        result = go(run, net)
    assert ["set aside" in str(each.message) for each in told] == ([False, True] if finished else [True])
    assert weights(net) == weights(whole)
    assert len(result.loss_history) == 3
    assert go(run) == result


def test_a_foreign_file_among_states_is_set_aside(tmp_path: Path) -> None:
    run = loom.RunFolder(tmp_path, every_steps=1)
    breaks = Breaks(2, 1, KeyboardInterrupt)
    loom.train(mlp(units=4), blobs(48), small(), callbacks=[breaks], run=run)
    mlp(units=4).save(tmp_path / "states" / "epoch-0000009-batch-000000000.loom")
    with pytest.warns(UserWarning, match="holds no state of a run; it is set aside"):
        assert len(go(run).loss_history) == 3


def test_a_run_that_begins_from_another_one_s_checkpoint_has_its_own_best(tmp_path: Path) -> None:
    checkpoint = loom.ModelCheckpoint(tmp_path / "last.loom")
    loom.train(mlp(units=4), blobs(48), small(), callbacks=[checkpoint], run=tmp_path / "a")
    net = loom.load(tmp_path / "last.loom")
    rising = small(epochs=5, learning_rate=2.0)
    result = loom.train(net, blobs(48), rising, resume=True, run=tmp_path / "b")
    assert len(result.loss_history) == 2
    assert (tmp_path / "b" / "best.loom").exists()
    # The line once more gives that, whatever the network has learned meanwhile.
    again = loom.load(tmp_path / "last.loom")
    assert loom.train(again, blobs(48), rising, resume=True, run=tmp_path / "b") == result
    assert weights(again) == weights(net)


def test_a_folder_that_is_damaged_says_so(tmp_path: Path) -> None:
    run = loom.RunFolder(tmp_path, every_steps=1)
    result = go(run)
    (tmp_path / "result.json").write_text('{"loss_history": [1')
    with pytest.warns(UserWarning, match=r"result\.json cannot be read, and is made again"):
        assert go(run).loss_history == result.loss_history
    (tmp_path / "result.json").unlink()
    for path in (tmp_path / "states").iterdir():
        path.write_bytes(b"none")
    with (
        pytest.warns(UserWarning, match="set aside"),
        pytest.raises(loom.SerializationError, match="no state of the run in"),
    ):
        go(run)
    for text, message in (("{", "damaged"), ('{"format": 2, "identity": {"network": 1}}', "damaged")):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(loom.SerializationError, match=message):
            go(run)
    about = {"format": 2, "identity": {"network": {}}, "initial_weights": ""}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(loom.SerializationError, match="has format 2"):
        go(run)
    (tmp_path / "run.json").unlink()
    (tmp_path / "states" / "epoch-0000001-batch-000000000.loom").write_bytes(b"")
    with pytest.raises(loom.SerializationError, match=r"run\.json is not there"):
        go(run)
