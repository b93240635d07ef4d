"""Sub-interpreters of Python are refused, and the main one goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def tried():
    inside = interpreters.create()
    told = "try:\\n import loom\\nexcept ImportError as error:\\n print(error, flush=True)"
    interpreters.run_string(inside, f"import sys; sys.path[:] = {sys.path!r}\\n{told}")

tried()
import numpy as np
import loom
from loom import nn
tried()
print(loom.Sequential([nn.Dense(2)], 3).predict(np.ones((1, 3))).shape)
"""


def test_sub_interpreters_are_refused() -> None:
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": path},
    )
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no sub-interpreters")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:51] for line in lines[:2]] == ["loom cannot be used in a sub-interpreter of Python,"] * 2
    assert lines[2:] == ["(1, 2)"]
