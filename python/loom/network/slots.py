"""Sessions whose sequences come and go, each at a place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from loom import _native
from loom._settings.checks import whole
from loom._typing import ArrayLike, CacheTypeName, RealArray
from loom.engine import HasEngine, engine_of
from loom.network.session import StepSampler, cache_type, drawn_by

__all__ = ["Slots"]


class Slots:
    """Inference over several sequences that arrive piece by piece, each for itself.

    As a `Session` of several rows, but that a call brings steps of some sequences, and each has seen as many
    as it has: one may begin while another goes on. What is made of each is what a session of its own makes,
    on processors bit for bit; GPUs multiply few rows by other kernels than many, and round otherwise. For
    networks whose layers keep something for each step, as attention does.

    Args:
        network: The network; its input has a time axis first, whose extent does not matter here.
        count: How many sequences there is room for.
        capacity: The most steps of each.
        cache_dtype: What keys and values are kept as, as in `Session`.

    Raises:
        StateError: A layer or a link needs whole sequences, or a recurrent layer moves all of them together;
            or `cache_dtype` is given on a GPU.
        DeviceError: A GPU has no room for so many sequences, or shows its kernels less.
        ShapeError: The network's input has no time axis.
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.MultiHeadAttention(1, causal=True)], input_shape=(8, 2))
        >>> slots = Slots(net, 4, capacity=100)
        >>> slots(np.ones((1, 5, 2)), [2]).shape
        (1, 5, 2)
        >>> slots(np.ones((2, 1, 2)), [2, 0]).shape
        (2, 1, 2)
        >>> slots.positions
        [1, 0, 6, 0]
    """

    def __init__(
        self, network: HasEngine, count: int, capacity: int, *, cache_dtype: CacheTypeName | None = None
    ) -> None:
        self._engine = engine_of(network)
        self._capacity = whole("Slots", "capacity", capacity, least=1)
        self._engine.build()
        self._native = _native.Slots(
            self._engine.native,
            whole("Slots", "count", count, least=1),
            self._capacity,
            cache_type("Slots", cache_dtype),
        )

    def __call__(
        self, x: ArrayLike | Mapping[str, ArrayLike], sequences: Iterable[int], *, last: bool = False
    ) -> RealArray:
        """Returns the outputs for the next steps of some sequences.

        Args:
            x: (rows, steps, ...) the steps; of named inputs a dictionary of arrays.
            sequences: Of which sequence each row is.
            last: Whether the output for the last of these steps is all that is wanted.

        Returns:
            As a `Session`'s.

        Raises:
            ShapeError: The steps do not fit the network, or there are not as many rows as sequences.
            InvalidValueError: A sequence is not there, or there twice.
            StateError: There are more steps than there is room for, or the network has changed since.
            NonFiniteError: They hold NaN or infinity.
        """
        engine = self._engine
        made = self._native.advance(engine.as_steps(x), list(sequences), last)
        return engine.stepped(self._native, x, made, last=last)

    def follow(
        self,
        tokens: Sequence[int],
        sequences: Sequence[int],
        counts: Sequence[int],
        *,
        stops: Iterable[int] = (),
        samplers: Sequence[StepSampler] | None = None,
    ) -> list[list[int]]:
        """Brings a step of some sequences and has each go on by itself, as `Session.follow`.

        Args:
            tokens: The next step of each, a whole number.
            sequences: Of which sequence each is.
            counts: How many steps to make of each.
            stops: Classes after which a sequence needs no more.
            samplers: What draws the steps of each, and takes note of them.

        Returns:
            The classes of each, as many as its count or up to its first of `stops`. The last one is for
            you to bring with the next call.

        Raises:
            StateError: As of `Session.follow`.
            InvalidValueError: A sequence is not there, or there twice.
            NonFiniteError: Scores hold NaN or infinity; no sequence has gone on then.
            ShapeError: There are not as many samplers as sequences.
        """
        wanted = [whole("Slots.follow", "counts", count, least=1) for count in counts]
        ends = [whole("Slots.follow", "stops", stop, least=0) for stop in stops]
        steps = self._engine.as_steps(np.expand_dims(np.asarray(tokens), -1))
        numbers = list(sequences)
        if samplers is None:
            return self._native.follow(steps, numbers, wanted, ends)
        draws = drawn_by(samplers, len(numbers), max(wanted, default=0))
        made = self._native.follow(steps, numbers, wanted, ends, draws)
        for sampler, row in zip(samplers, made, strict=True):
            sampler.took(row)
        return made

    @property
    def positions(self) -> list[int]:
        """How many steps of each sequence have been seen."""
        return self._native.positions()

    @property
    def capacity(self) -> int:
        """The most steps of a sequence."""
        return self._capacity

    def rewind(self, sequence: int, position: int) -> None:
        """Goes back to where only the first steps of a sequence had been seen.

        Args:
            sequence: Its number.
            position: How many steps; at most those seen so far.
        """
        self._native.rewind(sequence, position)

    def copy(self, source: int, target: int, count: int) -> None:
        """Makes the first steps of one sequence those of another, which forgets its own.

        Args:
            source: The sequence that has seen them.
            target: The other one.
            count: How many steps.
        """
        self._native.copy(source, target, count)

    def reset(self) -> None:
        """Forgets everything seen, and takes up weights that have moved since."""
        self._native.reset()
