"""Programs that tests run in a process of their own: under other settings, or to be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any


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
