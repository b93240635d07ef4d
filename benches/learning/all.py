"""Runs every learning benchmark, one after another, and draws the plots.

    python benches/learning/all.py MNIST [--device DEVICE]

A row of one table alone: the benchmark's own script with `--only ROW`. Chase, streams, depth and shallow run
on the CPU, where single samples and small batches are fastest; on two cores they take most of the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ON_DEVICE = ("difference", "convolution", "local_steps")
ON_CPU = ("directions", "streams", "depth", "shallow")


def main() -> None:
    """Runs the scripts; stops at the first that fails."""
    parser = argparse.ArgumentParser(description="Every learning benchmark.")
    parser.add_argument("folder", help="where MNIST's IDX files are")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    commands = [[f"{name}.py", options.folder, "--device", options.device] for name in ON_DEVICE]
    commands += [[f"{name}.py", options.folder] for name in ON_CPU]
    for script, *arguments in [*commands, ["chase.py"], ["plots.py"]]:
        print(script, flush=True)
        subprocess.run([sys.executable, "-W", "ignore", str(HERE / script), *arguments], check=True)


if __name__ == "__main__":
    main()
