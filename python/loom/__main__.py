"""The command line: `loom watch RUN`, `loom reproduce RECEIPT`; or `python -m loom ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from loom.data import Data
from loom.errors import ConfigError, DataError, FileError, LoomError
from loom.models.loading import load
from loom.reproduction import reproduce
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
    again = commands.add_parser(
        "reproduce", help="train again what a receipt is of, and prove that it comes to the same bits"
    )
    again.add_argument("receipt", help="the receipt's file, as Receipt.save has written it")
    again.add_argument(
        "--data",
        required=True,
        help="an .npz file with x, y, and weight, x_validation, y_validation, weight_validation where there "
        "are such; or module:name of (x, y), of (data, validation), or of a function that returns either",
    )
    again.add_argument("--network", help="a file of the network before training, if not made from its seed")
    given = parser.parse_args(arguments)
    try:
        if given.command == "reproduce":
            return _reproduce(given.receipt, given.data, given.network)
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


def _read_npz(path: str) -> tuple[Data, Data | None]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise FileError(error.errno, f"cannot be read: {error.strerror}", path) from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error

    def part(ending: str) -> Any:  # noqa: ANN401 - two or three arrays
        names = [f"{name}{ending}" for name in ("x", "y", "weight")]
        return tuple(held[name] for name in names if name in held)

    if not {"x", "y"} <= set(held):
        raise DataError(f"{path} holds {', '.join(held)}; data is x and y")
    return part(""), part("_validation") or None


def _call(told: str) -> tuple[Data, Data | None]:
    module, _, name = told.partition(":")
    # What is beside whoever calls is found, as with `python -m`.
    sys.path.insert(0, "")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--data {told}: {error}; it is a file.npz or module:name") from error
    found = found() if callable(found) else found
    both = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple)
    return found if both else (found, None)


def _reproduce(receipt: str, told: str, network: str | None) -> int:
    data, validation = _read_npz(told) if told.endswith(".npz") else _call(told)
    before = None if network is None else load(network)
    found = reproduce(receipt, data, validation, network=before, verbose=True)
    sys.stdout.write(f"{found}\n")
    return 0 if found.matches else 1


if __name__ == "__main__":
    sys.exit(main())
