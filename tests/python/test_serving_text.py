"""`loom serve` of language models: OpenAI's interface by its own client, limits, and answers side by side."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom import nn
from loom.command_line import main
from loom.serving import LanguageSettings, create_language_app, language
from loom.serving.turns import Turns
from loom.text import ChatTemplate, LanguageModel, Vocabulary
from text_models import CHAT, SETTINGS, TOOL_CHAT, TOOLS, as_gguf, byte_level, decoder, write_folder
from text_server import KEY, Server

httpx = pytest.importorskip("httpx", reason="tests of serving need httpx")
openai = pytest.importorskip("openai", reason="tests of serving language models need openai's client")

TALK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 森!"}]
SEEDED: dict[str, Any] = {
    "seed": 3,
    "temperature": 0.8,
    "max_tokens": 12,
    "logit_bias": {"1": -100, "5": -100},
}


def model(**settings: Any) -> LanguageModel:
    vocabulary = Vocabulary(byte_level(), frozenset({1, 5}), template=ChatTemplate(CHAT))
    return LanguageModel(decoder(400), vocabulary, **{"capacity": 200, **settings})


@pytest.fixture(scope="module")
def alone() -> LanguageModel:
    return model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {**SETTINGS, "generation_config": {"eos_token_id": [1, 5]}}
    return write_folder(tmp_path_factory.mktemp("text") / "tiny", decoder(400), byte_level(), **settings)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    running = Server(folder, "--capacity", "200", "--max-running", "3")
    try:
        yield running
    finally:
        running.close()


def test_models(server: Server) -> None:
    with server.client() as client:
        assert [each.id for each in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").owned_by == "loom"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")


def test_completions(server: Server, alone: LanguageModel) -> None:
    options: Any = {**SEEDED, "logit_bias": {1: -100, 5: -100}}
    wanted = alone.complete("Once upon", **options, logprobs=2)
    with server.client() as client:
        found = client.completions.create(model="tiny", prompt="Once upon", **SEEDED, logprobs=2)
        (choice,) = found.choices
        assert (choice.text, choice.finish_reason) == (wanted.text, "length")
        assert found.usage.completion_tokens == 12
        assert found.usage.prompt_tokens == len(alone.encode("Once upon"))
        assert found.usage.total_tokens == found.usage.completion_tokens + found.usage.prompt_tokens
        told = choice.logprobs
        assert told.token_logprobs == [each.logprob for each in wanted.tokens]
        assert len(told.tokens) == len(told.text_offset) == 12
        assert all(len(top) <= 2 for top in told.top_logprobs)
        # Several prompts, several choices, by tokens and with what was asked before them.
        both = client.completions.create(model="tiny", prompt=["Once upon", "森"], n=2, echo=True, **SEEDED)
        assert [each.index for each in both.choices] == [0, 1, 2, 3]
        assert both.choices[0].text == "Once upon" + wanted.text
        assert both.choices[1].text == "Once upon" + alone.complete("Once upon", **options, stream=1).text
        assert both.choices[2].text == "森" + alone.complete("森", **options).text
        # A prompt counts once, however many choices it has.
        read = sum(len(alone.encode(prompt)) for prompt in ("Once upon", "森"))
        assert both.usage.prompt_tokens == read
        assert both.usage.prompt_tokens_details.cached_tokens < read
        told = [alone.complete(text, **options, stream=at) for text in ("Once upon", "森") for at in (0, 1)]
        assert both.usage.completion_tokens == sum(len(each.tokens) for each in told)
        by_tokens = client.completions.create(model="tiny", prompt=alone.encode("Once upon"), **SEEDED)
        assert by_tokens.choices[0].text == wanted.text
        # For which nothing is said, OpenAI's own 16.
        assert client.completions.create(model="tiny", prompt="a").usage.completion_tokens <= 16


def test_streams_are_the_whole(server: Server, alone: LanguageModel) -> None:
    with server.client() as client:
        whole = client.chat.completions.create(
            model="tiny", messages=TALK, **SEEDED, logprobs=True, top_logprobs=3
        )
        pieces = list(
            client.chat.completions.create(
                model="tiny",
                messages=TALK,
                **SEEDED,
                logprobs=True,
                top_logprobs=3,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        wanted = alone.chat(TALK, **{**SEEDED, "logit_bias": {1: -100, 5: -100}}).finish()
        assert whole.choices[0].message.content == wanted.text
        assert whole.choices[0].message.role == "assistant"
        assert pieces[0].choices[0].delta.role == "assistant"
        assert "".join(each.choices[0].delta.content or "" for each in pieces[:-1]) == wanted.text
        assert [each.choices[0].finish_reason for each in pieces[:-1]] == [None] * (len(pieces) - 2) + [
            "length"
        ]
        assert pieces[-1].choices == []
        assert pieces[-1].usage.model_dump() | {"prompt_tokens_details": None} == whole.usage.model_dump() | {
            "prompt_tokens_details": None
        }
        assert {each.id for each in pieces} == {pieces[0].id}
        held = [
            entry
            for each in pieces[:-1]
            if each.choices[0].logprobs
            for entry in each.choices[0].logprobs.content
        ]
        assert held == whole.choices[0].logprobs.content
        assert len(held) == 12
        assert all(len(entry.top_logprobs) == 3 for entry in held)
        # The bytes of the tokens are those of the text, where that has no broken characters.
        said = b"".join(bytes(entry.bytes) for entry in held).decode("utf-8", "replace")
        assert said == wanted.text
        texts = client.completions.create(model="tiny", prompt="a", **SEEDED, stream=True, n=2, echo=True)
        rows: dict[int, str] = {0: "", 1: ""}
        for each in texts:
            rows[each.choices[0].index] += each.choices[0].text
        options: Any = {**SEEDED, "logit_bias": {1: -100, 5: -100}}
        assert rows == {place: "a" + alone.complete("a", **options, stream=place).text for place in (0, 1)}


def test_a_stream_as_it_is_written(server: Server) -> None:
    body = {"messages": TALK, **SEEDED, "stream": True}
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=60
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    told = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert all(each["object"] == "chat.completion.chunk" and "usage" not in each for each in told)


def test_an_event_is_one_line_whatever_it_tells() -> None:
    told = {"text": "ä\x85\u2028\u2029\x0b\x1c\r\n"}
    event = language._event(told)
    assert event.splitlines() == [event.removesuffix("\n\n"), ""]
    assert json.loads(event.removeprefix("data: ")) == told
    assert "ä" in event


def test_stops_and_ends(server: Server, alone: LanguageModel) -> None:
    options: Any = {"temperature": 0, "max_tokens": 30}
    whole = alone.complete("Once", **options, logit_bias={1: -100, 5: -100}).text
    stop = whole[8:11]
    with server.client() as client:
        bias = SEEDED["logit_bias"]
        found = client.completions.create(
            model="tiny", prompt="Once", stop=[stop, "~~~"], logit_bias=bias, **options
        )
        assert found.choices[0].text == whole[: whole.index(stop)]
        assert found.choices[0].finish_reason == "stop"
        ended = client.chat.completions.create(
            model="tiny", messages=TALK, logit_bias={"5": 100}, logprobs=True
        )
        assert ended.choices[0].message.content == ""
        assert ended.choices[0].finish_reason == "stop"
        assert ended.choices[0].logprobs.content == []
        assert ended.usage.completion_tokens == 1


def test_embeddings(server: Server, alone: LanguageModel) -> None:
    texts = ["Once upon", "森"]
    wanted = alone.embed(texts)
    with server.client() as client:
        # The client asks for base64; plain numbers are the same.
        found = client.embeddings.create(model="tiny", input=texts)
        np.testing.assert_array_equal(np.array([each.embedding for each in found.data], np.float32), wanted)
        assert found.usage.prompt_tokens == sum(len(alone.encode(text)) for text in texts)
        plain = client.embeddings.create(model="tiny", input=alone.encode("森"), encoding_format="float")
        np.testing.assert_array_equal(np.float32(plain.data[0].embedding), wanted[1])


def test_a_chat_goes_on_from_what_was_read(server: Server) -> None:
    with server.client() as client:
        prompt = list(range(40, 80))
        first = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, temperature=0)
        assert first.usage.prompt_tokens_details.cached_tokens == 0
        more = client.completions.create(model="tiny", prompt=[*prompt, 9], max_tokens=1)
        assert more.usage.prompt_tokens_details.cached_tokens == 40


def test_requests_side_by_side_get_what_they_would_alone(server: Server, alone: LanguageModel) -> None:
    options: Any = {**SEEDED, "logit_bias": {1: -100, 5: -100}}
    prompts = [f"{number} little mice {'ran ' * number}" for number in range(10)]
    wanted = [alone.complete(prompt, **options).text for prompt in prompts]

    def ask(prompt: str) -> str:
        with server.client() as client:
            return str(client.completions.create(model="tiny", prompt=prompt, **SEEDED).choices[0].text)

    def stream(prompt: str) -> str:
        with server.client() as client:
            pieces = client.completions.create(model="tiny", prompt=prompt, **SEEDED, stream=True)
            return "".join(each.choices[0].text for each in pieces)

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(ask, prompts[:5])), list(pool.map(stream, prompts[5:]))
        both = list(pool.map(lambda work: work[0](work[1]), zip([ask, stream] * 5, prompts, strict=True)))
    assert [*found[0], *found[1]] == wanted
    assert both == wanted


def test_whoever_leaves_ends_his_answer(server: Server) -> None:
    long: Any = {"max_tokens": 150, "logit_bias": {"1": -100, "5": -100}}
    before = server.measure('loom_tokens_total{kind="written"}')
    with server.client() as client:
        stream = client.completions.create(model="tiny", prompt="Once", stream=True, **long)
        next(iter(stream))
        stream.close()
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.05).completions.create(model="tiny", prompt=["a"] * 60, **long)
    until = time.monotonic() + 30
    while server.measure("loom_answers_running") and time.monotonic() < until:
        time.sleep(0.02)
    assert server.measure("loom_answers_running") == 0
    # Not all of the 61 answers of 150 tokens.
    assert server.measure('loom_tokens_total{kind="written"}') - before < 60 * 150


def test_an_answer_ends_though_a_token_meets_its_cancellation() -> None:
    told = []

    class Request:
        async def receive(self) -> dict[str, str]:
            await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

    async def token() -> None:
        # As `wait_for` of Python 3.11 has it, where what it waits for is there in the same moment.
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.append("a token")

    async def work() -> None:
        await token()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.append("the end")
            raise

    with pytest.raises(language._Gone):
        asyncio.run(language._while_listening(Request(), work()))
    assert told == ["a token", "the end"]


WRONG: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "other"}, 404, "model", "model_not_found"),
    ({"temperature": -1}, 400, "temperature", "temperature must be"),
    ({"temperature": "hot"}, 400, "temperature", "must be a number"),
    ({"max_tokens": 0}, 400, "max_tokens", "from 1"),
    ({"max_tokens": True}, 400, "max_tokens", "must be a whole number"),
    ({"max_tokens": 400}, 400, "messages", "context_length_exceeded"),
    ({"n": 65}, 400, "n", "from 1 to 64"),
    ({"stop": [1]}, 400, "stop", "stop must be texts"),
    ({"logit_bias": {"a": 1}}, 400, "logit_bias", "token id"),
    ({"typical_p": 2}, 400, "typical_p", "typical must be"),
    ({"logit_bias": {"9": "a"}}, 400, "logit_bias", "logit_bias of token 9"),
    ({"logit_bias": {"-9": 1}}, 400, "logit_bias", "a token of logit_bias"),
    ({"logit_bias": {"999": 1}}, 400, "logit_bias", "token 999"),
    ({"top_logprobs": 2}, 400, "top_logprobs", "needs logprobs"),
    ({"tools": [{}]}, 400, "tools", "a tool is"),
    ({"tools": TOOLS}, 400, "tools", "tells of no tools"),
    ({"tool_choice": "required"}, 400, "tool_choice", "no tools to call"),
    ({"tools": TOOLS, "tool_choice": "perhaps"}, 400, "tool_choice", "must be"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
        400,
        "tool_choice",
        "no tool",
    ),
    ({"tools": TOOLS, "parallel_tool_calls": False}, 400, "parallel_tool_calls", "up to the model"),
    ({"functions": [{}]}, 400, "functions", "tools"),
    ({"response_format": {"type": "yaml"}}, 400, "response_format", "type must be"),
    ({"response_format": {"type": "json_schema", "json_schema": 3}}, 400, "response_format", "schema"),
    ({"response_format": {"type": "regex"}}, 400, "response_format", "pattern"),
    ({"response_format": {"type": "regex", "pattern": "(("}}, 400, "response_format", "invalid regex"),
    ({"messages": [{"role": "assistant", "tool_calls": 3}]}, 400, "messages", "tool_calls are"),
    ({"messages": []}, 400, "messages", "at least one"),
    ({"messages": [3]}, 400, "messages", "a message is"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages", "images"),
    ({"temprature": 1}, 400, "temprature", "Unrecognized"),
    ({"stream": "yes"}, 400, "stream", "true or false"),
    ({"messages": [{"role": "user", "content": "\ud83d"}]}, 400, "messages", "surrogates"),
    ({"chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs", "messages is told by"),
    (
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        400,
        "chat_template_kwargs",
        "told by chat itself",
    ),
]


@pytest.mark.parametrize(
    ("change", "status", "param", "told"), WRONG, ids=[str(change) for change, *_ in WRONG]
)
def test_requests_that_are_refused(
    change: dict[str, Any], status: int, param: str | None, told: str, server: Server
) -> None:
    body = {"model": "tiny", "messages": TALK, "user": "me", **change}
    headers = {"Authorization": f"Bearer {KEY}"}
    # Python's own JSON writes half a pair of surrogates, too.
    content = json.dumps(body)
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=content, headers=headers, timeout=60)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (answer.status_code, error["param"]) == (status, param)
    assert told in f"{error['message']} {error['code']}"


def test_errors_are_those_that_the_client_knows(server: Server) -> None:
    with server.client() as client:
        with pytest.raises(openai.BadRequestError) as raised:
            client.completions.create(model="tiny", prompt=[7] * 300)
        assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "prompt")
        for options, reason in (
            ({"suffix": "end"}, "suffix"),
            ({"best_of": 3}, "best_of"),
            ({"echo": True, "logprobs": 1}, "echo"),
            ({"prompt": []}, "prompt must be"),
            ({"prompt": ["a"] * 65}, "64 answers at most"),
        ):
            with pytest.raises(openai.BadRequestError, match=reason):
                client.completions.create(**{"model": "tiny", "prompt": "a", **options})
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model="tiny", input="a", dimensions=3)
        with pytest.raises(openai.BadRequestError, match="capacity of 200") as raised:
            client.embeddings.create(model="tiny", input=[[7] * 300])
        assert raised.value.param == "input"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="other", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            client.completions.create(model="tiny", prompt="a")


def test_the_page_and_the_rest(server: Server) -> None:
    page = httpx.get(server.url)
    assert '<body data-chat="true" data-name="tiny">' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    # Nothing from elsewhere.
    assert not re.search(r"https?:|//[a-z]|src=|@import|url\(", page.text)
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/nowhere").json()["error"]["message"] == "Not Found"
    assert httpx.get(f"{server.url}/v1/completions").status_code == 405


def test_an_end_waits_for_answers_under_way(folder: Path) -> None:
    running = Server(folder, "--capacity", "200")
    try:
        with running.client() as client:
            stream = iter(
                client.completions.create(
                    model="tiny",
                    prompt="Once",
                    max_tokens=150,
                    stream=True,
                    logit_bias={"1": -100, "5": -100},
                )
            )
            pieces = [next(stream)]
            running.process.send_signal(signal.SIGTERM if os.name != "nt" else signal.SIGINT)
            pieces += stream
            assert pieces[-1].choices[0].finish_reason == "length"
        assert running.process.wait(30) == 0
    finally:
        running.close()


def asked(app: Any, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """What an application answers to requests that come at once."""

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://loom") as client:
            posts = [client.post(f"/v1/{path}", json=body) for path, body in requests]
            return list(await asyncio.gather(*posts))

    return asyncio.run(ask())


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_answers_have_the_form_that_is_asked_for(server: Server, alone: LanguageModel) -> None:
    options: Any = {"seed": 3, "temperature": 0.8, "max_tokens": 120}
    by_schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    with server.client() as client:
        found = client.chat.completions.create(
            model="tiny", messages=TALK, response_format=by_schema, **options
        )
        text = found.choices[0].message.content
        assert set(json.loads(text)) == {"name", "age"}
        assert found.choices[0].finish_reason == "stop"
        assert text == alone.chat(TALK, json_schema=PERSON, **options).finish().text
        # As the client asks by a class, and reads the answer into it.
        from pydantic import BaseModel

        class Person(BaseModel):
            name: str
            grown: bool

        parsed = client.chat.completions.parse(
            model="tiny", messages=TALK, response_format=Person, **{**options, "temperature": 0.01}
        )
        message = parsed.choices[0].message
        assert message.parsed is None or isinstance(message.parsed, Person)
        pieces = client.chat.completions.create(
            model="tiny",
            messages=TALK,
            response_format={"type": "regex", "pattern": "(yes|no), (now|later)"},
            stream=True,
            logprobs=True,
            seed=1,
        )
        held = [piece.choices[0] for piece in pieces]
        said = "".join(choice.delta.content or "" for choice in held)
        assert re.fullmatch("(yes|no), (now|later)", said)
        tokens = [entry for choice in held if choice.logprobs for entry in choice.logprobs.content]
        assert b"".join(bytes(entry.bytes) for entry in tokens).decode() == said
        plain = client.completions.create(
            model="tiny",
            prompt="Well?",
            extra_body={"response_format": {"type": "grammar", "grammar": 'root ::= "yes" | "no"'}},
        )
        assert plain.choices[0].text in ("yes", "no")


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    told = {**SETTINGS["tokenizer_config"], "chat_template": TOOL_CHAT}
    path = tmp_path_factory.mktemp("tools") / "tiny"
    write_folder(path, decoder(400), byte_level(), **{**SETTINGS, "tokenizer_config": told})
    running = Server(path, "--capacity", "600")
    try:
        yield running
    finally:
        running.close()


def test_calls_of_tools(calling: Server) -> None:
    """A whole talk by OpenAI's client: a question, a call, what it has given, an answer."""
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    options: Any = {"model": "tiny", "tools": TOOLS, "seed": 3}
    with calling.client() as client:
        wanted = {"type": "function", "function": {"name": "weather"}}
        found = client.chat.completions.create(messages=messages, tool_choice=wanted, **options)
        (choice,) = found.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        (call,) = choice.message.tool_calls
        assert (call.type, call.function.name) == ("function", "weather")
        assert set(json.loads(call.function.arguments)) == {"place", "days"}
        # In pieces, the same.
        name, arguments, finishes = "", "", []
        for piece in client.chat.completions.create(
            messages=messages, tool_choice=wanted, stream=True, **options
        ):
            delta = piece.choices[0].delta
            assert not delta.content
            for part in delta.tool_calls or []:
                assert part.index == 0
                name += part.function.name or ""
                arguments += part.function.arguments or ""
            finishes.append(piece.choices[0].finish_reason)
        assert (name, arguments, finishes[-1]) == ("weather", call.function.arguments, "tool_calls")
        # The client's own reader of streams.
        with client.chat.completions.stream(messages=messages, tool_choice=wanted, **options) as stream:
            for _ in stream:
                pass
            last = stream.get_final_completion().choices[0].message
        assert last.tool_calls[0].function.arguments == call.function.arguments
        any_of = client.chat.completions.create(messages=messages, tool_choice="required", **options)
        assert any_of.choices[0].message.tool_calls[0].function.name in ("weather", "now")
        messages += [
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        on = client.chat.completions.create(messages=messages, max_tokens=8, **options)
        assert on.choices[0].message.role == "assistant"
        # The template has read the call: the prompt is what the answer was, and more.
        model = loom.text.LanguageModel(
            decoder(400), Vocabulary(byte_level(), template=ChatTemplate(TOOL_CHAT)), capacity=600
        )
        as_objects = [dict(message) for message in messages]
        as_objects[1] = {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "function": {
                        "arguments": json.loads(call.function.arguments),
                        "name": call.function.name,
                    }
                }
            ],
        }
        prompt = model.encode(model.chat_text(as_objects, tools=TOOLS), special=False)
        assert on.usage.prompt_tokens == len(prompt)
        none = client.chat.completions.create(
            messages=messages[:1], tool_choice="none", max_tokens=3, **options
        )
        assert none.choices[0].message.tool_calls is None


def test_limits() -> None:
    app = create_language_app(model(), LanguageSettings(max_requests=1, max_tokens=5, max_bytes=200))
    long: dict[str, Any] = {"prompt": "a", "temperature": 0, "logit_bias": {"1": -100, "5": -100}}
    first, second = asked(app, ("completions", long), ("completions", long))
    assert {first.status_code, second.status_code} == {200, 503}
    done, refused = (first, second) if first.status_code == 200 else (second, first)
    assert refused.headers["retry-after"] == "1"
    assert done.json()["usage"]["completion_tokens"] == 5
    (chat,) = asked(app, ("chat/completions", {"messages": TALK[1:], **long} | {"prompt": None}))
    assert chat.json()["usage"]["completion_tokens"] == 5
    for body, status, reason in (
        ({**long, "max_tokens": 6}, 400, "from 1 to 5"),
        ({"prompt": "a" * 300}, 413, "200 bytes at most"),
    ):
        (answer,) = asked(app, ("completions", body))
        assert answer.status_code == status
        assert reason in answer.json()["error"]["message"]
    rated = create_language_app(model(), LanguageSettings(rate=1.0))
    answers = asked(rated, *[("completions", {"prompt": "a", "max_tokens": 1})] * 2)
    assert sorted(answer.status_code for answer in answers) == [200, 429]


def test_guesses_ahead_change_no_answer() -> None:
    body = {"prompt": "a b a b a b", "seed": 3, "max_tokens": 30, "temperature": 0.5}
    small = LanguageModel(decoder(400, blocks=1), Vocabulary(byte_level()), capacity=100)
    told = []
    for draft in (None, "lookup", small):
        app = create_language_app(model(), draft=draft)  # type: ignore[arg-type]
        answers = asked(app, ("completions", body), ("completions", {**body, "seed": 4}))
        told.append([answer.json()["choices"][0]["text"] for answer in answers])
    assert told[0] == told[1] == told[2]


def test_an_answer_that_takes_too_long() -> None:
    slow = model()
    app = create_language_app(slow, LanguageSettings(timeout=0.2, max_running=1))
    with slow.lock:
        # Nothing is computed while somebody else has the lock.
        for path, body in (
            ("completions", {"prompt": "a"}),
            ("embeddings", {"input": "a"}),
        ):
            thread = ThreadPoolExecutor(1)
            answers = thread.submit(partial(asked_apart, app, path, body))
            (answer,) = answers.result(30)
            thread.shutdown()
            assert answer.status_code == 504, path
            assert "within 0.2 seconds" in answer.json()["error"]["message"]


def asked_apart(app: Any, path: str, body: dict[str, Any]) -> list[Any]:
    return asked(app, (path, body))


def test_a_stream_that_fails_says_why() -> None:
    broken = model()
    factors = {"0.0.0.5.weight": 1e5, "0.0.0.6.weight": 1e37}
    state = broken.network.state_dict().items()
    broken.network.load_state_dict(
        {name: array * np.float32(factors.get(name, 1.0)) for name, array in state}
    )
    app = create_language_app(broken)
    body = {"prompt": "Once upon", "max_tokens": 40, "stream": True}
    streamed, whole = asked(app, ("completions", body), ("completions", {**body, "stream": False}))
    last = json.loads(streamed.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert "NaN or infinity" in last["error"]["message"]
    assert last["error"]["type"] == "server_error"
    assert (whole.status_code, whole.json()["error"]["type"]) == (500, "server_error")


def test_base64_is_what_numbers_are() -> None:
    app = create_language_app(model())
    bodies = [{"input": ["a", "b"], "encoding_format": form} for form in ("float", "base64")]
    numbers, packed = (
        answer.json()["data"] for answer in asked(app, *[("embeddings", body) for body in bodies])
    )
    for plain, held in zip(numbers, packed, strict=True):
        found = np.frombuffer(base64.b64decode(held["embedding"]), "<f4")
        np.testing.assert_array_equal(found, np.float32(plain["embedding"]))
    (wrong,) = asked(app, ("embeddings", {"input": "a", "encoding_format": "hex"}))
    assert wrong.status_code == 400


def test_settings_are_checked() -> None:
    for name, value in {
        "max_running": 0,
        "max_requests": 0,
        "max_tokens": 0,
        "max_choices": 0,
        "max_bytes": 0,
        "rate": 0,
        "timeout": 0,
        "api_key": "",
        "name": "",
    }.items():
        with pytest.raises(loom.ConfigError, match=name):
            LanguageSettings(**{name: value})


def test_what_is_served_as_what(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.command_line import serve

    seen: list[Any] = []

    def run(app: Any, host: str, port: int, timeout: float, page: str, *, access_log: bool) -> int:
        seen.append((page, timeout, {route.path for route in app.routes}))
        return 0

    monkeypatch.setattr(serve, "_run", run)
    net = loom.Sequential([nn.Dense(2)], input_shape=3)
    net.save(tmp_path / "net.loom")
    loom.save_gguf(decoder(400), tmp_path / "a.gguf", metadata=as_gguf(byte_level(), "gpt-2"))
    loom.save_gguf(decoder(400), tmp_path / "bare.gguf")
    for path, words, page in (
        (folder, [], "/"),
        (folder, ["--as", "network"], "/docs"),
        (tmp_path / "a.gguf", ["--api-key", "x", "--name", "y"], "/"),
        (tmp_path / "bare.gguf", [], "/docs"),
        (tmp_path / "net.loom", ["--timeout", "5"], "/docs"),
    ):
        assert main(["serve", str(path), *words]) == 0
        assert seen[-1][0] == page, path
    assert seen[-1][1] == 5
    assert seen[0][1] == 30
    for words in (["--batch-rows", "3"], ["--as", "network", "--capacity", "9"]):
        with pytest.raises(SystemExit):
            main(["serve", str(folder), *words])
        assert f"{words[-2]} is not for a" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "bare.gguf"), "--as", "language-model"]) == 1
    assert "has no vocabulary" in capsys.readouterr().err


def said(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert main(words) == status
    found = capsys.readouterr()
    return found.err if status else found.out


def test_generate_writes_what_the_model_does(
    folder: Path, alone: LanguageModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", str(folder), "Once upon", "--max-tokens", "9", "--seed", "4", "--temperature", "0.5"]
    words += ["--top-k", "50", "--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty", "1.1"]
    options: Any = {"max_tokens": 9, "seed": 4, "temperature": 0.5, "top_k": 50, "top_p": 0.9, "min_p": 0.01}
    wanted = alone.complete("Once upon", **options, repetition_penalty=1.1).text
    assert said(words, capsys) == wanted + "\n"
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("Once upon"))
    assert said([*words[:2], "-", *words[3:]], capsys) == wanted + "\n"
    assert "capacity of 9" in said([*words, "--capacity", "9"], capsys, 1)
    assert "int9" in said([*words, "--dtype", "int9"], capsys, 1)


def test_chat_talks_until_it_is_told_to_end(
    folder: Path, alone: LanguageModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    options: Any = {"max_tokens": 6, "temperature": 0}
    words = ["chat", str(folder), "--max-tokens", "6", "--temperature", "0", "--capacity", "200"]
    first = alone.chat([{"role": "user", "content": "Hello"}], **options).finish().text
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": first}]
    second = alone.chat([*talk, {"role": "user", "content": "And?"}], **options).finish().text
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"Hello\n\nAnd?\n/new\nHello\n{'x ' * 300}\n/exit\nnever\n")
    )
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert out.split("\n", 1)[1] == f"{first}\n{second}\n{first}\n"
    assert "more than the model's capacity" in error
    # The end of what is typed ends it, too, and a system's words go before.
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    system = [{"role": "system", "content": "Be brief."}]
    wanted = alone.chat([*system, talk[0]], **options).finish().text
    assert said([*words, "--system", "Be brief."], capsys).split("\n", 1)[1] == f"{wanted}\n"


def test_ctrl_c_ends_an_answer_and_not_the_chat(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.command_line import chat

    lines = iter(["Hello", "Hello", None])
    monkeypatch.setattr(chat, "_line", lambda: next(lines))
    writes: list[int] = []

    def told(pieces: Any) -> None:
        next(pieces)
        writes.append(1)
        if len(writes) == 1:
            raise KeyboardInterrupt
        for _ in pieces:
            pass

    monkeypatch.setattr(chat, "told", told)
    assert main(["chat", str(folder), "--max-tokens", "3", "--temperature", "0", "--capacity", "200"]) == 0
    assert len(writes) == 2
    capsys.readouterr()
    (folder / "tokenizer_config.json").rename(folder / "kept.json")
    try:
        assert "no chat template" in said(["chat", str(folder)], capsys, 1)
    finally:
        (folder / "kept.json").rename(folder / "tokenizer_config.json")


def test_answers_take_turns() -> None:
    """A short answer does not wait for the end of a long one, whose prompt is long, too."""
    talks = model()
    turns = Turns(talks.batch(2), 2)
    long = talks.generate([7] * 150, max_tokens=40, temperature=0, ignore_end=True)
    short = talks.generate("a", max_tokens=4, temperature=0, ignore_end=True)
    seen: list[int] = []

    async def write(generation: Any) -> None:
        async with turns.place(time.monotonic() + 60):
            async for _ in turns.pieces(generation, time.monotonic() + 60):
                pass
        seen.append(len(long.tokens))

    async def both() -> None:
        await asyncio.gather(write(long), write(short))

    asyncio.run(both())
    turns.close()
    # A turn each: three pieces of the prompt, and then tokens.
    assert seen[0] < 6
    assert seen[1] == 40
    assert (turns.running, turns.waiting) == (0, 0)


def test_threads_of_a_server_s_model_do_not_mix(alone: LanguageModel) -> None:
    """Whoever uses the model beside the server gets what he would alone, too."""
    app = create_language_app(alone)
    options: Any = {**SEEDED, "logit_bias": {1: -100, 5: -100}}
    wanted = alone.complete("b", **options).text
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(alone.complete("b", **options).text))
    thread.start()
    answers = asked(app, *[("completions", {"prompt": "b", **SEEDED})] * 3)
    thread.join(60)
    assert [answer.json()["choices"][0]["text"] for answer in answers] == [wanted] * 3
    assert found == [wanted]
