"""What the learning benchmarks share: the data, tables of results, means with intervals."""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import loom

Parts: TypeAlias = tuple[loom.datasets.Part, loom.datasets.Part, loom.datasets.Part]
"""What is learned from, what settings are chosen by, and what is tested on."""

RESULTS = Path(os.environ.get("LOOM_RESULTS", Path(__file__).parent / "results"))
"""Where tables are kept; the variable lets several rows of one table be made at once."""

# Student's t for 95 %, by degrees of freedom.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 14: 2.14, 19: 2.09}


def options(description: str, seeds: int) -> argparse.ArgumentParser:
    """Returns the options that all of them take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="where MNIST's IDX files are")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds, counted from 0")
    parser.add_argument("--seed", type=int, default=None, help="this seed alone")
    parser.add_argument("--only", default=None, help="one row of the table alone")
    return parser


def seeds(options: argparse.Namespace) -> Sequence[int]:
    """Returns the seeds that are asked for."""
    return range(options.seeds) if options.seed is None else [options.seed]


def digits(folder: Path, flat: bool) -> Parts:
    """Returns 50,000 images to learn from, 10,000 to choose settings by, and 10,000 to test on."""
    train, test = loom.datasets.mnist(folder)
    parts = [
        loom.datasets.Part(train.x[:50_000], train.y[:50_000]),
        loom.datasets.Part(train.x[50_000:], train.y[50_000:]),
        test,
    ]
    if flat:
        parts = [loom.datasets.Part(part.x.reshape(len(part.x), -1), part.y) for part in parts]
    return parts[0], parts[1], parts[2]


def error(net: loom.Network, part: loom.datasets.Part) -> float:
    """Returns the share of wrong classes, in percent."""
    measured = net.evaluate(part, loss="cross_entropy", metrics=["accuracy"], batch_size=1000)
    return 100.0 * (1.0 - measured["accuracy"])


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean, and how far its 95 % interval reaches to either side (NaN for one value)."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, _T.get(len(values) - 1, 1.96) * math.sqrt(variance / len(values))


class Table:
    """Rows of a benchmark, kept in a CSV file from run to run: a later run replaces its own rows."""

    def __init__(self, name: str, keys: Sequence[str], values: Sequence[str]) -> None:
        self.path = RESULTS / f"{name}.csv"
        self.keys, self.values = list(keys), list(values)
        self.rows: dict[tuple[str, ...], dict[str, str]] = {}
        if self.path.exists():
            with self.path.open(newline="") as file:
                for row in csv.DictReader(file):
                    self.rows[tuple(row[key] for key in self.keys)] = row

    def add(self, keys: Sequence[object], values: Mapping[str, float]) -> None:
        """Replaces one row, and writes the file."""
        named = tuple(str(key) for key in keys)
        shown = {name: f"{values[name]:.4f}" for name in self.values}
        self.rows[named] = {**dict(zip(self.keys, named, strict=True)), **shown}
        self.write()

    def write(self) -> None:
        """Writes the file, rows in order."""
        RESULTS.mkdir(exist_ok=True, parents=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*self.keys, *self.values], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows[key] for key in sorted(self.rows))

    def show(self) -> None:
        """Prints mean and interval of every value, over the seeds of each row."""
        groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for key, row in self.rows.items():
            groups.setdefault(key[:-1], []).append(row)
        for key, rows in groups.items():
            cells = []
            for name in self.values:
                mean, half = interval([float(row[name]) for row in rows])
                cells.append(f"{name} {mean:.3f}" + ("" if math.isnan(half) else f" ± {half:.3f}"))
            print(f"{' '.join(key):<40} {len(rows)} seeds  " + "  ".join(cells))


def merge(name: str, folder: Path) -> tuple[int, int]:
    """Takes rows of a table over from another folder; returns how many, and how many of them were so before.

    Seconds do not count.
    """
    with (folder / f"{name}.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    columns = list(found[0])
    keys = columns.index("seed") + 1
    table = Table(name, columns[:keys], columns[keys:])
    same = 0
    for row in found:
        key = tuple(row[column] for column in columns[:keys])
        before = table.rows.get(key, {})
        same += all(before.get(column) == row[column] for column in columns if column != "seconds")
        table.rows[key] = row
    table.write()
    return len(found), same


def timed(run: Callable[[], object]) -> float:
    """Returns the seconds that a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
