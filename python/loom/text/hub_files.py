"""What a folder of the Hugging Face Hub's shape says of a model's text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loom._settings.files import text_of
from loom.errors import FileError, SerializationError
from loom.extras import require
from loom.models.formats import format_of
from loom.text.sampling import LEAST_MASS, Sampling
from loom.text.templates import ChatTemplate
from loom.text.vocabulary import Vocabulary

__all__ = ["has_tokenizer", "read_folder"]

_SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical",
    "repetition_penalty": "repetition_penalty",
}
"""Settings of `Sampling`, by the names that generation_config.json has for them."""

_MOST_TEXT = 256 << 20


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer that is read."""
    return (folder / "tokenizer.json").is_file()


def read_folder(folder: Path) -> Vocabulary:
    """Reads tokenizer.json and the settings beside it.

    Args:
        folder: The folder.

    Returns:
        What they say.

    Raises:
        FileError: There is no tokenizer.json.
        SerializationError: A file is damaged.
        MissingExtraError: tokenizers or Jinja is not installed.
    """
    library = require("tokenizers", extra="text", purpose="text")
    path = folder / "tokenizer.json"
    if not path.is_file():
        others = [
            name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (folder / name).is_file()
        ]
        beside = f", only {others[0]}, which transformers makes one of (save_pretrained)" if others else ""
        raise FileError(f"{folder} has no tokenizer.json{beside}")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises plain Exception for whatever is wrong.
        with path.open("rb") as file:
            is_json = file.read(64).lstrip().startswith(b"{")
        # What is no JSON may be the pointer that Git LFS leaves.
        found = format_of(path)
        told = found.told if found.name == "foreign" and not is_json else f"no tokenizer: {error}"
        raise SerializationError(f"{path} is {told}") from error
    # Texts come one by one, whole.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    settings, model = _object(folder, "tokenizer_config.json"), _object(folder, "config.json")
    generation = _object(folder, "generation_config.json")
    special = _special(settings, _object(folder, "special_tokens_map.json"))
    end = _ends(generation, model)
    if "eos_token" in special:
        end |= {tokenizer.token_to_id(special["eos_token"])} - {None}
    pad = tokenizer.token_to_id(special["pad_token"]) if "pad_token" in special else model.get("pad_token_id")
    sources = _templates(folder, settings)
    return Vocabulary(
        tokenizer,
        frozenset(end),
        special,
        pad if isinstance(pad, int) else None,
        ChatTemplate(sources, special) if sources else None,
        _sampling(folder, generation),
    )


def _object(folder: Path, name: str) -> dict[str, Any]:
    """Returns the object that a file of settings holds; an empty one where there is no file."""
    text = _text(folder / name)
    try:
        held = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{folder / name} is not JSON: {error}") from error
    if not isinstance(held, dict):
        raise SerializationError(f"{folder / name} holds no object of settings")
    return held


def _text(path: Path) -> str | None:
    if not path.is_file():
        return None
    if path.stat().st_size > _MOST_TEXT:
        raise SerializationError(f"{path} is too large for a file of settings")
    try:
        return text_of(path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error


def _special(*files: Mapping[str, Any]) -> dict[str, str]:
    """Returns the texts of special tokens by their names; those of the first file count."""
    found: dict[str, str] = {}
    for held in files:
        for name, value in held.items():
            # Either the text, or an object that has it.
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                found.setdefault(name, text)
    return found


def _ends(*files: Mapping[str, Any]) -> set[int]:
    """Returns the tokens that end an answer, by the first file that says any."""
    for held in files:
        value = held.get("eos_token_id")
        numbers = value if isinstance(value, list) else [value]
        found = {number for number in numbers if isinstance(number, int) and not isinstance(number, bool)}
        if found:
            return found
    return set()


def _sampling(folder: Path, generation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what generation_config.json recommends; refuses what no answer could be made by."""
    numbers = {
        ours: generation[name]
        for name, ours in _SAMPLING.items()
        if isinstance(generation.get(name), (int, float)) and not isinstance(generation[name], bool)
    }
    if numbers.get("top_p") == 0:
        # transformers keeps the likeliest token then.
        numbers["top_p"] = LEAST_MASS
    try:
        if "top_k" in numbers:
            numbers["top_k"] = int(numbers["top_k"])
        Sampling(**numbers)
    except (ValueError, OverflowError) as error:
        told = str(error).removeprefix("Sampling: ")
        path = folder / "generation_config.json"
        raise SerializationError(f"{path} recommends what is none: {told}") from error
    if generation.get("do_sample") is False:
        # What changes scores counts for the likeliest token, too; what is drawn from does not.
        penalties = {name: value for name, value in numbers.items() if name == "repetition_penalty"}
        return {"temperature": 0.0, **penalties}
    return numbers


def _templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the chat templates by name: those in files of their own before those in the settings."""
    told = settings.get("chat_template")
    if told is None:
        told = _object(folder, "chat_template.json").get("chat_template")
    found: dict[str, str] = {}
    if isinstance(told, str):
        found["default"] = told
    elif isinstance(told, list):
        for entry in told:
            if not isinstance(entry, dict) or not {"name", "template"} <= set(entry):
                raise SerializationError(f"{folder}: chat_template is no list of names and templates")
            found[str(entry["name"])] = str(entry["template"])
    alone = _text(folder / "chat_template.jinja")
    if alone is not None:
        found["default"] = alone
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _text(path) or ""
    return found
