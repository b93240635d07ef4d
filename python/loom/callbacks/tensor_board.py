"""Logs for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from loom._settings.checks import file_path, flag, whole
from loom.callbacks._board_graph import nodes, written
from loom.callbacks._pace import Pace
from loom.callbacks._states import moving
from loom.callbacks.base import Callback, Logs
from loom.errors import FileError
from loom.extras import require

__all__ = ["TensorBoard"]


class TensorBoard(Callback):
    """Writes logs for TensorBoard, through tensorboardX, which the extra "tensorboard" installs.

    Each epoch's loss and metrics under "epoch/", those of training and validation in one picture; the
    learning rate and the samples a second under "pace/"; the network as a graph, which the tab GRAPHS draws,
    cells and layers that hold layers folded; its table and the settings as text. A resumed run goes on in
    the same folder; without `batches` TensorBoard forgets what lies behind where it goes on from.

    Args:
        directory: The run's folder, which is made where there is none.
        histograms: Whether the distribution of every parameter is written after each epoch.
        batches: Also the loss of every so many batches, under "batch/"; None for epochs alone, which does not
            slow training down.

    Raises:
        ConfigError: The directory is no path, or `batches` not a positive whole number.
        MissingExtraError: tensorboardX is not installed; when training begins.
        FileError: The folder cannot be written; when training begins.
    """

    # It writes through another's code.
    interruptible: ClassVar[bool] = True

    def __init__(
        self, directory: str | Path, *, histograms: bool = False, batches: int | None = None
    ) -> None:
        self.directory = file_path("TensorBoard", directory, "directory")
        self.histograms = flag("TensorBoard", "histograms", histograms)
        self.batches = None if batches is None else whole("TensorBoard", "batches", batches, least=1)
        self._writer: Any = None
        self._pace = Pace()
        self._steps = 0
        self._epochs = 0
        if self.batches is not None:
            # Without the hook the engine trains many batches at a time.
            self.on_train_batch_end = self._write_batch  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"TensorBoard({str(self.directory)!r})"

    def state_dict(self) -> dict[str, Any]:
        """Returns how far it has come."""
        return {"epochs": self._epochs, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        self._epochs, self._steps = state["epochs"], state["steps"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Opens the folder, and writes what the run is."""
        tensorboard = require("tensorboardX", extra="tensorboard", purpose="loom.TensorBoard")
        if not self._resumed:
            self._epochs = self._steps = 0
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Files are named by the second: one that goes on at once needs a name of its own.
            going: dict[str, Any] = {"filename_suffix": f".{self._epochs}"} if self._resumed else {}
            if self._resumed and self.batches is None:
                # It counts in steps of all pictures, and those of batches are others.
                going["purge_step"] = self._epochs + 1
            self._writer = tensorboard.SummaryWriter(str(self.directory), **going)
        except OSError as error:
            raise FileError(
                error.errno, f"TensorBoard cannot write: {error.strerror}", str(self.directory)
            ) from error
        if not self._resumed:
            # Text is shown as Markdown, where four spaces make a table of letters of one width.
            table = "\n".join(f"    {line}" for line in str(self.network.blueprint()).splitlines())
            self._writer.add_text("network", table, 0)
            self._writer.add_text("settings", f"    {self.params.get('config')!r}", 0)
            self._writer.file_writer.add_event(self._graph())

    def _graph(self) -> Any:  # noqa: ANN401 - tensorboardX has no types
        config = self.network.config
        entries = [(each.name, tuple(each.shape), tuple(each.cell or (0, 0, 0))) for each in config.inputs]
        leaving = [(each.name, tuple(each.cell)) for each in config.outputs]
        return written(nodes(self.network.blueprint(), entries, leaving))

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes when the epoch begins."""
        self._pace.begin(self.params)

    def _write_batch(self, batch: int, logs: Logs | None = None) -> None:
        self._steps += 1
        if self._writer is not None and self._steps % (self.batches or 1) == 0:
            for name, value in dict(logs or {}).items():
                self._writer.add_scalar(f"batch/{name}", value, self._steps)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Writes the logs."""
        if self._writer is None:
            return
        self._epochs = epoch + 1
        for name, value in dict(logs or {}).items():
            if value == value:
                self._writer.add_scalar(f"epoch/{name}", value, self._epochs)
        for name, value in self._pace.figures(self.params).items():
            self._writer.add_scalar(f"pace/{name}", value, self._epochs)
        if self.histograms:
            for name, values in moving(self.network).items():
                if values.size:
                    self._writer.add_histogram(name.replace(".", "/"), values, self._epochs)
        self._writer.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Closes the folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
