"""The command line `loom`, also `python -m loom`: a file a command.

A command's file is read when the command is asked for, and what a command needs when it runs, so that
`loom --help` is quick. What is right exits with 0, what loom refuses with 1 and the message alone, a command
that is misspelled with 2, and Ctrl-C with 130.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from loom._native import __version__
from loom.errors import LoomError

__all__ = ["main"]

# In the order of their help; each is the one command of the module of that name.
_COMMANDS = (
    "info",
    "bench",
    "doctor",
    "train",
    "launch",
    "predict",
    "generate",
    "chat",
    "tune",
    "serve",
    "summary",
    "inspect",
    "convert",
    "watch",
    "reproduce",
    "completion",
)


class _Commands(click.Group):
    """The commands, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns their names."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command, or None where there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command among the words, and says which one may be meant where there is none."""
        from difflib import get_close_matches

        near = get_close_matches(args[0], _COMMANDS, n=1)
        if near and near[0] != args[0] and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'; did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`loom COMMAND --help` has an example of each.",
)
@click.version_option(__version__, "-V", "--version", prog_name="loom")
def _program() -> None:
    """loom, a neural-network engine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The words after the program's name; those of the process where None.

    Returns:
        The exit status: 0, 1 for an error, 130 for Ctrl-C.

    Raises:
        SystemExit: The words are no command; its status is 2.
    """
    try:
        status = _program.main(
            None if arguments is None else list(arguments), prog_name="loom", standalone_mode=False
        )
        sys.stdout.flush()
    except LoomError as error:
        sys.stderr.write(f"loom: {_told(error)}\n")
        return 1
    except OSError as error:
        # What was said could not be written: the disk is full that it goes to, say.
        sys.stderr.write(f"loom: {error.strerror or error}\n")
        _leave_unsaid()
        return 1
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    return status if isinstance(status, int) else 0


def _leave_unsaid() -> None:
    """Lets go of what standard output did not take, which Python would try again at its end, and complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: LoomError) -> str:
    """Returns what is wrong, in words alone: the system's numbers of errors say nothing here."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)
