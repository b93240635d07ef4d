"""Samples of which each has extents of its own: sequences of any length, images of any size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom._typing import ArrayLike, Foreign, Precision
from loom.convert import as_input, as_numpy
from loom.errors import DataError, DTypeError, ShapeError

__all__ = ["Padded", "Samples", "capacity"]


@dataclass(frozen=True, eq=False)
class Padded:
    """Sequences in one array, of which the shorter ones end in padding that is never looked at.

    For networks whose first axis has no fixed extent: `input_shape=(None, 3)`.

    Args:
        values: (rows, time, ...) the sequences.
        lengths: (rows,) how many steps of each are real; at least 1.

    Raises:
        DataError: There are more or fewer lengths than rows, or one is none of 1 to `time`.
        DTypeError: The lengths are not whole numbers.

    Examples:
        >>> net = loom.Sequential([nn.LSTM(4), nn.Dense(2)], input_shape=(None, 3))
        >>> x = np.ones((2, 5, 3))
        >>> long, short = net.predict(loom.data.Padded(x, [5, 2]))
        >>> bool((short == net.predict(x[1:, :2])[0]).all())
        True
    """

    values: ArrayLike
    lengths: ArrayLike

    def __repr__(self) -> str:
        values, lengths = np.asarray(self.values), np.asarray(self.lengths)
        return f"Padded({values.shape}, lengths of {lengths.min()} to {lengths.max()})"

    def __post_init__(self) -> None:
        values = as_numpy(self.values, what="Padded: values")
        lengths = as_numpy(self.lengths, what="Padded: lengths")
        if lengths.dtype.kind not in "iu":
            raise DTypeError(f"Padded: lengths must be whole numbers, got dtype {lengths.dtype}")
        if values.ndim < 2 or lengths.shape != values.shape[:1]:
            raise DataError(
                f"Padded: values of shape {values.shape} take one length for each row, got {lengths.shape}"
            )
        wrong = (lengths < 1) | (lengths > values.shape[1])
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"Padded: the length of row {row} is {lengths[row]}; it must be 1 to {values.shape[1]}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "lengths", lengths.astype(np.int64))

    def rows(self) -> list[NDArray[Any]]:
        """Returns each sequence without its padding."""
        values, lengths = np.asarray(self.values), np.asarray(self.lengths)
        return [row[:length] for row, length in zip(values, lengths.tolist(), strict=True)]


class Samples:
    """Samples of extents of their own, each an array in the network's precision.

    Args:
        given: An array (rows, ...) of equal extents, `Padded` sequences, or a list of arrays.
        shape: One sample's extents; None where they are not fixed.
        precision: The network's.
        indices: Whether the network reads whole numbers.
        lengths: Whether rows of the network begin with their lengths, so that different ones go together.
        what: What they are, for error messages.

    Raises:
        ShapeError: A sample does not have these extents.
        DataError: There are no samples, or one is empty.
        DTypeError: They are no numbers, or not whole where the network reads such.
    """

    def __init__(
        self,
        given: Foreign,
        shape: tuple[int | None, ...],
        precision: Precision,
        *,
        indices: bool,
        lengths: bool,
        what: str = "input",
    ) -> None:
        self.shape = shape
        self._what = what
        self.are_sequences = lengths
        """Whether rows begin with their lengths."""
        self.form = "padded" if isinstance(given, Padded) else "list"
        """In what form the samples came: "padded", "array" or "list"."""
        self.longest: int | None = None
        """The steps of an array of sequences, those of padding counted in."""
        rows: Sequence[Any]
        if isinstance(given, Padded):
            rows, self.longest = given.rows(), int(np.asarray(given.values).shape[1])
        elif _is_array(given):
            whole = as_numpy(given)
            self.form = "array"
            if whole.ndim == 0:
                raise ShapeError(f"{what}: expected (rows, {_told(shape)}), got a single number")
            rows = list(whole) if whole.ndim < 2 or whole.dtype.hasobject else [*whole]
            if whole.dtype.hasobject:
                self.form = "list"
            elif whole.ndim > 1:
                self.longest = whole.shape[1]
        else:
            try:
                rows = list(given)
            except TypeError:
                each = f"each ({_told(shape)})"
                raise ShapeError(
                    f"{what}: expected an array or a list of samples, {each}, got {shown(given)}"
                ) from None
        if len(rows) == 0:
            raise DataError(f"{what} has no samples")
        self.arrays = [self._sample(row, number, precision, indices) for number, row in enumerate(rows)]

    def __len__(self) -> int:
        return len(self.arrays)

    def _sample(self, row: Foreign, number: int, precision: Precision, indices: bool) -> NDArray[Any]:
        if isinstance(row, (list, tuple)) and not row:
            # Of what kind the numbers would be, an empty list does not say.
            raise self._empty(number, (0,))
        array: NDArray[Any] = as_input(row, precision, indices=indices)
        if array.ndim == 1 and self.shape == (None, 1):
            array = array[:, None]
        fits = array.ndim == len(self.shape) and all(
            wanted is None or extent == wanted for extent, wanted in zip(array.shape, self.shape, strict=True)
        )
        if not fits:
            hint = ""
            if self.form == "list" and array.shape == tuple(self.shape[1:]):
                hint = "; for one sample add a batch axis, as in [x]"
            elif self.form == "array" and array.shape == tuple(self.shape[1:]):
                hint = "; for one sample add a batch axis, as in x[None]"
                if self.shape[0] is None:
                    hint = (
                        "; None is for sequences of any length, and input_shape without the batch; for one "
                        "sequence add a batch axis, as in x[None]"
                    )
            raise ShapeError(
                f"{self._what}: sample {number} has shape {array.shape}, expected ({_told(self.shape)}){hint}"
            )
        if array.size == 0:
            raise self._empty(number, array.shape)
        return array

    def _empty(self, number: int, shape: tuple[int, ...]) -> DataError:
        return DataError(f"{self._what}: sample {number} is empty, its shape is {shape}; leave it out")

    def length(self, number: int) -> int:
        """Returns the first extent of a sample."""
        return int(self.arrays[number].shape[0])

    def lengths(self, number: int) -> tuple[int, ...]:
        """Returns the lengths that the row of a sample begins with."""
        return (self.length(number),) if self.are_sequences else ()

    def size(self, number: int) -> tuple[tuple[int, ...], ...]:
        """Returns the extents that samples of one call have in common: none, of sequences with lengths."""
        return () if self.are_sequences else (self.arrays[number].shape,)

    def of_length(self, length: int | None) -> Samples:
        """Returns those that have a length, which are these."""
        del length
        return self

    def contents(self) -> list[NDArray[Any]]:
        """Returns all that tells these samples from others."""
        return self.arrays

    def rows_of(self, chosen: Sequence[int], steps: Sequence[int]) -> NDArray[Any]:
        """Puts samples together as the engine takes them.

        Args:
            chosen: Their numbers.
            steps: How many steps rows of sequences have room for, one number; none for other samples.

        Returns:
            (rows, 1 + steps * ...) sequences, each behind its length; or (rows, ...) samples of one size.
        """
        if not self.are_sequences:
            return np.stack([self.arrays[number] for number in chosen])
        lengths = np.array([self.length(number) for number in chosen])
        return np.concatenate(
            [lengths[:, None], self.filled(chosen, steps[0])], axis=1, dtype=self.arrays[0].dtype
        )

    def filled(self, chosen: Sequence[int], steps: int) -> NDArray[Any]:
        """Returns sequences, flat, with zeros behind their ends: (rows, steps * ...)."""
        arrays = [self.arrays[number] for number in chosen]
        width = math.prod(extent for extent in self.shape[1:] if extent is not None)
        found = np.zeros((len(arrays), steps * width), arrays[0].dtype)
        for row, array in zip(found, arrays, strict=True):
            row[: array.size] = array.reshape(-1)
        return found


def capacity(length: int) -> int:
    """Returns for how many steps a program is made that takes so many: the next power of two.

    Args:
        length: The steps.
    """
    return 1 << (length - 1).bit_length()


def _is_array(given: Foreign) -> bool:
    if isinstance(given, (list, tuple)):
        return False
    return hasattr(given, "__array__") or hasattr(given, "__dlpack__")


def _told(shape: tuple[int | None, ...]) -> str:
    return ", ".join("any" if extent is None else str(extent) for extent in shape)
