"""`loom completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click

from loom.command_line.output import write

__all__ = ["command"]


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
