"""`loom train`: trains what a file of settings describes."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from loom.command_line.output import write

__all__ = ["command"]


@click.command("train", epilog="Example: loom train iris.toml --set training.epochs=50")
@click.argument("config", type=click.Path())
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another value than the file's, such as training.epochs=5; as often as need be.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, show the network, and train nothing.")
def command(config: str, changes: tuple[str, ...], *, dry_run: bool) -> int:
    """Train what a file of settings describes.

    CONFIG is TOML, JSON or YAML: network, data, training, and where the run and the network are kept.
    """
    import numpy as np

    from loom.command_line.configuration import plan, read_settings
    from loom.diagnosis import DoctorWarning
    from loom.training.backpropagation import train

    planned = plan(read_settings(config, changes), Path(config).parent)
    if dry_run:
        planned.network.summary()
        for name, held in (("data", planned.data), ("validation", planned.validation)):
            if isinstance(held, tuple):
                write(f"{name}: x {np.shape(held[0])}, y {np.shape(held[1])}")
        return 0
    with warnings.catch_warnings():
        # What is likely a mistake is told as everything else, without a line of loom's code.
        warnings.simplefilter("default", DoctorWarning)
        warnings.showwarning = lambda message, *_, **__: click.echo(f"loom: {message}", err=True)
        result = train(
            planned.network, planned.data, planned.config, validation=planned.validation, run=planned.run
        )
    write(repr(result))
    if planned.save is not None:
        planned.network.save(planned.save)
        write(f"saved {planned.save}")
    return 130 if result.interrupted else 0
