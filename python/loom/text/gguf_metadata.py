"""A tokenizer of Hugging Face's library as a GGUF file's metadata, from which llama.cpp makes it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from loom.errors import ConfigError
from loom.models.gguf.writing import save_gguf as save_network
from loom.text.gguf_vocabulary import read_metadata
from loom.text.pre_tokenizers import CUTS
from loom.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from loom.text.model import LanguageModel

__all__ = ["save_gguf", "to_metadata"]

_NORMAL, _UNKNOWN, _CONTROL, _OF_USERS, _BYTE = 1, 2, 3, 4, 6
# What ByteLevel cuts by itself.
_BY_ITSELF = "gpt-2"
_TRIED = (
    "The quick brown fox jumps over 12345 lazy dogs, doesn't it?",
    "  two  spaces\n\n\tand tabs... WE'LL x_y = {'a': [1, 2.5e-3]}",
    "Жили-были три брата. Es w\u00e4re sch\u00f6n. e\u0301 \u68ee\u306e\u732b \U0001f408",
    "",
    " a",
)
"""Texts that both tokenizers must cut alike before a file is written."""


def save_gguf(
    model: LanguageModel,
    path: str | PathLike[str],
    dtype: Literal["float32", "float16", "bfloat16", "q4_0", "q8_0"] = "float32",
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Saves a language model as GGUF, with its tokenizer and how it chats, for llama.cpp and its like.

    Args:
        model: The model.
        path: Where to.
        dtype: What matrices are written as, as in `loom.save_gguf`.
        metadata: What else the file is to say; it overrides what the model says.

    Raises:
        ConfigError: The network is of no architecture that is written, or the tokenizer of a kind that GGUF
            has no name for.
        DTypeError: Such a type is not written.
        FileError: The system refuses.
    """
    save_network(model.network, path, dtype, {**to_metadata(model.vocabulary), **(metadata or {})})


def to_metadata(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what a GGUF file says of a vocabulary.

    Merged bytes and SentencePiece's merged pieces can be said. Before it is returned, the metadata is made a
    tokenizer again, which must cut some texts as the first does.

    Args:
        vocabulary: The vocabulary.

    Raises:
        ConfigError: The tokenizer is of another kind, or cuts words in a way that has no name in GGUF.
    """
    held = json.loads(vocabulary.tokenizer.to_str())
    if held["model"].get("type") != "BPE":
        raise ConfigError(
            f"a tokenizer of the kind {held['model'].get('type')} has no place in a GGUF file: known are "
            "merged bytes and SentencePiece's merged pieces (BPE)"
        )
    told = _described(held, vocabulary)
    found = {f"tokenizer.ggml.{name}": value for name, value in told.items()}
    if vocabulary.template is not None and "default" in vocabulary.template.sources:
        found["tokenizer.chat_template"] = vocabulary.template.sources["default"]
    again = read_metadata(found).tokenizer
    for text in _TRIED:
        wanted, made = (each.encode(text).ids for each in (vocabulary.tokenizer, again))
        if wanted != made:
            raise ConfigError(
                f"GGUF cannot say how this tokenizer works: {text!r} would be {made[:8]}, not {wanted[:8]}"
            )
    return found


def _described(held: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    model = held["model"]
    places: dict[str, int] = dict(model["vocab"])
    added = held.get("added_tokens") or []
    places |= {entry["content"]: entry["id"] for entry in added}
    tokens = [""] * (1 + max(places.values(), default=-1))
    for token, place in places.items():
        tokens[place] = token
    for place, token in enumerate(tokens):
        # Places that no token has must have names that no text makes.
        tokens[place] = token or f"[PAD{place}]"
    special = {entry["content"] for entry in added if entry["special"]}
    of_users = {entry["content"] for entry in added} - special
    merges = [merge if isinstance(merge, list) else merge.split(" ", 1) for merge in model["merges"]]
    bytes_level = any(step.get("type") == "ByteLevel" for step in _steps(held.get("pre_tokenizer")))

    def kind(token: str) -> int:
        if token == model.get("unk_token"):
            return _UNKNOWN
        if token in special or (token.startswith("[PAD") and token not in places):
            return _CONTROL
        if token in of_users:
            return _OF_USERS
        is_byte = not bytes_level and len(token) == 6 and token.startswith("<0x") and token.endswith(">")
        return _BYTE if is_byte else _NORMAL

    told: dict[str, Any] = {"tokens": tokens, "token_type": [kind(token) for token in tokens]}
    begin, end = (vocabulary.special.get(f"{name}_token") for name in ("bos", "eos"))
    numbers = {
        "bos": begin,
        "eos": end,
        "unknown": vocabulary.special.get("unk_token", model.get("unk_token")),
    }
    for name, token in numbers.items():
        if token in places:
            told[f"{name}_token_id"] = places[token]
    if vocabulary.pad is not None:
        told["padding_token_id"] = vocabulary.pad
    if "eos_token_id" not in told and vocabulary.end:
        told["eos_token_id"] = min(vocabulary.end)
    plain = vocabulary.tokenizer.encode("a").ids
    bare = vocabulary.tokenizer.encode("a", add_special_tokens=False).ids
    added_ends = (plain[: len(plain) - len(bare)], plain[len(bare) :]) if plain != bare else ([], [])
    told["add_bos_token"] = bool(added_ends[0]) and plain[-len(bare) :] == bare
    told["add_eos_token"] = bool(added_ends[1]) and plain[: len(bare)] == bare
    if bytes_level:
        return {**told, "model": "gpt2", "pre": _cut(held), "merges": [" ".join(merge) for merge in merges]}
    ranks = {"".join(merge): rank for rank, merge in reversed(list(enumerate(merges)))}
    scores = [-float(ranks.get(token, len(ranks))) for token in tokens]
    prefix = any(
        step.get("type") == "Prepend" or step.get("prepend_scheme") in ("first", "always")
        for step in (*_steps(held.get("normalizer")), *_steps(held.get("pre_tokenizer")))
    )
    return {**told, "model": "llama", "scores": scores, "add_space_prefix": prefix}


def _steps(held: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yields the steps of a normalizer or of what cuts words, those inside sequences too."""
    if not held:
        return
    yield held
    for name in ("pretokenizers", "normalizers"):
        for inner in held.get(name) or ():
            yield from _steps(inner)


def _cut(held: Mapping[str, Any]) -> str:
    """Returns GGUF's name of how words are cut before bytes are merged."""
    steps = list(_steps(held.get("pre_tokenizer")))
    patterns = []
    for step in steps:
        if step.get("type") == "Split":
            pattern = step.get("pattern", {}).get("Regex")
            if step.get("behavior") != "Isolated" or step.get("invert") or pattern is None:
                break
            patterns.append(pattern)
        elif step.get("type") == "Digits" and step.get("individual_digits"):
            patterns.append(r"\p{N}")
        elif step.get("type") == "ByteLevel" and step.get("use_regex", True):
            patterns += CUTS[_BY_ITSELF].patterns
    composed = any(step.get("type") == "NFC" for step in _steps(held.get("normalizer")))
    whole = bool(held["model"].get("ignore_merges"))
    for name, cut in CUTS.items():
        if tuple(patterns) == cut.patterns and (cut.composed, cut.whole) == (composed, whole):
            return name
    raise ConfigError(
        f"GGUF has no name that loom knows for a tokenizer that cuts words by {patterns!r:.300}"
    )
