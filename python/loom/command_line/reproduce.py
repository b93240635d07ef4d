"""`loom reproduce`: proves what a receipt says by training again."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from loom.command_line.output import write
from loom.errors import ConfigError

if TYPE_CHECKING:
    from loom.data import Data

__all__ = ["command"]


@click.command("reproduce", epilog="Example: loom reproduce receipt.json --data digits.npz")
@click.argument("receipt", type=click.Path())
@click.option(
    "--data",
    required=True,
    help="An .npz file with x, y, and weight, x_validation, y_validation, weight_validation where there "
    "are such; or module:name of (x, y), of (data, validation), or of a function that returns either.",
)
@click.option("--network", help="A file of the network before training, if not made from its seed.")
def command(receipt: str, data: str, network: str | None) -> int:
    """Prove a receipt by training again, to the same bits.

    RECEIPT is the receipt's file, as Receipt.save has written it.
    """
    from loom.command_line.files import read_npz
    from loom.models.loading import load
    from loom.reproduction import reproduce

    given, validation = read_npz(data) if data.endswith(".npz") else _call(data)
    before = None if network is None else load(network)
    found = reproduce(receipt, given, validation, network=before, verbose=True)
    write(str(found))
    return 0 if found.matches else 1


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
