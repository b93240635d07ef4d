"""The command line: `loom watch RUN`, or `python -m loom watch RUN`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from loom.errors import LoomError
from loom.runs.watching import RunServer

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The words after the program's name; those of the process where None.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="loom", description="loom, a neural-network engine")
    commands = parser.add_subparsers(dest="command", required=True)
    watch = commands.add_parser("watch", help="show a run on a page that follows it")
    watch.add_argument("run", help="the run's directory, as given to loom.RunRecorder")
    watch.add_argument("--port", type=int, default=8712, help="the port on 127.0.0.1; 0 for any that is free")
    given = parser.parse_args(arguments)
    try:
        with RunServer(given.run, port=given.port) as server:
            sys.stdout.write(f"{server.url}  (Ctrl-C ends)\n")
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:
        return 0
    except LoomError as error:
        sys.stderr.write(f"loom: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
