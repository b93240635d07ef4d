"""An answer while it is made, token by token."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom.errors import NonFiniteError, StateError
from loom.text.sampling import Choice, Sampler
from loom.text.sessions import Lease, Sessions
from loom.text.streaming import Stopper, TextStream

if TYPE_CHECKING:
    from types import TracebackType

    from tokenizers import Tokenizer
    from typing_extensions import Self

__all__ = ["Completion", "Finish", "Generation"]

Finish = Literal["stop", "length"]
"""Why an answer has ended: by a token or text that ends it, or because it is as long as it may be."""

_SOON = 0.02
"""Seconds that tokens which are made together may take."""

_MOST_TOGETHER = 32
"""The most of them."""

_BEFORE = 8
"""Tokens of the prompt that the first ones of an answer are decoded with."""


@dataclass(frozen=True)
class Completion:
    """An answer.

    Args:
        text: The text, without what has ended it.
        tokens: The tokens that were chosen, with the one that has ended it, if one has.
        finish: Why it has ended.
        stop: The text that has ended it; None where none has.
        prompt_tokens: How many tokens the prompt has.
        reused_tokens: How many of them had been read before.
        seed: What repeats it.
    """

    text: str
    tokens: tuple[Choice, ...]
    finish: Finish
    stop: str | None
    prompt_tokens: int
    reused_tokens: int
    seed: int


class Generation(Iterator[str]):
    """An answer while it is made: pieces of its text, in which no character is cut.

    Nothing is computed before a piece is asked for. `close()`, or the end of `with`, ends it early.

    Examples:
        >>> for piece in model.generate("Once"):  # doctest: +SKIP
        ...     print(piece, end="", flush=True)
    """

    def __init__(
        self,
        sessions: Sessions,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampler: Sampler,
        most: int,
        end: frozenset[int],
        stop: Sequence[str],
    ) -> None:
        self._sessions = sessions
        self._prompt = list(prompt)
        self._sampler = sampler
        self._most = most
        self._end = end
        self._stream = TextStream(tokenizer, self._prompt[-_BEFORE:])
        self._stopper = Stopper(stop)
        self._text: list[str] = []
        self._lease: Lease | None = None
        # Behind the last token that was read.
        self._scores: NDArray[Any] = np.empty(0)
        # Tokens that are chosen and not told yet, and how many are chosen together.
        self._ahead: list[int] = []
        self._together = 1
        self._work = self._steps()
        self.tokens: list[Choice] = []
        """The tokens so far, with the one that has ended the answer."""
        self.finish_reason: Finish | None = None
        """Why it has ended; None while it goes on, and where it was ended early."""
        self.reused_tokens = 0
        """How many tokens of the prompt had been read before."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self._prompt)

    @property
    def seed(self) -> int:
        """What repeats the answer, given as `seed`."""
        return self._sampler.seed

    @property
    def stop(self) -> str | None:
        """The text that has ended it."""
        return self._stopper.found

    def __next__(self) -> str:
        """Returns the next piece of text."""
        for piece in self._work:
            if piece:
                return piece
        raise StopIteration

    def limit(self, most: int) -> None:
        """Makes the answer no longer than so many tokens.

        Args:
            most: The most tokens; more than it may have anyway changes nothing.
        """
        self._most = min(self._most, most)

    def step(self) -> str | None:
        """Does one step: reads a piece of the prompt, or chooses a token.

        Returns:
            The text that it gives, which may be empty; None where the answer has ended.
        """
        return next(self._work, None)

    def finish(self) -> Completion:
        """Goes on to the end, and returns all of it."""
        for _ in self._work:
            pass
        return Completion(
            self.text,
            tuple(self.tokens),
            self.finish_reason or "stop",
            self.stop,
            self.prompt_tokens,
            self.reused_tokens,
            self.seed,
        )

    def close(self) -> None:
        """Ends it; what was made is kept, and nothing more is."""
        self._work.close()
        self._release()

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._sessions.give_back(lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _steps(self) -> Generator[str, None, None]:
        try:
            self._lease = self._sessions.lease(self._prompt)
            yield from self._read(self._lease)
            while self.finish_reason is None:
                text = self._told(self._choice(self._lease))
                self._text.append(text)
                yield text
        finally:
            self._release()

    def _read(self, lease: Lease) -> Iterator[str]:
        """Reads the prompt piece by piece; no text comes of it."""
        self.reused_tokens = len(lease.seen)
        while len(lease.seen) < len(self._prompt):
            piece = self._prompt[len(lease.seen) :][: self._sessions.piece]
            try:
                self._scores = lease.feed(piece)
            except StateError:
                if not self.reused_tokens:
                    raise
                # The network is another one than that which has read the beginning.
                lease.restart()
                self.reused_tokens = 0
                continue
            yield ""

    def _choice(self, lease: Lease) -> Choice:
        """Chooses the next token."""
        if self._ahead:
            return Choice(self._ahead.pop(0))
        if self.tokens and self._sampler.takes_the_likeliest:
            started = perf_counter()
            count = min(self._together, self._most - len(self.tokens))
            self._ahead = lease.follow(self.tokens[-1].token, count, self._end)
            # As many at a time as nobody has to wait for.
            if perf_counter() - started < _SOON / 2 and self._together < _MOST_TOGETHER:
                self._together *= 2
            return Choice(self._ahead.pop(0))
        if self.tokens:
            self._scores = lease.feed([self.tokens[-1].token])
        if not np.isfinite(self._scores).all():
            raise NonFiniteError(
                f"scores after {self.prompt_tokens + len(self.tokens)} tokens hold NaN or infinity"
            )
        return self._sampler.choose(self._scores)

    def _told(self, choice: Choice) -> str:
        """Takes a token; returns the text that may be told now."""
        self.tokens.append(choice)
        if choice.token in self._end:
            self.finish_reason = "stop"
            text = self._stopper.add(self._stream.finish())
        else:
            text = self._stopper.add(self._stream.add(choice.token))
            if len(self.tokens) == self._most:
                self.finish_reason = "length"
                text += self._stopper.add(self._stream.finish())
        if self.finish_reason is not None:
            text += self._stopper.finish()
        if self._stopper.found is not None:
            self.finish_reason = "stop"
        return text
