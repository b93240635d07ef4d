"""Rows of tokens, as they are given instead of a text."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import cast

from loom._settings.suggestions import shown
from loom.errors import ConfigError

__all__ = ["read_tokens"]

_MOST = 1 << 63
"""What the number of a token is below: those that it is brought as have 64 bits."""


def read_tokens(given: Iterable[int]) -> list[int]:
    """Returns the tokens of one text.

    Args:
        given: Their ids; integers of NumPy are such, too.

    Raises:
        ConfigError: One is no whole number, such as where several texts are given for one.
    """
    entries: Iterable[object] = given
    tokens = []
    for token in entries:
        try:
            number = index(cast("int", token))
        except TypeError as error:
            several = "; complete_all takes several texts" if isinstance(token, str) else ""
            raise ConfigError(
                f"a prompt is a text, or its tokens as whole numbers, got {shown(token)} among them{several}"
            ) from error
        if not -_MOST <= number < _MOST:
            raise ConfigError(f"a text has token {number}, which no network knows")
        tokens.append(number)
    return tokens
