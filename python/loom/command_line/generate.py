"""`loom generate`: a language model goes on from a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from loom.command_line.text_options import answering_options, opened, told, writing_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from loom._typing import CacheTypeName
    from loom.text import Options

__all__ = ["command"]


@click.command("generate", epilog='Example: loom generate SmolLM2-135M "Once upon a time" --max-tokens 100')
@click.argument("model", type=click.Path())
@click.argument("prompt")
@answering_options
@writing_options
def command(
    model: str,
    prompt: str,
    dtype: str | None,
    activations: str | None,
    adapter: str | None,
    capacity: int | None,
    device: str,
    cache_dtype: CacheTypeName | None,
    **options: Unpack[Options],
) -> None:
    """Go on from PROMPT with the language model in MODEL.

    MODEL is a folder of the Hugging Face Hub, or a GGUF file; PROMPT the text, or - for standard input. What
    is left out is as the model's files recommend. Needs the extra "text".
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    talks = opened(model, dtype, activations, capacity, device, adapter, cache_dtype)
    with talks.generate(text, **options) as pieces:
        told(pieces)
