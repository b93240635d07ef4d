"""Answers in the form of OpenAI's interface."""

from __future__ import annotations

import base64
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._native import __version__
from loom.serving.openai_requests import RequestError
from loom.text import Choice, Generation, LanguageModel

__all__ = ["Answer", "embeddings", "error_of", "usage_of"]


class Answer:
    """The objects that answer one request, whole or in pieces.

    Args:
        model: The model.
        name: What it is called.
        chat: Whether it is a chat's.
    """

    def __init__(self, model: LanguageModel, name: str, *, chat: bool) -> None:
        self._model = model
        self._chat = chat
        # Of each answer: how many characters its tokens have had.
        self._offsets: Counter[int] = Counter()
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": name,
            "system_fingerprint": f"loom-{__version__}",
        }

    def whole(self, choices: Sequence[dict[str, Any]], generations: Sequence[Generation]) -> dict[str, Any]:
        """Returns an answer at once."""
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": list(choices), "usage": usage_of(generations)}

    def piece(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns a piece of an answer."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        told = {} if usage is None else {"usage": usage}
        return {**self._head, "object": kind, "choices": list(choices), **told}

    def choice(self, index: int, generation: Generation, echoed: str, *, logprobs: bool) -> dict[str, Any]:
        """Returns one answer, whole."""
        tokens = self._told(generation, 0) if logprobs else None
        told = None if tokens is None else self._logprobs(tokens, 0)
        text = echoed + generation.text
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self._chat
            else {"text": text}
        )
        return {"index": index, **said, "logprobs": told, "finish_reason": generation.finish_reason}

    def begin(self, index: int, echoed: str) -> dict[str, Any] | None:
        """Returns the piece that an answer begins with; None where it needs none."""
        if self._chat:
            said: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}}
        elif echoed:
            said = {"text": echoed}
        else:
            return None
        return {"index": index, **said, "logprobs": None, "finish_reason": None}

    def part(
        self, index: int, generation: Generation, text: str, begin: int, *, logprobs: bool
    ) -> dict[str, Any]:
        """Returns a piece of an answer: its text, and the tokens from one on."""
        told = None
        if logprobs:
            told = self._logprobs(self._told(generation, begin), self._offsets[index])
            self._offsets[index] += sum(map(len, told.get("tokens", ())))
        said: dict[str, Any] = {"delta": {"content": text} if text else {}} if self._chat else {"text": text}
        return {"index": index, **said, "logprobs": told, "finish_reason": generation.finish_reason}

    def _told(self, generation: Generation, begin: int) -> list[Choice]:
        """Returns the tokens of an answer, without the one that has ended it."""
        ended = generation.finish_reason == "stop" and generation.stop is None
        return generation.tokens[begin : len(generation.tokens) - ended]

    def _text(self, token: int) -> str:
        return self._model.token_bytes(token).decode("utf-8", "replace")

    def _logprobs(self, tokens: Sequence[Choice], offset: int) -> dict[str, Any]:
        if self._chat:
            content = [
                {
                    **self._entry(choice.token, choice.logprob),
                    "top_logprobs": [self._entry(*top) for top in choice.top],
                }
                for choice in tokens
            ]
            return {"content": content, "refusal": None}
        texts = [self._text(choice.token) for choice in tokens]
        lengths = np.cumsum([0, *map(len, texts)])[:-1] + offset
        return {
            "tokens": texts,
            "token_logprobs": [choice.logprob for choice in tokens],
            "top_logprobs": [{self._text(token): value for token, value in choice.top} for choice in tokens],
            "text_offset": lengths.tolist(),
        }

    def _entry(self, token: int, logprob: float | None) -> dict[str, Any]:
        held = self._model.token_bytes(token)
        return {"token": held.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(held)}


def usage_of(generations: Sequence[Generation]) -> dict[str, Any]:
    """Returns how many tokens answers took."""
    read = sum(each.prompt_tokens for each in generations)
    written = sum(len(each.tokens) for each in generations)
    reused = sum(each.reused_tokens for each in generations)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def embeddings(vectors: Sequence[NDArray[Any]], tokens: int, name: str, *, packed: bool) -> dict[str, Any]:
    """Returns vectors of texts."""

    def told(vector: NDArray[Any]) -> str | list[float]:
        if packed:
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()
        numbers: list[float] = vector.tolist()
        return numbers

    data = [
        {"object": "embedding", "index": index, "embedding": told(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 404: "not_found_error"}


def error_of(error: RequestError) -> dict[str, Any]:
    """Returns what is told of a request that is not answered."""
    kind = "server_error" if error.status >= 500 else _TYPES.get(error.status, "invalid_request_error")
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}
