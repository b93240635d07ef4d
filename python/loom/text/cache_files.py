"""What a session has kept of a text, in a file: keys and values of attention, and the tokens they are of."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from loom._settings.checks import file_path
from loom.errors import SerializationError, ShapeError
from loom.tensors import open_tensors, write_safetensors
from loom.text.errors import ContextLengthError

if TYPE_CHECKING:
    from loom.network import Network
    from loom.network.session import Session

__all__ = ["load_cache", "save_cache"]

_FORM = "loom text cache 1"


def save_cache(path: str | PathLike[str], network: Network, session: Session, tokens: Sequence[int]) -> None:
    """Writes what a session has kept.

    Args:
        path: The file.
        network: Whose session it is; the file is for these weights alone.
        session: The session, which has read the tokens and nothing else.
        tokens: The tokens.
    """
    tensors = {f"kept.{number:04}": array for number, array in enumerate(session.kept())}
    tensors["tokens"] = np.asarray(tokens, np.int64)
    told = {"form": _FORM, "network": network.fingerprint()}
    if session.cache_dtype is not None:
        told["cache_dtype"] = session.cache_dtype
    write_safetensors(path, tensors, metadata=told)


def load_cache(path: str | PathLike[str], network: Network, session: Session) -> list[int]:
    """Has a session go on from what `save_cache` has written; returns the tokens that it has read.

    Args:
        path: The file.
        network: The network.
        session: A session of one row.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is another file, or of another network, weights, or `cache_dtype`.
        ContextLengthError: It has more tokens than the session has room for.
    """
    name = file_path("load_cache", path).name
    with open_tensors(path) as file:
        if file.metadata.get("form") != _FORM or "tokens" not in file:
            raise SerializationError(f"{name} is no cache of a text, as LanguageModel.save_cache writes them")
        if file.metadata.get("network") != network.fingerprint():
            raise SerializationError(
                f"{name} is of another network, or of other weights or another numeric type of them: read "
                "the text again with save_cache"
            )
        kept_as = file.metadata.get("cache_dtype")
        if kept_as != session.cache_dtype:
            raise SerializationError(
                f"{name} holds keys and values as {kept_as or 'the network computes'}, this model keeps them "
                f"as {session.cache_dtype or 'the network computes'}: load the model with "
                f"cache_dtype={kept_as!r}, or read the text again with save_cache"
            )
        tokens: list[int] = file["tokens"].numpy().tolist()
        if len(tokens) > session.capacity:
            raise ContextLengthError(
                f"{name} has {len(tokens)} tokens, the model's capacity is {session.capacity}: load "
                "the model with a larger capacity"
            )
        kept = [file[name].numpy() for name in sorted(file) if name != "tokens"]
    try:
        session.restore(kept)
    except ShapeError as error:
        raise SerializationError(f"{name} does not fit the network: {error}") from error
    return tokens
