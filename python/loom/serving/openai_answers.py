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
from loom.text import Choice, Generation, LanguageModel, Told, ToolCall, ToolReader

__all__ = ["Answer", "embeddings", "error_of", "usage_of"]


class Answer:
    """The objects that answer one request, whole or in pieces.

    Args:
        model: The model.
        name: What it is called.
        chat: Whether it is a chat's.
        tools: Whether calls of tools are read out of it.
    """

    def __init__(self, model: LanguageModel, name: str, *, chat: bool, tools: bool = False) -> None:
        self._model = model
        self._chat = chat
        self._tools = tools
        # Of each answer whose pieces are told.
        self._readers: dict[int, ToolReader] = {}
        # Of each answer: how many characters its tokens have had.
        self._offsets: Counter[int] = Counter()
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": name,
            "system_fingerprint": f"loom-{__version__}",
        }

    def whole(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        """Returns an answer at once."""
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": list(choices), "usage": usage}

    def piece(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns a piece of an answer."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        told = {} if usage is None else {"usage": usage}
        return {**self._head, "object": kind, "choices": list(choices), **told}

    def choice(self, index: int, generation: Generation, echoed: str, *, logprobs: bool) -> dict[str, Any]:
        """Returns one answer, whole."""
        tokens = self._told(generation, 0, len(generation.tokens)) if logprobs else None
        told = None if tokens is None else self._logprobs(tokens, 0)
        text = echoed + generation.text
        if not self._chat:
            return {"index": index, "text": text, "logprobs": told, "finish_reason": generation.finish_reason}
        finish: str | None = generation.finish_reason
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self._tools:
            rest, calls = self._model.read_tools(text)
            if calls:
                message |= {"content": rest or None, "tool_calls": [_call(call) for call in calls]}
                finish = "tool_calls" if finish == "stop" else finish
        return {"index": index, "message": message, "logprobs": told, "finish_reason": finish}

    def begin(self, index: int, echoed: str) -> dict[str, Any] | None:
        """Returns the piece that an answer begins with; None where it needs none."""
        if self._chat:
            said: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}}
        elif echoed:
            said = {"text": echoed}
        else:
            return None
        return {"index": index, **said, "logprobs": None, "finish_reason": None}

    def part(self, index: int, piece: Told, begin: int, *, logprobs: bool) -> dict[str, Any]:
        """Returns a piece of an answer: its text, and the tokens from one on."""
        told = None
        if logprobs:
            told = self._logprobs(self._told(piece.generation, begin, piece.tokens), self._offsets[index])
            self._offsets[index] += sum(map(len, told.get("tokens", ())))
        finish: str | None = piece.finish
        if not self._chat:
            return {"index": index, "text": piece.text, "logprobs": told, "finish_reason": finish}
        text = piece.text
        delta: dict[str, Any] = {}
        if self._tools:
            reader = self._readers.setdefault(index, self._model.tool_reader())
            before = len(reader.calls)
            text = reader.add(text) + (reader.finish() if piece.last else "")
            new = reader.calls[before:]
            if new:
                delta["tool_calls"] = [
                    {"index": place, **_call(call)} for place, call in enumerate(new, before)
                ]
            if reader.calls and finish == "stop":
                finish = "tool_calls"
        if text:
            delta["content"] = text
        return {"index": index, "delta": delta, "logprobs": told, "finish_reason": finish}

    def _told(self, generation: Generation, begin: int, end: int) -> list[Choice]:
        """Returns some of an answer's tokens, without the one that has ended it."""
        return generation.tokens[begin : min(end, len(generation.tokens) - generation.ended_by_token)]

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


def _call(call: ToolCall) -> dict[str, Any]:
    """Returns a call of a tool."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def usage_of(generations: Sequence[Generation], choices: int) -> dict[str, Any]:
    """Returns how many tokens answers took.

    Args:
        generations: The answers, those to one prompt behind each other.
        choices: How many there are to each prompt, which counts once.
    """
    first = generations[::choices]
    read = sum(each.prompt_tokens for each in first)
    written = sum(len(each.tokens) for each in generations)
    reused = sum(each.reused_tokens for each in first)
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
    told = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    # What is told of a request may hold half a pair of surrogates, as the request does.
    return {
        "error": {
            name: value if value is None else value.encode("utf-8", "backslashreplace").decode()
            for name, value in told.items()
        }
    }
