"""Logs as lines of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from loom._settings.checks import file_path, flag
from loom.callbacks._pace import Pace
from loom.callbacks.base import Callback, Logs
from loom.errors import FileError

__all__ = ["CSVLogger"]


class CSVLogger(Callback):
    """Writes the logs of every epoch to a CSV file, line by line, as the standard library's csv module does.

    A resumed run continues the file. Lines of epochs after the one that it goes on from, which
    are done again, are cut off first.

    Args:
        filename: Where to.
        append: Continues an existing file instead of replacing it.
        pace: Whether learning_rate and samples_per_second have columns, too.
    """

    def __init__(self, filename: str | Path, *, append: bool = False, pace: bool = False) -> None:
        self.path = file_path("CSVLogger", filename, "filename")
        self.append = flag("CSVLogger", "append", append)
        self.pace = flag("CSVLogger", "pace", pace)
        self._pace = Pace()
        self._file: IO[str] | None = None
        self._names: list[str] = []
        # Lines of the file, the names aside; None before anything was written.
        self._lines: int | None = None

    def __repr__(self) -> str:
        return f"CSVLogger({str(self.path)!r})"

    def state_dict(self) -> dict[str, Any]:
        """Returns how many lines there are."""
        return {"lines": self._lines}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._lines = state["lines"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Opens the file."""
        self._names = []
        if not self._resumed:
            self._lines = None
        with self._writing():
            if (self.append or self._resumed) and self.path.exists():
                self._continue()
            self._file = self.path.open("a" if self._names else "w", encoding="utf-8", newline="")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileError(
                error.errno, f"CSVLogger cannot write: {error.strerror}", str(self.path)
            ) from error

    def _continue(self) -> None:
        """Reads the names of the file that is there, and cuts off what the run has not come to yet."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        if self._resumed and lines and not lines[-1].endswith(b"\n"):
            # A process that was killed has left half a line.
            lines.pop()
        if lines:
            self._names = next(csv.reader([lines[0].decode("utf-8")]))[1:]
        kept = lines if self._lines is None else lines[: 1 + self._lines]
        self._lines = max(len(kept) - 1, 0)
        with self.path.open("r+b") as file:
            file.truncate(sum(map(len, kept)))

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes when the epoch begins."""
        self._pace.begin(self.params)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes one line, and before the first one the names."""
        if self._file is None:
            return
        values = {**dict(logs or {}), **(self._pace.figures(self.params) if self.pace else {})}
        with self._writing():
            rows = csv.writer(self._file, lineterminator="\n")
            if not self._names:
                self._names = list(values)
                rows.writerow(["epoch", *self._names])
            cells = [repr(float(values[name])) if name in values else "" for name in self._names]
            rows.writerow([str(epoch), *cells])
            self._file.flush()
        self._lines = (self._lines or 0) + 1

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Closes the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with self._writing():
                file.close()
