"""Times one framework's workloads in a process of its own, and prints them as JSON.

Usage: timing.py FRAMEWORK[:VARIANT] SECONDS WORKLOAD...

A framework is a module in_FRAMEWORK.py here: it gives a step to be timed, or, where
steps are not to be waited for one by one, measures many of them itself.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable

from workloads import GPU_WORKLOADS, WORKLOADS

_WARM_UP_SHARE = 0.2
_MOST_STEPS = 5000


def median_step(step: Callable[[], object], seconds: float) -> float:
    """Measures the median seconds of a step, after warming up."""
    started = time.perf_counter()
    for _ in range(3):
        step()
    while time.perf_counter() - started < _WARM_UP_SHARE * seconds:
        step()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - started < seconds and len(times) < _MOST_STEPS):
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def main(arguments: list[str]) -> None:
    """Prints one JSON object: what was measured, and the median seconds of each workload."""
    framework, seconds, *names = arguments
    name_of_module, _, variant = framework.partition(":")
    module = importlib.import_module(f"in_{name_of_module}")
    medians: dict[str, float] = {}
    for name in names:
        work = {**WORKLOADS, **GPU_WORKLOADS}[name]
        if hasattr(module, "measure"):
            medians[name] = module.measure(work, variant, float(seconds))
            continue
        step = module.step(work)
        if step is not None:
            medians[name] = median_step(step, float(seconds))
    print(json.dumps({"description": module.describe(), "medians": medians}))


if __name__ == "__main__":
    main(sys.argv[1:])
