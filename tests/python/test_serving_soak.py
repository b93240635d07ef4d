"""Many requests to a language model's server, of which a part leaves early: nothing is stuck or grows."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("tokenizers", reason="the extra text is not installed")

from loom.text import ChatTemplate, LanguageModel, Vocabulary
from text_models import CHAT, SETTINGS, byte_level, decoder, write_folder
from text_server import KEY, Server

httpx = pytest.importorskip("httpx", reason="tests of serving need httpx")

# 10,000 requests with LOOM_SOAK=1.
SOAK = os.environ.get("LOOM_SOAK") == "1"
COUNT = 10_000 if SOAK else 40
PROMPTS = [f"{'Once upon a time ' * (number % 4)}{number}" for number in range(12)]
BODY: dict[str, Any] = {"max_tokens": 12, "temperature": 0.8, "logit_bias": {"1": -100, "5": -100}}


class Counts:
    """What has become of requests."""

    def __init__(self) -> None:
        self.whole = 0
        self.left = 0
        self.refused = 0


async def one(client: Any, url: str, draws: random.Random, wanted: dict[int, str], counts: Counts) -> None:
    """Asks once; leaves early in one of three cases."""
    number = draws.randrange(len(PROMPTS))
    leaves, streams = draws.random() < 1 / 3, draws.random() < 0.5
    body = {**BODY, "prompt": PROMPTS[number], "seed": number, "stream": streams}
    if not streams:
        wait = draws.uniform(0.001, 0.05) if leaves else 120.0
        try:
            answer = await asyncio.wait_for(client.post(url, json=body), wait)
        except asyncio.TimeoutError:
            assert leaves
            counts.left += 1
            return
        if answer.status_code == 503:
            counts.refused += 1
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == wanted[number]
        counts.whole += 1
        return
    most, text = draws.randrange(6) if leaves else 1000, ""
    async with client.stream("POST", url, json=body) as answer:
        if answer.status_code == 503:
            counts.refused += 1
            return
        async for line in answer.aiter_lines():
            if most == 0:
                counts.left += 1
                return
            if line.startswith("data: {"):
                told = json.loads(line.removeprefix("data: "))
                assert "error" not in told, told
                text += told["choices"][0]["text"]
                most -= 1
    assert text == wanted[number]
    counts.whole += 1


async def ask(url: str, count: int, seed: int, wanted: dict[int, str], counts: Counts) -> None:
    draws = random.Random(seed)
    limits = httpx.Limits(max_connections=16)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=120, limits=limits, headers=headers) as client:
        left = count

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await one(client, f"{url}/v1/completions", draws, wanted, counts)

        await asyncio.gather(*(work() for _ in range(12)))


def held(process: int) -> tuple[int, int, int]:
    """Bytes of memory, open files and threads of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return (
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(list(Path(f"/proc/{process}/fd").iterdir())),
        len(list(Path(f"/proc/{process}/task").iterdir())),
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux's /proc")
def test_a_server_whose_clients_come_and_go(tmp_path: Path) -> None:
    vocabulary = Vocabulary(byte_level(), frozenset({1, 5}), template=ChatTemplate(CHAT))
    alone = LanguageModel(decoder(400), vocabulary, capacity=100)
    options: Any = {**BODY, "logit_bias": {1: -100, 5: -100}}
    wanted = {
        number: alone.complete(prompt, **options, seed=number).text for number, prompt in enumerate(PROMPTS)
    }
    folder = write_folder(tmp_path / "tiny", decoder(400), byte_level(), **SETTINGS)
    server = Server(folder, "--capacity", "100", "--max-running", "4", "--max-requests", "64")
    counts = Counts()
    try:
        # What is made once.
        asyncio.run(ask(server.url, COUNT // 4, 1, wanted, counts))
        before = held(server.process.pid)
        asyncio.run(ask(server.url, COUNT - COUNT // 4, 2, wanted, counts))
        # Whoever has left is soon gone.
        for _ in range(600):
            if not server.measure("loom_answers_running") + server.measure("loom_requests_waiting"):
                break
            asyncio.run(asyncio.sleep(0.05))
        assert server.measure("loom_answers_running") == server.measure("loom_requests_waiting") == 0
        after = held(server.process.pid)
        print(vars(counts), before, after)  # noqa: T201 - figures of a long run
        assert counts.whole + counts.left + counts.refused == COUNT
        assert counts.whole > COUNT / 3
        assert after[0] - before[0] < 24 << 20
        assert after[1] - before[1] <= 4
        # One for each client that may ask at once, which come and go.
        assert after[2] <= before[2] + 12
        # All places are free.
        asyncio.run(ask(server.url, 8, 3, wanted, Counts()))
    finally:
        server.close()
