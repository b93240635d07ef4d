"""Chats in tokens: special tokens are what the template writes, and never what people have said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.errors import ConfigError
from loom.text.errors import OptionError
from loom.text.templates import ChatTemplate
from loom.text.tokens import check_characters

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from loom.text.vocabulary import Vocabulary

__all__ = ["Chat", "Chats"]

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Characters that Unicode keeps free for what goes on inside programs, so that texts have none of them."""

_OWN = "assistant"

_OF_CHATS = frozenset(("self", "messages", "tools", "documents", "answer", "add_generation_prompt"))
"""What is told of a chat by itself, and is none of the values that a template reads besides."""


class Chat(NamedTuple):
    """A chat whose messages are to be read as text.

    Args:
        messages: The messages, in which marks stand within whatever would be read as a special token.
        given: The tools and documents, likewise.
        mark: The mark; "" where there is none.
        text: What the template has made of them.
    """

    messages: list[Any]
    given: dict[str, Any]
    mark: str
    text: str


class Chats:
    """Writes chats by a template, and makes tokens of them.

    A tokenizer searches a text for special tokens before anything else. What somebody has said could so end
    his turn, and begin one of the system. So a mark is put within whatever of a message a tokenizer would
    take for one, and a copy of the tokenizer leaves marks out once it has searched.

    Args:
        vocabulary: Whose special tokens, ends, and what its template writes of other tokens that texts are
            searched for, are kept from messages.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        added = vocabulary.tokenizer.get_added_tokens_decoder()
        # A token of a single character has no place for a mark.
        texts = {number: text for number, token in added.items() if len(text := str(token.content)) > 1}
        special = {number for number, token in added.items() if token.special} | vocabulary.end
        template = vocabulary.template
        source = "" if template is None else "\n".join(template.sources.values())
        # Files may call what begins a turn no special token, though the template writes it, or makes it of
        # roles.
        self._texts = {
            number: text
            for number, text in texts.items()
            if number in special or text in source or (text.startswith("<|") and text.endswith("|>"))
        }
        self._all = _any_of(self._texts.values())
        self._special = _any_of(text for number, text in self._texts.items() if number in special)
        self._reading: dict[str, Tokenizer] = {}
        self._lock = Lock()

    @property
    def template(self) -> ChatTemplate:
        """How a chat is written.

        Raises:
            ConfigError: The model has no chat template.
        """
        template = self.vocabulary.template
        if template is None:
            raise ConfigError(
                "the model has no chat template, as one that was trained on chats would have: use generate "
                "or complete, or give Vocabulary a ChatTemplate"
            )
        return template

    def text(
        self,
        messages: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns a chat as one text.

        Args:
            messages: The messages.
            given: The tools and documents.
            values: What else the template reads.

        Raises:
            ConfigError: There is no template, or it refuses the chat, or values hold what is told by itself.
        """
        return self.template.render(messages, **given, **_checked(values))

    def tokens(
        self,
        messages: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Returns the tokens of a chat; see `text`.

        Raises:
            ConfigError: As in `text`, or a message spells a special token that cannot be read as text.
        """
        chat = self.marked(self.template, messages, {**given, **_checked(values)})
        return list(self.encode(chat.text, chat.mark).ids)

    def marked(
        self, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
    ) -> Chat:
        """Returns a chat of which a template makes the same text, but for marks.

        Args:
            template: The template.
            messages: The messages.
            given: What `ChatTemplate.render` takes besides, such as tools.

        Raises:
            ConfigError: The template refuses the chat, or does something with a special token in a message.
        """
        plain = template.render(messages, **given)
        try:
            return self._marked_as(template, messages, given, plain)
        except RecursionError as error:
            raise ConfigError("a message holds values in values in values, too deep to read") from error

    def _marked_as(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any],
        plain: str,
    ) -> Chat:
        told = {name: given[name] for name in ("tools", "documents") if given.get(name)}
        if not _spells([*messages, told], self._all):
            return Chat([*messages], dict(given), "", plain)
        mark = next((each for each in _MARKS if each not in plain), "")
        own = [message.get("role") == _OWN for message in messages]
        # Templates may look for such text: for what was called, and in what the model itself has said for the
        # end of its thoughts.
        for of_others, of_own in ((self._all, self._special), (self._special,) * 2, (self._special, None)):
            patterns = [of_own if is_own else of_others for is_own in own]
            chosen = [_marked(*each, mark) for each in zip(messages, patterns, strict=True)]
            with_marks = {**given, **_marked(told, of_others, mark)}
            text = template.render(chosen, **with_marks) if mark else ""
            if text.replace(mark, "") == plain:
                return Chat(chosen, with_marks, mark, text)
        raise ConfigError(
            "a message spells a special token, and the chat template does not write it as it is, so that it "
            "cannot be read as text: leave it out, or have generate(chat_text(messages)) read it as the token"
        )

    def encode(self, text: str, mark: str) -> Encoding:
        """Returns the tokens of a chat, with their places in its text.

        Args:
            text: What a template has written.
            mark: The chat's mark.

        Raises:
            ConfigError: The tokenizer makes a special token of text.
        """
        check_characters(text)
        if not mark:
            return self.vocabulary.tokenizer.encode(text, add_special_tokens=False)
        with self._lock:
            if mark not in self._reading:
                self._reading[mark] = self._reader(mark)
        found = self._reading[mark].encode(text, add_special_tokens=False)
        for token, (start, stop) in zip(found.ids, found.offsets, strict=True):
            # A model of pieces may have such a token among its pieces.
            if token in self._texts and mark in text[start:stop]:
                raise ConfigError(
                    f"a message spells {self._texts[token]!r}, and the tokenizer has no other tokens for "
                    "that text: leave it out"
                )
        return found

    def _reader(self, mark: str) -> Tokenizer:
        """Returns a tokenizer that leaves marks out, once it has searched a text for special tokens."""
        from tokenizers import Tokenizer, normalizers

        held = json.loads(self.vocabulary.tokenizer.to_str())
        for entry in held["added_tokens"]:
            # Those that are searched for afterwards would be found there.
            entry["normalized"] = entry["normalized"] and entry["id"] not in self._texts
        reading = Tokenizer.from_str(json.dumps(held))
        own = reading.normalizer
        steps = [normalizers.Replace(mark, ""), *([] if own is None else [own])]
        reading.normalizer = normalizers.Sequence(steps)
        return reading


def _checked(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns what a template reads besides a chat itself, if that is what it is."""
    told = sorted(_OF_CHATS & (values or {}).keys())
    if told:
        raise OptionError(
            f"chat: values are what else the template reads; {told[0]} is told by chat itself", "values"
        )
    return dict(values or {})


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Returns the pattern of any of some texts, the longest where several begin at one place."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _spells(value: object, pattern: re.Pattern[str]) -> bool:
    """Whether a text in what messages hold has what a pattern looks for."""
    if isinstance(value, str):
        return pattern.search(value) is not None
    if isinstance(value, Mapping):
        return any(_spells(each, pattern) for each in value.values())
    return isinstance(value, (list, tuple)) and any(_spells(each, pattern) for each in value)


def _marked(value: Any, pattern: re.Pattern[str] | None, mark: str) -> Any:  # noqa: ANN401 - of any kind
    """Returns what messages hold with a mark within all that a pattern looks for."""
    if pattern is None:
        return value
    if isinstance(value, str):
        text = value
        # What two special tokens have in common needs a mark in each.
        while pattern.search(text) is not None:
            text = pattern.sub(lambda found: found[0][0] + mark + found[0][1:], text)
        return text
    if isinstance(value, Mapping):
        return {name: _marked(each, pattern, mark) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(each, pattern, mark) for each in value]
    return value
