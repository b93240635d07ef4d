"""What may be asked of an answer, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from loom._settings.suggestions import shown
from loom.text.errors import OptionError

if TYPE_CHECKING:
    from loom.text.guessing import Model

__all__ = ["Options", "stop_texts"]


class Options(TypedDict, total=False):
    """What `generate`, `complete` and `chat` take by name.

    Args:
        max_tokens: The most tokens of the answer; as many as the capacity has room for where left out, and
            with `sinks` any number.
        stop: A text, or several, before the first of which the answer ends.
        logprobs: How many of the likeliest tokens are told of each place, with the logarithms of their
            probabilities; 0 tells those of the chosen tokens alone.
        stream: Which one of several answers with the same seed this is.
        ignore_end: Whether tokens that end an answer are taken as any other.
        regex: A regular expression that the whole answer is to match, in the form of Rust's `regex`.
        json_schema: A JSON Schema of the answer, as an object, as text, or as a model of pydantic, whose own
            fields alone the answer has unless it keeps others (extra="allow"); True for any JSON object.
        grammar: A grammar of the answer, in Lark's form or llama.cpp's (GBNF). Of these three one may be
            given; an answer that has as many tokens as it may have can end before it is whole.
        draft: What guesses tokens ahead, for the network to look at several at once: "lookup" for what has
            followed the last few tokens before, or a smaller model with the same tokens. The answer is the
            one without. Networks with recurrent layers answer without: they cannot go back behind guesses.
        sinks: Has an answer go on where the capacity is full: so many of the first tokens stay, and the
            newest half of the others, which are read again from there (Xiao et al. 2023). Without
            `max_tokens` it goes on until a token, a text to stop at, or its form ends it. None ends it where
            the capacity is full.

    The others are those of `Sampling`.
    """

    max_tokens: int | None
    stop: str | Sequence[str] | None
    logprobs: int | None
    stream: int
    ignore_end: bool
    regex: str | None
    json_schema: Mapping[str, Any] | str | bool | type[Any] | None
    grammar: str | None
    draft: Literal["lookup"] | Model | None
    sinks: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None


def stop_texts(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the texts to stop at.

    Args:
        given: A text, several, or None for none.

    Raises:
        ConfigError: One is no text, or empty.
    """
    told: object = () if given is None else given
    stops = tuple(told) if isinstance(told, Iterable) and not isinstance(told, str) else (told,)
    texts = tuple(stop for stop in stops if isinstance(stop, str) and stop)
    if len(texts) < len(stops):
        raise OptionError(f"generate: stop must be texts that are not empty, got {shown(given)}", "stop")
    return texts
