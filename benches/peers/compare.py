"""The same work in loom and in whichever of PyTorch and JAX are installed, side by side.

Every framework runs in a process of its own, in turn, several rounds over, so
that what else the machine does falls on all alike. The table gives the median
of the rounds' median steps, and how many times as long as loom's a step takes:
the median of the ratios within each round.

    python benches/peers/compare.py [--device cpu|gpu] [--python PEERS_PYTHON] [WORKLOAD ...]

PyTorch and JAX may be installed for another interpreter: name it with --python
or in the environment as LOOM_PEERS_PYTHON.

On a GPU, loom stands beside PyTorch as most would write it (eager), with the update
in one kernel (fused), and with the step as a CUDA graph; all data is on the device.
With --mnist FOLDER the seconds to train on MNIST, the device's start included, follow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workloads import GPU_WORKLOADS, WORKLOADS, Workload

_HERE = Path(__file__).parent
_NEEDS = {"loom": ("loom",), "torch": ("torch",), "jax": ("jax", "optax")}
_GPU_VARIANTS = ("eager", "fused", "graph")


@dataclass
class Measured:
    """What one framework took.

    Args:
        python: The interpreter that it is installed for.
        module: What runs it: a module in_MODULE.py here, with a variant after a colon.
        description: Its version and threads.
        rounds: For each workload, the median seconds of a step in each round.
    """

    python: str
    module: str
    description: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def step(self, workload: str) -> float | None:
        """Returns the median of the rounds, in seconds."""
        rounds = self.rounds.get(workload)
        return statistics.median(rounds) if rounds else None

    def ratio(self, workload: str, reference: Measured) -> float | None:
        """Returns the median, over the rounds, of the time over another's."""
        pairs = zip(self.rounds.get(workload, ()), reference.rounds.get(workload, ()), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs]
        return statistics.median(ratios) if ratios else None


def is_installed(python: str, modules: Sequence[str]) -> bool:
    """Whether an interpreter has every one of these modules."""
    program = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", program, *modules], check=False).returncode == 0
    except OSError:
        return False


def has_cuda(python: str) -> bool:
    """Whether an interpreter's PyTorch has a GPU."""
    program = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([python, "-c", program], check=False).returncode == 0


def on_cpu(peers: str) -> dict[str, Measured]:
    """Returns the frameworks that are installed."""
    interpreters = {"loom": sys.executable, "torch": peers, "jax": peers}
    found = {}
    for framework, python in interpreters.items():
        if is_installed(python, _NEEDS[framework]):
            found[framework] = Measured(python, framework)
        else:
            print(f"{framework} is not installed for {python}: left out")
    return found


def on_gpu(peers: str) -> dict[str, Measured]:
    """Returns loom, and PyTorch's variants where it is installed and has a GPU."""
    found = {"loom": Measured(sys.executable, "loom_gpu")}
    if is_installed(peers, _NEEDS["torch"]) and has_cuda(peers):
        for variant in _GPU_VARIANTS:
            found[f"torch {variant}"] = Measured(peers, f"torch_gpu:{variant}")
    else:
        print(f"torch is not installed for {peers}, or has no GPU: left out")
    return found


def train_mnist(folder: str, device: str) -> bool:
    """Runs the MNIST example, and says how long the whole process took; returns whether it went well."""
    example = _HERE.parents[1] / "examples" / "mnist.py"
    started = time.perf_counter()
    command = [sys.executable, str(example), folder, "--device", device]
    passed = subprocess.run(command, check=False).returncode == 0
    print(f"the whole process took {time.perf_counter() - started:.2f} s", flush=True)
    return passed


def run_round(framework: str, measured: Measured, workloads: Sequence[str], seconds: float) -> bool:
    """Runs one framework once, in a fresh process; returns whether it went well."""
    command = [measured.python, str(_HERE / "timing.py"), measured.module, str(seconds), *workloads]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        reason = finished.stderr.strip().splitlines()[-1:] or ["no message"]
        print(f"{framework} failed: {reason[0]}", file=sys.stderr)
        return False
    report = json.loads(finished.stdout.splitlines()[-1])
    measured.description = report["description"]
    for name, median in report["medians"].items():
        measured.rounds.setdefault(name, []).append(median)
    return True


def cell(work: Workload, seconds: float | None, ratio: float | None) -> str:
    """Lays out one figure, and its ratio to loom's."""
    if seconds is None:
        return "-"
    figure = f"{work.floats / seconds / 1e9:.0f} GFLOP/s" if work.is_product else f"{seconds * 1e6:,.0f} us"
    return figure if ratio is None else f"{figure}  {ratio:.2f}x"


def table(results: dict[str, Measured], workloads: Sequence[str]) -> str:
    """Lays out the figures: a row for each workload, a column for each framework."""
    lines = [f"{'':<10}" + "".join(f"{name:>24}" for name in results)]
    loom = results.get("loom")
    for name in workloads:
        entries = []
        work = {**WORKLOADS, **GPU_WORKLOADS}[name]
        for framework, measured in results.items():
            ratio = None if loom is None or framework == "loom" else measured.ratio(name, loom)
            entries.append(cell(work, measured.step(name), ratio))
        lines.append(f"{name:<10}" + "".join(f"{entry:>24}" for entry in entries))
    return "\n".join(lines)


def main() -> int:
    """Measures and prints the table; fails if a framework that is installed does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = f"of {', '.join(WORKLOADS)}; on a GPU of {', '.join(GPU_WORKLOADS)}; all"
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=known)
    parser.add_argument("--device", default="cpu", help='"cpu", or a GPU of loom\'s such as "gpu"; cpu')
    parser.add_argument("--mnist", metavar="FOLDER", help="where MNIST's IDX files are: train on them, too")
    parser.add_argument(
        "--python",
        default=os.environ.get("LOOM_PEERS_PYTHON", sys.executable),
        help="the interpreter that has PyTorch and JAX; LOOM_PEERS_PYTHON, or this one",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every framework in turn; 3")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each workload in each round; 2")
    options = parser.parse_args()
    gpu = options.device != "cpu"
    offered = GPU_WORKLOADS if gpu else WORKLOADS
    unknown = sorted(set(options.workloads) - set(offered))
    if unknown:
        parser.error(f"unknown workload {', '.join(unknown)}; known: {', '.join(offered)}")
    workloads = options.workloads or list(offered)

    os.environ["LOOM_BENCH_DEVICE"] = options.device
    results = on_gpu(options.python) if gpu else on_cpu(options.python)
    passed = True
    for number in range(options.rounds):
        for framework, measured in results.items():
            print(f"round {number + 1} of {options.rounds}: {framework}", flush=True)
            passed &= run_round(framework, measured, workloads, options.seconds)
    print()
    for framework, measured in results.items():
        print(f"{framework}: {measured.description}")
    print(table(results, workloads))
    print("(medians of the rounds; x: the time of a step over loom's, so above 1 loom is faster)")
    if options.mnist:
        passed &= train_mnist(options.mnist, options.device)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
