"""Text while its tokens come: whole characters, and nothing that may yet become a text to stop at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loom.text.sessions import common

if TYPE_CHECKING:
    from loom.text.token_bytes import TokenBytes

__all__ = ["Stopper", "TextStream"]

_BROKEN = "\ufffd"
"""What stands for bytes that are no character, or none yet."""

_BEFORE = 8
"""Tokens of the text before that the first ones are decoded with."""

_MOST_BYTES = 4
"""Of a character."""

_LEADS = ((4, b"\xf0"), (3, b"\xe0"), (2, b"\xc0"))
"""How many bytes a character has by its first one."""


class TextStream:
    """Makes text of tokens that come one by one.

    A token alone does not tell its text: it may be a part of a character, and the first one of a text may
    lose a space. So tokens are decoded with those before them, from the last place where a character ended.

    Args:
        token_bytes: Says which bytes each of them is, and what text some of them are.
        before: Tokens that the text goes on from; they are not told. A character that they begin is told
            where the text ends it.
    """

    def __init__(self, token_bytes: TokenBytes, before: Sequence[int] = ()) -> None:
        self._token_bytes = token_bytes
        # All that are held are decoded, and those up to there have been told.
        self._held, self._told = _newest(before, token_bytes)

    def add(self, token: int) -> str:
        """Returns the text that a token completes."""
        self._held.append(token)
        return self._tell(ends=False)

    def finish(self) -> str:
        """Returns what is left."""
        return self._tell(ends=True)

    def _tell(self, *, ends: bool) -> str:
        known, text = (self._token_bytes.text(held) for held in (self._held[: self._told], self._held))
        # A token that ends within a character has been told, and the character is whole now.
        grown = known.endswith(_BROKEN) and not text.startswith(known)
        if grown:
            known = known[: common(known, text)]
        if len(text) <= len(known) or (text.endswith(_BROKEN) and not ends):
            return ""
        if not grown:
            # The tokens that have just been told stay, for those after them to be decoded with.
            self._held = self._held[self._told :]
        self._told = len(self._held)
        return text[len(known) :]


def _newest(tokens: Sequence[int], token_bytes: TokenBytes) -> tuple[list[int], int]:
    """Returns the newest tokens of a text, and how many of them are whole characters.

    None begins within a character: bytes that follow each other are decoded together by some tokenizers, and
    half of one before them would break them all.
    """
    spans = [token_bytes.of(token) for token in tokens[-_BEFORE - _MOST_BYTES :]]
    longer = range(_BEFORE, min(_BEFORE + _MOST_BYTES, len(spans) + 1))
    shorter = range(min(_BEFORE, len(spans) + 1) - 1, 0, -1)
    counts = [count for count in (*longer, *shorter) if not _goes_on(spans[-count])]
    held = list(tokens[-counts[0] :] if counts else tokens[-_BEFORE:])
    told = len(held)
    for count in range(1, min(_MOST_BYTES, len(held) + 1)):
        if not _goes_on(spans[-count]):
            begun = b"".join(spans[-count:])
            wanted = next((size for size, least in _LEADS if begun[:1] >= least), 1)
            if len(begun) < wanted:
                told -= count
            break
    return held, told


def _goes_on(held: bytes) -> bool:
    """Whether bytes begin within a character."""
    return b"\x80" <= held[:1] < b"\xc0"


class Stopper:
    """Ends a text before the first of some texts that is whole, and holds back what may begin one.

    Args:
        stops: The texts; none of them is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None
        """The text that has ended it."""

    def add(self, text: str) -> str:
        """Returns what may be told, given what comes next."""
        if self.found is not None:
            return ""
        self._held += text
        places = [(place, stop) for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            # The one that is whole first, however the text comes in pieces; the longest where several are.
            place, self.found = min(places, key=lambda entry: (entry[0] + len(entry[1]), entry[0]))
            return self._released(place)
        waits = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        return self._released(len(self._held) - waits)

    def finish(self) -> str:
        """Returns what was held back, where no text has ended it."""
        return "" if self.found is not None else self._released(len(self._held))

    def _released(self, count: int) -> str:
        told, self._held = self._held[:count], self._held[count:]
        return told


def _overlap(text: str, stop: str) -> int:
    """Returns how many characters at the text's end may be the beginning of a text to stop at."""
    for count in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:count]):
            return count
    return 0
