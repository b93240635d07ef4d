"""An answer while it is made, token by token."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom.errors import ConfigError, NonFiniteError, StateError
from loom.text.constraints import Constraint
from loom.text.guessing import Guesser
from loom.text.sampling import Choice, Sampler
from loom.text.scores import as_scores
from loom.text.sessions import Asked, Lease, Reader, Sessions
from loom.text.streaming import Stopper, TextStream

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from loom.text.token_bytes import TokenBytes

__all__ = ["ENDLESS", "Completion", "Finish", "Generation", "Plan"]

Finish = Literal["stop", "length"]
"""Why an answer has ended: by a token or text that ends it, or because it is as long as it may be."""

_SOON = 0.02
"""Seconds that tokens which are made together may take."""

_MOST_TOGETHER = 32
"""The most of them."""

ENDLESS = 1 << 62
"""The most tokens of an answer that goes on past the capacity until something ends it."""


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


@dataclass(frozen=True)
class Plan:
    """How an answer is made.

    Args:
        sampler: Chooses tokens.
        most: The most of them.
        end: Tokens that end the answer.
        stop: Texts that do.
        capacity: The most tokens that a session reads.
        constraint: Says which tokens there is to choose from; None for all.
        guesser: Guesses tokens ahead; None where none are.
        sinks: How many of the first tokens stay where the answer goes on past the capacity; None where it
            does not.
        probable: Whether the network makes probabilities, and no scores.
    """

    sampler: Sampler
    most: int
    end: frozenset[int]
    stop: Sequence[str]
    capacity: int
    constraint: Constraint | None = None
    guesser: Guesser | None = None
    sinks: int | None = None
    probable: bool = False


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
        token_bytes: TokenBytes,
        prompt: Sequence[int],
        plan: Plan,
    ) -> None:
        self._sessions = sessions
        self._prompt = list(prompt)
        self._plan = plan
        self._sampler = plan.sampler
        self._most = plan.most
        self._stream = TextStream(token_bytes, self._prompt)
        self._stopper = Stopper(plan.stop)
        self._text: list[str] = []
        self._lease: Lease | None = None
        # What the next token is chosen after; a session has read the beginning of it.
        self._context = list(prompt)
        self._guessed: list[int] = []
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
        self.guessed_tokens = 0
        """How many tokens were guessed, where there is a draft."""
        self.right_tokens = 0
        """How many of these were chosen."""

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
        """Does one step: reads a piece of the prompt, or chooses a token, or several.

        Returns:
            The text that it gives, which may be empty; None where the answer has ended.
        """
        return next(self._work, None)

    def finish(self) -> Completion:
        """Goes on to the end, and returns all of it.

        Raises:
            ConfigError: It has none.
        """
        self.check_ends()
        for _ in self._work:
            pass
        return self.completion()

    def check_ends(self) -> None:
        """Refuses, with a ConfigError, an answer that nothing ends."""
        plan = self._plan
        if self._most == ENDLESS and not (plan.end or plan.stop or plan.constraint):
            raise ConfigError(
                "generate: with sinks an answer goes on past the capacity, and nothing would end this one: "
                "give max_tokens, or stop"
            )

    def completion(self) -> Completion:
        """Returns all of it, as far as it is made."""
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
            lease.give_back()
        if self._plan.guesser is not None:
            self._plan.guesser.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def longest(self) -> int:
        """The most tokens that are read for it."""
        return min(self._plan.capacity, self.prompt_tokens + self._most)

    @property
    def ended_by_token(self) -> bool:
        """Whether the last token is one that ends answers."""
        return bool(self.tokens) and self.tokens[-1].token in self._plan.end

    @property
    def context(self) -> list[int]:
        """What the next token is chosen after, which a reader has to have read."""
        return self._context

    def _steps(self) -> Generator[str, None, None]:
        try:
            self._lease = self._sessions.lease(self._prompt)
            self.reused_tokens = len(self._lease.seen)
            while self.finish_reason is None:
                yield self._step(self._lease)
        finally:
            self._release()

    def _step(self, lease: Lease) -> str:
        if self._ahead or self.goes_on(lease):
            return self._go_on(lease)
        tokens, every = self.wanted(lease)
        try:
            scores = lease.feed(tokens, every=every)
        except StateError:
            if self.tokens or not self.reused_tokens:
                raise
            # The network is another one than that which has read the beginning.
            lease.restart()
            self.reused_tokens = 0
            return ""
        return self.take(lease, scores)

    def goes_on(self, reader: Reader) -> bool:
        """Whether the network chooses the next tokens itself, so that nothing but these comes back.

        Args:
            reader: What reads the answer's tokens.
        """
        if self._ahead:
            return True
        plain = self._plan.constraint is None and self._plan.guesser is None
        chooses = self._sampler.takes_the_likeliest or (reader.on_gpu and self._sampler.tells_nothing_else)
        is_next = len(self._context) - len(reader.seen) == 1 and len(reader.seen) < self._plan.capacity
        return bool(self.tokens) and is_next and plain and chooses and reader.goes_on_by_itself

    @property
    def has_more(self) -> bool:
        """Whether tokens are chosen that are not told yet."""
        return bool(self._ahead)

    def asks(self, reader: Reader, most: int) -> Asked:
        """Says what the network is to choose by itself, several tokens at a time.

        Args:
            reader: What reads the answer's tokens.
            most: The most tokens that are made together.
        """
        room = self._plan.capacity - len(reader.seen)
        count = min(most, self._most - len(self.tokens), room)
        sampler = self._sampler
        return Asked(self._context[-1], count, self._plan.end, sampler, sampler.takes_the_likeliest)

    def gets(self, tokens: list[int]) -> None:
        """Takes the tokens that the network has chosen.

        Args:
            tokens: One at least, and no more than were asked for.
        """
        self._ahead = tokens
        self._context += tokens

    def tells(self) -> str:
        """Takes the next of these tokens; returns the text that may be told now."""
        return self._told(Choice(self._ahead.pop(0)), known=True)

    def _go_on(self, reader: Reader) -> str:
        """Takes the next of the tokens that the network chooses itself, several at a time."""
        if not self._ahead:
            asked, started = self.asks(reader, self._together), perf_counter()
            self.gets(reader.follow(asked))
            # As many at a time as nobody has to wait for.
            if perf_counter() - started < _SOON / 2 and self._together < _MOST_TOGETHER:
                self._together *= 2
        return self.tells()

    def wanted(self, reader: Reader, *, guessing: bool = True) -> tuple[list[int], bool]:
        """Says what is to be read next.

        Args:
            reader: What reads it; it has read the beginning of `context`, and not all of it.
            guessing: Whether tokens may be guessed ahead.

        Returns:
            The tokens, and whether the network's scores behind each of them are wanted.
        """
        plan = self._plan
        if len(self._context) > plan.capacity:
            self._slide(reader)
        tokens = self._context[len(reader.seen) :]
        self._guessed = []
        if len(tokens) > reader.piece:
            return tokens[: reader.piece], False
        room = min(plan.capacity - len(self._context), self._most - len(self.tokens) - 1)
        if plan.guesser is not None and guessing and self.tokens and room > 0:
            self._guessed = plan.guesser.guess(self._context, room, self._sampler, plan.constraint)
        return tokens + self._guessed, bool(self._guessed)

    def _slide(self, reader: Reader) -> None:
        """Lets go of the middle of the text: its first tokens stay, and the newest, and are read again."""
        sinks = self._plan.sinks or 0
        newest = max(1, (self._plan.capacity - sinks) // 2)
        self._context = self._context[:sinks] + self._context[-newest:]
        reader.keep(self._context)

    def take(self, reader: Reader, scores: NDArray[Any]) -> str:
        """Takes what the network has made of the tokens that were wanted.

        Args:
            reader: What has read them.
            scores: (places, vocabulary) those of the last token, or of each.

        Returns:
            The text that may be told now.

        Raises:
            NonFiniteError: They hold NaN or infinity.
        """
        guessed, self._guessed = self._guessed, []
        if len(reader.seen) < len(self._context):
            return ""
        text, right = "", 0
        for row, guess in zip(scores[len(scores) - len(guessed) - 1 :], [*guessed, None], strict=True):
            choice = self._chosen(row)
            text += self._told(choice)
            if self.finish_reason is not None or choice.token != guess:
                break
            right += 1
        if guessed and self._plan.guesser is not None:
            self.guessed_tokens += len(guessed)
            self.right_tokens += right
            self._plan.guesser.learn(len(guessed), right)
        # Guesses that were not chosen are forgotten; the newest token is not read yet.
        if len(reader.seen) >= len(self._context) and not reader.goes_back(len(self._context) - 1):
            raise StateError("a recurrent layer cannot go back behind guesses: generate without draft=")
        return text

    def _chosen(self, scores: NDArray[Any]) -> Choice:
        if not np.isfinite(scores).all():
            raise NonFiniteError(
                f"scores after {self.prompt_tokens + len(self.tokens)} tokens hold NaN or infinity"
            )
        if self._plan.probable:
            scores = as_scores(scores)
        constraint = self._plan.constraint
        if constraint is None:
            return self._sampler.choose(scores)
        choice = self._sampler.choose(scores, constraint.allowed())
        if choice.token not in self._plan.end:
            constraint.take(choice.token)
        return choice

    def _told(self, choice: Choice, *, known: bool = False) -> str:
        """Takes a token; returns the text that may be told now."""
        self.tokens.append(choice)
        if not known:
            self._context.append(choice.token)
        constraint = self._plan.constraint
        if choice.token in self._plan.end:
            self.finish_reason = "stop"
            text = self._stopper.add(self._stream.finish())
        else:
            text = self._stopper.add(self._stream.add(choice.token))
            if constraint is not None and constraint.complete:
                self.finish_reason = "stop"
            elif len(self.tokens) == self._most:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                text += self._stopper.add(self._stream.finish())
        if self.finish_reason is not None:
            text += self._stopper.finish()
        if self._stopper.found is not None:
            self.finish_reason = "stop"
        self._text.append(text)
        return text
