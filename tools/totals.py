"""Adds up what cargo test and pytest reported: "N passed, N failed" on the last line.

Usage: totals.py CARGO_LOG PYTEST_REPORT [OUTPUT]. The first is cargo test's
output, the second pytest's JUnit XML; a file that is missing counts as one
failure, since its run did not finish. Exits with 1 if anything failed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

_CARGO_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


class Totals(NamedTuple):
    """How many tests passed, failed and were skipped."""

    passed: int
    failed: int
    skipped: int


def of_cargo(log: Path) -> Totals:
    """Adds up the "test result:" lines of a cargo test log."""
    if not log.is_file():
        return Totals(0, 1, 0)
    text = log.read_text(encoding="utf-8", errors="replace")
    results = [tuple(map(int, found)) for found in _CARGO_RESULT.findall(text)]
    broken = int(not results)
    return Totals(
        sum(passed for passed, _, _ in results),
        sum(failed for _, failed, _ in results) + broken,
        sum(ignored for _, _, ignored in results),
    )


def of_pytest(report: Path) -> Totals:
    """Reads the totals of pytest's JUnit XML; an error counts as a failure."""
    if not report.is_file():
        return Totals(0, 1, 0)
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    passed = failed = skipped = 0
    for suite in suites:
        wrong = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left_out = int(suite.get("skipped", 0))
        passed += int(suite.get("tests", 0)) - wrong - left_out
        failed += wrong
        skipped += left_out
    return Totals(passed, failed, skipped)


def main(arguments: list[str]) -> int:
    """Prints the totals, and writes them to a file if one is named."""
    cargo, python = of_cargo(Path(arguments[0])), of_pytest(Path(arguments[1]))
    for name, part in (("cargo", cargo), ("pytest", python)):
        print(f"{name}: {part.passed} passed, {part.failed} failed, {part.skipped} skipped")
    failed = cargo.failed + python.failed
    line = f"{cargo.passed + python.passed} passed, {failed} failed"
    if len(arguments) > 2:
        Path(arguments[2]).write_text(line + "\n", encoding="utf-8")
    print(line)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
