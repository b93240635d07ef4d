"""What every numeric type costs and saves: accuracy, bytes, and time, for four trained networks.

    python benches/peers/numeric_types.py MNIST TEXT [--device DEVICE] [--network NAME] [--type NAME]
    python benches/peers/numeric_types.py --table

MNIST is the folder of its IDX files, TEXT a text file. Each network is trained in float32 once; then, for
every type, a copy is morphed and scored, trained on in that type and scored again, and timed on one row and
on 256. The rows go into results/types_DEVICE.csv beside this script, one network or type alone replacing its
own; `--table` prints them as the tables of docs/numerics.md. Times want a quiet machine: `--timed` measures
them alone.
"""

from __future__ import annotations

import argparse
import copy
import csv
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("network", "type", "bytes", "morphed", "trained", "batch_1_us", "batch_256_us")
CONTEXT = 64
WIDE_TYPES = ("float32", "int8", "int4", "ternary", "binary")

Data: TypeAlias = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Study:
    """A network, what it learns from, and how it is scored.

    Args:
        name: What it is called.
        make: Builds the network.
        learned: What it is trained on.
        held_out: What it is scored on.
        epochs: Of training in float32.
        more: Epochs of training in the type.
        rate: The learning rate at first; half of it later.
        score: "accuracy" (percent) or "loss" (nats).
        device: Where it is trained and scored.
        types: The types that it is morphed to; all where there are none.
    """

    name: str
    make: Callable[[], loom.Network]
    learned: Data
    held_out: Data
    epochs: int
    more: int
    rate: float
    device: str
    score: str = "accuracy"
    types: tuple[str, ...] = ()

    def measured(self, net: loom.Network) -> float:
        """Returns the score on what was held out."""
        found = net.evaluate(self.held_out, loss="cross_entropy", metrics=["accuracy"], batch_size=256)
        return 100.0 * found["accuracy"] if self.score == "accuracy" else found["loss"]

    def train(self, net: loom.Network, epochs: int, rate: float) -> None:
        """Trains on what there is to learn from."""
        config = loom.TrainingConfig(
            epochs=epochs,
            batch_size=64 if self.score == "accuracy" else 16,
            learning_rate=rate,
            schedule=loom.schedules.OneCycle(),
            loss="cross_entropy",
            optimizer=loom.AdamW(),
            gradient_clip=1.0,
            device=self.device,
            verbose=False,
        )
        loom.train(net, self.learned, config)


def digits() -> loom.Network:
    """A perceptron."""
    hidden = [nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu")]
    return loom.Sequential([*hidden, nn.Dense(10)], input_shape=784)


def convolution() -> loom.Network:
    """Two convolutions and two dense layers."""
    return loom.Sequential(
        [
            nn.Conv2D(16, kernel_size=5, activation="relu"),
            nn.MaxPool2D(2),
            nn.Conv2D(32, kernel_size=3, activation="relu"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(128, activation="relu"),
            nn.Dense(10),
        ],
        input_shape=(1, 28, 28),
    )


def wide() -> loom.Network:
    """Three hidden layers of 1,024, as the network LFC of FINN (Umuroglu et al. 2017) has."""
    block = [nn.Dense(1024, bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.2)]
    return loom.Sequential([nn.Dropout(0.1), *3 * block, nn.Dense(10)], input_shape=784)


def characters(vocabulary: int) -> loom.Network:
    """Two blocks of attention and a gated layer."""
    attention = nn.MultiHeadAttention(4, causal=True, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(341)])]
    layers = [nn.Embedding(vocabulary, 128), *2 * block, nn.RMSNorm(), nn.Dense(vocabulary, bias=False)]
    return loom.Sequential(layers, input_shape=CONTEXT)


def pieces(text: str) -> tuple[int, Data, Data]:
    """Cuts a text into windows of the context's length: how many characters there are, and two data sets."""
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    encoded = np.array([known[character] for character in text])
    starts = np.arange(0, len(encoded) - CONTEXT - 1, CONTEXT)
    windows = encoded[starts[:, None] + np.arange(CONTEXT + 1)]
    cut = len(windows) * 9 // 10
    parts = [(part[:, :-1], part[:, 1:]) for part in (windows[:cut], windows[cut:])]
    return len(known), parts[0], parts[1]


def studies(folder: Path, text: Path, device: str) -> list[Study]:
    """Returns all networks with their data."""
    train, test = loom.datasets.mnist(folder)
    flat = [(part.x.reshape(len(part.x), -1), part.y) for part in (train, test)]
    images = [(part.x, part.y) for part in (train, test)]
    vocabulary, learned, held_out = pieces(text.read_text())
    study = functools.partial(Study, device=device)
    return [
        study("digits", digits, flat[0], flat[1], epochs=4, more=2, rate=2e-3),
        study("convolution", convolution, images[0], images[1], epochs=3, more=2, rate=4e-3),
        study("wide", wide, flat[0], flat[1], epochs=3, more=15, rate=2e-3, types=WIDE_TYPES),
        study("characters", lambda: characters(vocabulary), learned, held_out, 4, 1, 3e-3, score="loss"),
    ]


def trained(study: Study, cache: Path) -> loom.Network:
    """Returns the network trained in float32, from the cache if it is there."""
    path = cache / f"{study.name}.loom"
    if path.exists():
        return loom.load(path)
    net = study.make()
    study.train(net, study.epochs, study.rate)
    cache.mkdir(parents=True, exist_ok=True)
    net.save(path)
    return net


def microseconds(net: loom.Network, x: NDArray[Any]) -> float:
    """Returns the median time of a prediction for these rows."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - started < 0.5:
        before = time.perf_counter()
        net.predict(x, batch_size=len(x))
        times.append(time.perf_counter() - before)
    return 1e6 * statistics.median(times[len(times) // 5 :])


class Rows:
    """The results of a device, kept in a CSV file from run to run."""

    def __init__(self, device: str) -> None:
        self._path = RESULTS / f"types_{device.partition(':')[0]}.csv"
        self.rows: dict[tuple[str, str], dict[str, str]] = {}
        if self._path.exists():
            with self._path.open(newline="") as file:
                self.rows = {(row["network"], row["type"]): row for row in csv.DictReader(file)}

    def add(self, network: str, dtype: str, **values: float) -> None:
        """Replaces figures of a row, and writes the file."""
        row = self.rows.setdefault((network, dtype), dict.fromkeys(COLUMNS, ""))
        row.update(network=network, type=dtype, **{name: f"{value:.10g}" for name, value in values.items()})
        RESULTS.mkdir(exist_ok=True)
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows.values())

    def show(self) -> None:
        """Prints scores, sizes and times of all types, in Markdown."""
        networks = list(dict.fromkeys(name for name, _ in self.rows))
        types = [
            entry.name for entry in loom.dtypes() if any((name, entry.name) in self.rows for name in networks)
        ]
        scores = [(name, column) for name in networks for column in ("morphed", "trained")]
        self._print(types, scores, lambda name, text: f"{float(text):.{3 if name == 'characters' else 2}f}")
        sizes = [(name, column) for name in networks for column in ("bytes", "batch_1_us", "batch_256_us")]
        self._print(types, sizes, lambda _, text: f"{round(float(text)):,}")

    def _print(
        self, types: list[str], columns: list[tuple[str, str]], write: Callable[[str, str], str]
    ) -> None:
        heads = [
            f"{network}, {column.replace('_us', ', us').replace('_', ' ')}" for network, column in columns
        ]
        print(f"\n| type | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
        for dtype in types:
            found = [
                (network, self.rows.get((network, dtype), {}).get(name, "")) for network, name in columns
            ]
            cells = [write(network, text) if text else "" for network, text in found]
            print(f"| `{dtype}` | {' | '.join(cells)} |")


def study_type(study: Study, base: loom.Network, dtype: str, rows: Rows, *, timed: bool) -> None:
    """Fills one row."""
    # A copy starts on the CPU, wherever the network is.
    net = copy.deepcopy(base).to(study.device)
    net.morph(cast("Any", dtype))
    size = sum(layer.weights.nbytes(dtype) for layer in net.layers if layer.parameters)
    x = study.held_out[0]
    if timed:
        rows.add(
            study.name,
            dtype,
            bytes=size,
            batch_1_us=microseconds(net, x[:1]),
            batch_256_us=microseconds(net, x[:256]),
        )
        return
    rows.add(study.name, dtype, bytes=size, morphed=study.measured(net))
    study.train(net, study.more, study.rate / 2)
    rows.add(study.name, dtype, trained=study.measured(net))


def main() -> None:
    """Trains, morphs, scores, times."""
    parser = argparse.ArgumentParser(description="Numeric types side by side.")
    parser.add_argument("folder", type=Path, nargs="?", help="where MNIST's IDX files are")
    parser.add_argument("text", type=Path, nargs="?", help="a text file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", default=None, help="one network alone")
    parser.add_argument("--type", default=None, help="one type alone")
    parser.add_argument(
        "--cache", type=Path, default=Path("target/numeric_types"), help="for float32 networks"
    )
    parser.add_argument("--timed", action="store_true", help="times alone, without training in the type")
    parser.add_argument("--table", action="store_true", help="prints the tables alone")
    options = parser.parse_args()
    rows = Rows(options.device)
    if not options.table:
        if options.folder is None or options.text is None:
            parser.error("MNIST and TEXT are needed to measure")
        for study in studies(options.folder, options.text, options.device):
            if options.network not in {None, study.name}:
                continue
            base = trained(study, options.cache)
            for entry in loom.dtypes():
                if options.type in {None, entry.name} and entry.name in (study.types or {entry.name}):
                    print(study.name, entry.name, flush=True)
                    study_type(study, base, entry.name, rows, timed=options.timed)
    rows.show()


if __name__ == "__main__":
    main()
