"""What commands write: tables, with rich where a person looks on, and plain for other programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["table", "write", "write_json"]


def write(text: str = "") -> None:
    """Writes a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Writes a value as JSON."""
    write(json.dumps(value, indent=2))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a table; columns after the first that hold numbers alone are set to the right."""
    right = [
        column > 0 and all(row[column][:1].isdigit() or row[column] == "-" for row in rows)
        for column in range(len(header))
    ]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=SIMPLE_HEAD)
        for name, aligned in zip(header, right, strict=True):
            drawn.add_column(name, justify="right" if aligned else "left")
        for row in rows:
            drawn.add_row(*map(Text, row))
        Console().print(drawn)
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if aligned else cell.ljust(width)
            for cell, width, aligned in zip(row, widths, right, strict=True)
        ]
        write("  ".join(cells).rstrip())
