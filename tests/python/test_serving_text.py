"""`loom serve` of language models: OpenAI's interface by its own client, and answers side by side."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom.serving import language
from loom.text import ChatTemplate, LanguageModel, Vocabulary
from served_text import SEEDED, TALK, folder_of_model, model
from text_models import SETTINGS, TOOL_CHAT, TOOLS, byte_level, decoder, write_folder
from text_server import KEY, Server

httpx = pytest.importorskip("httpx", reason="tests of serving need httpx")
openai = pytest.importorskip("openai", reason="tests of serving language models need openai's client")


@pytest.fixture(scope="module")
def alone() -> LanguageModel:
    return model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_model(tmp_path_factory.mktemp("text") / "tiny")


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
    ({"logit_bias": {"07": 1}}, 400, "logit_bias", "token id"),
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
    ({"model": "\ud83d"}, 404, "model", "model_not_found"),
    ({"\ud83d": 1}, 400, "\\ud83d", "Unrecognized"),
    ({"response_format": {"type": "regex", "pattern": "\ud83d"}}, 400, "response_format", "surrogates"),
    ({"response_format": {"type": "grammar", "grammar": "start: start"}}, 400, "response_format", "form"),
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
        with pytest.raises(openai.BadRequestError, match="input holds 4000") as raised:
            client.embeddings.create(model="tiny", input=[[7], [4000]])
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
    wrong = httpx.get(f"{server.url}/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


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
