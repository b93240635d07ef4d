"""Programs that tests run in a process of their own: under other settings, or to be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from typing import Any

import pytest


def run(program: str, *arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; the settings are variables of its environment."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        check=False,
    )


def answer(program: str, *arguments: object, **settings: str) -> Any:
    """Runs a program that must succeed; returns what it prints as JSON."""
    finished = run(program, *arguments, **settings)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def require_kernels(isa: str) -> None:
    """Skips a test where the engine has no kernels for an instruction set, as LOOM_KERNELS=host builds it.

    What CI builds has them all, and fails here.
    """
    if not _lacks_kernels(isa):
        return
    reason = f"the engine was built with LOOM_KERNELS=host, without kernels for {isa}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _lacks_kernels(isa: str) -> bool:
    finished = run("import loom; loom.Sequential([loom.nn.Dense(1)], 1).predict([[1.0]])", LOOM_ISA=isa)
    return finished.returncode != 0 and "LOOM_KERNELS=host" in finished.stderr


def answer_when_interrupted(program: str, seconds: float) -> Any:
    """Sends Ctrl-C to a program some time after it has printed "go"; returns what it then prints as JSON."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(output)
