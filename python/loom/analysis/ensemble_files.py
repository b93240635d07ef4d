"""Files of ensembles: ZIP archives of `ensemble.json`, and each network as `Network.save` writes it."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from os import PathLike
from threading import get_ident
from typing import Any

from loom._settings.checks import file_path
from loom._settings.files import content_of
from loom.errors import FileError, SerializationError

__all__ = ["foreign", "read", "write"]

_FORMAT = 1


def write(path: str | PathLike[str], about: Mapping[str, Any], contents: Iterable[bytes]) -> None:
    """Writes a file: whole, or after an error not at all.

    Args:
        path: The file; an older one is replaced at the end.
        about: What is told beside the networks.
        contents: Each network as its own file would hold it.

    Raises:
        FileError: The file cannot be written.
    """
    target = file_path("Ensemble.save", path)
    part = target.with_name(f".{target.name}.{os.getpid()}.{get_ident()}.part")
    try:
        with part.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                # Without times and modes, so that the same ensemble is the same bytes.
                told = json.dumps({"format": _FORMAT, **about})
                archive.writestr(zipfile.ZipInfo("ensemble.json"), told)
                for place, content in enumerate(contents):
                    archive.writestr(zipfile.ZipInfo(f"{place}.loom"), content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise FileError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], list[bytes]]:
    """Reads what `write` wrote: what is told, and each network's bytes.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, truncated, foreign, or of a later format.
    """
    try:
        content = content_of(file_path("Ensemble.load", path))
    except OSError as error:
        raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            about = json.loads(_stored(archive, "ensemble.json"))
            known = about["format"]
            contents = [_stored(archive, f"{place}.loom") for place in range(len(about.get("names", ())))]
    # A damaged archive makes zipfile raise nearly anything.
    except Exception as error:
        raise foreign(path, error) from error
    if known != _FORMAT:
        raise SerializationError(
            f"{os.fspath(path)}: an ensemble of format {known}, but this version reads {_FORMAT}"
        )
    return about, contents


def foreign(path: str | PathLike[str], error: Exception) -> SerializationError:
    """Returns the error for what is no file of an ensemble."""
    return SerializationError(f"{os.fspath(path)}: this is no ensemble that loom has saved: {error}")


def _stored(archive: zipfile.ZipFile, name: str) -> bytes:
    # Nothing is packed, so that no file reads as more than it is.
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{name} is packed")
    return archive.read(name)
