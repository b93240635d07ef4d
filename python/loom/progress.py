"""The public path of what a training run shows; see `loom.training.progress`."""

from loom.training.progress import (
    LiveProgress,
    NotebookProgress,
    PlainProgress,
    ProgressReporter,
    format_logs,
    reporter,
)

__all__ = ["LiveProgress", "NotebookProgress", "PlainProgress", "ProgressReporter", "format_logs", "reporter"]
