"""Random networks in loom and in PyTorch, compared in everything that either says of them.

    PYTHONPATH=python PYTHON_WITH_TORCH benches/peers/random_networks.py [--count 10000] [--seed 0]

Each network follows from the seed and its number alone. Compared are inference (and that rows
split otherwise give the same bits), the training pass, every loss with its options, the gradients
of the input and of every parameter, running statistics, steps of the manual loop and of
`loom.train` with every optimizer and setting, float32 against float64, and files. PyTorch's side is
written from the documentation. A run stops at the first difference and says how to repeat it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from trials.findings import Findings

Chunk = tuple[int, int, int, bool]


def run(chunk: Chunk) -> Findings:
    """Compares the networks of a stretch of numbers."""
    from trials.comparing import compare

    seed, first, last, on = chunk
    findings = Findings()
    for number in range(first, last):
        said = compare(seed, number, findings)
        if said:
            findings.failures[number] = said
            if not on:
                break
    return findings


def stretches(options: argparse.Namespace) -> Iterator[Chunk]:
    """Cuts the run into stretches of fifty networks."""
    for first in range(options.first, options.count, 50):
        yield options.seed, first, min(first + 50, options.count), options.keep_going


def kinds() -> list[str]:
    """Returns the kinds of all layers."""
    import loom

    return [entry.kind for entry in loom.layers()]


def uncovered() -> list[str]:
    """Returns the layers that nothing here computes a second time, but what users write in Python."""
    import loom
    import trials.reference as reference

    reference.enter_all()
    kinds = {entry.kind for entry in loom.layers() if entry.layer not in reference.LAYERS}
    return sorted(kinds - {"function"})


def main() -> int:
    """Compares, and prints the worst of what was found; fails where something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="how many networks; 10,000")
    parser.add_argument("--first", type=int, default=0, help="the number of the first; 0")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from; 0")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these networks alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side; 1")
    parser.add_argument("--keep-going", action="store_true", help="go on after a difference")
    options = parser.parse_args()
    if missing := uncovered():
        print(f"no reference for {', '.join(missing)}: add one to benches/peers/trials", file=sys.stderr)
        return 1
    total = Findings()
    if options.only is not None:
        from trials.comparing import describe

        for number in options.only:
            print(f"network {number}\n{describe(options.seed, number, None)}")
            total.merge(run((options.seed, number, number + 1, False)))
    started = time.perf_counter()
    if options.only is None:
        context = multiprocessing.get_context("spawn")
        with context.Pool(options.jobs) as pool:
            for done, found in enumerate(pool.imap(run, stretches(options)), start=1):
                total.merge(found)
                for said in found.failures.values():
                    print(said, flush=True)
                if total.failures and not options.keep_going:
                    break
                if done % 10 == 0:
                    print(f"{done * 50} networks, {time.perf_counter() - started:.0f} s", flush=True)
    print(total.table())
    if never := [kind for kind in kinds() if kind not in total.seen and options.only is None]:
        print(f"never drawn: {', '.join(never)}")
    if total.failures:
        numbers = sorted(total.failures)
        for number in numbers if options.only is not None else ():
            print(total.failures[number])
        print(f"{len(numbers)} networks differ: {', '.join(map(str, numbers))}")
        print(f"one again: {sys.argv[0]} --seed {options.seed} --only {numbers[0]}")
        return 1
    print("no network differs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
