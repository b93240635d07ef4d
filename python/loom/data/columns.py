"""Tables of numbers and texts as what a network reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from loom._settings.calls import explained
from loom._settings.checks import choice, items
from loom._settings.suggestions import listed, shown
from loom._typing import Foreign
from loom.data.batches import TrainingBatch
from loom.data.encoder import ColumnEncoder, learned
from loom.data.frames import read_frame
from loom.errors import ConfigError, DataError

__all__ = ["Table", "columns", "named"]


@dataclass(frozen=True)
class Table(TrainingBatch):
    """What `columns` makes of a frame: samples and targets, and what was done to make them.

    It goes wherever (x, y) does, as `net.fit(table)`, and training has the network keep the encoder.

    Args:
        input: (rows, width) numbers; with inputs="dict" a dictionary.
        target: (rows,) labels or numbers.
        weight: (rows,) how much each row counts; equally where None.
        encoder: What was done to the columns.
    """

    encoder: ColumnEncoder = field(kw_only=True)

    def __repr__(self) -> str:
        told = f"{len(np.asarray(self.target)):,} rows, columns {listed(self.encoder.columns)}"
        return f"Table({told}, target {listed(self.encoder.target)})"

    @property
    def x(self) -> Foreign:
        """The samples."""
        return self.input

    @property
    def y(self) -> Foreign:
        """The targets."""
        return self.target

    @property
    def width(self) -> int:
        """How many columns the matrix has: the network's `input_shape`."""
        return self.encoder.width


@explained(target='which column is told of the others? loom.data.columns(frame, target="price")')
def columns(
    frame: Foreign,
    target: str | Sequence[str],
    *,
    categories: Sequence[str] = (),
    scale: bool | Sequence[str] = True,
    weight: str | None = None,
    drop: Sequence[str] = (),
    inputs: Literal["matrix", "codes", "dict"] = "matrix",
) -> Table:
    """Makes what a network learns from of a table with numbers, texts and missing values.

    - Numbers are standardised: the mean is taken off, and the rest divided by the standard deviation. A
      missing one becomes the mean, so 0 once standardised, and where any is missing a column beside it holds
      1 in these rows and 0 in the others.
    - Booleans become 0 and 1, and are not standardised; a missing one becomes their mean, with a column
      beside it.
    - Texts, pandas' and Arrow's categories, and whole numbers that `categories` names become codes: 0 where
      missing, 1 for what was not there when the encoder was made, 2 for the first of the sorted categories.
      `inputs` says what is made of the codes.
    - Dates are refused, for they are no quantity by themselves. Where more than 50 texts stand in a column,
      and fewer than five rows share one, it warns: they are names, numbers of orders, or dates that a CSV
      file holds as texts.

    The encoder that comes with the table does the same to other frames. Split a frame before this function
    looks at it, `loom.data.split(frame, 0.2)`, and let the encoder read what is held out:
    `table.encoder.targets(held)` and `table.encoder(held)`, or `net.evaluate(held)` after `net.fit(table)`.

    Args:
        frame: Of pandas or polars, an Arrow table, or a dictionary of columns.
        target: The column that is told, labels or numbers; or several columns of numbers.
        categories: Columns of whole numbers or booleans that are names rather than quantities; of texts those
            that are meant, however few rows share one.
        scale: Whether numbers are standardised, or the columns that are.
        weight: The column that says how much each row counts.
        drop: Columns that are left out.
        inputs: "matrix": one matrix, with a column of zeros and ones for each category, and one for missing
            values where there were any; what is unknown is zeros. "codes": one matrix, with the codes
            themselves, which an `nn.Embedding` reads where all columns are categories. "dict": a dictionary
            with the matrix of the numbers under "numbers", and codes (rows,) under the name of each column
            of categories.

    Returns:
        The table: `.x`, `.y`, `.width`, `.encoder`.

    Raises:
        DataError: A column is not there, has no values, or the target or a weight is missing in a row.
        DTypeError: A column holds dates, or several types.
        ConfigError: A setting is out of range.

    Examples:
        >>> frame = {"age": [30.0, None, 50.0], "city": ["Oslo", "Rome", "Oslo"], "buys": ["yes", "no", "no"]}
        >>> table = loom.data.columns(frame, target="buys")
        >>> table.encoder.features
        ('age', 'age is missing', 'city = Oslo', 'city = Rome')
        >>> table.encoder({"age": [40.0], "city": ["Lima"]})
        array([[0., 0., 0., 0.]], dtype=float32)
    """
    told = named("target", target)
    if not told:
        raise ConfigError("columns: target names no column")
    given_weight: object = weight
    if not (given_weight is None or isinstance(given_weight, str)):
        raise ConfigError(
            f"columns: weight must be the name of a column, got {shown(weight)}; weights by themselves go in "
            "with the data, net.fit((table.x, table.y, weight))"
        )
    out = [*named("drop", drop), *([] if weight is None else [weight])]
    scaled = scale if isinstance(scale, bool) else named("scale", scale)
    how = choice("columns", "inputs", inputs, ("matrix", "codes", "dict"))
    given = read_frame(frame)
    if given.rows == 0:
        raise DataError("columns: the frame has no rows")
    encoder = learned(
        [frame],
        target=told,
        categories=named("categories", categories),
        scale=scaled,
        drop=out,
        inputs=how,
    )
    counted = None
    if weight is not None:
        counted = given.column(weight, "columns(weight=)").as_labels().astype(np.float32)
    return Table(encoder(frame), encoder.targets(frame), counted, encoder=encoder)


def named(what: str, names: object) -> list[str]:
    """Returns names of columns, given as one or in a list.

    Args:
        what: The setting, for error messages.
        names: What was given.

    Raises:
        ConfigError: They are no texts.
    """
    listed = (names,) if isinstance(names, str) else items(names)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"columns: {what} must be names of columns, got {shown(names)}")
    return [str(name) for name in listed]
