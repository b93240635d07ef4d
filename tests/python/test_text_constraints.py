"""Answers of a form: every token is one that the form allows, and the likeliest of those."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("llguidance", reason="the extra text is not installed")

import loom
from loom.command_line import main
from loom.text import ChatTemplate, LanguageModel, Vocabulary
from loom.text.constraints import form_of
from text_models import CHAT, SETTINGS, byte_level, decoder, sentence_pieces, write_folder

jsonschema = pytest.importorskip("jsonschema", reason="answers by schema are checked by jsonschema")

END = frozenset({1, 5})


@cache
def model(kind: str = "bytes", end: frozenset[int] = END) -> LanguageModel:
    tokenizer = byte_level() if kind == "bytes" else sentence_pieces()
    vocabulary = Vocabulary(tokenizer, end, template=ChatTemplate(CHAT))
    return LanguageModel(decoder(450), vocabulary, capacity=300)


# All answers of each form are few enough to be written down.
LANGUAGES: list[tuple[str, list[str]]] = [
    ("(ab|cé){2}e?", [a + b + e for a in ("ab", "cé") for b in ("ab", "cé") for e in ("", "e")]),
    ("[a-c]{1,3}", ["".join(each) for n in (1, 2, 3) for each in itertools.product("abc", repeat=n)]),
    ("(once|on|upon) the|on", ["once the", "on the", "upon the", "on"]),
    ("森の?中", ["森の中", "森中"]),
]


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@pytest.mark.parametrize(("pattern", "answers"), LANGUAGES, ids=[pattern for pattern, _ in LANGUAGES])
def test_greedy_answers_are_the_likeliest_tokens_that_go_on(
    pattern: str, answers: list[str], kind: str
) -> None:
    talks = model(kind)
    found = talks.complete("Es war", regex=pattern, temperature=0, max_tokens=40)
    assert found.finish == "stop"
    # The same by hand: of the tokens whose bytes begin an answer the one with the largest score.
    whole = [answer.encode() for answer in answers]
    special = {
        number for number, token in talks.tokenizer.get_added_tokens_decoder().items() if token.special
    }
    text, said = talks.encode("Es war"), b""
    for choice in found.tokens:
        x = np.zeros((1, 64), np.int64)
        x[0, : len(text)] = text
        scores = talks.network.predict(x)[0, len(text) - 1]
        fitting = [
            token
            for token in range(talks.tokenizer.get_vocab_size())
            if token not in special
            and (held := talks.token_bytes(token))
            and any(answer.startswith(said + held) for answer in whole)
        ]
        fitting += sorted(END) if said in whole else []
        left = {answer[len(said)] for answer in whole if answer.startswith(said) and answer != said}
        if len(left) > 1 or said in whole:
            assert choice.token == max(sorted(fitting), key=lambda each: scores[each])
        else:
            # Where there is no choice in the text, it is cut into tokens as the tokenizer cuts it.
            assert choice.token in fitting
        text.append(choice.token)
        said += b"" if choice.token in END else talks.token_bytes(choice.token)
    assert said in whole
    assert found.text == said.decode()


PARTS = st.sampled_from(["a", "[b-d]", "é", "x?", r"[0-9]{1,3}", "(森|no)", " ", "q{2}"])


@settings(deadline=None, max_examples=25)
@given(st.lists(PARTS, min_size=1, max_size=5).map("".join), st.integers(0, 99), st.floats(0, 3))
def test_drawn_answers_match(pattern: str, seed: int, temperature: float) -> None:
    options: Any = {"seed": seed, "temperature": temperature, "max_tokens": 60}
    found = model().complete("Once", regex=pattern, **options)
    assert found.finish == "stop"
    assert re.fullmatch(pattern, found.text)
    assert found == model().complete("Once", regex=pattern, **options) or found.reused_tokens == 0
    # One token after the other, by guesses, and where nothing ends an answer but its form.
    ahead = model().complete("Once", regex=pattern, draft="lookup", **options)
    assert (ahead.text, ahead.tokens) == (found.text, found.tokens)
    assert re.fullmatch(pattern, model(end=frozenset()).complete("Once", regex=pattern, **options).text)


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "integer", "minimum": -5, "maximum": 120},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["red", "grün", 3]},
            {"const": {"a": [1, "2"]}},
            {"type": "string", "maxLength": 6},
            {"type": "string", "pattern": "^[a-f]{2,4}$"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1, "maxItems": 2}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.dictionaries(st.sampled_from(["name", "age", "ünit"]), inner, min_size=1).map(
            lambda held: {
                "type": "object",
                "properties": held,
                "required": sorted(held)[:1],
                "additionalProperties": False,
            }
        ),
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=25)
@given(SCHEMAS, st.integers(0, 99))
def test_answers_by_schema_are_valid(schema: dict[str, Any], seed: int) -> None:
    found = model().complete("Once", json_schema=schema, seed=seed, max_tokens=250)
    assert found.finish == "stop"
    jsonschema.validate(json.loads(found.text), schema)
    assert "\n" not in found.text


def test_answers_by_classes_of_pydantic_have_their_fields_alone() -> None:
    pydantic = pytest.importorskip("pydantic")
    size = Annotated[int, pydantic.Field(ge=1, le=9)]
    named: Any = pydantic.create_model("Animal", legs=(size, ...), tail=(bool, True))
    person: Any = pydantic.create_model(
        "Person",
        animals=(Annotated[list[named], pydantic.Field(max_length=2)], ...),
        properties=(Literal["a", "b"], ...),
        other=(named | None, ...),
    )
    talks = model()
    for seed in range(6):
        found = talks.complete("Once", json_schema=person, seed=seed, max_tokens=200)
        held = json.loads(found.text)
        assert held.keys() == {"animals", "properties", "other"}
        assert all({"legs"} <= animal.keys() <= {"legs", "tail"} for animal in held["animals"])
        person.model_validate(held)
    # One that keeps other fields may have them, as may a schema that says nothing of them.
    config = pydantic.ConfigDict(extra="allow")
    keeps: Any = pydantic.create_model("Keeps", size=(int, ...), __config__=config)
    assert form_of(json_schema=keeps) == form_of(json_schema=keeps.model_json_schema())
    assert form_of(json_schema=named) != form_of(json_schema=named.model_json_schema())


def test_a_chat_that_fills_in_a_form() -> None:
    """A whole program: data out of a text, as a user would ask for it."""
    talks = model()

    class Person:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 9}, "sons": {"enum": [1, 2, 3]}},
                "required": ["name", "sons"],
                "additionalProperties": False,
            }

    messages = [{"role": "user", "content": "Once upon a time there was a miller who had three sons."}]
    stream = talks.chat(messages, json_schema=Person, seed=1)
    text = "".join(stream)
    held = json.loads(text)
    assert set(held) == {"name", "sons"}
    as_text = talks.chat(messages, json_schema=json.dumps(Person.model_json_schema()), seed=1).finish()
    assert as_text.text == text
    anything = talks.complete("Once", json_schema=True, seed=2, max_tokens=200, temperature=0.3)
    assert anything.finish == "length" or isinstance(json.loads(anything.text), dict)
    for grammar in ('root ::= "yes" | "no"', 'start: WORD\nWORD: "yes" | "no"'):
        assert talks.complete("Well?", grammar=grammar, seed=3).text in ("yes", "no")
    # Logarithms are of the network's own probabilities, before anything is left out.
    told = talks.complete("Once", regex="[ab]c", logprobs=1, temperature=0).tokens[0]
    assert told.logprob is not None
    assert told.logprob <= told.top[0][1]
    # An answer that has no more tokens ends before it is whole.
    assert talks.complete("Once", regex="a{9}b", max_tokens=3).finish == "length"


def test_forms_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "tiny", decoder(400), byte_level(size=400), **SETTINGS)
    talks = loom.text.load(folder)
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"enum": ["ja", "nein"]}', encoding="utf-8")
    grammar.write_text('start: "森" | "中"', encoding="utf-8")
    words = ["generate", str(folder), "Well?", "--seed", "4"]
    options: list[tuple[list[str], dict[str, Any]]] = [
        (["--regex", "[ab]{3}"], {"regex": "[ab]{3}"}),
        (["--json-schema", str(schema)], {"json_schema": {"enum": ["ja", "nein"]}}),
        (["--grammar", str(grammar)], {"grammar": 'start: "森" | "中"'}),
        (["--max-tokens", "90", "--sinks", "4"], {"max_tokens": 90, "sinks": 4}),
    ]
    for more, told in options:
        assert main([*words, *more]) == 0
        assert capsys.readouterr().out == talks.complete("Well?", seed=4, **told).text + "\n"
    with pytest.raises(SystemExit):
        main([*words, "--grammar", str(tmp_path / "nowhere")])
    assert "cannot be read" in capsys.readouterr().err


def test_an_end_that_is_text_besides_ends_no_answer_before_its_form_does() -> None:
    # As a token that ends a turn is where a file calls it none of those that control.
    b = model().encode("b")
    talks = model(end=frozenset(b))
    for seed in range(8):
        found = talks.complete("Once", regex="[abc]{4}x", seed=seed, max_tokens=20)
        assert re.fullmatch("[abc]{4}x", found.text)
        assert found.finish == "stop"
    with pytest.raises(loom.StateError, match="only tokens that end an answer go on"):
        talks.complete("Once", regex="b!?", max_tokens=20)
    assert talks.complete("Once", regex="b!", max_tokens=20, ignore_end=True).text == "b!"


def test_a_draft_that_knows_other_ends_guesses_for_a_form() -> None:
    options: Any = {"regex": "(ab){1,6}", "temperature": 3.0, "max_tokens": 30}
    for end in (frozenset[int](), frozenset({1}), frozenset({*END, *model().encode("b")})):
        draft = LanguageModel(decoder(450, width=16, seed=9), Vocabulary(byte_level(), end), capacity=300)
        for seed in range(8):
            plain = model().complete("Once", seed=seed, **options)
            assert model().complete("Once", seed=seed, draft=draft, **options).tokens == plain.tokens


@pytest.mark.parametrize("options", [{"grammar": "start: start"}, {"regex": "b!?", "end": "b"}])
def test_forms_that_nothing_begins_are_refused_before_anything_is_read(options: dict[str, Any]) -> None:
    asked = dict(options)
    talks = model(end=frozenset(model().encode(asked.pop("end")))) if "end" in asked else model()
    with pytest.raises(loom.StateError, match=r"go(es)? on as"):
        talks.generate("Once", **asked)


def test_forms_that_are_none() -> None:
    talks = model()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"regex": "a", "grammar": "start: a"}, "one form; give regex or grammar, not both"),
        ({"regex": "(("}, "regex: .*invalid regex"),
        ({"regex": "(?=a)b"}, "regex: .*look-ahead and look-behind, is not supported"),
        ({"regex": "\ud83d"}, "regex: .*surrogates"),
        ({"regex": ""}, "regex must be a text"),
        ({"json_schema": "{"}, "json_schema is no JSON"),
        ({"json_schema": 3}, "json_schema must be a JSON Schema"),
        ({"json_schema": {"type": "objekt"}}, "Invalid type: objekt"),
        ({"json_schema": {"type": "string", "format": "of mine"}}, "Unknown format"),
        ({"grammar": "start: nowhere"}, "unknown name"),
        ({"grammar": 3}, "grammar must be a text"),
    ]
    for options, reason in wrong:
        with pytest.raises(loom.ConfigError, match=reason):
            talks.generate("a", **options)
    from tokenizers import Tokenizer, decoders, models

    few = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    # Tokens between which their tokenizer puts spaces, which no form has asked for.
    apart: list[Any] = [(None, "no decoder"), (decoders.WordPiece(), "WordPiece")]
    for puts, name in [*apart, (decoders.BPEDecoder(), "BPEDecoder")]:
        few.decoder = puts
        with pytest.raises(loom.ConfigError, match=f"this tokenizer has {name}"):
            LanguageModel(decoder(2), few, capacity=20).complete([0], regex="ab", max_tokens=5)
    # A vocabulary that cannot say what is asked for.
    few.decoder = decoders.Fuse()
    small = LanguageModel(decoder(2), few, capacity=20)
    assert small.complete([0], regex="ab", max_tokens=5).text == "ab"
    with pytest.raises(loom.StateError, match="no token of the model's vocabulary"):
        small.complete([0], regex="ac", max_tokens=5)
