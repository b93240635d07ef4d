"""Chats in a browser: what such pages ask of `loom serve`, and its own page by its script."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("tokenizers", reason="the extra text is not installed")

from loom.text import LanguageModel
from served_text import TALK, folder_of_model, model
from text_server import KEY, Server

httpx = pytest.importorskip("httpx", reason="tests of serving need httpx")

NODE = shutil.which("node")


@pytest.fixture(scope="module")
def alone() -> LanguageModel:
    return model()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = folder_of_model(tmp_path_factory.mktemp("pages") / "tiny")
    running = Server(folder, "--capacity", "200", "--max-running", "3")
    try:
        yield running
    finally:
        running.close()


def events(answer: Any) -> list[dict[str, Any]]:
    """What a page reads of a stream, as it comes."""
    held, found = "", []
    for piece in answer.iter_text():
        held += piece
        *whole, held = held.split("\n\n")
        found += [line.removeprefix("data: ") for line in whole]
    assert (held, found[-1]) == ("", "[DONE]")
    return [json.loads(line) for line in found[:-1]]


# What NextChat says of every chat.
NEXT_CHAT = {"temperature": 0.5, "presence_penalty": 0, "frequency_penalty": 0, "top_p": 1}


def test_what_pages_ask_is_answered(server: Server, alone: LanguageModel) -> None:
    url, headers = f"{server.url}/v1/chat/completions", {"Authorization": f"Bearer {KEY}"}
    # NextChat's request, and one with what others add: contents in parts, the usage, an account's name.
    plain = {"messages": TALK, "stream": True, "model": "tiny", **NEXT_CHAT}
    parts = [{"role": each["role"], "content": [{"type": "text", "text": each["content"]}]} for each in TALK]
    told_more = {
        "stream": True,
        "model": "tiny",
        "messages": parts,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "stop": ["</answer>"],
        "seed": 0,
        "user": "someone",
        "metadata": {"chat_id": "a"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "someone",
        "prompt_cache_key": "a",
        "prompt_cache_retention": "24h",
        "tools": None,
        "response_format": {"type": "text"},
    }
    wanted = alone.chat(TALK, max_tokens=9, seed=0, stop="</answer>").finish()
    with httpx.Client(headers=headers, timeout=60) as client:
        listed = client.get(f"{server.url}/v1/models").json()
        assert [(each["id"], each["object"]) for each in listed["data"]] == [("tiny", "model")]
        with client.stream("POST", url, json=plain) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = events(answer)
        assert {each["object"] for each in told} == {"chat.completion.chunk"}
        assert all(isinstance(each["choices"][0]["delta"].get("content", ""), str) for each in told)
        assert told[-1]["choices"][0]["finish_reason"] in ("stop", "length")
        with client.stream("POST", url, json=told_more) as answer:
            *told, last = events(answer)
        assert "".join(each["choices"][0]["delta"].get("content", "") for each in told) == wanted.text
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], len(wanted.tokens))
        # A talk's title, whole, and a talk in which an answer was ended before its first word.
        ended = [*TALK, {"role": "assistant", "content": ""}, {"role": "user", "content": "Go on."}]
        for messages in (TALK, ended):
            body = {"model": "tiny", "messages": messages, "max_completion_tokens": 4, **NEXT_CHAT}
            answer = client.post(url, json={**body, "stream": False})
            assert answer.json()["choices"][0]["message"]["role"] == "assistant"


SCRIPT = r"""
const parts = {};
const nothing = () => {};
const part = () => ({
  value: "", textContent: "", append: nothing, scrollIntoView: nothing,
  replaceChildren: nothing, focus: nothing,
});
globalThis.document = {
  body: {dataset: {chat: "true", name: "tiny"}},
  getElementById: (id) => parts[id] ??= part(),
  createElement: part,
};
const asked = [];
let answers = [];
globalThis.fetch = async (url, {body, signal}) => {
  asked.push(JSON.parse(body).messages.map((each) => each.role + ": " + each.content));
  const [status, text, hangs] = answers.shift();
  const told = new TextEncoder().encode(text);
  return {
    ok: status === 200,
    json: async () => JSON.parse(text),
    body: new ReadableStream({
      start(control) {
        control.enqueue(told);
        if (!hangs) return control.close();
        signal.addEventListener("abort", () => control.error(new DOMException("", "AbortError")));
      },
    }),
  };
};
const piece = (text) => "data: " + JSON.stringify({choices: [{delta: {content: text}}]}) + "\n\n";
const done = "data: [DONE]\n\n";
const rest = () => new Promise((go) => setTimeout(go, 30));
async function say(text, ...answer) {
  answers.push(answer);
  parts.text.value = text;
  parts.send.onclick();
  await rest();
}
%s
(async () => {
  await say("one", 200, piece("1") + piece("!") + done);
  await say("two", 400, '{"error": {"message": "no"}}');
  await say("three", 200, piece("3"), true);
  parts.send.onclick();
  await rest();
  await say("four", 200, piece("4"), true);
  parts.anew.onclick();
  await rest();
  await say("five", 200, piece("5") + done);
  await say("six", 200, done);
  console.log(JSON.stringify(asked));
})();
"""


@pytest.mark.skipif(NODE is None, reason="the page's script is run by node")
def test_the_page_tells_the_model_what_was_said() -> None:
    page = resources.files("loom.serving").joinpath("chat.html").read_text(encoding="utf-8")
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    assert script is not None
    assert NODE is not None
    code = SCRIPT.replace("%s", script[1].replace('"use strict";', ""))
    ran = subprocess.run([NODE, "-"], input=code, capture_output=True, text=True, timeout=60, check=True)
    first = ["user: one", "assistant: 1!"]
    # What was refused was not said, what was ended counts as far as it came, and a new talk has none.
    assert json.loads(ran.stdout) == [
        first[:1],
        [*first, "user: two"],
        [*first, "user: three"],
        [*first, "user: three", "assistant: 3", "user: four"],
        ["user: five"],
        ["user: five", "assistant: 5", "user: six"],
    ]
