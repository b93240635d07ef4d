"""Applications that serve language models: limits, settings, turns, and what fails on the way."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("httpx", reason="tests of serving need httpx")

import loom
from loom import nn
from loom.command_line import main
from loom.serving import LanguageSettings, create_language_app
from loom.serving.turns import Turns
from loom.text import LanguageModel, Vocabulary
from served_text import SEEDED, TALK, asked, folder_of_model, model
from text_models import as_gguf, byte_level, decoder


@pytest.fixture(scope="module")
def alone() -> LanguageModel:
    return model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_model(tmp_path_factory.mktemp("text") / "tiny")


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


@pytest.mark.parametrize(
    ("header", "status"),
    [
        *[(f"{scheme} key", 200) for scheme in ("Bearer", "bearer", "BEARER ")],
        *[(wrong, 401) for wrong in ("key", "Basic key", "Bearer", "Bearer ke", "Bearer k\u00e9y", "")],
    ],
)
def test_keys(header: str, status: int) -> None:
    import httpx

    app = create_language_app(model(), LanguageSettings(api_key="key"))

    async def ask() -> int:
        transport = httpx.ASGITransport(app=app)
        headers = [(b"authorization", header.encode("latin-1"))]
        async with httpx.AsyncClient(transport=transport, base_url="http://loom", headers=headers) as client:
            return (await client.get("/v1/models")).status_code

    assert asyncio.run(ask()) == status


def test_pages_of_origins_that_are_allowed_may_ask() -> None:
    import httpx

    page = "https://chat.example"
    app = create_language_app(model(), LanguageSettings(api_key="key", allow_origins=[page]))

    async def ask() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://loom", headers={"Origin": page}
        ) as client:
            wanted = {
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
            }
            # A browser asks this without the key.
            asked = await client.options("/v1/chat/completions", headers=wanted)
            assert asked.status_code == 200
            assert asked.headers["access-control-allow-origin"] == page
            for headers, status in ({}, 401), ({"Authorization": "Bearer key"}, 200):
                answer = await client.get("/v1/models", headers=headers)
                assert answer.status_code == status
                assert answer.headers["access-control-allow-origin"] == page

    asyncio.run(ask())


def test_the_likeliest_tokens_by_no_probability_at_all() -> None:
    app = create_language_app(model(), LanguageSettings())
    body: dict[str, Any] = {"prompt": "Once", "max_tokens": 6, "ignore_eos": True}
    narrow, greedy = asked(
        app, ("completions", {**body, "top_p": 0}), ("completions", {**body, "temperature": 0})
    )
    assert narrow.json()["choices"] == greedy.json()["choices"]


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


def test_streams_are_requests_under_way() -> None:
    import httpx

    app = create_language_app(model(), LanguageSettings(max_requests=1))
    body: dict[str, Any] = {"prompt": "a", "max_tokens": 150, "ignore_eos": True}

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://loom") as client:
            first = asyncio.ensure_future(client.post("/v1/completions", json={**body, "stream": True}))
            while "loom_answers_running 1.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.001)
            second = await client.post("/v1/completions", json=body)
            return [(await first).status_code, second.status_code]

    assert asyncio.run(ask()) == [200, 503]
    assert asyncio.run(ask()) == [200, 503]


def test_a_body_that_never_ends() -> None:
    app = create_language_app(model(), LanguageSettings(timeout=0.1, max_requests=1))
    told: list[Any] = []
    pieces = [{"type": "http.request", "body": b'{"prompt":', "more_body": True}]

    async def receive() -> Any:
        if pieces:
            return pieces.pop()
        return await asyncio.sleep(30, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        told.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("loom", 80), "client": ("here", 1)}
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 20))
    assert told[0]["status"] == 504
    # Its place is free again.
    (answer,) = asked(app, ("completions", {"prompt": ""}))
    assert answer.status_code == 400


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


def test_activations_are_quantised_where_the_command_is_asked_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.command_line import serve

    apps: list[Any] = []
    monkeypatch.setattr(serve, "_run", lambda app, *_, **__: apps.append(app) or 0)
    body = {"prompt": "Once upon", "max_tokens": 4, "temperature": 0, "logprobs": 0}
    found = []
    for words, activations in ([], None), (["--activations", "int8"], "int8"):
        assert main(["serve", str(folder), "--dtype", "q8_0", *words]) == 0
        (answer,) = asked(apps[-1], ("completions", body))
        wanted = loom.text.load(folder, "q8_0", activations=activations)
        tokens = wanted.complete("Once upon", max_tokens=4, temperature=0, logprobs=0).tokens
        found.append(answer.json()["choices"][0]["logprobs"]["token_logprobs"])
        assert found[-1] == [each.logprob for each in tokens][: len(found[-1])]
    assert found[0] != found[1]


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
