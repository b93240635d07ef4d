"""Files of a run's folder: whole or not at all, in the background, by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from loom.errors import FileError, StateError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["BackgroundWriter", "FolderLock", "write_whole"]

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_TAKEN = {errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_held: set[int] = set()


def _close_in_child() -> None:
    # A child that outlives its parent must not keep the parent's locks.
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class FolderLock:
    """Holds a folder for this process while it is entered; the system lets go of it when the process ends.

    Where a file system knows no locks, nothing is locked.

    Args:
        folder: The folder, which is made where there is none.

    Raises:
        FileError: The folder cannot be made or written to.
        StateError: Another process, or another thread, holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1

    def __enter__(self) -> Self:
        path = self._folder / "lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(
                error.errno, f"there can be no run folder: {error.strerror}", str(self._folder)
            ) from error
        _held.add(self._file)
        try:
            _lock(self._file)
        except OSError as error:
            holder = _holder(path)
            self._release()
            if error.errno in _TAKEN:
                raise StateError(
                    f"the run in {self._folder} is being trained{holder}; wait for that to end, or give this "
                    "run a folder of its own"
                ) from error
            if error.errno not in _NO_LOCKS:
                raise FileError(error.errno, f"cannot be locked: {error.strerror}", str(path)) from error
            return self
        # For whoever comes next, to say who is there.
        with contextlib.suppress(OSError):
            os.truncate(path, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._file in _held:
            _held.discard(self._file)
            os.close(self._file)
        self._file = -1


def _lock(file: int) -> None:
    if sys.platform == "win32":
        # A byte far behind the text, which others may read.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f" by {text}" if text else ""


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file by way of a temporary one beside it: a crash leaves the old file or the new one.

    Two at once must not write the same file; what a killed process leaves is written over by the next.

    Args:
        path: The file.
        data: What it is to hold.

    Raises:
        FileError: It cannot be written; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        try:
            file = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666
            )
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(file, left) :]
                os.fsync(file)
            finally:
                os.close(file)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _flush_folder(path.parent)
    except OSError as error:
        raise FileError(error.errno, f"the run cannot be kept: {error.strerror}", str(path)) from error


def _flush_folder(folder: Path) -> None:
    """Has a rename reach the disk, where folders can be opened and flushed."""
    if sys.platform == "win32":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(file)


class BackgroundWriter:
    """Writes files in a thread, one job at a time, and holds no more than that job's bytes."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, files: Iterable[tuple[Path, bytes]], then: Callable[[], None]) -> None:
        """Writes files in order, once the job before is done, and calls a function at the end.

        Args:
            files: Paths and contents; what comes later is written only where all before it was.
            then: Called in the thread after that.

        Raises:
            FileError: The job before failed.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._work, args=(list(files), then), name="loom-run", daemon=True
        )
        self._thread.start()

    def _work(self, files: list[tuple[Path, bytes]], then: Callable[[], None]) -> None:
        try:
            while files:
                write_whole(*files.pop(0))
            then()
        except BaseException as error:  # noqa: BLE001 - told by `check`, in the thread that trains
            self._error = error

    def wait(self) -> None:
        """Waits for the job under way; raises, once, what became of it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self.check()

    def check(self) -> None:
        """Raises, once, what a job has failed with."""
        error, self._error = self._error, None
        if error is not None:
            raise error
