"""`loom summary`: the layers of a network in a file."""

from __future__ import annotations

from collections.abc import Mapping

import click

__all__ = ["command"]


@click.command("summary", epilog="Example: loom summary digits.loom --depth 2")
@click.argument("file", type=click.Path())
@click.option(
    "--depth", type=click.IntRange(min=1), default=1, help="How deep to go into layers that hold layers."
)
@click.option("--flops", is_flag=True, help="With the multiply-adds for one sample.")
def command(file: str, depth: int, *, flops: bool) -> None:
    """Show the layers of the network in FILE."""
    from loom.command_line.output import write
    from loom.models.loading import load

    net = load(file)
    net.summary(depth=depth, flops=flops)
    card = net.card
    if card.description:
        write(card.description)
    if isinstance(card.labels, Mapping):
        for name, labels in card.labels.items():
            write(f"classes of {name}: {', '.join(map(str, labels))}")
    elif card.labels:
        write(f"classes: {', '.join(map(str, card.labels))}")
    if card.license:
        write(f"license: {card.license}")
