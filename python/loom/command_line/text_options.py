"""What commands with language models have in common: options, and pieces of text as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from loom.command_line.completion import numeric_types

if TYPE_CHECKING:
    from loom._typing import CacheTypeName
    from loom.text import LanguageModel

__all__ = ["answering_options", "model_options", "opened", "told", "writing_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MODEL = (
    click.option(
        "--dtype",
        shell_complete=numeric_types,
        help='Pack the weights, such as "int8"; the file\'s own by default.',
    ),
    click.option("--capacity", type=int, help="Most tokens of a prompt and its answer together."),
    click.option("--device", default="cpu", show_default=True, help='"cpu", "gpu", "gpu:1", or "auto".'),
)
_ACTIVATIONS = click.option(
    "--activations",
    type=click.Choice(["int8"]),
    help="Quantise activations, too: faster on a processor with packed weights.",
)
_CACHE = click.option(
    "--cache-dtype",
    type=click.Choice(["float16", "q8_0"]),
    help="Keep keys and values in fewer bits, on a processor.",
)
_ADAPTER = click.option(
    "--adapter",
    type=click.Path(),
    help="The folder of an adapter beside the weights, as `loom tune` and peft write it.",
)
_WRITING = (
    click.option("--max-tokens", type=int, help="Most tokens of an answer."),
    click.option("--temperature", type=float, help="0 takes the likeliest token each time."),
    click.option("--top-k", type=int, help="Only so many of the likeliest tokens."),
    click.option("--top-p", type=float, help="Only the likeliest tokens of so much probability together."),
    click.option("--min-p", type=float, help="Only tokens of this part of the likeliest one's probability."),
    click.option("--typical", type=float, help="Only tokens about as surprising as expected, of so much."),
    click.option("--repetition-penalty", type=float, help="Above 1 makes what was said before less likely."),
    click.option("--frequency-penalty", type=float, help="Likewise above 0, by how often the answer has it."),
    click.option("--presence-penalty", type=float, help="Likewise above 0, whether the answer has it."),
    click.option("--seed", type=int, help="Repeats an answer."),
    click.option("--regex", metavar="PATTERN", help="A regular expression that the whole answer matches."),
    click.option(
        "--json-schema",
        metavar="FILE",
        callback=lambda _, __, path: None if path is None else read_text(path),
        help="A JSON Schema of the answer.",
    ),
    click.option(
        "--grammar",
        metavar="FILE",
        callback=lambda _, __, path: None if path is None else read_text(path),
        help="A grammar of the answer, Lark's or llama.cpp's.",
    ),
    click.option(
        "--draft",
        metavar="MODEL",
        callback=lambda _, __, path: guessing_by(path),
        help='Faster by guesses: a smaller model with the same tokens, or "lookup" in what was said.',
    ),
    click.option("--sinks", type=int, help="Go on past the capacity; so many of the first tokens stay."),
    click.option(
        "--stop", multiple=True, metavar="TEXT", help="End an answer before TEXT; as often as need be."
    ),
)


def read_text(path: str) -> str:
    """Returns what is in a file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}") from error


def guessing_by(path: str | None) -> LanguageModel | Literal["lookup"] | None:
    """Returns what guesses ahead."""
    if path is None:
        return None
    if path == "lookup":
        return "lookup"
    from loom.text import load

    return load(path)


def model_options(command: _Command) -> _Command:
    """Adds the options of how a model is loaded."""
    return _with(command, _MODEL)


def answering_options(command: _Command) -> _Command:
    """Adds the options of how a model is loaded to answer."""
    return _with(command, (_MODEL[0], _ACTIVATIONS, _ADAPTER, *_MODEL[1:], _CACHE))


def writing_options(command: _Command) -> _Command:
    """Adds the options of how text is written."""
    return _with(command, _WRITING)


def _with(command: _Command, options: Iterable[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def opened(
    model: str,
    dtype: str | None,
    activations: str | None,
    capacity: int | None,
    device: str,
    adapter: str | None = None,
    cache_dtype: CacheTypeName | None = None,
) -> LanguageModel:
    """Returns the model, with an adapter beside its weights if there is one."""
    from loom.text import load

    found = load(
        model, dtype, capacity=capacity, device=device, activations=activations, cache_dtype=cache_dtype
    )
    if adapter is not None:
        found.network.load_adapter(adapter)
    return found


def told(pieces: Iterable[str]) -> None:
    """Writes pieces of text as they come, and ends the line."""
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
