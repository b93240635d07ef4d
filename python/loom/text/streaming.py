"""Text while its tokens come: whole characters, and nothing that may yet become a text to stop at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Stopper", "TextStream"]

_BROKEN = "\ufffd"
"""What stands for bytes that are no character, or none yet."""


class TextStream:
    """Makes text of tokens that come one by one.

    A token alone does not tell its text: it may be a part of a character, and the first one of a text may
    lose a space. So tokens are decoded with those before them, from the last place where a character ended.

    Args:
        tokenizer: Whose tokens they are.
        before: Tokens that the text goes on from; they are not told.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._held = list(before)
        # Tokens from here on are decoded, and those up to there have been told.
        self._told = len(self._held)

    def add(self, token: int) -> str:
        """Returns the text that a token completes."""
        self._held.append(token)
        known, text = self._decoded(self._held[: self._told]), self._decoded(self._held)
        if len(text) <= len(known) or text.endswith(_BROKEN):
            return ""
        return self._tell(known, text)

    def finish(self) -> str:
        """Returns what is left."""
        known, text = self._decoded(self._held[: self._told]), self._decoded(self._held)
        return self._tell(known, text) if len(text) > len(known) else ""

    def _tell(self, known: str, text: str) -> str:
        # The tokens that have just been told stay, for those after them to be decoded with.
        self._held = self._held[self._told :]
        self._told = len(self._held)
        return text[len(known) :]

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)) if tokens else ""


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
