"""Tokens that are guessed ahead: the answer is the one without, whatever is guessed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom import nn
from loom.command_line import main
from loom.text import LanguageModel, Vocabulary
from loom.text.guessing import Lookup
from loom.text.sampling import Sampler, Sampling
from text_models import SETTINGS, byte_level, decoder, write_folder

TOKENIZER = byte_level()


def made(seed: int = 3, blocks: int = 2, capacity: int = 120) -> LanguageModel:
    return LanguageModel(decoder(400, seed=seed, blocks=blocks), Vocabulary(TOKENIZER), capacity=capacity)


@cache
def models() -> dict[str, Any]:
    """What answers, and what guesses for it: always right, never, now and then, and with little room."""
    answers = made()
    near = made()
    state = near.network.state_dict()
    near.network.load_state_dict(
        {name: array * (0.97 if "1." in name else 1.0) for name, array in state.items()}
    )
    return {
        "answers": answers,
        "same": made(),
        "near": near,
        "other": made(seed=9, blocks=1),
        "short": made(capacity=20),
        "lookup": "lookup",
    }


OPTIONS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 60),
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 3]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
        "seed": st.integers(0, 1 << 40),
        "stop": st.sampled_from([None, "e", "th"]),
        "logprobs": st.sampled_from([None, 2]),
    }
)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(6, 399), min_size=1, max_size=30),
    st.sampled_from(["same", "near", "other", "short", "lookup"]),
    OPTIONS,
)
def test_answers_are_those_without(prompt: list[int], draft: str, options: dict[str, Any]) -> None:
    held = models()
    talks = held["answers"]
    # A text that repeats itself, so that there is something to look up.
    prompt = prompt + prompt[: len(prompt) // 2]
    plain = talks.complete(prompt, **options)
    stream = talks.generate(prompt, draft=held[draft], **options)
    found = stream.finish()
    assert (found.text, found.tokens, found.finish, found.stop) == (
        plain.text,
        plain.tokens,
        plain.finish,
        plain.stop,
    )
    assert 0 <= stream.right_tokens <= stream.guessed_tokens
    # What was read of wrong guesses is forgotten: the next prompt goes on from the answer.
    more = [*prompt, *(choice.token for choice in found.tokens), 7]
    assert talks.complete(more, max_tokens=1, temperature=0, logprobs=1).tokens == (
        LanguageModel(talks.network, TOKENIZER, capacity=120)
        .complete(more, max_tokens=1, temperature=0, logprobs=1)
        .tokens
    )


def test_a_model_that_guesses_itself_is_always_right() -> None:
    held = models()
    for temperature in (0.0, 1.0):
        options: Any = {"max_tokens": 50, "temperature": temperature, "seed": 4}
        stream = held["answers"].generate("Once upon", draft=held["same"], **options)
        stream.finish()
        # The last token is never guessed.
        assert stream.right_tokens == stream.guessed_tokens >= 35


@pytest.mark.parametrize(("words", "small_words"), [(400, 464), (464, 400), (400, 380)])
def test_tables_that_are_filled_up_differently_guess_for_each_other(words: int, small_words: int) -> None:
    talks = LanguageModel(decoder(words), TOKENIZER, capacity=60)
    small = LanguageModel(decoder(small_words, seed=5, blocks=1), TOKENIZER, capacity=60)
    changes: tuple[Any, ...] = (
        {"temperature": 0.0},
        {"repetition_penalty": 1.3, "seed": 1, "typical": 0.9},
        {"logit_bias": {399: 20.0}, "seed": 2},
    )
    guessed = 0
    for options in changes:
        plain = talks.complete("Once upon", max_tokens=30, **options)
        stream = talks.generate("Once upon", max_tokens=30, draft=small, **options)
        assert stream.finish().tokens == plain.tokens
        guessed += stream.guessed_tokens
    assert guessed


def test_what_is_looked_up_is_what_has_followed() -> None:
    sampler = Sampler(Sampling(), [], 50)
    lookup = Lookup()
    assert lookup.guess([1, 2, 3], 9, sampler, None) == []
    assert lookup.guess([1, 2, 3, 9, 1, 2], 9, sampler, None) == [3, 9, 1, 2]
    # The newest place of the longest run, and no more than there is room for.
    assert lookup.guess([1, 2, 3, 9, 1, 2, 4, 1, 2], 1, sampler, None) == [4]
    assert lookup.guess([1, 2, 3, 9, 1, 2, 4, 8, 8, 3, 9, 1, 2], 9, sampler, None) == [4, 8, 8, 3]
    # A text that is another one.
    assert lookup.guess([4, 4, 4], 9, sampler, None) == [4]
    assert lookup.guess([5, 6, 5, 6], 9, sampler, None) == [5, 6]


def test_a_smaller_model_that_has_changed_guesses_as_it_is_now() -> None:
    talks, small = made(), made(seed=5)
    options: Any = {"max_tokens": 20, "temperature": 1.0, "seed": 2}
    plain = talks.complete("Once upon", **options)
    assert talks.complete("Once upon", draft=small, **options).tokens == plain.tokens
    # What it has read before the change is no more what it would make of it.
    small.network.load_state_dict(talks.network.state_dict())
    stream = talks.generate("Once upon", draft=small, **options)
    assert stream.finish().tokens == plain.tokens
    assert stream.right_tokens == stream.guessed_tokens > 0


def test_what_cannot_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talks = made()
    for draft in ("prompt", 3, talks, LanguageModel(decoder(400), byte_level("gpt-2", 300))):
        with pytest.raises(loom.ConfigError, match="draft must be"):
            talks.generate("a", draft=draft)  # type: ignore[arg-type]
    layers = [nn.Embedding(400, 8), nn.GRU(8, return_sequences=True), nn.Dense(400)]
    recurrent = LanguageModel(loom.Sequential(layers, input_shape=16, seed=2), TOKENIZER, capacity=50)
    plain = recurrent.complete([7, 8, 7, 8], max_tokens=9, temperature=0)
    # Before anything is read, rather than where a guess is wrong.
    for guesses in (made(seed=5), "lookup"):
        with pytest.raises(loom.StateError, match="generate without draft="):
            recurrent.generate([7, 8, 7, 8], max_tokens=30, draft=guesses)  # type: ignore[arg-type]
        with pytest.raises(loom.StateError, match="generate without draft="):
            pytest.importorskip("loom.serving").create_language_app(recurrent, draft=guesses)
    assert recurrent.complete([7, 8, 7, 8], max_tokens=9, temperature=0).tokens == plain.tokens
    # As the smaller model it reads the text anew after a wrong guess.
    options: Any = {"max_tokens": 30, "temperature": 2.0, "seed": 1}
    guessed = made(capacity=50).complete([7, 8, 7, 8], draft=recurrent, **options)
    assert guessed.tokens == made(capacity=50).complete([7, 8, 7, 8], **options).tokens
    # On the command line.
    big = write_folder(tmp_path / "big", decoder(400), TOKENIZER, **SETTINGS)
    small = write_folder(tmp_path / "small", decoder(400, blocks=1), TOKENIZER, **SETTINGS)
    words = ["generate", str(big), "Once upon", "--max-tokens", "9", "--seed", "4"]
    told = []
    for more in ([], ["--draft", str(small)], ["--draft", "lookup"]):
        assert main([*words, *more]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] == told[2]
