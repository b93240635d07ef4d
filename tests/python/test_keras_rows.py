"""What Keras users write with more than a stack of layers is a short program each."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "from" / "keras_models.md").read_text()
ROWS = [
    "Several inputs",
    "Several outputs",
    "A loss of one's own",
    "A layer of one's own",
    "A metric of one's own",
    "Sequences of any length",
    "A folder of images",
    "A data frame",
]


def test_every_row_is_a_program_of_under_30_lines() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    for row in ROWS:
        programs = re.findall(r"^```python\n(.*?)^```", sections[row], re.MULTILINE | re.DOTALL)
        lines = "".join(programs).strip().splitlines()
        assert 4 < len(lines) < 30, f"{row}: {len(lines)} lines"
