"""`loom chat`: talks with a language model."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from loom.command_line.output import write
from loom.command_line.text_options import answering_options, opened, told, writing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from loom._typing import CacheTypeName
    from loom.text import Options

__all__ = ["command"]

_HELP = "/exit ends, /new begins anew, Ctrl-C ends an answer."


@click.command("chat", epilog="Example: loom chat Qwen2.5-0.5B-Instruct --dtype int8")
@click.argument("model", type=click.Path())
@click.option("--system", metavar="TEXT", help="What the model is told before the chat.")
@answering_options
@writing_options
def command(
    model: str,
    system: str | None,
    dtype: str | None,
    activations: str | None,
    adapter: str | None,
    capacity: int | None,
    device: str,
    cache_dtype: CacheTypeName | None,
    **options: Unpack[Options],
) -> None:
    """Chat with the language model in MODEL.

    MODEL is a folder of the Hugging Face Hub, or a GGUF file, with a chat template. /exit or the end of input
    ends the chat, /new begins it anew, and Ctrl-C ends an answer. Needs the extra "text".
    """
    from loom.errors import ConfigError

    talks = opened(model, dtype, activations, capacity, device, adapter, cache_dtype)
    begin = [] if system is None else [{"role": "system", "content": system}]
    # A model that does not chat says so before anything is typed.
    talks.chat_text([*begin, {"role": "user", "content": "Hello"}])
    write(_HELP)
    messages = list(begin)
    while True:
        said = _line()
        if said is None or said.strip() == "/exit":
            return
        if said.strip() == "/new":
            messages = list(begin)
            continue
        if not said.strip():
            continue
        try:
            answer = talks.chat([*messages, {"role": "user", "content": said}], **options)
        except ConfigError as error:
            # Such as a chat that has become too long.
            click.echo(f"loom: {error} (/new begins anew)", err=True)
            continue
        with answer:
            try:
                told(answer)
            except KeyboardInterrupt:
                write()
        messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answer.text}]


def _line() -> str | None:
    """Returns what is typed; None at the end of input, and for Ctrl-C where nothing is answered."""
    try:
        if sys.stdin.isatty():
            # With the keys for editing and going back, where there are such.
            with suppress(ImportError):
                import readline  # noqa: F401 - input() uses it
            return input("> ")
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    except (EOFError, KeyboardInterrupt):
        write()
        return None
