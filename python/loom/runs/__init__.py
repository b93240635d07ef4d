"""What runs have written while they trained: read, and shown on a page that follows them."""

from loom.runs.reading import Run, read_run

__all__ = ["Run", "read_run"]
