"""Which token comes next: the settings, and the draw."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom.data.philox import philox4x32
from loom.errors import ConfigError
from loom.text.arithmetic import exponentials, logarithm, total
from loom.text.errors import OptionError

__all__ = ["LEAST_MASS", "Choice", "Draws", "Sampler", "Sampling", "log_probabilities"]

_WHERE = "Sampling"

_NEVER = -1e30
"""The least bias: no token with it has weight beside another one, and it is a number in float32, too."""

_TOGETHER = 64
"""How many draws are made at a time."""

LEAST_MASS = 2.0**-100
"""What `top_p` is where others say 0: the likeliest token alone. It is a number in float32, too."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    Scores are changed in this order: repetition, frequency and presence penalties, `logit_bias`, temperature;
    then tokens are left out by `top_k`, `top_p`, `min_p` and `typical`, each of what the one before has left.

    Args:
        temperature: What scores are divided by; 0 takes the token with the largest score, and of several
            such the first.
        top_k: Only so many tokens with the largest scores, and all that have the same score as the last of
            them; 0 for all.
        top_p: Only the likeliest tokens, as few as together have this probability (Holtzman et al. 2020).
        min_p: Only tokens with at least this part of the likeliest one's probability (Nguyen et al. 2024).
        typical: Only tokens whose surprise is nearest to the expected one, as few as together have this
            probability (Meister et al. 2022).
        repetition_penalty: Positive scores of tokens that the prompt or the answer has are divided by it,
            negative ones multiplied (Keskar et al. 2019).
        frequency_penalty: Is subtracted from a token's score for each time that the answer has it.
        presence_penalty: Is subtracted from the score of every token that the answer has.
        logit_bias: What is added to the scores of tokens, by id; minus infinity leaves a token out.
        seed: The draws' key, 64 bits; a new one each time where None.

    Raises:
        ConfigError: A setting is out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        real(_WHERE, "temperature", self.temperature, least=0.0)
        whole(_WHERE, "top_k", self.top_k, least=0)
        real(_WHERE, "top_p", self.top_p, above=0.0, most=1.0)
        real(_WHERE, "min_p", self.min_p, least=0.0, most=1.0)
        real(_WHERE, "typical", self.typical, above=0.0, most=1.0)
        real(_WHERE, "repetition_penalty", self.repetition_penalty, above=0.0)
        real(_WHERE, "frequency_penalty", self.frequency_penalty)
        real(_WHERE, "presence_penalty", self.presence_penalty)
        if not isinstance(self.logit_bias, Mapping):
            raise ConfigError(
                f"{_WHERE}: logit_bias must be numbers by token id, got {self.logit_bias!r:.60}"
            )
        for token, bias in self.logit_bias.items():
            whole(_WHERE, "a token of logit_bias", token, least=0)
            given: object = bias
            if not (isinstance(given, (float, np.floating)) and given == -np.inf):
                real(_WHERE, f"logit_bias of token {token}", bias)
        if self.seed is not None:
            whole(_WHERE, "seed", self.seed, least=0)


class Choice(NamedTuple):
    """A token that was chosen.

    Args:
        token: Its id.
        logprob: The logarithm of the probability that the network gives it, before penalties, temperature
            and what is left out; None where it was not asked for.
        top: The likeliest tokens with theirs, the likeliest first.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Draws(NamedTuple):
    """What the next tokens are drawn by where the network draws them itself.

    Args:
        settings: (8,) temperature, top_k, top_p, min_p, typical, and the penalties for repetition, frequency
            and presence.
        uniforms: (count,) a number from 0 to below 1 for each token.
        changes: (changes, 3) tokens in the order of their ids, how often the answer has each (0.5 for those
            that only the prompt has), and what is added to their scores: those with a bias, and, where a
            penalty asks for it, those that came before.
    """

    settings: NDArray[np.float64]
    uniforms: NDArray[np.float64]
    changes: NDArray[np.float64]


class Sampler:
    """Chooses tokens, one after the other.

    The draws depend on the seed and the token's place in the answer alone, and all is computed in float64 in
    one order: the same scores give the same tokens on every machine.

    Args:
        settings: How.
        prompt: The tokens before the answer.
        vocabulary: How many tokens there are.
        logprobs: How many of the likeliest tokens are told beside the chosen one; None for no logarithms
            at all.
        stream: Which one of several answers to the same prompt this is; their draws differ.

    Raises:
        ConfigError: `logit_bias` has a token that is not there.

    Examples:
        >>> layers = [nn.Embedding(5, 8), nn.GRU(8, return_sequences=True), nn.Dense(5)]
        >>> net = loom.Sequential(layers, input_shape=(4,), seed=1)
        >>> prompt = [1, 2]
        >>> sampler = loom.text.Sampler(loom.text.Sampling(temperature=0.8, seed=1), prompt, 5)
        >>> net.session(capacity=10).follow([prompt], 3, samplers=[sampler]).shape
        (1, 3)
    """

    def __init__(
        self,
        settings: Sampling,
        prompt: Sequence[int],
        vocabulary: int,
        logprobs: int | None = None,
        stream: int = 0,
    ) -> None:
        self.settings = settings
        self.seed = secrets.randbits(63) if settings.seed is None else settings.seed
        self._logprobs = logprobs
        self._stream = stream
        self._place = 0
        # Draws that were made ahead, and for which place the first of them is.
        self._known, self._drawn_from = np.empty(0), 0
        self._seen = np.zeros(vocabulary, bool)
        self._seen[np.asarray(prompt, np.int64)] = True
        self._counts = np.zeros(vocabulary, np.int64)
        beyond = [token for token in settings.logit_bias if token >= vocabulary]
        if beyond:
            raise OptionError(f"logit_bias names token {beyond[0]}; the model has {vocabulary}", "logit_bias")
        self._biased = np.array(sorted(settings.logit_bias), np.int64)
        biases = [settings.logit_bias[int(token)] for token in self._biased]
        self._biases = np.maximum(np.array(biases, np.float64), _NEVER)

    @property
    def words(self) -> int:
        """How many tokens there are."""
        return len(self._seen)

    @property
    def takes_the_likeliest(self) -> bool:
        """Whether each token is the one with the largest score, and nothing is told of others."""
        plain = self.settings.temperature == 0.0 and not len(self._biased)
        return plain and self.tells_nothing_else and not self._penalises

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self._seen)

    @property
    def tells_nothing_else(self) -> bool:
        """Whether nothing is told beside the tokens that are chosen."""
        return self._logprobs is None

    @property
    def _penalises(self) -> bool:
        wanted = self.settings
        return (
            wanted.repetition_penalty != 1.0
            or wanted.frequency_penalty != 0.0
            or wanted.presence_penalty != 0.0
        )

    def draws(self, count: int) -> Draws:
        """Returns what the next tokens are drawn by, for a session that goes on by itself.

        Args:
            count: The most tokens.
        """
        wanted, changed = self.settings, self._biased
        if self._penalises:
            changed = np.flatnonzero(self._seen)
            if len(self._biased):
                changed = np.union1d(changed, self._biased)
        changes = np.zeros((len(changed), 3))
        changes[:, 0] = changed
        if self._penalises:
            changes[:, 1] = np.where(self._seen[changed], np.maximum(self._counts[changed], 0.5), 0.0)
        changes[np.searchsorted(changed, self._biased), 2] = self._biases
        settings = [
            wanted.temperature,
            # More than there are leave none out.
            wanted.top_k if wanted.top_k < len(self._seen) else 0,
            wanted.top_p,
            wanted.min_p,
            wanted.typical,
            wanted.repetition_penalty,
            wanted.frequency_penalty,
            wanted.presence_penalty,
        ]
        return Draws(np.array(settings, np.float64), self._uniforms(count), changes)

    def took(self, tokens: Sequence[int]) -> None:
        """Takes note of tokens that were drawn so.

        Args:
            tokens: The tokens, in their order.
        """
        self._place += len(tokens)
        chosen = np.asarray(tokens, np.int64)
        np.add.at(self._counts, chosen, 1)
        self._seen[chosen] = True

    def fork(self) -> Sampler:
        """Returns one that stands where this does, with the same draws to come."""
        other = copy(self)
        other._seen, other._counts = self._seen.copy(), self._counts.copy()
        other._logprobs = None
        return other

    def choose(self, scores: NDArray[np.floating], allowed: NDArray[np.int64] | None = None) -> Choice:
        """Chooses the next token.

        Args:
            scores: (vocabulary,) the network's.
            allowed: The tokens that there is to choose from, in the order of their ids; all where None.
        """
        exact = scores.astype(np.float64)
        changed = self._penalised(exact)
        if allowed is not None:
            changed = changed[allowed]
        temperature = self.settings.temperature
        with np.errstate(over="ignore"):
            warmed = changed / temperature if temperature else changed
        # At zero nothing is left to chance, and so near to it that the quotients are no numbers.
        is_certain = temperature == 0.0 or np.isinf(warmed.max())
        place = int(changed.argmax()) if is_certain else self._drawn(warmed)
        token = place if allowed is None else int(allowed[place])
        self._place += 1
        self._counts[token] += 1
        self._seen[token] = True
        if self._logprobs is None:
            return Choice(token)
        logarithms = log_probabilities(exact)
        likeliest = np.argsort(-logarithms, kind="stable")[: self._logprobs]
        top = tuple((int(each), float(logarithms[each])) for each in likeliest)
        return Choice(token, float(logarithms[token]), top)

    def _penalised(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        wanted, changed = self.settings, scores
        if wanted.repetition_penalty != 1.0:
            by = wanted.repetition_penalty
            changed = np.where(self._seen, np.where(scores > 0, scores / by, scores * by), scores)
        if wanted.frequency_penalty != 0.0:
            changed = changed - wanted.frequency_penalty * self._counts
        if wanted.presence_penalty != 0.0:
            changed = changed - wanted.presence_penalty * (self._counts > 0)
        if len(self._biased):
            changed = changed.copy()
            changed[self._biased] += self._biases
        return changed

    def _drawn(self, scores: NDArray[np.float64]) -> int:
        tokens, weights = candidates(scores, self.settings)
        sums = np.add.accumulate(weights)
        place = int(np.searchsorted(sums, self._uniforms(1)[0] * sums[-1], side="right"))
        # A product that is rounded up may be the whole sum; tokens without weight are never drawn.
        return int(tokens[min(place, int(np.flatnonzero(weights)[-1]))])

    def _uniforms(self, count: int) -> NDArray[np.float64]:
        """Returns the draws for the next places, of 53 bits, from 0 to below 1."""
        ahead = self._place - self._drawn_from
        if not 0 <= ahead <= len(self._known) - count:
            # Many at a time: a few take as long.
            self._drawn_from, self._known, ahead = self._place, self._draw(max(count, _TOGETHER)), 0
        return self._known[ahead : ahead + count]

    def _draw(self, count: int) -> NDArray[np.float64]:
        places = np.arange(self._place, self._place + count, dtype=np.uint64)
        stream, zeros = np.full(count, self._stream, np.uint64), np.zeros(count, np.uint64)
        key = (self.seed & 0xFFFFFFFF, self.seed >> 32)
        words = philox4x32((places, stream, zeros, zeros), key).astype(np.float64)
        high, low = np.floor(words[0] / 32.0), np.floor(words[1] / 64.0)
        uniforms: NDArray[np.float64] = (high * 67108864.0 + low) / 9007199254740992.0
        return uniforms


def log_probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the logarithms of the probabilities that scores mean.

    Args:
        scores: (vocabulary,).
    """
    shifted: NDArray[np.float64] = scores - scores.max()
    shifted -= logarithm(total(exponentials(shifted)))
    return shifted


def candidates(
    scores: NDArray[np.float64], settings: Sampling
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the tokens that may be drawn, in the order of their ids, and what they weigh.

    Args:
        scores: (vocabulary,) after penalties and temperature.
        settings: What is left out.

    Returns:
        The tokens, and numbers as their probabilities are to each other.
    """
    tokens = np.arange(len(scores))
    if 0 < settings.top_k < len(scores):
        least = np.partition(scores, -settings.top_k)[-settings.top_k]
        tokens = np.flatnonzero(scores >= least)
    shifted = scores[tokens] - scores.max()
    weights = exponentials(shifted)
    if settings.top_p < 1.0:
        kept = _likeliest(weights, settings.top_p)
        tokens, shifted, weights = tokens[kept], shifted[kept], weights[kept]
    if settings.min_p > 0.0:
        kept = np.flatnonzero(weights >= settings.min_p * weights.max())
        tokens, shifted, weights = tokens[kept], shifted[kept], weights[kept]
    if settings.typical < 1.0:
        kept = _typical(shifted, weights, settings.typical)
        tokens, weights = tokens[kept], weights[kept]
    return tokens, weights


def _likeliest(weights: NDArray[np.float64], mass: float) -> NDArray[np.intp]:
    """Returns the places of the fewest tokens that together have a part of the whole weight."""
    whole_weight = total(weights)
    # All that are lighter have less than the rest of the weight together, so none of them is needed: they
    # need not be sorted.
    heavy = np.flatnonzero(weights >= (1.0 - mass) * whole_weight / (2 * len(weights)))
    order = heavy[np.argsort(-weights[heavy], kind="stable")]
    before = np.add.accumulate(weights[order]) - weights[order]
    return np.sort(order[before < mass * whole_weight])


def _typical(shifted: NDArray[np.float64], weights: NDArray[np.float64], mass: float) -> NDArray[np.intp]:
    """Returns the places of the fewest tokens nearest to the expected surprise that have so much weight.

    A token's surprise is log(Z) less its score, and the expected one log(Z) less the expected score: what
    lies between them is what lies between the scores.
    """
    whole_weight = total(weights)
    # Those without weight add nothing, though their scores may be infinitely far below.
    expected = total(weights * np.where(weights > 0.0, shifted, 0.0)) / whole_weight
    apart = np.abs(shifted - expected)
    order = np.argsort(apart, kind="stable")
    sums = np.add.accumulate(weights[order])
    last = min(int(np.count_nonzero(sums < mass * whole_weight)), len(order) - 1)
    return np.flatnonzero(apart <= apart[order[last]])
