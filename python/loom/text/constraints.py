"""Answers of a form that is asked for: a regular expression, a JSON Schema, or a grammar.

llguidance says which tokens may come next (https://github.com/guidance-ai/llguidance): an Earley parser over
lexemes that derivatives of regular expressions find, run over the vocabulary's tree of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom.errors import ConfigError
from loom.extras import require
from loom.text.errors import FormError, OptionError
from loom.text.tokens import check_characters

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from loom.text.token_bytes import TokenBytes

__all__ = ["FORMS", "Constraint", "Constraints", "Form", "form_of"]

FORMS = ("regex", "json_schema", "grammar")
"""What an answer's form may be told by."""

Form = tuple[str, str]
"""One of `FORMS`, and llguidance's text of it."""

# As models write JSON. Any number of spaces and lines would let a model write nothing else.
_JSON = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


def form_of(regex: object = None, json_schema: object = None, grammar: object = None) -> Form | None:
    """Reads what an answer's form is told by; None where it may be any.

    Args:
        regex: A regular expression of the whole answer.
        json_schema: A JSON Schema, as an object, as text, or as a model of pydantic, whose own fields alone
            an answer has unless it keeps others (extra="allow"); True for any object.
        grammar: A grammar in Lark's form, or in llama.cpp's (GBNF).

    Raises:
        ConfigError: There are several, or one is none.
        MissingExtraError: llguidance is not installed.
    """
    given = {
        name: value
        for name, value in zip(FORMS, (regex, json_schema, grammar), strict=True)
        if value is not None and value is not False
    }
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"generate: an answer has one form; give {' or '.join(given)}, not both")
    ((name, value),) = given.items()
    library = require("llguidance", extra="text", purpose=f"{name}=")
    if name == "json_schema":
        return name, _json_grammar(library, value)
    if not isinstance(value, str) or not value:
        raise OptionError(f"generate: {name} must be a text that is not empty, got {value!r:.60}", name)
    try:
        check_characters(value)
    except ConfigError as error:
        raise OptionError(f"generate: {name}: {error}", name) from error
    if name == "regex":
        return name, str(library.LLMatcher.grammar_from_regex(value))
    try:
        return name, str(library.grammar_from("grammar", value))
    except ValueError as error:
        raise OptionError(f"generate: grammar: {error}", name) from error


def _json_grammar(library: Any, schema: object) -> str:  # noqa: ANN401 - llguidance
    told = getattr(schema, "model_json_schema", None)
    if callable(told):
        schema = _closed(told())
    elif schema is True:
        schema = {"type": "object"}
    elif isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise OptionError(f"generate: json_schema is no JSON: {error}", "json_schema") from error
    if not isinstance(schema, (Mapping, bool)):
        raise OptionError(
            "generate: json_schema must be a JSON Schema, a model of pydantic, or True for any object, "
            f"got {schema!r:.60}",
            "json_schema",
        )
    try:
        text = json.dumps(schema)
        return str(library.LLMatcher.grammar_from_json_schema(text, defaults=_JSON))
    except (TypeError, ValueError) as error:
        raise OptionError(f"generate: json_schema: {error}", "json_schema") from error


_SCHEMAS = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")
_NAMED = ("properties", "$defs")


def _closed(schema: Any) -> Any:  # noqa: ANN401 - whatever a schema holds
    """Returns pydantic's schema of a class without fields that the class would read and throw away.

    The schema says nothing of these, which lets a model write any, and never come to an end.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    held = {name: _closed(value) if name in _SCHEMAS else value for name, value in schema.items()}
    for name in _NAMED:
        if isinstance(held.get(name), dict):
            held[name] = {each: _closed(value) for each, value in held[name].items()}
    if "properties" in held:
        held.setdefault("additionalProperties", False)
    return held


_STUCK = (
    "no token of the model's vocabulary goes on as the answer's form asks, or it is too much to read: "
    "use another form"
)

_ENDS_ALONE = (
    "only tokens that end an answer go on as its form asks, where it may not end: use another form, or "
    "ignore_end=True, which takes them as text"
)


class _Words:
    """A vocabulary as llguidance reads it."""

    def __init__(self, tokens: list[bytes], special: list[int], token_bytes: TokenBytes) -> None:
        # The names are llguidance's.
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = len(tokens) - 1
        self.bos_token_id = None
        self._token_bytes = token_bytes
        hidden = {*special, len(tokens) - 1}
        self._numbers = {held: number for number, held in enumerate(tokens) if held and number not in hidden}
        self._longest = max(map(len, self._numbers), default=0)

    def __call__(self, text: bytes | str) -> list[int]:
        """Returns the tokens of text that goes on from other text: what a form leaves no choice in."""
        raw = text.encode() if isinstance(text, str) else bytes(text)
        said = raw.decode("utf-8", "replace")
        found = self._token_bytes.behind(said) if said.encode() == raw else None
        # A tokenizer may know tokens that the network makes no scores of.
        if found is None or max(found, default=0) >= self.eos_token_id:
            return self._greedy(raw)
        return found

    def _greedy(self, raw: bytes) -> list[int]:
        found, place = [], 0
        while place < len(raw):
            for length in range(min(self._longest, len(raw) - place), 0, -1):
                token = self._numbers.get(raw[place : place + length])
                if token is not None:
                    found.append(token)
                    place += length
                    break
            else:
                # Nothing says it; what is there so far is all that is forced.
                break
        return found


class Constraints:
    """Makes constraints for one vocabulary.

    Args:
        tokenizer: The tokenizer.
        token_bytes: Says which bytes each token is.
        words: How many tokens the network makes scores of.
    """

    def __init__(self, tokenizer: Tokenizer, token_bytes: TokenBytes, words: int) -> None:
        self._tokenizer = tokenizer
        self._token_bytes = token_bytes
        self.words = words
        self._made: Any = None
        self._lock = Lock()

    def made(self, form: Form, end: frozenset[int]) -> Constraint:
        """Makes a constraint of one answer.

        Args:
            form: What the answer is to be.
            end: Tokens that end an answer.

        Raises:
            ConfigError: The form is wrong, or more than llguidance reads.
            FormError: No token of the vocabulary begins an answer of that form, or it is too much to read.
        """
        library = require("llguidance", extra="text", purpose=f"{form[0]}=")
        if self._token_bytes.apart:
            raise OptionError(
                f"generate: {form[0]}: this tokenizer has {self._token_bytes.apart}, with which a text is "
                "more than its tokens one behind the other; answers of a form need a tokenizer that merges "
                "bytes, is of SentencePiece's kind, or has a decoder such as decoders.Fuse()",
                form[0],
            )
        # For big vocabularies it takes a second: once.
        with self._lock:
            if self._made is None:
                self._made = self._vocabulary(library)
        matcher = library.LLMatcher(self._made, form[1], log_level=0)
        if matcher.is_error():
            told = _reason(str(matcher.get_error())) or "it is not understood"
            raise OptionError(f"generate: {form[0]}: {told}", form[0])
        made = Constraint(matcher, self.words, end)
        # What begins an answer takes the longest to find; who asks for what nothing begins is told at once.
        made.allowed()
        return made

    def _vocabulary(self, library: Any) -> Any:  # noqa: ANN401 - llguidance
        added = self._tokenizer.get_added_tokens_decoder()
        special = [number for number, token in added.items() if token.special and number < self.words]
        tokens = [self._token_bytes.of(token) for token in range(self.words)]
        # One more, which stands for the end: models have none, one, or several.
        words = _Words([*tokens, b"<end>"], [*special, self.words], self._token_bytes)
        return library.LLTokenizer(library.TokenizerWrapper(words), eos_token=self.words)


class Constraint:
    """Which tokens may come next in an answer.

    Args:
        matcher: llguidance's.
        words: How many tokens there are; the one behind them is the end.
        end: The model's own ends.
    """

    def __init__(self, matcher: Any, words: int, end: frozenset[int]) -> None:  # noqa: ANN401 - llguidance
        self._matcher = matcher
        self._words = words
        self._end = np.array(sorted(token for token in end if token < words), np.int64)
        self._next: NDArray[np.int64] | None = None

    def allowed(self) -> NDArray[np.int64]:
        """Returns the tokens that may come next, in the order of their ids; those that end it among them.

        Tokens that end answers are among them only where the form lets the answer end: one that is text
        besides would end it anywhere.

        Raises:
            FormError: None may: the vocabulary has no token for what must come, or it is too much to read.
        """
        if self._next is None:
            self._next = self._found()
        return self._next

    def _found(self) -> NDArray[np.int64]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        mask = np.unpackbits(bits, bitorder="little")[: self._words + 1]
        words, may_end = mask[: self._words].copy(), bool(mask[self._words])
        spelled = bool(words[self._end].any())
        words[self._end] = may_end
        tokens = np.flatnonzero(words)
        if not len(tokens):
            raise FormError(_ENDS_ALONE if spelled else _STUCK)
        return tokens

    def ends(self, token: int) -> bool:
        """Whether a token that was allowed ends the answer.

        Args:
            token: Its id.
        """
        return bool((self._end == token).any())

    def take(self, token: int) -> None:
        """Goes on by a token that was allowed and ends nothing.

        Args:
            token: Its id.
        """
        self._next = None
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether nothing may follow."""
        if self._matcher.is_stopped():
            return True
        if len(self._end) or not self._matcher.is_accepting():
            return False
        # Without a token that ends answers, one ends where only its end may follow.
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return not np.unpackbits(bits, bitorder="little")[: self._words].any()

    def fork(self) -> Constraint:
        """Returns one that stands where this does, and goes on by itself."""
        other = Constraint(self._matcher.deep_copy(), self._words, frozenset(self._end.tolist()))
        other._next = self._next
        return other

    def _check(self) -> None:
        if self._matcher.is_error():
            raise FormError(f"{_STUCK} ({_reason(str(self._matcher.get_error())) or 'no reason given'})")


def _reason(told: str) -> str:
    """Returns what llguidance says is wrong, in one line: what it quotes of a form stands between."""
    first, *others = told.strip().splitlines() or [""]
    more = next((line for line in others if line.startswith("error: ")), "")
    return f"{first} {more.removeprefix('error: ')}".strip()
