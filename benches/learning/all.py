"""Runs every learning benchmark, as many at once as there are cores, and draws the plots.

    python benches/learning/all.py MNIST [--device DEVICE] [--jobs N]

A row of one table alone: the benchmark's own script with `--only ROW`. Chase, streams, depth and shallow
run on the CPU, where single samples and small batches are fastest. Each script has one thread, so that none
waits for another; but for the rows at equal time, results do not depend on that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# The longest first: what is left for the end is short.
SCRIPTS = (
    "streams",
    "difference",
    "convolution",
    "local_steps",
    "chase",
    "shallow",
    "depth",
    "directions",
)
ON_DEVICE = ("difference", "convolution", "local_steps")


def run(name: str, folder: str, device: str) -> None:
    """Runs one script to its end.

    Raises:
        CalledProcessError: It has failed.
    """
    command = [sys.executable, "-W", "ignore", str(HERE / f"{name}.py")]
    command += [folder] if name != "chase" else []
    command += ["--device", device] if name in ON_DEVICE else []
    started = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "LOOM_NUM_THREADS": "1"}, stdout=subprocess.PIPE)
    print(f"{name}: {(time.perf_counter() - started) / 60:.1f} minutes", flush=True)


def main() -> None:
    """Runs the scripts; fails where one of them has failed."""
    parser = argparse.ArgumentParser(description="Every learning benchmark.")
    parser.add_argument("folder", help="where MNIST's IDX files are")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, name, options.folder, options.device) for name in SCRIPTS]
        for future in running:
            future.result()
    subprocess.run([sys.executable, "-W", "ignore", str(HERE / "plots.py")], check=True)


if __name__ == "__main__":
    main()
