"""The transfer learning example: what was learned before helps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "transfer_learning.py"


def test_what_was_learned_of_names_helps_with_odd_and_even() -> None:
    finished = subprocess.run(
        [sys.executable, str(EXAMPLE), "--device", "cpu", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    named, nothing, learned = (float(share) for share in re.findall(r"([\d.]+) %", finished.stdout))
    assert named > 93
    assert learned > 80
    assert learned > nothing + 5
