"""How tokens are drawn: against transcriptions of transformers' processors, and the same on every machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import loom
from loom.text import Choice, Sampling
from loom.text.arithmetic import exponentials, logarithm, total
from loom.text.sampling import Sampler, candidates, log_probabilities

Scores = NDArray[np.float64]


def scores_of(words: int = 60, seed: int = 0, scale: float = 2.0) -> Scores:
    return np.random.default_rng(seed).normal(size=words) * scale


def test_exponentials_and_logarithms() -> None:
    draws = np.random.default_rng(0)
    x = np.concatenate([-draws.exponential(30, 20_000), [0.0, -1e-300, -708.0, -709.0, -1e308]])
    found = exponentials(x)
    within = x >= -708.0
    np.testing.assert_allclose(found[within], np.exp(x[within]), rtol=3e-16)
    assert not found[~within].any()
    np.testing.assert_array_equal(exponentials(x[:6].reshape(2, 3)), found[:6].reshape(2, 3))
    for value in [*draws.uniform(1e-5, 5, 2000), *10.0 ** draws.uniform(-300, 300, 500), 1.0]:
        assert math.isclose(logarithm(value), math.log(value), rel_tol=5e-16, abs_tol=2e-16)
    assert total(np.array([1e16, 1.0, -1e16])) == 0.0
    assert total(np.zeros(0)) == 0.0


def test_their_bits() -> None:
    """Of sums and products alone, so that they are these on every machine."""
    x = -np.array([0.1, 1.0, math.pi, 20.0, 333.25])
    assert [value.hex() for value in exponentials(x).tolist()] == BITS
    assert logarithm(12345.678).hex() == "0x1.2d79559791e31p+3"


BITS = [
    "0x1.cf46d99d52b3ap-1",
    "0x1.78b56362cef38p-2",
    "0x1.620227b598efap-5",
    "0x1.1b48655f37267p-29",
    "0x1.2a8f63851e867p-481",
]


# As transformers has them: what is left out gets -inf, and each sees what the one before has left.


def softmax(scores: Scores) -> Scores:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def top_k(scores: Scores, k: int) -> Scores:
    least = np.sort(scores)[-min(k, len(scores))]
    return np.where(scores < least, -np.inf, scores)


def top_p(scores: Scores, p: float) -> Scores:
    order = np.argsort(scores, kind="stable")
    remove = np.cumsum(softmax(scores[order])) <= 1 - p
    remove[-1] = False
    left = scores.copy()
    left[order[remove]] = -np.inf
    return left


def min_p(scores: Scores, p: float) -> Scores:
    probabilities = softmax(scores)
    return np.where(probabilities < p * probabilities.max(), -np.inf, scores)


def typical(scores: Scores, mass: float) -> Scores:
    with np.errstate(divide="ignore", invalid="ignore"):
        normalised = np.log(softmax(scores))
        entropy = -np.nansum(normalised * np.exp(normalised))
    apart = np.abs(-normalised - entropy)
    order = np.argsort(apart, kind="stable")
    last = min(int((np.cumsum(softmax(scores)[order]) < mass).sum()), len(scores) - 1)
    return np.where(apart > apart[order[last]], -np.inf, scores)


def repetition(scores: Scores, tokens: list[int], penalty: float) -> Scores:
    left = scores.copy()
    for token in set(tokens):
        left[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    return left


@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.3, 2.0, 8.0]),
    k=st.sampled_from([0, 1, 5, 40, 1000]),
    p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    least=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    mass=st.sampled_from([1.0, 0.9, 0.2]),
)
def test_what_is_left_out(seed: int, scale: float, k: int, p: float, least: float, mass: float) -> None:
    scores = scores_of(seed=seed, scale=scale)
    wanted = top_k(scores, k) if k else scores
    wanted = top_p(wanted, p) if p < 1 else wanted
    wanted = min_p(wanted, least) if least else wanted
    wanted = typical(wanted, mass) if mass < 1 else wanted
    settings = Sampling(top_k=k, top_p=p, min_p=least, typical=mass)
    tokens, weights = candidates(scores, settings)
    np.testing.assert_array_equal(tokens, np.flatnonzero(np.isfinite(wanted)))
    np.testing.assert_allclose(weights / weights.sum(), softmax(wanted)[tokens], rtol=1e-12)


def test_of_equal_scores_top_k_keeps_all_and_top_p_the_first() -> None:
    scores = np.array([1.0, 3.0, 3.0, 3.0, 0.0])
    assert candidates(scores, Sampling(top_k=2))[0].tolist() == [1, 2, 3]
    assert candidates(scores, Sampling(top_p=0.5))[0].tolist() == [1, 2]
    assert Sampler(Sampling(temperature=0), [], 5).choose(scores).token == 1
    # The smallest number above zero: what is divided by it is none.
    assert Sampler(Sampling(temperature=5e-324), [], 5).choose(scores).token == 1
    assert Sampler(Sampling(temperature=5e-324), [], 5).choose(-scores).token == 4
    assert Sampler(Sampling(temperature=5e-324), [], 5).choose(-scores - 1.0).token == 4
    # Where the largest score is zero it stays so, and the others are infinitely far below.
    with np.errstate(all="raise"):
        how = Sampling(temperature=5e-324, typical=0.5, seed=1)
        assert Sampler(how, [], 5).choose(scores - 3.0).token in (1, 2, 3)


def drawn(scores: Scores, count: int, prompt: list[int] | None = None, **settings: Any) -> list[int]:
    """The first token of so many answers."""
    how = Sampling(seed=7, **settings)
    return [
        Sampler(how, prompt or [], len(scores), stream=stream).choose(scores).token for stream in range(count)
    ]


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({}, lambda scores: scores),
        ({"temperature": 0.5}, lambda scores: scores / 0.5),
        ({"temperature": 2.0, "top_k": 3}, lambda scores: top_k(scores / 2.0, 3)),
        ({"repetition_penalty": 3.0}, lambda scores: repetition(scores, [0, 1], 3.0)),
        ({"logit_bias": {2: 5.0, 0: -100.0}}, lambda scores: scores + np.array([-100, 0, 5, 0, 0, 0])),
    ],
)
def test_draws_are_distributed_as_they_should_be(settings: dict[str, Any], change: Any) -> None:
    scores, count = scores_of(6, scale=1.0), 2000
    wanted = softmax(change(scores)) * count
    found = np.bincount(drawn(scores, count, [0, 1, 1], **settings), minlength=6)
    assert not found[wanted == 0].any()
    kept = wanted > 1
    # A chance of a thousandth for five degrees of freedom; the draws are always the same.
    assert (((found - wanted) ** 2)[kept] / wanted[kept]).sum() < 20.5


def test_penalties_count_what_was_chosen() -> None:
    scores = np.array([2.0, 1.9, -1.0, -1.1])
    sampler = Sampler(Sampling(temperature=0, frequency_penalty=0.06, presence_penalty=0.05), [0], 4)
    # 2.0 becomes 1.89, 1.9 becomes 1.79; then 1.83, 1.73 and so on: the prompt's tokens do not count.
    assert [sampler.choose(scores).token for _ in range(5)] == [0, 1, 0, 0, 1]
    repeated = Sampler(Sampling(temperature=0, repetition_penalty=1.2), [2], 4)
    assert [repeated.choose(scores[2:].repeat(2)).token for _ in range(4)] == [0, 1, 3, 0]


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0}, {"temperature": 1e-9}, {"typical": 0.9, "min_p": 0.1}]
)
def test_a_bias_of_minus_infinity_leaves_a_token_out(settings: dict[str, Any]) -> None:
    scores = np.array([9.0, 1.0, 2.0, 1e4])
    with np.errstate(invalid="raise"):
        found = drawn(scores, 50, logit_bias={0: -math.inf, 3: np.float32(-math.inf)}, **settings)
        # Where nothing else is left, it is as if none were left out.
        assert drawn(scores[:1], 1, logit_bias={0: -math.inf}, **settings) == [0]
    assert set(found) <= {1, 2}


def test_a_seed_repeats_the_draws_and_others_differ() -> None:
    scores = np.zeros(1000)

    def row(seed: int | None, stream: int = 0) -> list[int]:
        sampler = Sampler(Sampling(seed=seed), [], 1000, stream=stream)
        return [sampler.choose(scores).token for _ in range(8)]

    assert row(5) == row(5)
    assert len({tuple(row(seed, stream)) for seed in (5, 6, 5 << 32, 2**64 - 1) for stream in (0, 1)}) == 8
    assert row(None) != row(None)
    # These very ones, everywhere: the counters of Philox4x32-10 under the seed.
    assert row(5) == DRAWS


DRAWS = [765, 347, 963, 670, 683, 515, 994, 637]


def test_draws_at_the_ends() -> None:
    class Fixed(Sampler):
        at = 0.0

        def _uniforms(self, count: int) -> NDArray[np.float64]:
            return np.full(count, self.at)

    for at, token in ((0.0, 1), (1.0, 3), (1 - 2**-53, 3)):
        sampler = Fixed(Sampling(), [], 6)
        sampler.at = at
        # The first and the last two tokens have no weight.
        assert sampler.choose(np.array([-2000.0, 1.0, 0.0, 0.5, -2000.0, -2000.0])).token == token


def test_logarithms_of_probabilities_are_the_network_s() -> None:
    scores = scores_of(20).astype(np.float32)
    wanted = np.log(softmax(scores.astype(np.float64)))
    np.testing.assert_allclose(log_probabilities(scores.astype(np.float64)), wanted, rtol=1e-13)
    sampler = Sampler(Sampling(temperature=0, logit_bias={3: 100.0}), [], 20, logprobs=2)
    choice = sampler.choose(scores)
    best = np.argsort(-wanted)[:2]
    assert choice.token == 3
    assert choice.logprob == pytest.approx(wanted[3], rel=1e-12)
    assert [token for token, _ in choice.top] == best.tolist()
    assert [value for _, value in choice.top] == pytest.approx(wanted[best], rel=1e-12)
    assert Sampler(Sampling(temperature=0), [], 20, logprobs=0).choose(scores).top == ()
    assert Sampler(Sampling(temperature=0), [], 20).choose(scores) == Choice(int(scores.argmax()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", 1.5),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("typical", 0),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", "much"),
        ("presence_penalty", float("inf")),
        ("seed", -1),
        ("logit_bias", [1]),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {1: float("inf")}),
        ("logit_bias", {1: float("nan")}),
        ("logit_bias", {1: "-inf"}),
    ],
)
def test_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(loom.ConfigError, match=name):
        Sampling(**{name: value})
    with pytest.raises(loom.ConfigError, match="token 9; the model has 9"):
        Sampler(Sampling(logit_bias={9: 1.0}), [], 9)
