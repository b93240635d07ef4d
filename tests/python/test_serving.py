"""`loom serve`: requests and answers, batches, limits, and a real server under clients."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.serving import ServingSettings, create_app
from loom.serving.batching import Batcher
from loom.serving.bodies import BodyError, from_json, from_npy, to_npy
from loom.serving.limits import RateLimit

pytest.importorskip("fastapi", reason="the extra serve is not installed")
httpx = pytest.importorskip("httpx", reason="tests of serving need httpx")

LABELS = ["ash", "birch", "cedar"]
NPY = "application/x-npy"
PAGE = "http://localhost:3000"


def network() -> loom.Network:
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=4, seed=1)
    net.card = loom.ModelCard(labels=LABELS, preprocessing={"mean": [0.5]})
    return net


def samples(rows: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


@contextmanager
def served(net: loom.Network, **limits: Any) -> Iterator[Any]:
    from anyio.from_thread import start_blocking_portal

    app = create_app(net, ServingSettings(**limits))
    asked = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://loom")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
        portal.wrap_async_context_manager(asked),
    ):
        yield Client(portal, asked)


class Client:
    """A client without a server, for tests that do not wait for anything."""

    def __init__(self, portal: Any, client: Any) -> None:
        self._portal, self._client = portal, client

    def get(self, path: str) -> Any:
        return self._portal.call(self._client.get, path)

    def post(self, path: str, **what: Any) -> Any:
        return self._portal.call(partial(self._client.post, path, **what))

    def options(self, path: str, **what: Any) -> Any:
        return self._portal.call(partial(self._client.options, path, **what))


@pytest.fixture
def client() -> Iterator[Any]:
    with served(network(), wait=0.0) as client:
        yield client


def refusal(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"type", "message"}
    return f"{error['type']}: {error['message']}"


def post(client: Any, body: bytes, kind: str = "application/json", **headers: str) -> Any:
    return client.post("/predict", content=body, headers={"Content-Type": kind, **headers})


def test_json_comes_back_to_the_bit_with_labels_and_preprocessing(client: Any) -> None:
    x = samples()
    told = client.post("/predict", json={"inputs": x.tolist()}).json()
    wanted = network().predict(x)
    np.testing.assert_array_equal(np.array(told["outputs"], np.float32), wanted)
    assert told["labels"] == [LABELS[place] for place in wanted.argmax(-1)]
    assert told["preprocessing"] == {"mean": [0.5]}
    assert set(told) == {"outputs", "labels", "preprocessing"}


def test_arrays_come_back_as_arrays(client: Any) -> None:
    x = samples()
    wanted = network().predict(x)
    for kind in (NPY, "application/octet-stream"):
        answer = post(client, to_npy(x), kind)
        assert answer.headers["content-type"] == NPY
        np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), wanted)
    # The answer has the form that is asked for.
    asked = post(client, to_npy(np.asfortranarray(x.astype(np.float64))), NPY, Accept="application/json")
    np.testing.assert_array_equal(np.array(asked.json()["outputs"], np.float32), wanted)
    answer = client.post("/predict", json={"inputs": x.tolist()}, headers={"Accept": NPY})
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), wanted)


def test_what_a_network_without_a_card_answers() -> None:
    net = loom.Sequential([nn.Dense(3)], input_shape=4)
    with served(net) as client:
        assert set(client.post("/predict", json={"inputs": samples().tolist()}).json()) == {"outputs"}


def test_bodies_that_are_refused(client: Any) -> None:
    for body, reason in (
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[[1, 2, 3, 4]]", '{"inputs":'),
        (b'{"inputs": [[1, 2, 3, 4]], "more": 1}', '{"inputs":'),
        (b'{"inputs": [[1, 2], [3]]}', "different lengths"),
        (b'{"inputs": []}', "no samples"),
        (b'{"inputs": 3}', "no samples"),
    ):
        assert reason in refusal(post(client, body), 400), body[:50]
    for body, reason in (
        (b"", "is no .npy"),
        (to_npy(samples())[:-1], "announces 80 bytes of data, but it has 79"),
        (to_npy(samples()) + b"0", "announces 80 bytes"),
        (to_npy(samples()).replace(b"(5, 4)", b"(5000000000, 4)"), "announces"),
        (to_npy(np.zeros((0, 4))), "no samples"),
    ):
        assert reason in refusal(post(client, body, NPY), 400), body[:50]
    stream = io.BytesIO()
    np.save(stream, np.array([None]), allow_pickle=True)
    assert "Python objects" in refusal(post(client, stream.getvalue(), NPY), 400)
    assert "not text/csv" in refusal(post(client, b"1,2,3,4", "text/csv"), 415)


def test_samples_that_the_network_refuses(client: Any) -> None:
    assert "ShapeError" in refusal(client.post("/predict", json={"inputs": [[1, 2, 3]]}), 422)
    assert "DTypeError" in refusal(client.post("/predict", json={"inputs": [["a", "b", "c", "d"]]}), 422)
    assert "NonFiniteError" in refusal(post(client, b'{"inputs": [[1, 2, 3, NaN]]}'), 422)
    assert "DTypeError" in refusal(post(client, to_npy(np.zeros((1, 4), complex)), NPY), 422)
    structured = np.zeros(2, [("a", "f4"), ("b", "f4")])
    assert "DTypeError" in refusal(post(client, to_npy(structured), NPY), 422)


def test_a_network_that_reads_places_in_a_vocabulary() -> None:
    net = loom.Sequential([nn.Embedding(5, 2), nn.Flatten(), nn.Dense(2)], input_shape=3)
    with served(net, wait=0.0) as client:
        told = client.post("/predict", json={"inputs": [[0, 1, 4]]}).json()
        np.testing.assert_array_equal(
            np.array(told["outputs"], np.float32), net.predict(np.array([[0, 1, 4]]))
        )
        assert "DTypeError" in refusal(client.post("/predict", json={"inputs": [[0.5, 1, 4]]}), 422)


def test_paths_that_there_are_not(client: Any) -> None:
    assert "Not Found" in refusal(client.get("/nowhere"), 404)
    assert "Method Not Allowed" in refusal(client.get("/predict"), 405)


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(2):
        yield b" " * 600


def test_limits_on_size_and_rate() -> None:
    with served(network(), max_rows=3, max_bytes=1000) as client:
        assert "3 samples at most, not 4" in refusal(post(client, to_npy(samples(4)), NPY), 413)
        assert "1,000 bytes at most" in refusal(post(client, b" " * 1001), 413)
        # Nor if its length is not announced.
        assert "1,000 bytes" in refusal(client.post("/predict", content=pieces()), 413)
        assert post(client, to_npy(samples(3)), NPY).status_code == 200
    with served(network(), rate=2) as client:
        answers = [post(client, to_npy(samples()), NPY) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200


def test_rate_limits_by_the_clock() -> None:
    now = [0.0]
    limit = RateLimit(2.0, lambda: now[0])
    assert [limit.wait("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    assert limit.wait("b") == 0.0
    now[0] = 0.75
    assert [limit.wait("a") for _ in range(2)] == [0.0, 0.25]
    for address in range(20_000):
        limit.wait(str(address))
    assert len(limit._left) <= 10_000
    assert RateLimit(None).wait("a") == 0.0


def test_settings_are_checked() -> None:
    for name, value in {
        "batch_rows": 0,
        "max_rows": 1.5,
        "max_bytes": -1,
        "wait": -1,
        "timeout": 0,
        "rate": 0,
        "max_requests": 0,
    }.items():
        with pytest.raises(loom.ConfigError, match=name):
            ServingSettings(**{name: value})


def test_health_model_measures_and_openapi(client: Any) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    told = client.get("/model").json()
    net = network()
    assert told["fingerprint"] == net.fingerprint()
    assert (told["input_shape"], told["output_shape"], told["device"]) == ([4], [3], "cpu")
    assert told["card"]["labels"] == LABELS
    post(client, to_npy(samples(5)), NPY)
    post(client, b"{")
    text = client.get("/metrics").text
    assert 'loom_requests_total{status="200"} 1.0' in text
    assert 'loom_requests_total{status="400"} 1.0' in text
    assert "loom_batch_rows_sum 5.0" in text
    assert "loom_requests_waiting 0.0" in text
    page = client.get("/openapi.json").json()["paths"]["/predict"]["post"]
    asked = page["requestBody"]["content"]["application/json"]["schema"]["properties"]["inputs"]
    assert asked["items"]["minItems"] == 4
    assert {"200", "413", "422", "429", "503"} <= set(page["responses"])
    assert client.get("/docs").status_code == 200


class Slow:
    """A network that takes its time, and says what it was given."""

    def __init__(self, net: loom.Network, seconds: float = 0.0) -> None:
        self.net, self.seconds = net, seconds
        self.device, self.input_shape = net.device, net.input_shape
        self.given: list[int] = []

    def predict(self, x: np.ndarray, batch_size: int) -> np.ndarray:
        self.given.append(len(x))
        time.sleep(self.seconds)
        return self.net.predict(x, batch_size)


def together(net: Any, inputs: list[np.ndarray], rows: int = 64, wait: float = 0.05) -> list[Any]:
    async def ask() -> list[Any]:
        batcher = Batcher(net, rows, wait)
        answers = await asyncio.gather(*(batcher.predict(x) for x in inputs), return_exceptions=True)
        await batcher.close()
        return answers

    return asyncio.run(ask())


def test_requests_at_the_same_time_are_one_batch_and_get_what_they_would_alone() -> None:
    net = network()
    slow = Slow(net)
    inputs = [samples(1 + number % 4, number) for number in range(12)]
    for x, y in zip(inputs, together(slow, inputs), strict=True):
        np.testing.assert_array_equal(y, net.predict(x))
    assert slow.given == [sum(map(len, inputs))]


def test_a_full_batch_does_not_wait_and_what_comes_meanwhile_follows() -> None:
    slow = Slow(network(), 0.01)
    began = time.perf_counter()
    together(slow, [samples(2)] * 6, rows=4, wait=30.0)
    assert time.perf_counter() - began < 10
    assert slow.given == [4, 4, 4]


def test_a_wrong_request_spoils_no_other() -> None:
    net = loom.Sequential([nn.Embedding(5, 2), nn.Flatten(), nn.Dense(2)], input_shape=3)
    right = np.array([[0, 1, 4]])
    answers = together(net, [right, np.array([[0, 1, 9]]), right[:, :2], right])
    for place in (0, 3):
        np.testing.assert_array_equal(answers[place], net.predict(right))
    assert isinstance(answers[1], loom.LoomError)
    assert isinstance(answers[2], loom.ShapeError)


def test_whoever_gives_up_is_left_out() -> None:
    slow = Slow(network(), 0.05)

    async def ask() -> None:
        batcher = Batcher(slow, 4, 0.0)  # type: ignore[arg-type]
        first = asyncio.ensure_future(batcher.predict(samples(4)))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(batcher.predict(samples(3)))
        await asyncio.sleep(0.01)
        second.cancel()
        assert len(await first) == 4
        await batcher.close()

    asyncio.run(ask())
    assert slow.given == [4]


def test_a_request_that_takes_too_long_and_too_many_that_wait() -> None:
    net = network()
    app = create_app(net, ServingSettings(wait=10_000.0, timeout=0.2, max_requests=1))

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://loom") as client:
            asked = [client.post("/predict", json={"inputs": samples().tolist()}) for _ in range(2)]
            return list(await asyncio.gather(*asked))

    answers = sorted(asyncio.run(ask()), key=lambda answer: answer.status_code)
    assert "1 requests are under way" in refusal(answers[0], 503)
    assert "not answered within 0.2 seconds" in refusal(answers[1], 504)


def test_a_batch_on_a_gpu_has_one_size_and_so_the_same_bits(gpu: str) -> None:
    net = network().to(gpu)
    x = samples(9)
    alone = [together(net, [x[row : row + 1]], rows=8)[0] for row in range(9)]
    joined = together(net, [x[row : row + 1] for row in range(9)], rows=8)
    np.testing.assert_array_equal(np.concatenate(joined), np.concatenate(alone))
    np.testing.assert_allclose(np.concatenate(joined), network().predict(x), atol=1e-5)


def test_bodies() -> None:
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.zeros((0, 2)),
    ):
        np.testing.assert_array_equal(from_npy(to_npy(array)), array)
    with pytest.raises(BodyError, match="version"):
        from_npy(b"\x93NUMPY\x09\x00" + b"0" * 100)
    with pytest.raises(BodyError):
        from_json(b'{"inputs": [[' + b"9" * 5000 + b"]]}")


@contextmanager
def server(path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "loom", "serve", str(path), "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"(http://127\.0\.0\.1:\d+)/docs", line)
            assert found, line + (process.stderr.read() if process.stderr and not line else "")
            yield process, found[1]
        finally:
            process.kill()


def test_a_server_under_clients_and_its_end(tmp_path: Path) -> None:
    net = network()
    net.save(tmp_path / "net.loom")
    wrong: list[str] = []
    # Long enough that the last request is still waiting when the server is told to end.
    words = ["--wait", "150", "--batch-rows", "60", "--allow-origin", "http://other", "--allow-origin", PAGE]
    with server(tmp_path / "net.loom", *words) as (process, url):
        health = httpx.get(f"{url}/health", headers={"Origin": PAGE})
        assert health.json() == {"status": "ok"}
        assert health.headers["access-control-allow-origin"] == PAGE
        page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
        block = re.findall(r"```py\n(.*?)```", page, re.DOTALL)[0]
        block = block.replace("http://127.0.0.1:8000", url).replace(
            "[1.1, 4.2], [2.0, 0.9]", "[1.1, 4.2, 2.0, 0.9]"
        )
        names: dict[str, Any] = {}
        exec(compile(block, "serving.md", "exec"), names)
        assert names["outputs"].shape == (1, 3)

        def ask(number: int) -> None:
            with httpx.Client(base_url=url, timeout=30) as client:
                for turn in range(2):
                    x = samples(10, 100 * number + turn)
                    answer = post(client, to_npy(x), NPY)
                    if answer.status_code != 200 or answer.content != to_npy(net.predict(x)):
                        wrong.append(f"{answer.status_code}: {answer.content[:100]!r}")

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        text = httpx.get(f"{url}/metrics").text
        assert 'loom_requests_total{status="200"} 13.0' in text
        batches = re.search(r"loom_batch_rows_count (\d+)", text)
        assert batches
        assert int(batches[1]) < 13

        turns: list[Any] = []

        def ask_once() -> None:
            turns.append(httpx.post(f"{url}/predict", json={"inputs": samples(1).tolist()}, timeout=30))

        last = threading.Thread(target=ask_once)
        last.start()
        # Until it waits with the server; or is answered already, where this machine is slow.
        while not turns and "loom_requests_waiting 1.0" not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM if os.name != "nt" else signal.SIGINT)
        last.join()
        assert process.wait(30) == 0
        assert turns[0].status_code == 200
    assert not wrong


def test_the_command_refuses_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    from loom.command_line import main

    path = str(tmp_path / "net.loom")
    assert main(["serve", path]) == 1
    network().save(path)
    assert main(["serve", path, "--batch-rows", "0"]) == 1
    assert "batch_rows" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", path, "--port", str(taken.getsockname()[1])]) == 1
    assert "cannot be listened on" in capsys.readouterr().err


def test_whoever_hangs_up_while_he_is_heard_is_counted() -> None:
    app = create_app(network(), ServingSettings())
    sent: list[Any] = []

    async def ask() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        kind = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": kind, "query_string": b""}
        await app({**scope, "http_version": "1.1", "client": ("a", 1)}, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 400


def test_what_should_not_happen_is_told_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from loom.serving import application

    def broken(*_: Any) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(application, "from_json", broken)
    app = create_app(network())

    async def ask() -> Any:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://loom") as client:
            return await client.post("/predict", json={"inputs": samples().tolist()})

    assert "AssertionError: something" in refusal(asyncio.run(ask()), 500)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_arrays_are_refused_as_bodies(data: st.DataObject) -> None:
    body = bytearray(to_npy(np.arange(6, dtype=np.float32).reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 127))
        body[place] = data.draw(
            st.one_of(st.integers(0, 255), st.sampled_from(list(b"0-9',()[]{}<|OfiuSV ")))
        )
    with suppress(BodyError):
        from_npy(bytes(body))


@given(st.one_of(st.binary(max_size=40), st.recursive(st.integers() | st.floats() | st.text(), st.lists)))
@settings(max_examples=100, deadline=None)
def test_whatever_json_holds_is_read_or_refused(told: Any) -> None:
    body = told if isinstance(told, bytes) else json.dumps({"inputs": told}).encode()
    with suppress(BodyError):
        from_json(body)


@pytest.mark.parametrize("end", ["linear", "sigmoid"])
def test_two_classes_of_one_output_have_labels(end: Any) -> None:
    net = loom.Sequential([nn.Dense(1, activation=end)], input_shape=2, seed=1)
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    loss = "binary_cross_entropy" if end == "linear" else "mse"
    y = np.where(x[:, 0] > 0, "up", "down") if end == "linear" else x[:, 0] > 0
    settings = {"epochs": 60, "learning_rate": 0.1, "ignore_findings": "all", "verbose": False}
    net.fit(x, y, loss=loss, **settings)
    net.card = loom.ModelCard(labels=["down", "up"])
    with served(net) as client:
        told = client.post("/predict", json={"inputs": x.tolist()}).json()
    assert told["labels"] == net.predict_classes(x).tolist()
    assert set(told["labels"]) == {"down", "up"}


def preflight(client: Any, origin: str) -> Any:
    """What a browser asks before a page sends JSON with a key."""
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    return client.options("/predict", headers=asked)


def test_pages_of_origins_that_are_allowed_may_ask() -> None:
    with served(network(), wait=0.0, max_rows=1, allow_origins=[PAGE]) as client:
        told = preflight(client, PAGE)
        assert told.status_code == 200
        assert told.headers["access-control-allow-origin"] == PAGE
        assert {"authorization", "content-type"} <= set(
            re.split(", *", told.headers["access-control-allow-headers"].lower())
        )
        assert "access-control-allow-origin" not in preflight(client, "http://elsewhere").headers
        # What is refused is told to the page, too.
        for rows, status in [(1, 200), (2, 413)]:
            body = {"inputs": samples(rows).tolist()}
            answer = client.post("/predict", json=body, headers={"Origin": PAGE})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == PAGE


def test_pages_of_other_origins_may_not_ask_unless_all_may(client: Any) -> None:
    assert preflight(client, PAGE).status_code == 405
    answer = client.post("/predict", json={"inputs": samples(1).tolist()}, headers={"Origin": PAGE})
    assert "access-control-allow-origin" not in answer.headers
    with served(network(), wait=0.0, allow_origins=("*",)) as open_to_all:
        assert preflight(open_to_all, PAGE).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "given",
    ["*", [""], [None], ["localhost:30"], ["http://localhost:30/"], ["HTTP://a"], ["http://a/b"], 3, None],
)
def test_origins_are_as_browsers_say_them(given: object) -> None:
    with pytest.raises(loom.ConfigError, match="origin"):
        ServingSettings(allow_origins=given)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="origin"):
        loom.serving.LanguageSettings(allow_origins=given)  # type: ignore[arg-type]
