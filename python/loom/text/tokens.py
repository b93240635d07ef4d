"""Rows of tokens, as they are given instead of a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import cast

from loom._settings.suggestions import shown
from loom.errors import ConfigError

__all__ = ["check_characters", "check_known", "read_texts", "read_tokens"]

_MOST = 1 << 63
"""What the number of a token is below: those that it is brought as have 64 bits."""

_WANTED = "a prompt is a text, or its tokens as whole numbers"


def read_tokens(given: Iterable[int], wanted: str = _WANTED) -> list[int]:
    """Returns the tokens of one text.

    Args:
        given: Their ids; integers of NumPy are such, too.
        wanted: What may be given, for messages.

    Raises:
        ConfigError: One is no whole number, such as where several texts are given for one; or it is no row.
    """
    row: object = given
    if isinstance(row, (bytes, bytearray)):
        raise ConfigError(f"{wanted}, got bytes; .decode() makes text of them")
    if not isinstance(row, Iterable):
        raise ConfigError(f"{wanted}, got {shown(row)}")
    entries: Iterable[object] = row
    tokens = []
    for token in entries:
        try:
            number = index(cast("int", token))
        except TypeError as error:
            several = isinstance(token, str) and wanted == _WANTED
            told = "; complete_all takes several texts" if several else ""
            raise ConfigError(f"{wanted}, got {shown(token)} among them{told}") from error
        if not -_MOST <= number < _MOST:
            raise ConfigError(f"a text has token {number}, which no network knows")
        tokens.append(number)
    return tokens


def read_texts(where: str, given: Iterable[str | Sequence[int]]) -> list[str | Sequence[int]]:
    """Returns several texts.

    Args:
        where: The call, for messages.
        given: The texts, each itself or its tokens.

    Raises:
        ConfigError: It is one text, whose characters would be texts, or nothing that has some.
    """
    texts: object = given
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise ConfigError(f"{where} takes a list of texts, got {shown(texts)}; put one text into [ ]")
    return list(texts)


def check_known(what: str, tokens: Iterable[int], words: int) -> None:
    """Refuses, with a ConfigError, tokens that a network does not know.

    Args:
        what: What has them, for the message.
        tokens: Their ids.
        words: How many there are.
    """
    beyond = [token for token in tokens if not 0 <= token < words]
    if beyond:
        raise ConfigError(f"{what} has token {beyond[0]}; the network knows {words} tokens")


def check_characters(text: str) -> None:
    """Refuses, with a ConfigError, a text with half a pair of surrogates, which is no character.

    Args:
        text: The text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the text has {text[error.start]!r} at {error.start}, half of a pair of surrogates and no "
            "character: join both halves, or leave it out"
        ) from error
