"""Files that users name, read whole."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

__all__ = ["content_of", "text_of"]


def content_of(path: Path) -> bytes:
    """Returns what is in a file.

    Raises:
        OSError: The system refuses, or it is a pipe or a device, whose end may never come.
    """
    with path.open("rb") as file:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no file but a pipe or a device", str(path))
        return file.read()


def text_of(path: Path) -> str:
    """Returns what is in a file of text in UTF-8.

    Raises:
        OSError: As `content_of`.
        UnicodeDecodeError: It is no such text.
    """
    return content_of(path).decode("utf-8")
