"""Runs in folders that can be killed at any moment, and what is compared of them at their ends."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn
from networks import blobs, mlp, quiet

Outcome = dict[str, Any]


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outcome(
    net: loom.Network, result: loom.TrainingResult, folder: Path, *files: Path, **more: Any
) -> Outcome:
    """Returns all of a run but its times."""
    if result.interrupted:
        raise KeyboardInterrupt
    recorded = loom.read_run(folder)
    names = ["loss", *result.metrics]
    return {
        "weights": net.fingerprint(),
        "losses": result.loss_history,
        "metrics": result.metrics,
        "counts": [result.skipped_steps, result.explosions, len(result.epoch_times)],
        "end": [result.stop_reason, result.message],
        "recorded": [[row[name] for name in names] for row in recorded.epochs],
        "finished": recorded.finished,
        "files": [sha(path) for path in (folder / "best.loom", folder / "final.loom", *files)],
        **more,
    }


def callbacks(folder: Path) -> Outcome:
    """Dropout, shuffling, a schedule, and all callbacks that remember something."""
    net, history = mlp(units=12), loom.History()
    checkpoint = loom.ModelCheckpoint(folder / "checkpoint.loom", save_best_only=True)
    early = loom.EarlyStopping(patience=4, restore_best_weights=True)
    plateau = loom.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=0.01)
    config = quiet(epochs=14, batch_size=8, schedule="cosine", learning_rate=0.01, early_stopping=early)
    x, y = blobs(96)
    result = loom.train(
        net,
        (x, y),
        config,
        blobs(24, 1),
        callbacks=[plateau, history, checkpoint, loom.CSVLogger(folder / "log.csv")],
        run=loom.RunFolder(folder, every_seconds=0),
    )
    return outcome(
        net,
        result,
        folder,
        folder / "checkpoint.loom",
        folder / "log.csv",
        history=history.history,
        early=[early.best, early.best_epoch],
        plateau=[plateau.best, plateau.scale],
        best=checkpoint.best,
    )


def spread(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    return float(np.ptp(outputs) + targets.mean())


def metrics(folder: Path) -> Outcome:
    """Metrics of what is learned from, loom's and a function."""
    net = mlp(units=8)
    config = quiet(epochs=6, batch_size=16, metrics=["accuracy", spread], validation_split=0.2, accumulate=2)
    run = loom.RunFolder(folder, every_steps=1, monitor="val_accuracy", keep=1)
    return outcome(net, loom.train(net, blobs(64), config, run=run), folder)


class Augmented:
    """Batches in another order and with other noise in every epoch, from generators that all share."""

    def __iter__(self) -> Iterator[Any]:
        x, y = blobs(48)
        order = np.random.permutation(48)  # noqa: NPY002 - what users do
        for start in range(0, 48, 8):
            rows = order[start : start + 8]
            noise = np.random.normal(size=(8, 6))  # noqa: NPY002
            yield x[rows] + noise, np.roll(y[rows], random.randrange(3))


def augmented(folder: Path) -> Outcome:
    """Data that is made while it is iterated."""
    np.random.seed(7)  # noqa: NPY002
    random.seed(7)
    net = mlp(units=8)
    config = quiet(epochs=6, accumulate=2)
    result = loom.train(net, Augmented(), config, run=loom.RunFolder(folder, every_seconds=0))
    return outcome(net, result, folder)


class Positioned:
    """Data with a generator of its own, that says where it is."""

    def __init__(self) -> None:
        self.random, self.next = np.random.default_rng(3), 0

    def __iter__(self) -> Iterator[Any]:
        x, y = blobs(40)
        while self.next < 40:
            start, self.next = self.next, self.next + 8
            yield x[start : start + 8] + self.random.normal(size=(8, 6)), y[start : start + 8]
        self.next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next, "random": json.dumps(self.random.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["next"]
        self.random.bit_generator.state = json.loads(state["random"])


class Stops(loom.Callback):
    """Counts batches of all epochs, and stops in the middle of one."""

    seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.seen = state["seen"]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        if self.seen == 33:
            raise loom.StopTraining("that is enough")


def positioned(folder: Path) -> Outcome:
    """Data with a state, a callback that stops within an epoch, a stateful layer; no thread that writes."""
    net = loom.Sequential(
        [nn.Reshape((3, 2)), nn.LSTM(5, stateful=True), nn.BatchNorm(), nn.Dense(3)], input_shape=6
    )
    run = loom.RunFolder(folder, every_steps=2, background=False, keep=3)
    stops = Stops()
    result = loom.train(net, Positioned(), quiet(epochs=9), callbacks=[stops], run=run)
    return outcome(net, result, folder, seen=stops.seen)


def tweening(folder: Path) -> Outcome:
    """Learning by targets, with feedback maps."""
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6)
    config = loom.TweenConfig.target_prop(history=1)
    run = loom.RunFolder(folder, every_seconds=0)
    result = loom.TweenTrainer(net, config).fit(blobs(48), quiet(epochs=6, batch_size=8), run=run)
    return outcome(net, result, folder, gaps=net.measures.history.gaps.tolist())


def stepping(folder: Path, tween: loom.TweenConfig | None = None) -> Outcome:
    """A clocked mesh that remembers, on a stream."""
    net = loom.Network(input_shape=1, grid=(1, 2))
    net[0, 0].add(nn.Dense(6, activation="tanh"), nn.Dropout(0.1))
    net[0, 1].add(nn.Dense(1))
    net.link((0, 0), (0, 0), combine="concat")
    bits = np.random.default_rng(0).choice([-1.0, 1.0], (150, 1, 1))
    run = loom.RunFolder(folder, every_steps=3)
    config = loom.TrainingConfig(learning_rate=0.02)
    mesh = loom.Mesh(net, window=6)
    stream = zip(bits, [None, None, *bits[:-2]], strict=True)
    result = loom.train_stepping(mesh, stream, config, update_every=2, tween=tween, run=run)
    if result.interrupted:
        raise KeyboardInterrupt
    counts = [result.samples, result.ticks, result.updates, result.explosions, mesh.ticks]
    return {"weights": net.fingerprint(), "losses": result.losses, "counts": counts}


def stepping_by_targets(folder: Path) -> Outcome:
    """The same mesh, learning by targets."""
    return stepping(folder, loom.TweenConfig.tween(base_rate=0.05))


SCENARIOS: dict[str, Callable[[Path], Outcome]] = {
    scenario.__name__: scenario
    for scenario in (
        callbacks,
        metrics,
        augmented,
        positioned,
        tweening,
        stepping,
        stepping_by_targets,
    )
}


def run_in_child(scenario: Callable[[Path], Outcome], folder: Path, answer: Path) -> int:
    """Forks a process that runs a scenario in a folder, and returns its number."""
    signals = {signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return child
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Checkpoints remember where they were written, and paths are to be the same.
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        found = scenario(Path("run"))
        answer.write_text(json.dumps(found))
        code = 0
    except KeyboardInterrupt:
        code = 3
    except loom.FileError:
        code = 4
    except OSError:
        code = 5
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def killed_until_done(
    scenario: Callable[[Path], Outcome],
    folder: Path,
    chance: random.Random,
    seconds: float,
    signals: tuple[signal.Signals, ...] = (signal.SIGKILL,),
) -> tuple[Outcome, int]:
    """Runs a scenario in processes that are killed at random moments, until one comes to its end.

    Returns:
        What it came to, and how many were killed.
    """
    answer = folder.with_suffix(".json")
    kills = 0
    while True:
        child = run_in_child(scenario, folder, answer)
        end = time.perf_counter() + chance.uniform(0, seconds)
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.perf_counter() >= end:
                os.kill(child, chance.choice(signals))
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.0002)
        code = os.waitstatus_to_exitcode(ended[1])
        if code == 0:
            found = json.loads(answer.read_text())
            answer.unlink()
            return found, kills
        assert code in (3, -signal.SIGKILL, -signal.SIGINT), f"{scenario.__name__} ended with {code}"
        kills += 1
        # On a machine that is busy with other things it takes longer.
        seconds *= 1.02
