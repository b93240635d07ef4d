"""The sum of cargo's and pytest's totals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import totals

CARGO = """
test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
PYTEST = '<testsuites><testsuite tests="10" failures="1" errors="1" skipped="2"/></testsuites>'


def test_totals_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, report, output = (tmp_path / name for name in ("cargo", "pytest", "totals"))
    log.write_text(CARGO)
    report.write_text(PYTEST)
    assert totals.of_cargo(log) == (15, 2, 1)
    assert totals.of_pytest(report) == (6, 2, 2)
    assert totals.main([str(log), str(report), str(output)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == output.read_text().strip() == "21 passed, 4 failed"


def test_a_run_that_did_not_finish_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("error: could not compile")
    assert totals.of_cargo(tmp_path / "empty").failed == 1
    assert totals.of_cargo(tmp_path / "missing").failed == 1
    assert totals.of_pytest(tmp_path / "missing").failed == 1
