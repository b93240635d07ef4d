"""Inputs whose extents differ from call to call, on their way through the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._forks import renewed
from loom._typing import Foreign, Precision
from loom.data.extents import Samples, capacity
from loom.errors import DataError, ShapeError

__all__ = ["Sizing"]

_Examples: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]"


class Sizing:
    """What a network of open extents does with samples.

    The native network has the extents of its newest call; whoever gives it rows holds `lock` meanwhile.

    Args:
        native: The network, built.
        shape: One sample's extents as they come in; None where they are open.
        precision: The network's.
        indices: Whether it reads whole numbers.
        outputs: What its outputs are called, where they have names.

    Raises:
        ShapeError: An output with a name has extents that are not fixed.
    """

    def __init__(
        self,
        native: _native.Network,
        shape: tuple[int | None, ...],
        precision: Precision,
        *,
        indices: bool,
        outputs: Sequence[str] = (),
    ) -> None:
        self._native = native
        self.shape = shape
        self.precision: Precision = precision
        self._indices = indices
        self.are_sequences, self.refusal = native.lengths()
        """Whether rows of different lengths go together; and why not, where they are sequences."""
        self.has_steps = not outputs and native.output_has_steps()
        """Whether the output has a step for each of the input's."""
        self._too_long: int | None = None
        self.output_shape = self._open_output_shape(outputs)
        """One sample's extents as they go out; None where they follow those that come in."""
        self.newest: tuple[Samples, int] | None = None
        """What `forward` was given last, and the steps that rows had room for."""
        self.renew()

    def renew(self) -> None:
        """Makes the lock: at first, and in a process that is forked off, where nobody holds it."""
        self.lock = RLock()
        renewed.add(self)

    def samples(self, given: Foreign) -> Samples:
        """Takes samples of any extents; see `Samples`."""
        if isinstance(given, Samples):
            return given
        return Samples(given, self.shape, self.precision, indices=self._indices, lengths=self.are_sequences)

    def take(self, rows: NDArray[Any]) -> None:
        """Gives the network the extents of rows that `rows_of` has made."""
        extents: tuple[int, ...] = rows.shape[1:]
        if self.are_sequences:
            fixed = [extent for extent in self.shape[1:] if extent is not None]
            extents = ((rows.shape[1] - 1) // int(np.prod(fixed, dtype=np.int64)), *fixed)
        self._native.set_extents(list(extents))

    def room(self, longest: int) -> int:
        """Returns for how many steps rows have room that hold so many: a power of two, if layers take it."""
        steps = capacity(longest)
        if steps == longest or (self._too_long is not None and steps >= self._too_long):
            return longest
        fixed = [extent for extent in self.shape[1:] if extent is not None]
        try:
            self._native.set_extents([steps, *fixed])
        except ShapeError:
            # A layer has places for some length between the two.
            self._too_long = steps
            return longest
        return steps

    def together(self, samples: Samples, chosen: Sequence[int]) -> NDArray[Any]:
        """Puts samples into rows, and gives the network their extents."""
        steps = self.room(max(samples.length(number) for number in chosen)) if self.are_sequences else 0
        rows = samples.rows_of(chosen, steps)
        self.take(rows)
        return rows

    def alike(self, samples: Samples, size: int) -> Iterator[list[int]]:
        """Yields the numbers of samples that go through together, of like extents, at most `size`."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, array in enumerate(samples.arrays):
            key = (capacity(len(array)),) if self.are_sequences else array.shape
            groups.setdefault(key, []).append(number)
        for numbers in groups.values():
            for start in range(0, len(numbers), size):
                yield numbers[start : start + size]

    def all_rows(self, samples: Samples) -> NDArray[Any]:
        """Puts all samples into rows of one call; those of images have one size."""
        if not self.are_sequences:
            sizes = {array.shape for array in samples.arrays}
            if len(sizes) > 1:
                raise DataError(
                    f"input: the samples of this call have {len(sizes)} different shapes; here all must have "
                    "the same, where train, evaluate and predict take any"
                )
        return self.together(samples, range(len(samples)))

    def outputs(self, samples: Samples, made: Sequence[NDArray[Any]]) -> Any:  # noqa: ANN401 - array or list
        """Puts the samples' outputs into the form that the samples had.

        Args:
            samples: The samples.
            made: The output of each; those of sequences without padding.

        Returns:
            An array, where the samples were one or all outputs have the same extents by their network;
            otherwise a list of arrays.
        """
        if None not in self.output_shape or samples.form == "array":
            return np.stack(made)
        if samples.form == "padded" and samples.longest is not None:
            found = np.zeros((len(made), samples.longest, *made[0].shape[1:]), made[0].dtype)
            for row, each in zip(found, made, strict=True):
                row[: len(each)] = each
            return found
        return list(made)

    def cut(self, rows: NDArray[Any], samples: Samples, chosen: Sequence[int]) -> list[NDArray[Any]]:
        """Takes outputs apart: each sample's own steps, without what padding has led to."""
        if not self.has_steps:
            return list(rows)
        return [row[: samples.length(number)] for row, number in zip(rows, chosen, strict=True)]

    def predict(self, given: Foreign, size: int) -> Any:  # noqa: ANN401 - array or list
        """Returns the output for each sample; see `Network.predict`."""
        samples = self.samples(given)
        made: list[Any] = [None] * len(samples)
        for chosen in self.alike(samples, size):
            with self.lock:
                rows = self.together(samples, chosen)
                output = self._native.predict(rows, size)
            for number, each in zip(chosen, self.cut(output, samples, chosen), strict=True):
                made[number] = each
        return self.outputs(samples, made)

    def output_extents(self) -> tuple[int, ...]:
        """Returns the extents of one sample's output for those that the network has now."""
        return tuple(self._native.output_shape())

    def of_equal_extents(self, batches: list[_Examples]) -> list[_Examples]:
        """Gives the batches of one step room for the longest sequence of any, and the network their extents.

        Raises:
            DataError: They are of images of different sizes.
        """
        if self.are_sequences and len(batches) > 1:
            most = max(batches, key=lambda batch: batch[0].shape[1])
            batches = [self._widened(batch, most) for batch in batches]
        if len({batch[0].shape[1:] for batch in batches}) > 1:
            raise DataError(
                "accumulate adds batches up that have the same extents, and these are of different sizes; "
                "take accumulate=1"
            )
        self.take(batches[0][0])
        return batches

    def _widened(self, batch: _Examples, like: _Examples) -> _Examples:
        x, y, weight = (_grown(part, other) for part, other in zip(batch, like, strict=True))
        return cast("_Examples", (x, y if self.has_steps else batch[1], weight))

    def gradient_rows(self, gradient: Foreign) -> NDArray[Any]:
        """Takes the gradient of the newest forward pass's output, in the form that this had."""
        from loom.convert import as_real_array

        if self.newest is None or not self.has_steps:
            return as_real_array(gradient, self.precision, what="gradient")
        samples, steps = self.newest
        parts = list(gradient)
        if len(parts) != len(samples):
            raise ShapeError(f"gradient has {len(parts)} rows, the forward pass had {len(samples)}")
        arrays = [as_real_array(part, self.precision, what="gradient") for part in parts]
        features = self.output_shape[1:]
        found = np.zeros((len(arrays), steps, *(extent or 0 for extent in features)), arrays[0].dtype)
        for number, (row, array) in enumerate(zip(found, arrays, strict=True)):
            length = samples.length(number)
            wanted = samples.longest if samples.form == "padded" else length
            if array.shape != (wanted, *features):
                raise ShapeError(
                    f"gradient: that of sample {number} has shape {array.shape}, expected "
                    f"{(wanted, *features)} like its output"
                )
            row[:length] = array[:length]
        return found

    def input_gradients(self, rows: NDArray[Any]) -> Any:  # noqa: ANN401 - array or list
        """Takes the input's gradients apart, into the form that the input had."""
        if not self.are_sequences or self.newest is None:
            return rows
        samples, steps = self.newest
        features = self.shape[1:]
        whole = rows[:, 1:].reshape(len(rows), steps, *(extent or 0 for extent in features))
        parts = [row[: samples.length(number)].copy() for number, row in enumerate(whole)]
        if samples.form == "list":
            return parts
        found = np.zeros((len(parts), samples.longest or steps, *whole.shape[2:]), rows.dtype)
        for row, part in zip(found, parts, strict=True):
            row[: len(part)] = part
        return found

    def real_steps(
        self, outputs: NDArray[Any], targets: NDArray[Any], weight: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns outputs and targets of real steps alone, where there are steps."""
        if not self.has_steps or weight is None or weight.ndim < 2:
            return outputs, targets
        real = weight > 0
        return outputs[real], targets.reshape(*outputs.shape[:2], *targets.shape[2:])[real]

    def _open_output_shape(self, outputs: Sequence[str]) -> tuple[int | None, ...]:
        """Compares what comes out for different extents, and leaves the network as it is."""
        before = self._native.input_extents()
        first = self._native.output_shape()
        axes = self._native.variable_axes()
        more = [2 * extent + 1 if axis in axes else extent for axis, extent in enumerate(before)]
        parts = self._native.named_output_shapes() if outputs else []
        self._native.set_extents(more)
        second = self._native.output_shape()
        others = self._native.named_output_shapes() if outputs else []
        self._native.set_extents(before)
        for name, here, there in zip(outputs, parts, others, strict=True):
            if here != there:
                raise ShapeError(
                    f'output "{name}" has the extents of the input, which are open, and outputs with names '
                    "are of fixed ones: nn.SequencePool, a recurrent layer or a global pooling before it "
                    "makes it so, or give the network one output without a name"
                )
        return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def _grown(part: NDArray[Any] | None, like: NDArray[Any] | None) -> NDArray[Any] | None:
    """Returns an array with zeros at the end of its second axis, as long as another one's."""
    if part is None or like is None or part.ndim < 2:
        return part
    found = np.zeros((len(part), like.shape[1], *part.shape[2:]), part.dtype)
    found[:, : part.shape[1]] = part
    return found
