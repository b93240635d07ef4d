"""`loom inspect`: the tensors in a file, without loading it."""

from __future__ import annotations

import click

from loom.command_line.output import write

__all__ = ["command"]


@click.command("inspect", epilog="Example: loom inspect model.gguf")
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(file: str, *, as_json: bool) -> None:
    """List the tensors in FILE, without loading it."""
    from loom.models.inspecting import inspect

    found = inspect(file)
    write(found.to_json() if as_json else str(found))
