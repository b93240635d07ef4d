"""Runs every learning benchmark, as many rows of its tables at once as there are cores, and draws the plots.

    python benches/learning/all.py MNIST [--device DEVICE] [--jobs N] [--only SCRIPT ...]

Two hours on two cores, where the convolutional network learns for 5 epochs instead of 15.
Tells how many rows came out as they stood in the tables, to the last digit, and what all of it took of the
processor. A row of one table alone: the benchmark's own script with `--only ROW`. Small networks and single
samples run on the CPU, where they are fastest, whatever DEVICE is. Every row has one thread, so that none
waits for another; but for what is timed, results do not depend on that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import chase
import common
import convolution
import depth
import difference
import directions
import shallow
import streams

try:
    import resource
except ImportError:  # Windows does not tell.
    resource = None  # type: ignore[assignment]

HERE = Path(__file__).parent
ON_DEVICE = ("difference", "convolution")


def tasks(device: str) -> list[tuple[str, ...]]:
    """Returns what is run, script and options; the longest first, so that the end is short."""
    epochs = ("--epochs", "5") if device == "cpu" else ()
    found: list[tuple[str, ...]] = [
        (*task, "--seed", str(seed), "--only", row)
        for task, rows in ((("difference",), difference.ROWS), (("convolution", *epochs), convolution.ROWS))
        for row in rows
        for seed in range(3)
    ]
    # Its rows are given the time of another.
    found += [("local_steps",)]
    found += [
        ("streams", "--only", row, "--protocol", protocol, "--batch", str(batch))
        for batch in streams.RATES
        for protocol, batches in streams.PROTOCOLS.items()
        if batch in batches
        for row in streams.rows(protocol, batch)
    ]
    rows = (*chase.TRAINERS, *chase.CLOCKED)
    found += [("chase", "--only", row, "--loss", loss) for row in rows for loss in chase.losses(row)]
    found += [("chase", "--only", row) for row in chase.CONTROLS]
    found += [("shallow", "--only", row) for row in shallow.ROWS]
    found += [("depth", "--only", row) for row in depth.ROWS]
    found += [("directions", "--only", row) for row in directions.ROWS]
    return found


def run(task: tuple[str, ...], folder: str, device: str, results: Path) -> float:
    """Runs one task, which keeps its rows in `results`; returns its seconds.

    Raises:
        CalledProcessError: It has failed.
    """
    name, *options = task
    command = [sys.executable, "-W", "ignore", str(HERE / f"{name}.py")]
    command += [folder] if name != "chase" else []
    command += ["--device", device] if name in ON_DEVICE else []
    environment = {**os.environ, "LOOM_NUM_THREADS": "1", "LOOM_RESULTS": str(results)}
    started = time.perf_counter()
    subprocess.run([*command, *options], check=True, env=environment, stdout=subprocess.PIPE)
    return time.perf_counter() - started


def main() -> None:
    """Runs the tasks; fails where one of them has failed."""
    parser = argparse.ArgumentParser(description="Every learning benchmark.")
    parser.add_argument("folder", help="where MNIST's IDX files are")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--only", nargs="+", default=None, help="these scripts alone")
    options = parser.parse_args()
    rows, same = Counter[str](), Counter[str]()
    seconds: defaultdict[str, float] = defaultdict(float)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        running = {}
        for number, task in enumerate(tasks(options.device)):
            if options.only is None or task[0] in options.only:
                part = Path(scratch) / str(number)
                running[pool.submit(run, task, options.folder, options.device, part)] = (task, part)
        for future in as_completed(running):
            task, part = running[future]
            took = future.result()
            made, as_before = common.merge(task[0], part)
            rows[task[0]] += made
            same[task[0]] += as_before
            seconds[task[0]] += took
            print(f"{' '.join(task)}: {took:.0f} s, {as_before} of {made} as before", flush=True)
    for name, count in rows.items():
        print(f"{name}: {same[name]} of {count} rows as before, {seconds[name] / 60:.1f} minutes of a thread")
    print(f"{(time.perf_counter() - started) / 60:.1f} minutes in all", end="")
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f", {(used.ru_utime + used.ru_stime) / 60:.1f} of a core", end="")
    print()
    subprocess.run([sys.executable, "-W", "ignore", str(HERE / "plots.py")], check=True)


if __name__ == "__main__":
    main()
