"""Calls of tools in answers: how models write them, how they are read, and how one is asked for.

Templates tell models of tools, and each family was taught a way to call them. There are three in use: JSON
between marks (Hermes, Qwen), a list behind a mark (Mistral), and an answer that is JSON (Llama 3). Which one
it is, the template's text says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom.errors import ConfigError

if TYPE_CHECKING:
    from loom.text.vocabulary import Vocabulary

__all__ = ["ToolCall", "ToolReader", "ToolStyle", "functions_of", "style_of"]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Args:
        name: The function's.
        arguments: What it is called with, as JSON.
    """

    name: str
    arguments: str


@dataclass(frozen=True)
class ToolStyle:
    """How a model writes calls.

    Args:
        begin: What goes before a call; "" for nothing.
        end: What goes behind it.
        key: What the arguments are called.
        listed: Whether calls stand in a list.
        token: The special token before calls, which is no text; None for none.
    """

    begin: str
    end: str
    key: str = "arguments"
    listed: bool = False
    token: int | None = None

    def grammar(self, functions: Sequence[Mapping[str, Any]], name: str | None = None) -> str:
        """Returns the grammar, in Lark's form, of an answer that is one call.

        Args:
            functions: The functions, as JSON schemas.
            name: The one to be called; any where None.

        Raises:
            ConfigError: There is no such function.
        """
        meant = [each for each in functions if name in (None, each["name"])]
        if not meant:
            known = ", ".join(str(each["name"]) for each in functions)
            raise ConfigError(f"there is no tool {name!r}, only {known or 'none'}")
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": each["name"]},
                    self.key: each.get("parameters") or {"type": "object", "additionalProperties": False},
                },
                "required": ["name", self.key],
                "additionalProperties": False,
            }
            for each in meant
        ]
        schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if self.listed:
            schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
        schema["x-guidance"] = {
            "item_separator": ", ",
            "key_separator": ": ",
            "whitespace_flexible": False,
        }
        token = "" if self.token is None else f"<[{self.token}]> "
        begin, end = (f"{json.dumps(text)} " if text else "" for text in (self.begin, self.end))
        return f"start: {token}{begin}call {end}\ncall: %json {json.dumps(schema)}\n"


def style_of(vocabulary: Vocabulary) -> ToolStyle:
    """Returns how a model writes calls, by its chat template.

    Raises:
        ConfigError: The template tells of no tools.
    """
    template = vocabulary.template
    source = "" if template is None else "\n".join(template.sources.values())
    if "tools" not in source:
        raise ConfigError("the model's chat template tells of no tools, so that it calls none")
    if "<tool_call>" in source:
        return ToolStyle("<tool_call>\n", "\n</tool_call>")
    if "[TOOL_CALLS]" in source:
        token = vocabulary.tokenizer.token_to_id("[TOOL_CALLS]")
        return ToolStyle("" if token is not None else "[TOOL_CALLS]", "", listed=True, token=token)
    return ToolStyle("", "", key="parameters" if '"parameters"' in source else "arguments")


def functions_of(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the functions that tools are.

    Args:
        tools: As OpenAI's, {"type": "function", "function": {...}}, or the functions themselves.

    Raises:
        ConfigError: One is none.
    """
    found = []
    for tool in tools:
        given: object = tool
        function = given.get("function", given) if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ConfigError(
                'a tool is {"type": "function", "function": {"name": ..., "parameters": {...}}}, '
                f"got {given!r:.60}"
            )
        found.append(function)
    return found


class ToolReader:
    """Reads calls out of an answer, as its text comes.

    What may yet become a call is held back; what becomes none is text.

    Args:
        style: How the model writes calls.
    """

    def __init__(self, style: ToolStyle) -> None:
        self._style = style
        self._mark = style.begin.strip()
        self._held = ""
        self._begun = False
        self._after = False
        self.calls: list[ToolCall] = []
        """The calls so far."""

    def add(self, text: str) -> str:
        """Takes text; returns what of it, and of what was held back, is no call."""
        self._held += text
        return self._marked() if self._mark else self._bare(ended=False)

    def finish(self) -> str:
        """Returns what was held back and is no call."""
        if not self._mark:
            return self._bare(ended=True)
        held, self._held = self._held, ""
        begun = held.lstrip()
        if begun.startswith(self._mark):
            # One whose end was not written.
            calls, _ = self._read(begun[len(self._mark) :].strip())
            if calls:
                self.calls += calls
                return ""
        return held

    def _marked(self) -> str:
        told, end = "", self._style.end.strip()
        while True:
            if self._after:
                # Spaces behind a call, and before one, are no text.
                self._held = self._held.lstrip()
                self._after = not self._held
            place = self._held.find(self._mark)
            if place < 0:
                free = len(self._held) - _overlap(self._held, self._mark)
                free = len(self._held[:free].rstrip())
                told, self._held = told + self._held[:free], self._held[free:]
                return told
            before = len(self._held[:place].rstrip())
            told, self._held = told + self._held[:before], self._held[before:]
            begin = place - before + len(self._mark)
            inside = self._held[begin:]
            if end:
                last = inside.find(end)
                if last < 0:
                    return told
                calls, _ = self._read(inside[:last].strip())
                length = last + len(end)
            else:
                calls, found = self._read(inside)
                if found is None:
                    return told
                length = found
            if not calls:
                told += self._held[: begin + length]
            self.calls += calls
            self._after = bool(calls)
            self._held = inside[length:]

    def _bare(self, *, ended: bool) -> str:
        """An answer that is a call has nothing before it."""
        if not self._begun:
            start = self._held.lstrip()
            if not start and not ended:
                return ""
            if start[:1] in ("{", "["):
                calls, length = self._read(start)
                if calls:
                    self.calls += calls
                    self._held = start[length:].lstrip("; \n")
                    return self._bare(ended=ended) if self._held else ""
                if length is None and not ended:
                    return ""
            elif self.calls and not start:
                self._held = ""
                return ""
            self._begun = True
        told, self._held = self._held, ""
        return told

    def _read(self, text: str) -> tuple[list[ToolCall], int | None]:
        """Returns the calls that a text begins with, and how long they are; None where it is not whole."""
        before = len(text) - len(text.lstrip())
        try:
            value, length = json.JSONDecoder().raw_decode(text[before:])
        except (ValueError, RecursionError):
            return [], None
        entries = value if isinstance(value, list) else [value]
        calls = []
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                return [], before + length
            arguments = entry.get(self._style.key, entry.get("arguments", entry.get("parameters")))
            if not isinstance(arguments, (dict, str)):
                return [], before + length
            told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            if not _is_text(entry["name"] + told):
                # JSON can spell half a pair of surrogates, which nobody can be told.
                return [], before + length
            calls.append(ToolCall(entry["name"], told))
        return calls, before + length


def _overlap(text: str, mark: str) -> int:
    """Returns how many characters at the text's end may be the beginning of a mark."""
    most = min(len(text), len(mark) - 1)
    return next((count for count in range(most, 0, -1) if text.endswith(mark[:count])), 0)


def _is_text(text: str) -> bool:
    """Whether a text consists of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
