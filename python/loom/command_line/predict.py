"""`loom predict`: what a network says to samples in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]


@click.command(
    "predict",
    epilog="Example: loom predict digits.loom --input x.npy --output y.npy",
)
@click.argument("file", type=click.Path())
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(),
    help="The samples: .npy, .npz (its x, or its only array; of named inputs an array for each), .csv with "
    "a row a sample (of a network that has learned from a table its columns, by name), or IDX.",
)
@click.option(
    "--output",
    "target",
    type=click.Path(),
    help="Where to: .npy or .csv (of named outputs .npz or .csv); CSV to standard output otherwise.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a .csv file names its columns; otherwise what stands there tells.",
)
@click.option("--classes", is_flag=True, help="Classes in place of outputs, by the card's labels.")
@click.option("--device", default="cpu", show_default=True, help='"cpu", "gpu", "gpu:1", or "auto".')
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True)
def command(
    file: str,
    source: str,
    target: str | None,
    device: str,
    batch_size: int,
    *,
    header: bool | None,
    classes: bool,
) -> None:
    """Compute what the network in FILE says to samples."""
    import numpy as np

    from loom.command_line.files import COLUMNS, read_by_name, read_frame, read_samples, write_csv
    from loom.engine import engine_of
    from loom.errors import FileError
    from loom.models.loading import load

    ending = ".csv" if target is None else Path(target).suffix.lower()
    if ending not in (".npy", ".npz", ".csv"):
        raise click.BadParameter(f"{target} is neither .npy nor .csv", param_hint="'--output'")
    net = load(file).build().to(device)
    ports = engine_of(net).ports
    several = ports is not None and bool(ports.outputs)
    arrays = ".npz" if several else ".npy"
    if ending not in (arrays, ".csv"):
        raise click.BadParameter(f"{target} is neither {arrays} nor .csv", param_hint="'--output'")
    x: Any
    if net.encoder is not None and Path(source).suffix.lower() == ".csv":
        x = read_frame(source, net.encoder, header=header)
    elif ports is not None and ports.inputs:
        x = read_by_name(source, ports.input_names, header=header)
    else:
        told = net.card.metadata.get(COLUMNS)
        named = isinstance(told, (list, tuple)) and all(isinstance(name, str) for name in told)
        x = read_samples(source, net.input_shape, told if named else None, header=header)
    if (
        isinstance(x, np.ndarray)
        and Path(source).suffix.lower() == ".csv"
        and engine_of(net).reads_indices
        and (x == np.floor(x)).all()
    ):
        # Numbers in text have no type.
        x = x.astype(np.int64)
    y: Any = net.predict_classes(x, batch_size) if classes else net.predict(x, batch_size=batch_size)
    if several:
        _write_named(target, y)
        return
    labels = None if isinstance(net.card.labels, Mapping) else net.card.labels
    if ending == ".npy":
        try:
            # By its name NumPy would put another ending behind .NPY.
            with Path(str(target)).open("wb") as opened:
                np.save(opened, y, allow_pickle=False)
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", target) from error
        return
    columns = y.reshape(len(y), -1)
    width = columns.shape[1]
    names = [f"output_{place}" for place in range(width)]
    if classes and width == 1:
        names = ["class"]
    elif labels is not None and len(labels) == width:
        names = [*map(str, labels)]
    # As short as their own precision has them.
    write_csv(target, names, [[str(value) for value in column] for column in columns.T])


def _write_named(target: str | None, found: dict[str, Any]) -> None:
    """Writes outputs by name: an array each, or columns that begin with the names."""
    import numpy as np

    from loom.command_line.files import write_csv
    from loom.errors import FileError

    if target is not None and Path(target).suffix.lower() == ".npz":
        try:
            with Path(target).open("wb") as opened:
                np.savez(opened, **found)
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", target) from error
        return
    names, columns = [], []
    for name, part in found.items():
        flat = part.reshape(len(part), -1)
        names += [name] if flat.shape[1] == 1 else [f"{name}_{place}" for place in range(flat.shape[1])]
        columns += [[str(value) for value in column] for column in flat.T]
    write_csv(target, names, columns)
