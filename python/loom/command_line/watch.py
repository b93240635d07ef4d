"""`loom watch`: a run on a page that follows it."""

from __future__ import annotations

import click

from loom.command_line.output import write

__all__ = ["command"]


@click.command("watch", epilog="Example: loom watch runs/digits")
@click.argument("run", type=click.Path())
@click.option(
    "--port", type=int, default=8712, show_default=True, help="The port on 127.0.0.1; 0 for any that is free."
)
def command(run: str, port: int) -> None:
    """Show a run on a page that follows it.

    RUN is its folder, as given to loom.RunRecorder.
    """
    from loom.runs.watching import RunServer

    with RunServer(run, port=port) as server:
        write(f"{server.url}  (Ctrl-C ends)")
        try:
            server.wait()
        except KeyboardInterrupt:
            return
