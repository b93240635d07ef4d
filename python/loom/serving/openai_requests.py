"""What requests in the form of OpenAI's interface ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from loom.errors import LoomError
from loom.text import Options, Sampling
from loom.text.sampling import LEAST_MASS

__all__ = ["ChatRequest", "CompletionRequest", "EmbeddingRequest", "RequestError", "read_request"]

_USUAL_COMPLETION = 16
"""The most tokens of a completion for which a request does not say, as with OpenAI."""

_IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
"""What a request may say to those who keep accounts, and which changes no answer."""

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical",
    "repetition_penalty": "repetition_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Settings of `Sampling`, by their names in requests."""


class RequestError(LoomError, ValueError):
    """A request that is not answered.

    Args:
        message: Why.
        param: What of the request is wrong.
        status: HTTP's.
        code: OpenAI's name of it.
    """

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


@dataclass(frozen=True)
class CompletionRequest:
    """What /v1/completions is asked.

    Args:
        prompts: Texts, or rows of tokens.
        options: How each is gone on from.
        choices: How many answers each gets.
        stream: Whether answers are told piece by piece.
        usage: Whether a stream tells at its end how many tokens there were.
        echo: Whether the prompt is told before its answer.
    """

    prompts: list[str | list[int]]
    options: Options
    choices: int = 1
    stream: bool = False
    usage: bool = False
    echo: bool = False


@dataclass(frozen=True)
class ChatRequest:
    """What /v1/chat/completions is asked; see `CompletionRequest`."""

    messages: list[dict[str, Any]]
    options: Options
    choices: int = 1
    stream: bool = False
    usage: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: str = "auto"


@dataclass(frozen=True)
class EmbeddingRequest:
    """What /v1/embeddings is asked.

    Args:
        texts: Texts, or rows of tokens.
        packed: Whether vectors are told as base64 of their bytes.
    """

    texts: list[str | list[int]]
    packed: bool = False


class _Fields:
    """A request's fields, each taken once; what is left over is unknown."""

    def __init__(self, body: bytes) -> None:
        try:
            held = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the body is no JSON: {error}") from error
        if not isinstance(held, dict):
            raise RequestError("the body is no JSON object")
        # Null is as if it were not there.
        self._held = {name: value for name, value in held.items() if value is not None}

    def take(self, name: str, kinds: type | tuple[type, ...], told: str, usual: Any = None) -> Any:  # noqa: ANN401
        """Returns a field, or what is usual where it is not there."""
        if name not in self._held:
            return usual
        value = self._held.pop(name)
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise RequestError(f"{name} must be {told}, got {_shown(value)}", name)
        return value

    def whole(self, name: str, usual: int | None, least: int, most: int) -> Any:  # noqa: ANN401
        """Returns a whole number."""
        value = self.take(name, int, "a whole number", usual)
        if value is not None and not least <= value <= most:
            raise RequestError(f"{name} must be from {least} to {most}, got {value}", name)
        return value

    def refuse(self, name: str, allowed: Sequence[Any], reason: str) -> None:
        """Refuses a field unless it asks for what is done anyway."""
        value = self._held.pop(name, None)
        if value is not None and value not in allowed:
            raise RequestError(f"{name}: {reason}", name, code="unsupported_parameter")

    def finish(self) -> None:
        """Refuses what is left over."""
        unknown = sorted(set(self._held) - set(_IGNORED))
        if unknown:
            raise RequestError(f"Unrecognized request argument supplied: {unknown[0]}", unknown[0])


def read_request(
    path: str, body: bytes, name: str, most_tokens: int | None, most_choices: int
) -> CompletionRequest | ChatRequest | EmbeddingRequest:
    """Reads a request.

    Args:
        path: The last words of its path: "completions", "chat/completions", "embeddings".
        body: Its body.
        name: What the model is called.
        most_tokens: The most tokens of an answer; None for any number.
        most_choices: The most answers, or texts.

    Raises:
        RequestError: It is none, or asks for what there is not.
    """
    fields = _Fields(body)
    asked = fields.take("model", str, "a text", name)
    if asked != name:
        raise RequestError(
            f"The model '{asked}' does not exist; there is '{name}'", "model", 404, "model_not_found"
        )
    if path == "embeddings":
        return _embedding(fields, most_choices)
    choices = fields.whole("n", 1, 1, most_choices)
    stream = fields.take("stream", bool, "true or false", False)
    options = fields.take("stream_options", dict, "an object", {})
    usage = bool(options.get("include_usage")) and stream
    request: CompletionRequest | ChatRequest
    if path == "completions":
        request = _completion(fields, most_tokens, choices, stream, usage)
        if len(request.prompts) * choices > most_choices:
            raise RequestError(f"a request has {most_choices} answers at most", "prompt")
    else:
        request = _chat(fields, most_tokens, choices, stream, usage)
    fields.finish()
    return request


def _completion(
    fields: _Fields, most: int | None, choices: int, stream: bool, usage: bool
) -> CompletionRequest:
    prompts = _texts(fields, "prompt")
    echo = fields.take("echo", bool, "true or false", False)
    logprobs = fields.whole("logprobs", None, 0, 20)
    if echo and logprobs is not None:
        raise RequestError(
            "echo: the prompt's own logprobs are not told", "echo", code="unsupported_parameter"
        )
    fields.refuse("best_of", [1], "answers are not compared; ask for n of them")
    fields.refuse("suffix", [""], "text is gone on from, not filled in")
    limit = fields.whole("max_tokens", min(_USUAL_COMPLETION, most or _USUAL_COMPLETION), 1, most or 1 << 31)
    return CompletionRequest(prompts, _options(fields, limit, logprobs), choices, stream, usage, echo)


def _chat(fields: _Fields, most: int | None, choices: int, stream: bool, usage: bool) -> ChatRequest:
    messages = [_message(each) for each in fields.take("messages", list, "a list of messages", [])]
    if not messages:
        raise RequestError("messages must be a list of at least one message", "messages")
    wanted = fields.take("logprobs", bool, "true or false", False)
    top = fields.whole("top_logprobs", None, 0, 20)
    if top is not None and not wanted:
        raise RequestError("top_logprobs needs logprobs: true", "top_logprobs")
    limits = [
        fields.whole(name, None, 1, most or 1 << 31) for name in ("max_tokens", "max_completion_tokens")
    ]
    limit = min((each for each in limits if each is not None), default=None)
    tools, choice = _tools(fields)
    fields.refuse("functions", [[]], "say tools, which have taken its place")
    fields.refuse("function_call", ["none"], "say tool_choice, which has taken its place")
    fields.refuse("modalities", [["text"]], "answers are text alone")
    values = fields.take("chat_template_kwargs", dict, "an object", {})
    options = _options(fields, limit, (top or 0) if wanted else None)
    return ChatRequest(messages, options, choices, stream, usage, values, tools, choice)


def _tools(fields: _Fields) -> tuple[list[dict[str, Any]], str]:
    """Returns what may be called, and what of it is to be: "auto", "none", "required" or a name."""
    tools = fields.take("tools", list, "a list of tools", [])
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(
                f'a tool is {{"type": "function", "function": {{"name": ...}}}}, got {_shown(tool)}', "tools"
            )
    wanted = fields.take("tool_choice", (str, dict), "a text or an object", "auto" if tools else "none")
    if isinstance(wanted, dict):
        function = wanted.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in [tool["function"]["name"] for tool in tools]:
            raise RequestError(f"tool_choice: there is no tool {_shown(name)}", "tool_choice")
        wanted = str(name)
    elif wanted not in ("auto", "none", "required"):
        raise RequestError(
            f'tool_choice must be "auto", "none", "required", or the function to call, got {_shown(wanted)}',
            "tool_choice",
        )
    elif wanted == "required" and not tools:
        raise RequestError("tool_choice: there are no tools to call", "tool_choice")
    # A model that was taught to call several at once does so when it is asked, and none can be kept from it.
    fields.refuse("parallel_tool_calls", [True], "how many tools it calls is up to the model")
    return ([] if wanted == "none" else tools), wanted


def _embedding(fields: _Fields, most: int) -> EmbeddingRequest:
    texts = _texts(fields, "input")
    if len(texts) > most:
        raise RequestError(f"a request has {most} texts at most, not {len(texts)}", "input")
    form = fields.take("encoding_format", str, '"float" or "base64"', "float")
    if form not in ("float", "base64"):
        raise RequestError(
            f'encoding_format must be "float" or "base64", got {_shown(form)}', "encoding_format"
        )
    fields.refuse("dimensions", [], "vectors have the model's own width")
    fields.finish()
    return EmbeddingRequest(texts, form == "base64")


def _options(fields: _Fields, limit: int | None, logprobs: int | None) -> Options:
    """Returns what all answers have in common."""
    options: dict[str, Any] = {"max_tokens": limit, "logprobs": logprobs}
    for name, ours in _SAMPLING.items():
        value = fields.take(name, (int, float), "a number")
        if value is not None:
            if name == "top_p" and value == 0:
                # OpenAI's interface takes it, for the likeliest token alone.
                value = LEAST_MASS
            options[ours] = value
            _checked(name, {ours: value})
    seed = fields.take("seed", int, "a whole number")
    if seed is not None:
        # OpenAI's are signed.
        options["seed"] = seed % (1 << 64)
    stop = fields.take("stop", (str, list), "a text, or a list of texts")
    if stop is not None:
        options["stop"] = stop
    options["ignore_end"] = fields.take("ignore_eos", bool, "true or false", False)
    biases = fields.take("logit_bias", dict, "numbers by token id", {})
    # Python reads other spellings of a number, too, of which two would be one token.
    if not all(re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", token) for token in biases):
        raise RequestError("logit_bias must be numbers by token id", "logit_bias")
    options["logit_bias"] = {int(token): bias for token, bias in biases.items()}
    _checked("logit_bias", {"logit_bias": options["logit_bias"]})
    options.update(_form(fields.take("response_format", dict, "an object", {})))
    # The model checks the others as it reads them.
    return cast("Options", options)


def _checked(name: str, settings: dict[str, Any]) -> None:
    """Refuses settings of `Sampling` that are out of range."""
    try:
        Sampling(**settings)
    except LoomError as error:
        raise RequestError(str(error), name) from error


def _form(told: dict[str, Any]) -> dict[str, Any]:
    """Returns the form that answers are to have."""
    kind = told.get("type", "text")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": True}
    if kind == "json_schema":
        schema = told.get("json_schema")
        if isinstance(schema, dict) and isinstance(schema.get("schema", {}), (dict, bool)):
            return {"json_schema": schema.get("schema", True)}
        raise RequestError(
            'response_format: json_schema must be {"name": ..., "schema": {...}}', "response_format"
        )
    if kind in ("regex", "grammar"):
        text = told.get("pattern" if kind == "regex" else "grammar")
        if isinstance(text, str) and text:
            return {kind: text}
        raise RequestError(
            f'response_format: {{"type": "regex", "pattern": ...}} or {{"type": "grammar", "grammar": ...}}, '
            f"got {_shown(told)}",
            "response_format",
        )
    raise RequestError(
        f"response_format: type must be text, json_object, json_schema, regex or grammar, got {_shown(kind)}",
        "response_format",
    )


def _texts(fields: _Fields, name: str) -> list[str | list[int]]:
    """Returns a text or several, or a row of tokens or several."""
    told = "a text, a list of texts, or token ids"
    value = fields.take(name, (str, list), told)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(map(_is_token, value)):
            return [value]
        if all(
            isinstance(each, str) or (isinstance(each, list) and all(map(_is_token, each))) for each in value
        ):
            return value
    raise RequestError(f"{name} must be {told}, got {_shown(value)}", name)


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _message(value: object) -> dict[str, Any]:
    """Returns a message with its content as one text."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise RequestError(f'a message is {{"role": ..., "content": ...}}, got {_shown(value)}', "messages")
    content = value.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise RequestError("the content of a message is text; images and sounds are not read", "messages")
        content = "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise RequestError(f"the content of a message is text, got {_shown(content)}", "messages")
    role = "system" if value["role"] == "developer" else value["role"]
    message = {**value, "role": role, "content": content or ""}
    calls = value.get("tool_calls")
    if calls is None:
        message.pop("tool_calls", None)
        return message
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        raise RequestError(
            'tool_calls are [{"type": "function", "function": {"name": ..., "arguments": "..."}}, ...], '
            f"got {_shown(calls)}",
            "messages",
        )
    # Templates read arguments as objects.
    message["tool_calls"] = [
        {**call, "function": {**call["function"], "arguments": _arguments(call["function"])}}
        for call in calls
    ]
    return message


def _is_call(value: object) -> bool:
    function = value.get("function") if isinstance(value, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _arguments(function: Mapping[str, Any]) -> object:
    given = function.get("arguments", "{}")
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
