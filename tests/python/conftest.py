"""What tests share."""

from __future__ import annotations

import gc
import os
import signal

import pytest

import loom

# What collecting makes stays: looking through it for garbage again and again takes a third of the time.
gc.disable()

# Many tests compare bits with those of the CPU; those about GPUs say so.
os.environ["LOOM_DEVICE"] = "cpu"

# Shells start what runs in the background with Ctrl-C ignored, and children inherit that; the tests
# of interrupts need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Looks for garbage among what tests make, and no more among what was there before."""
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names cases by their bytes' place, not by the bytes: compressed ones say when they were made."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def gpu() -> str:
    """The first GPU, be it software; without one the test is skipped, or fails where there has to be one."""
    reason = loom.devices().reason
    if reason is None:
        return "gpu:0"
    if os.environ.get("LOOM_REQUIRE_GPU") == "1":
        pytest.fail(f"LOOM_REQUIRE_GPU is 1, but there is no GPU: {reason}")
    pytest.skip(f"no GPU: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says once why the tests on a GPU were skipped."""
    skipped = [
        report for report in terminalreporter.getreports("skipped") if "no GPU" in str(report.longrepr)
    ]
    if skipped:
        reason = loom.devices().reason
        terminalreporter.write_line(f"{len(skipped)} tests skipped, because there is no GPU: {reason}")
