"""What a training run shows: a bar in a terminal, a table in a notebook, a line per epoch elsewhere."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from loom.callbacks import Callback, Logs
from loom.callbacks._pace import Pace
from loom.device import describe

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["LiveProgress", "NotebookProgress", "PlainProgress", "ProgressReporter", "reporter"]


class ProgressReporter(Callback):
    """Base of the ways to show progress."""

    live: Mapping[str, float] = {}
    """What was measured of the newest step, where training is observed."""
    _pace = Pace()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes the time."""
        self._pace = Pace()
        self._pace.begin(self.params)

    def _title(self, epoch: int) -> str:
        epochs = self.params.get("epochs")
        total = f"{epochs}" if isinstance(epochs, int) else "?"
        return f"epoch {epoch + 1:>{len(total)}}/{total}"

    def _line(self, epoch: int, logs: Logs | None) -> tuple[str, str]:
        """Returns what is said of an epoch that is done, and how long it took, how fast, at what rate."""
        shown = format_logs({**(logs or {}), **self.live})
        took = f"{self._pace.seconds:.2f} s"
        figures = self._pace.figures(self.params)
        if "samples_per_second" in figures:
            took += f", {figures['samples_per_second']:,.0f} samples/s"
        if "learning_rate" in figures:
            took += f", learning rate {figures['learning_rate']:.3g}"
        return f"{self._title(epoch)}  {shown}", took

    def on_progress(self, done: int, total: int | None, loss: float, live: Logs | None = None) -> None:
        """Shows how far the epoch has come; called some ten times a second.

        Args:
            done: Steps of this epoch that are done.
            total: Steps of this epoch, where known.
            loss: The mean loss of the epoch so far.
            live: What was measured of the newest step: mean gap, adaptive rate, explosions.
        """
        self.live = live or {}


class PlainProgress(ProgressReporter):
    """One line per epoch, for files and pipes.

    Args:
        stream: Where to; standard output by default.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Says where the training runs."""
        self._write(_where(self.params))

    def _write(self, line: str) -> None:
        stream = self._stream or sys.stdout
        stream.write(line + "\n")
        stream.flush()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes the epoch's line."""
        self._write("  ".join(self._line(epoch, logs)))


class LiveProgress(ProgressReporter):
    """A bar for the running epoch, and a line for each that is done, through rich.

    Args:
        stream: Where to; standard output by default.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        from rich.console import Console

        self._console = Console(file=stream)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Says where the training runs, and starts the live display."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console.print(_where(self.params), highlight=False, markup=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[logs]}"),
            console=self._console,
            transient=True,
        )
        self._bar.start()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Starts the epoch's bar."""
        super().on_epoch_begin(epoch, logs)
        if self._bar is not None:
            self._task = self._bar.add_task(self._title(epoch), total=self.params.get("steps"), logs="")

    def on_progress(self, done: int, total: int | None, loss: float, live: Logs | None = None) -> None:
        """Moves the bar."""
        super().on_progress(done, total, loss, live)
        if self._bar is not None and self._task is not None:
            shown = format_logs({"loss": loss, **self.live})
            self._bar.update(self._task, completed=done, total=total, logs=shown)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Replaces the bar by a line."""
        if self._bar is None or self._task is None:
            return
        line, seconds = self._line(epoch, logs)
        self._bar.remove_task(self._task)
        self._task = None
        self._bar.print(f"{line}  [dim]{seconds}[/dim]", highlight=False)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Takes the live display away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class NotebookProgress(ProgressReporter):
    """A table that grows by a row per epoch, with a bar for the running one, in a notebook's output.

    Where the notebook's output is read as text, it has the lines of `PlainProgress`.

    Args:
        display: `IPython.display.display`; IPython's own where None.
    """

    _EVERY = 0.2
    """Seconds between two looks of the bar, so that the notebook's page keeps up."""

    def __init__(self, display: Any = None) -> None:  # noqa: ANN401 - a function of IPython's
        self._display = import_module("IPython.display").display if display is None else display
        self._handle: Any = None
        self._where, self._running = "", ""
        self._rows: list[dict[str, str]] = []
        self._lines: list[str] = []
        self._epoch = 0
        self._shown = 0.0

    def __repr__(self) -> str:
        return "\n".join([self._where, *self._lines])

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(row.get(name, ''))}</td>" for name in names) + "</tr>"
            for row in self._rows
        )
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<div><p>{html.escape(self._where)}</p>{table}{self._running}</div>"

    def _show(self) -> None:
        self._shown = time.monotonic()
        if self._handle is None:
            self._handle = self._display(self, display_id=True)
        else:
            self._handle.update(self)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Says where the training runs."""
        self._handle, self._running = None, ""
        self._rows, self._lines = [], []
        self._where = _where(self.params)
        self._show()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes which epoch it is."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_progress(self, done: int, total: int | None, loss: float, live: Logs | None = None) -> None:
        """Moves the bar."""
        super().on_progress(done, total, loss, live)
        if time.monotonic() - self._shown < self._EVERY:
            return
        place = f'value="{done}" max="{total}"' if total else ""
        shown = html.escape(f"step {done}/{total or '?'}  {format_logs({'loss': loss, **self.live})}")
        self._running = f"<p>{self._title(self._epoch)} <progress {place}></progress> {shown}</p>"
        self._show()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Adds the epoch's row."""
        self._running = ""
        line, took = self._line(epoch, logs)
        self._lines.append(f"{line}  {took}")
        known = {name: value for name, value in (logs or {}).items() if not _unmeasured(name, value)}
        figures = self._pace.figures(self.params)
        row = {"epoch": f"{epoch + 1}/{self.params.get('epochs', '?')}"}
        row |= {name: _number(value) for name, value in {**known, **self.live}.items()}
        row["seconds"] = f"{self._pace.seconds:.2f}"
        if "samples_per_second" in figures:
            row["samples/s"] = f"{figures['samples_per_second']:,.0f}"
        if "learning_rate" in figures:
            row["learning rate"] = f"{figures['learning_rate']:.3g}"
        self._rows.append(row)
        self._show()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Takes the bar away."""
        if self._running:
            self._running = ""
            self._show()


def reporter(*, verbose: bool | int | str = "auto", stream: IO[str] | None = None) -> ProgressReporter | None:
    """Picks how progress is shown.

    Args:
        verbose: Whether it is shown at all; "auto" where somebody watches: in a notebook, or where the
            stream or standard error is a terminal.
        stream: Where to; standard output by default.

    Returns:
        A live bar for a terminal, a table for a notebook, lines for anything else, None for nothing.
    """
    if not verbose:
        return None
    target = stream or sys.stdout
    if stream is None and _in_notebook():
        return NotebookProgress()
    if _is_terminal(target):
        return LiveProgress(stream)
    return PlainProgress(stream) if verbose != "auto" or _is_terminal(sys.stderr) else None


def _is_terminal(stream: IO[str] | None) -> bool:
    # Programs without a console, as pythonw's, have none.
    return stream is not None and stream.isatty()


def _in_notebook() -> bool:
    """Whether the program runs in a kernel of Jupyter's; IPython is asked only where it runs already."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return getattr(get_shell() if get_shell is not None else None, "kernel", None) is not None


def format_logs(logs: Logs | None) -> str:
    """Lays logs out as "loss 0.1234  accuracy 0.9800", leaving out what was not measured."""
    return "  ".join(
        f"{name} {_number(value)}" for name, value in (logs or {}).items() if not _unmeasured(name, value)
    )


def _unmeasured(name: str, value: float) -> bool:
    return name.startswith("val_") and math.isnan(value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value}"
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3e}"


def _where(params: Mapping[str, Any]) -> str:
    chosen = params.get("chosen_loss")
    loss = f", loss {chosen}, chosen by the targets" if chosen else ""
    return f"training on {describe(str(params.get('device', 'cpu')))}{loss}"
