"""`loom doctor`: what is most likely wrong with a training, before it begins."""

from __future__ import annotations

from pathlib import Path

import click

from loom.command_line.output import write

__all__ = ["command"]


@click.command("doctor", epilog="Example: loom doctor iris.toml")
@click.argument("config", type=click.Path())
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another value than the file's, such as training.epochs=5; as often as need be.",
)
@click.option("--ignore", multiple=True, metavar="NAME", help="A finding to leave out; as often as need be.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(config: str, changes: tuple[str, ...], ignore: tuple[str, ...], *, as_json: bool) -> int:
    """Say what is likely wrong with a training.

    CONFIG is a file as `loom train` takes it. Exits with 1 where there is an error or a warning among the
    findings.
    """
    from loom.checkup import doctor
    from loom.command_line.configuration import plan, read_settings

    planned = plan(read_settings(config, changes), Path(config).parent)
    report = doctor(
        planned.network, planned.data, planned.config, validation=planned.validation, ignore=ignore
    )
    write(report.to_json() if as_json else str(report))
    return 0 if report.healthy else 1
