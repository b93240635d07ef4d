"""Calls of tools: read out of what templates write, in whatever pieces it comes, written as schemas say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom.text import ChatTemplate, LanguageModel, ToolCall, ToolReader, Vocabulary
from loom.text.tool_calls import ToolStyle, style_of
from text_models import CHAT, TOOL_CHAT, TOOLS, byte_level, decoder

jsonschema = pytest.importorskip("jsonschema", reason="arguments are checked by jsonschema")

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "chat_templates.json").read_text(encoding="utf-8")
)
TOKENIZER = byte_level()
MISTRAL = "{{ tools }}[TOOL_CALLS] [{{ 'x' }}]"


def talks(template: str = TOOL_CHAT) -> LanguageModel:
    return LanguageModel(
        decoder(400), Vocabulary(TOKENIZER, frozenset({1, 5}), template=ChatTemplate(template)), capacity=600
    )


@pytest.mark.parametrize("family", ["llama 3", "qwen 3"])
def test_what_transformers_writes_is_read(family: str) -> None:
    template = ChatTemplate(GOLDEN["templates"][family], GOLDEN["special"])
    style = style_of(Vocabulary(TOKENIZER, template=template))
    # The last two of the chats: before a call, and with a call and what it has given.
    before, after = (each.get("text") for each in GOLDEN["written"][family][-2:])
    if after is None:
        pytest.fail(f"{family}: the golden chat with a call was refused")
    call = GOLDEN["chats"][-1]["messages"][2]["tool_calls"][0]["function"]
    assert call["name"] in after
    begin = after.rindex('{"name"')
    begin = after.rfind("<tool_call>", 0, begin) if style.begin else begin
    end = after.index(style.end.strip() or "<|eot_id|>", begin)
    reader = ToolReader(style)
    assert reader.add(after[begin : end + len(style.end.strip())]) + reader.finish() == ""
    (found,) = reader.calls
    assert (found.name, json.loads(found.arguments)) == (call["name"], call["arguments"])
    assert before is not None


STYLES = {
    "qwen": ToolStyle("<tool_call>\n", "\n</tool_call>"),
    "mistral": ToolStyle("[TOOL_CALLS]", "", listed=True),
    "special": ToolStyle("", "", listed=True, token=9),
    "llama": ToolStyle("", "", key="parameters"),
}
WORDS = st.text('ab <[{"tool_call>\n}]é', max_size=12)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["weather", "now"]),
        st.dictionaries(st.text(max_size=3), st.integers() | st.text('}]<\\"é', max_size=4), max_size=2),
    ),
    min_size=1,
    max_size=2,
)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted(STYLES)), WORDS, CALLS, WORDS, st.lists(st.integers(1, 7), max_size=60))
def test_calls_are_read_however_they_come(
    kind: str, first: str, calls: list[tuple[str, dict[str, Any]]], last: str, sizes: list[int]
) -> None:
    style = STYLES[kind]
    entries = [{"name": name, style.key: arguments} for name, arguments in calls]
    told = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    if style.end:
        text = first + "".join(f"{style.begin}{each}{style.end}" for each in told)
        # What goes before must not begin a call itself.
        wrong = "<tool_call>" in text[: len(first) + len("<tool_call>") - 1]
        rest = "" if last.strip().startswith("<") else last
    elif style.begin:
        text, wrong, rest = f"{first}{style.begin} [{', '.join(told)}]", "[TOOL" in first, ""
    elif style.listed:
        text, wrong, rest, first = f" [{', '.join(told)}]", False, "", ""
    else:
        text, wrong, rest, first = told[0], False, "", ""
        calls = calls[:1]
    if wrong:
        return
    text += rest
    reader, found, left = ToolReader(style), "", text
    for size in sizes:
        found += reader.add(left[:size])
        left = left[size:]
    found += reader.add(left) + reader.finish()
    assert [(call.name, json.loads(call.arguments)) for call in reader.calls] == calls
    # Spaces beside calls are no text.
    assert "".join(found.split()) == "".join((first + rest).split())
    whole = ToolReader(style)
    assert whole.add(text) + whole.finish() == found


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(STYLES)), WORDS, st.lists(st.integers(1, 4), max_size=20))
def test_what_is_no_call_is_text(kind: str, text: str, sizes: list[int]) -> None:
    reader, found, left = ToolReader(STYLES[kind]), "", text
    for size in sizes:
        found += reader.add(left[:size])
        left = left[size:]
    found += reader.add(left) + reader.finish()
    assert found == text
    assert reader.calls == []


@pytest.mark.parametrize(
    "call", [{"name": "a\ud800", "arguments": {}}, {"name": "a", "arguments": {"b": "\ud800"}}]
)
def test_what_spells_no_characters_is_no_call(call: dict[str, Any]) -> None:
    text = json.dumps(call)
    for kind in ("<tool_call>\n{}\n</tool_call>", "{}"):
        reader = ToolReader(STYLES["qwen" if "<" in kind else "llama"])
        told = kind.replace("{}", text)
        assert reader.add(told) + reader.finish() == told
        assert reader.calls == []


def test_a_model_calls_what_it_is_to_call() -> None:
    """A whole program: a question, a call by a schema, what it gives, and the answer."""
    model = talks()
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    answer = model.chat(messages, tools=TOOLS, tool_choice="weather", seed=2, max_tokens=200).finish()
    text, (call,) = model.read_tools(answer.text)
    assert (text, call.name, answer.finish) == ("", "weather", "stop")
    arguments = json.loads(call.arguments)
    jsonschema.validate(arguments, TOOLS[0]["function"]["parameters"])
    messages += [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": call.name, "arguments": arguments}}],
        },
        {"role": "tool", "content": "sunny"},
    ]
    assert answer.text in model.chat_text(messages, tools=TOOLS)
    assert model.chat(messages, tools=TOOLS, max_tokens=5).finish().tokens
    for seed in range(4):
        any_of = model.chat(messages, tools=TOOLS, tool_choice="required", seed=seed, max_tokens=200).finish()
        assert model.read_tools(any_of.text)[1][0].name in ("weather", "now")
    # Families that write calls otherwise.
    for template, style in (
        (MISTRAL, STYLES["mistral"]),
        ("{{ tools }} {{ '\"parameters\"' }}", STYLES["llama"]),
    ):
        other = talks(template)
        assert style_of(other.vocabulary) == style
        found = other.chat(messages, tools=TOOLS, tool_choice="now", seed=1, max_tokens=90).finish()
        assert other.read_tools(found.text) == ("", [ToolCall("now", "{}")])


def test_a_mark_that_is_a_token() -> None:
    from tokenizers import AddedToken

    tokenizer = byte_level(size=399)
    assert tokenizer.add_special_tokens([AddedToken("[TOOL_CALLS]", special=True)]) == 1
    vocabulary = Vocabulary(tokenizer, frozenset({1}), template=ChatTemplate(MISTRAL))
    model = LanguageModel(decoder(400), vocabulary, capacity=600)
    found = model.chat([{"role": "user", "content": "a"}], tools=TOOLS, tool_choice="now", seed=1).finish()
    assert found.tokens[0].token == tokenizer.token_to_id("[TOOL_CALLS]")
    assert model.read_tools(found.text) == ("", [ToolCall("now", "{}")])


def test_tools_that_are_none() -> None:
    model = talks()
    message = [{"role": "user", "content": "a"}]
    for options, reason in (
        ({"tool_choice": "required"}, "needs tools"),
        ({"tools": TOOLS, "tool_choice": "later"}, "no tool 'later', only weather, now"),
        ({"tools": [{"a": 1}], "tool_choice": "required"}, "a tool is"),
        ({"tools": TOOLS, "tool_choice": "now", "regex": "a"}, "the tool says"),
    ):
        with pytest.raises(loom.ConfigError, match=reason):
            model.chat(message, **options)  # type: ignore[arg-type]
    assert "weather" in model.chat_text(message, tools=TOOLS)
    told = model.chat(message, tools=TOOLS, tool_choice="none", max_tokens=1)
    assert told.prompt_tokens == model.chat(message, max_tokens=1).prompt_tokens
    with pytest.raises(loom.ConfigError, match="tells of no tools"):
        talks(CHAT).tool_reader()
