"""Calls of all kinds from eight threads at once: run as a program, it makes them for some time.

    python racing_calls.py SEED SECONDS [THREADS]

The threads share networks and change them under each other's hands. A call may be refused, by an error of
loom's that says so; anything else that is raised is printed, and so is a network that nobody changes and that
predicts other bits than alone, or one that is of no use afterwards. The exit status is then 1. Under the
free-threaded build of Python nothing keeps the threads apart but loom itself.
"""

from __future__ import annotations

import copy
import io
import pickle
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import loom
from random_calls import handle, healthy, labels, network, rows, targets

Call = Callable[[random.Random, Any], object]


def training(draw: random.Random) -> loom.TrainingConfig:
    optimizer = draw.choice(["sgd", "adam", "muon"])
    return loom.TrainingConfig(
        loss="cross_entropy", epochs=1, batch_size=2, optimizer=optimizer, device="cpu", verbose=False
    )


def save(draw: random.Random, net: Any) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.loom"
        net.save(path, optimizer=draw.random() < 0.5)
        return loom.load(path).predict(rows(net))


def by_hand(draw: random.Random, net: Any) -> None:
    net.forward(rows(net))
    net.backward(targets(net))
    net.clip_gradients(1.0)
    net.apply_gradients(0.01)


def set_weight(draw: random.Random, net: Any) -> None:
    name = draw.choice(list(handle(net).parameters))
    handle(net)[name] = np.asarray(handle(net)[name]) * 0.5


CALLS: dict[str, Call] = {
    "predict": lambda draw, net: net.predict(rows(net), batch_size=draw.randint(1, 4)),
    "forward": lambda draw, net: net.forward(rows(net), training=draw.random() < 0.5),
    "by hand": by_hand,
    "train": lambda draw, net: loom.train(net, (rows(net), labels(net)), training(draw)),
    "trainer": lambda draw, net: loom.Trainer(net, training(draw)).step(rows(net), labels(net)),
    "evaluate": lambda draw, net: net.evaluate((rows(net), labels(net)), loss="cross_entropy"),
    "activations": lambda draw, net: net.activations(rows(net)),
    "input gradients": lambda draw, net: net.input_gradients(rows(net), targets(net)),
    "session": lambda draw, net: net.session(4, rows=2),
    "mesh": lambda draw, net: loom.Mesh(net, rows=2, window=2).tick(2),
    "observe": lambda draw, net: net.unobserve(net.observe(lambda *_: None)),
    "optimizer": lambda draw, net: net.set_optimizer(draw.choice(["sgd", "adam"])),
    "trainable": lambda draw, net: setattr(handle(net), "trainable", draw.random() < 0.8),
    "weight": set_weight,
    "weights": lambda draw, net: net.state_dict(),
    "morph": lambda draw, net: net.morph(draw.choice(["int8", "float32", "bfloat16"])),
    "move": lambda draw, net: (net.to("cpu"), net.reset_states()),
    "summary": lambda draw, net: net.summary(file=io.StringIO()),
    "config": lambda draw, net: loom.Network.from_config(net.config.to_config()).predict(rows(net)),
    "pickle": lambda draw, net: pickle.loads(pickle.dumps(net)).predict(rows(net)),
    "copy": lambda draw, net: copy.deepcopy(net).predict(rows(net)),
    "save": save,
}


def bits(net: Any) -> list[bytes]:
    """What the network predicts, by output where it has several."""
    predicted = net.predict(rows(net))
    return [array.tobytes() for array in (predicted.values() if isinstance(predicted, dict) else [predicted])]


class Race:
    """Threads that share networks: three that all change, and one that all only look at."""

    def __init__(self, seed: int, threads: int) -> None:
        draw = random.Random(seed)
        self.seed, self.threads = seed, threads
        self.shared = [network(draw) for _ in range(3)]
        self.kept = network(draw)
        self.expected = bits(self.kept)
        self.counted: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._told = threading.Lock()

    def call(self, draw: random.Random) -> None:
        """Makes one call, and notes what came of it."""
        name, net = draw.choice(list(CALLS)), draw.choice(self.shared)
        outcome, problem = "done", None
        try:
            CALLS[name](draw, net)
        except loom.InternalError:
            problem = traceback.format_exc()
        except (loom.StateError, loom.NonFiniteError, loom.ShapeError) as error:
            outcome = type(error).__name__
        except Exception:  # noqa: BLE001 - what else there is, is what is looked for
            problem = traceback.format_exc()
        if draw.random() < 0.2 and bits(self.kept) != self.expected:
            problem = "a network that nobody changes predicts something else"
        with self._told:
            self.counted[outcome if problem is None else "wrong"] += 1
            if problem is not None:
                self.wrong.append(f"{name}: {problem}")

    def run(self, goes_on: Callable[[int], bool]) -> None:
        """Makes calls in all threads for as long as `goes_on` says, given how many a thread has made."""

        def work(number: int) -> None:
            draw, made = random.Random(f"{self.seed}/{number}"), 0
            while goes_on(made):
                self.call(draw)
                made += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for net in self.shared:
            self._check(net)

    def _check(self, net: loom.Network) -> None:
        try:
            # What they have learned together may be large.
            with suppress(loom.NonFiniteError):
                healthy(net)
        except Exception:  # noqa: BLE001 - as above
            self.wrong.append(f"afterwards: {traceback.format_exc()}")


def main() -> int:
    """Races for so many seconds, with new networks every few hundred calls."""
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    warnings.simplefilter("ignore")
    until, total, wrong, races = time.monotonic() + seconds, Counter[str](), 0, 0
    while time.monotonic() < until:
        race = Race(seed + races, threads)
        race.run(lambda made: made < 50 and time.monotonic() < until)
        total += race.counted
        wrong += len(race.wrong)
        races += 1
        for problem in race.wrong:
            print(f"{race.seed}: {problem}", flush=True)  # noqa: T201
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"{races} races, {dict(total)}, {wrong} wrong, GIL {'on' if gil else 'off'}")  # noqa: T201
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
