"""The command line as `python -m loom`; see `loom.command_line`."""

from __future__ import annotations

import sys

from loom.command_line import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
