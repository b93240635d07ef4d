"""Tokens that are guessed ahead, for a network to look at together: speculative decoding.

A network that reads several tokens at once takes little longer than for one, where it is the weights that
take the time. So what comes next is guessed, all guesses are read with one call, and each token is then
chosen from the network's own scores, as without: a guess that is chosen has saved a call, and from the first
that is not on, all are forgotten. The answer is the one without, for draws depend on the seed and the place
alone (Leviathan et al. 2023, with the same draws for guess and choice instead of a test of acceptance).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from loom.errors import ConfigError, LoomError, StateError
from loom.text.scores import as_scores, makes_probabilities
from loom.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from threading import RLock

    from numpy.typing import NDArray

    from loom.network import Network
    from loom.text.constraints import Constraint
    from loom.text.sampling import Sampler
    from loom.text.sessions import Lease

__all__ = ["Guesser", "Lookup", "SmallModel", "guesser_of"]

_FIRST, _MOST = 4, 16
"""How many tokens are guessed at first, and at most."""

_LENGTHS = (4, 3, 2)
"""How many of the last tokens are looked for, the longest first."""


class Model(Protocol):
    """What a guesser asks of a language model."""

    capacity: int
    network: Network
    vocabulary: Vocabulary
    lock: RLock

    def lease(self, tokens: Sequence[int]) -> Lease:
        """Returns a session for a text."""


class Guesser(Protocol):
    """Guesses what comes next."""

    def guess(
        self, context: Sequence[int], room: int, sampler: Sampler, constraint: Constraint | None
    ) -> list[int]:
        """Returns tokens that may come next, or none.

        Args:
            context: The tokens so far.
            room: The most tokens to guess.
            sampler: How tokens are chosen; it stays where it is.
            constraint: Which tokens may be chosen; likewise.
        """

    def learn(self, guessed: int, right: int) -> None:
        """Is told how many of its guesses were right."""

    def close(self) -> None:
        """Is told that nothing more is to be guessed."""


class _Count:
    """How many tokens to guess: one more than were right, or two where all were."""

    def __init__(self) -> None:
        self.next = _FIRST

    def learn(self, guessed: int, right: int) -> None:
        self.next = min(_MOST, right + (2 if right == guessed else 1))


class Lookup:
    """Guesses that what has followed the last few tokens before follows again (Saxena 2023).

    Good where an answer repeats parts of its prompt: summaries, corrections, code.
    """

    def __init__(self) -> None:
        self._count = _Count()
        self._places: dict[tuple[int, ...], int] = {}
        self._known: list[int] = []

    def guess(
        self, context: Sequence[int], room: int, sampler: Sampler, constraint: Constraint | None
    ) -> list[int]:
        """Returns what has followed the newest of the longest runs of tokens that end the text."""
        del sampler, constraint
        self._learn_places(context)
        for length in _LENGTHS:
            place = self._places.get(tuple(context[-length:])) if length <= len(context) else None
            if place is not None:
                found = context[place : place + min(self._count.next, room)]
                return list(found)
        return []

    def _learn_places(self, context: Sequence[int]) -> None:
        """Takes note of what is new, but for the end itself, which nothing has followed yet."""
        known = len(self._known)
        if list(context[:known]) != self._known:
            self._places.clear()
            known = 0
        for place in range(max(known, 1), len(context)):
            for length in _LENGTHS:
                if length <= place:
                    self._places[tuple(context[place - length : place])] = place
        self._known = list(context)

    def learn(self, guessed: int, right: int) -> None:
        """Guesses more where guesses were right."""
        self._count.learn(guessed, right)

    def close(self) -> None:
        """Nothing is held."""


class SmallModel:
    """Guesses what a smaller model would choose, by the same settings and the same draws.

    Args:
        model: The smaller model, with the same tokens.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._count = _Count()
        self._lease: Lease | None = None
        self._probable = makes_probabilities(model.network)

    def guess(
        self, context: Sequence[int], room: int, sampler: Sampler, constraint: Constraint | None
    ) -> list[int]:
        """Returns what the smaller model chooses."""
        count = min(self._count.next, room, self._model.capacity - len(context) + 1)
        # Networks of one tokenizer may differ in how far their tables are filled up behind its tokens.
        words = self._model.network.output_shape[-1]
        if count <= 0 or max(context) >= words:
            return []
        lease = self._lease or self._model.lease(context)
        self._lease = lease
        lease.keep(context)
        sampler, constraint = sampler.fork(), constraint and constraint.fork()
        guessed: list[int] = []
        begun = len(lease.seen)
        try:
            scores = _read(lease, context)
        except StateError:
            if not begun:
                raise
            # The smaller model is another one than that which has read the beginning.
            lease.restart()
            scores = _read(lease, context)
        while True:
            allowed = None if constraint is None else constraint.allowed()
            known = as_scores(scores) if self._probable else scores
            token = sampler.choose(_as_wide(known, sampler.words), allowed).token
            guessed.append(token)
            if len(guessed) == count or token in self._model.vocabulary.end or token >= words:
                return guessed
            if constraint is not None:
                # The smaller model may know fewer ends than the one whose answer it is.
                if constraint.ends(token):
                    return guessed
                constraint.take(token)
                if constraint.complete:
                    return guessed
            scores = lease.feed([token])[-1]

    def learn(self, guessed: int, right: int) -> None:
        """Guesses more where guesses were right."""
        self._count.learn(guessed, right)

    def close(self) -> None:
        """Gives the smaller model's session back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.give_back()


def _read(lease: Lease, context: Sequence[int]) -> NDArray[Any]:
    """Reads what is left of a text; returns the scores behind its end."""
    while True:
        scores: NDArray[Any] = lease.feed(context[len(lease.seen) :][: lease.piece])[-1]
        if len(lease.seen) == len(context):
            return scores


def _as_wide(scores: NDArray[Any], words: int) -> NDArray[Any]:
    """Returns scores of so many tokens; those that are missing are the least likely."""
    missing = words - len(scores)
    if missing <= 0:
        return scores[:words]
    return np.pad(scores, (0, missing), constant_values=np.finfo(scores.dtype).min)


def _goes_back(model: Model) -> bool:
    """Whether a network's sessions can forget their newest steps: what layers keep is by step."""
    with model.lock:
        try:
            session = model.network.session(1)
        except LoomError:
            # What makes no text is told of where it is asked for some.
            return True
        try:
            session.kept()
        except StateError:
            return False
    return True


def guesser_of(draft: object, model: Model) -> Guesser | None:
    """Makes what guesses for an answer.

    Args:
        draft: "lookup", a model, or None.
        model: The model that answers.

    Raises:
        ConfigError: It is none of these, or a model with other tokens.
        StateError: The model that answers has recurrent layers, which cannot go back behind guesses.
    """
    if draft is None:
        return None
    if not _goes_back(model):
        raise StateError(
            "draft= is for networks that go back to where guesses were wrong, and a recurrent layer keeps "
            "the state of the newest step alone: generate without draft="
        )
    if draft == "lookup":
        return Lookup()
    other = getattr(draft, "vocabulary", None)
    if not isinstance(other, Vocabulary) or not hasattr(draft, "lease"):
        raise ConfigError(f'generate: draft must be "lookup" or a language model, got {draft!r:.60}')
    if draft is model or other.tokenizer.get_vocab() != model.vocabulary.tokenizer.get_vocab():
        raise ConfigError(
            "generate: draft must be another model with the same tokens, such as a smaller one of its family"
        )
    return SmallModel(cast("Model", draft))
