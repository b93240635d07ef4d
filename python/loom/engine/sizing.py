"""Inputs whose extents differ from call to call, on their way through the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._forks import renewed
from loom._settings.suggestions import shown
from loom._typing import Foreign, Precision
from loom.convert import SizedRows, as_real_array
from loom.data.extents import Samples, capacity
from loom.data.named_extents import NamedSamples
from loom.data.sample_targets import filled_steps
from loom.engine.ports import apart, by_name, flat_input
from loom.errors import DataError, ShapeError

__all__ = ["Sizing"]

_Examples: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]"
_AnySamples: TypeAlias = "Samples | NamedSamples"
_Open: TypeAlias = "tuple[int | None, ...]"


class Sizing:
    """What a network of open extents does with samples.

    The native network has the extents of its newest call; whoever gives it rows holds `lock` meanwhile.

    Args:
        native: The network, built.
        inputs: One sample's extents of each input as they come in, None where they are open; of the one
            without a name under "".
        precision: The network's.
        outputs: What its outputs are called, where they have names.
    """

    def __init__(
        self,
        native: _native.Network,
        inputs: Mapping[str, _Open],
        precision: Precision,
        *,
        outputs: Sequence[str] = (),
    ) -> None:
        self._native = native
        self._inputs = dict(inputs)
        self._names = tuple(name for name in inputs if name)
        self.precision: Precision = precision
        limits = native.index_limits() if self._names else [native.index_limit()]
        self._indices = dict(zip(inputs, [limit is not None for limit in limits], strict=True))
        self.are_sequences, self.refusal = native.lengths()
        """Whether rows of different lengths go together; and why not, where they are sequences."""
        lengths = native.input_lengths() or [None] * len(self._inputs)
        self._lengths = dict(zip(inputs, lengths, strict=True))
        self.output_lengths = dict(zip(outputs or ("",), native.output_lengths(), strict=True))
        """Which of its lengths each output has steps of, that without a name under ""; None without steps."""
        self.has_steps = not outputs and self.output_lengths[""] is not None
        """Whether the output without a name has a step for each of an input's."""
        self._refused: set[tuple[int, ...]] = set()
        self._too_long: int | None = None
        shapes = self._open_output_shapes()
        self.output_shape: _Open = shapes.pop("")
        """One sample's extents as they go out, of named outputs all in a row; None where they are open."""
        self.named_output_shapes: dict[str, _Open] = shapes
        """One sample's extents of each output with a name; None where they follow those that come in."""
        self.newest: tuple[_AnySamples, tuple[int, ...]] | None = None
        """What `forward` was given last, and the steps that rows had room for."""
        self.renew()

    def renew(self) -> None:
        """Makes the lock: at first, and in a process that is forked off, where nobody holds it."""
        self.lock = RLock()
        renewed.add(self)

    @property
    def has_open_outputs(self) -> bool:
        """Whether outputs with names have extents that follow those of inputs."""
        return any(None in shape for shape in self.named_output_shapes.values())

    # Samples

    def samples(self, given: Foreign) -> _AnySamples:
        """Takes samples of any extents; see `Samples`, and of inputs with names `NamedSamples`.

        Raises:
            ShapeError, DataError, DTypeError, ConfigError: They are not what the network takes.
        """
        if isinstance(given, (Samples, NamedSamples)):
            return given
        if not self._names:
            return self._samples("", given, "input")
        found = by_name("input", given, self._names)
        return NamedSamples({name: self._part(name, found[name]) for name in self._names}, self._lengths)

    def _part(self, name: str, given: Foreign) -> Samples | NDArray[Any]:
        shape = self._inputs[name]
        if None in shape:
            return self._samples(name, given, f'input "{name}"')
        fixed = flat_input(name, given, cast("tuple[int, ...]", shape), indices=self._indices[name])
        return as_real_array(fixed, self.precision, what=f'input "{name}"')

    def _samples(self, name: str, given: Foreign, what: str) -> Samples:
        return Samples(
            given,
            self._inputs[name],
            self.precision,
            indices=self._indices[name],
            lengths=self._lengths[name] is not None,
            what=what,
        )

    # Extents

    def take(self, rows: NDArray[Any]) -> None:
        """Gives the network the extents of rows that `together` has made."""
        if self._names:
            self._native.set_named_extents(self._whole_extents(cast("SizedRows", rows).extents))
            return
        extents: tuple[int, ...] = rows.shape[1:]
        if self.are_sequences:
            fixed = self._fixed("")
            extents = ((rows.shape[1] - 1) // math.prod(fixed), *fixed)
        self._native.set_extents(list(extents))

    def _whole_extents(self, extents: Sequence[tuple[int, ...]]) -> list[list[int]]:
        """Returns those of all inputs, of which `extents` leaves out those that are fixed."""
        known = zip(self._inputs.values(), extents, strict=True)
        return [list(found if None in shape else cast("tuple[int, ...]", shape)) for shape, found in known]

    def _fixed(self, name: str) -> list[int]:
        """Returns the extents of an input behind its first one."""
        return [extent for extent in self._inputs[name][1:] if extent is not None]

    def steps(self) -> tuple[int, ...]:
        """Returns for how many steps of each length the network has room now."""
        if not self.are_sequences:
            return ()
        if not self._names:
            return (self._native.input_extents()[0],)
        shapes = dict(zip(self._inputs, self._native.named_input_extents(), strict=True))
        found = {length: shapes[name][0] for name, length in self._lengths.items() if length is not None}
        return tuple(found[length] for length in sorted(found))

    def room(self, longest: tuple[int, ...]) -> tuple[int, ...]:
        """Returns for how many steps rows have room that hold so many: powers of two, if layers take them."""
        steps = tuple(map(capacity, longest))
        if steps == longest or steps in self._refused:
            return longest
        if self._too_long is not None and max(steps) >= self._too_long:
            return longest
        try:
            if self._names:
                self._native.set_named_extents(self._extents_of_steps(steps))
            else:
                self._native.set_extents([*steps, *self._fixed("")])
        except ShapeError:
            # A layer has places for some length between the two.
            self._refused.add(steps)
            if len(steps) == 1:
                self._too_long = steps[0]
            return longest
        return steps

    def _extents_of_steps(self, steps: tuple[int, ...]) -> list[list[int]]:
        found = []
        for (name, length), extents in zip(
            self._lengths.items(), self._native.named_input_extents(), strict=True
        ):
            found.append(list(extents) if length is None else [steps[length], *self._fixed(name)])
        return found

    # Batches

    def together(
        self,
        samples: _AnySamples,
        chosen: Sequence[int],
        beside: Iterable[tuple[int, ...]] = (),
        *,
        exact: bool = False,
    ) -> NDArray[Any]:
        """Puts samples into rows, and gives the network their extents.

        Args:
            samples: The samples.
            chosen: The numbers of those that go into rows.
            beside: The lengths of others, for whose steps there is to be room as well.
            exact: Whether there is room for the steps of the longest, and no more.
        """
        lengths = [*map(samples.lengths, chosen), *beside]
        longest = tuple(map(max, zip(*lengths, strict=True)))
        steps = () if not self.are_sequences else longest if exact else self.room(longest)
        rows = samples.rows_of(chosen, steps)
        self.take(rows)
        return rows

    def alike(self, samples: _AnySamples, size: int, *, exact: bool = False) -> Iterator[list[int]]:
        """Yields the numbers of samples that go through together, of like extents, at most `size`.

        Args:
            samples: The samples.
            size: The most at a time.
            exact: Whether lengths are to be the same, not just alike.
        """
        groups: dict[Any, list[int]] = {}
        for number in range(len(samples)):
            lengths = samples.lengths(number)
            key = (*(lengths if exact else map(capacity, lengths)), *samples.size(number))
            groups.setdefault(key, []).append(number)
        for numbers in groups.values():
            for start in range(0, len(numbers), size):
                yield numbers[start : start + size]

    def all_rows(self, samples: _AnySamples, *, exact: bool = False) -> NDArray[Any]:
        """Puts all samples into rows of one call; those of images have one size.

        Args:
            samples: The samples.
            exact: Whether there is room for the steps of the longest, and no more, so that samples of one
                length have no padding.
        """
        sizes = {samples.size(number) for number in range(len(samples))}
        if len(sizes) > 1:
            raise DataError(
                f"input: the samples of this call have {len(sizes)} different shapes; here all must have "
                "the same, where train, evaluate and predict take any"
            )
        return self.together(samples, range(len(samples)), exact=exact)

    def take_equal(self, batches: Sequence[_Examples]) -> None:
        """Gives the network the extents that all batches of one step have.

        Raises:
            DataError: They have different ones, which only images and sequences without padding can have.
        """
        if len({(rows.shape[1:], getattr(rows, "extents", ())) for rows, _, _ in batches}) > 1:
            raise DataError(
                "accumulate adds up batches of the same extents, and these have others, of images, or of "
                "sequences that a layer takes without padding alone; take accumulate=1, or resize them"
            )
        self.take(batches[0][0])

    # What comes out

    def split(self, output: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Takes outputs apart by name, by the extents that the network has now."""
        if not self.named_output_shapes:
            return {"": output}
        shapes = map(tuple, self._native.named_output_shapes())
        return apart(output, dict(zip(self.named_output_shapes, shapes, strict=True)))

    def cut(
        self, rows: NDArray[Any], samples: _AnySamples, chosen: Sequence[int], name: str = ""
    ) -> list[NDArray[Any]]:
        """Takes an output apart: each sample's own steps, without what padding has led to."""
        length = self.output_lengths[name]
        if length is None:
            return list(rows)
        own = samples.of_length(length)
        return [row[: own.length(number)] for row, number in zip(rows, chosen, strict=True)]

    def outputs(self, samples: _AnySamples, made: Mapping[str, Sequence[NDArray[Any]]]) -> Any:  # noqa: ANN401
        """Puts the samples' outputs into the form that the samples had.

        Args:
            samples: The samples.
            made: Of each output that of each sample; those of sequences without padding.

        Returns:
            An array, where the samples were one or all outputs have the same extents by their network;
            otherwise a list of arrays. Of outputs with names a dictionary.
        """
        found = {name: self._in_form(samples, name, each) for name, each in made.items()}
        return found.get("", found)

    def _in_form(self, samples: _AnySamples, name: str, made: Sequence[NDArray[Any]]) -> Any:  # noqa: ANN401
        shape = self.named_output_shapes[name] if name else self.output_shape
        own = samples.of_length(self.output_lengths[name])
        if None not in shape or own.form == "array":
            return np.stack(made)
        if own.form == "padded" and own.longest is not None:
            return filled_steps(made, own.longest)
        return list(made)

    def predict(
        self,
        given: Foreign,
        size: int,
        compute: Callable[[NDArray[Any], int], NDArray[Any]],
        *,
        exact: bool = False,
    ) -> Any:  # noqa: ANN401 - array, list or a dictionary of such
        """Returns the output for each sample; see `Network.predict`.

        Args:
            given: The samples.
            size: How many are computed at a time.
            compute: What gives the outputs of rows, so many at a time.
            exact: Whether rows are to have no padding, so that what looks at them sees none.
        """
        samples = self.samples(given)
        made: dict[str, list[Any]] = {name: [None] * len(samples) for name in self.output_lengths}
        for chosen in self.alike(samples, size, exact=exact):
            with self.lock:
                rows = self.together(samples, chosen, exact=exact)
                parts = self.split(compute(rows, size))
            for name, part in parts.items():
                for number, each in zip(chosen, self.cut(part, samples, chosen, name), strict=True):
                    made[name][number] = each
        return self.outputs(samples, made)

    def output_extents(self) -> tuple[int, ...]:
        """Returns the extents of one sample's output for those that the network has now."""
        return tuple(self._native.output_shape())

    def real_steps(
        self, outputs: NDArray[Any], targets: NDArray[Any], weight: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns outputs and targets of real steps alone, where there are steps."""
        if not self.has_steps or weight is None or weight.ndim < 2:
            return outputs, targets
        real = weight > 0
        return outputs[real], targets.reshape(*outputs.shape[:2], *targets.shape[2:])[real]

    def step_counts(self, rows: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
        """Returns how many steps of each output that has some are real, by rows that `together` has made."""
        return {
            name: rows[:, length].astype(np.int64)
            for name, length in self.output_lengths.items()
            if length is not None
        }

    # Gradients

    def gradient_rows(self, gradient: Foreign, name: str = "") -> NDArray[Any]:
        """Takes the gradient of an output of the newest forward pass, in the form that this had.

        Args:
            gradient: (rows, ...), or of steps a list of one for each sample.
            name: The output's, where it has one.
        """
        length = self.output_lengths[name]
        what = f'gradient of output "{name}"' if name else "gradient"
        if self.newest is None or length is None:
            return as_real_array(gradient, self.precision, what=what)
        samples, steps = self.newest
        own = samples.of_length(length)
        if not isinstance(gradient, Iterable):
            raise ShapeError(
                f"{what}: expected one for each of {len(samples)} samples, got {shown(gradient)}"
            )
        parts = list(gradient)
        if len(parts) != len(samples):
            raise ShapeError(f"{what} has {len(parts)} rows, the forward pass had {len(samples)}")
        arrays = [as_real_array(part, self.precision, what=what) for part in parts]
        features = (self.named_output_shapes[name] if name else self.output_shape)[1:]
        for number, array in enumerate(arrays):
            wanted = own.longest if own.form == "padded" else own.length(number)
            if array.shape != (wanted, *features):
                raise ShapeError(
                    f"{what}: that of sample {number} has shape {array.shape}, expected "
                    f"{(wanted, *features)} like its output"
                )
        return filled_steps([array[: own.length(n)] for n, array in enumerate(arrays)], steps[length])

    def input_gradients(self, rows: NDArray[Any]) -> Any:  # noqa: ANN401 - array, list or a dictionary of such
        """Takes the inputs' gradients apart, into the form that the inputs had; whole numbers have none."""
        if self.newest is None:
            return rows
        samples, steps = self.newest
        if isinstance(samples, Samples):
            if not self.are_sequences:
                return rows
            whole = rows[:, 1:].reshape(len(rows), *steps, *self._fixed(""))
            return _in_form_of(samples, whole)
        shapes = dict(zip(self._inputs, map(tuple, self._native.named_input_extents()), strict=True))
        parts = apart(rows[:, len(steps) :], shapes)
        found: dict[str, Any] = {}
        for name, part in parts.items():
            own = samples.of_input(name)
            if self._indices[name]:
                continue
            found[name] = part if own is None else _in_form_of(own, part)
        return found

    def _open_output_shapes(self) -> dict[str, _Open]:
        """Compares what comes out for different extents, and leaves the network as it is.

        Returns those of each output with a name, and under "" those of the whole.
        """
        native, named = self._native, [name for name in self.output_lengths if name]

        def shapes() -> dict[str, list[int]]:
            parts = native.named_output_shapes() if named else []
            return {"": native.output_shape(), **dict(zip(named, parts, strict=True))}

        first = shapes()
        if self._names:
            before = native.named_input_extents()
            opened = list(zip(self._inputs.values(), before, strict=True))
            # Inputs whose steps meet have the same extents.
            most = max(
                now
                for shape, extents in opened
                for each, now in zip(shape, extents, strict=True)
                if each is None
            )
            native.set_named_extents(
                [[2 * most + 1 if each is None else each for each in shape] for shape, _ in opened]
            )
            second = shapes()
            native.set_named_extents(before)
        else:
            only = native.input_extents()
            pairs = zip(self._inputs[""], only, strict=True)
            native.set_extents([2 * now + 1 if each is None else now for each, now in pairs])
            second = shapes()
            native.set_extents(only)
        return {
            name: tuple(a if a == b else None for a, b in zip(shape, second[name], strict=True))
            for name, shape in first.items()
        }


def _in_form_of(samples: Samples, whole: NDArray[Any]) -> Any:  # noqa: ANN401 - array or list
    """Returns arrays like the samples, of (rows, ...) that have room for the longest."""
    if not samples.are_sequences:
        return whole
    parts = [row[: samples.length(number)].copy() for number, row in enumerate(whole)]
    return parts if samples.form == "list" else filled_steps(parts, samples.longest or whole.shape[1])
