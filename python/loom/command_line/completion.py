"""`loom completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from typing import get_args

import click

from loom._typing import NumericTypeName
from loom.command_line.output import write

__all__ = ["command", "numeric_types"]


def numeric_types(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the numeric types whose names begin so, for `shell_complete` of options."""
    return [name for name in get_args(NumericTypeName) if name.startswith(incomplete)]


@click.command("completion", epilog="Example: echo 'eval \"$(loom completion bash)\"' >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what completes commands and options in SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"nothing is known of {shell}")
    write(found(context.find_root().command, {}, "loom", "_LOOM_COMPLETE").source())
