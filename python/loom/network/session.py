"""Sessions: inference over sequences that arrive piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import choice, whole
from loom._typing import ArrayLike, CacheTypeName, Precision, RealArray
from loom.convert import as_input, as_numpy, real_dtype
from loom.engine import HasEngine, engine_of
from loom.errors import ShapeError

__all__ = ["Session", "StepSampler", "cache_type", "drawn_by"]


def cache_type(where: str, name: CacheTypeName | None) -> CacheTypeName | None:
    """Returns what keys and values are to be kept as, if that is known.

    Args:
        where: Whose setting it is.
        name: The setting; None where they are kept as the network computes.

    Raises:
        ConfigError: They are not kept so.
    """
    known: tuple[CacheTypeName, ...] = get_args(CacheTypeName)
    return None if name is None else choice(where, "cache_dtype", name, known)


Drawn: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]"
"""Settings (8,), numbers from 0 to below 1 (count,), and (changes, 3) classes in their order, how often they
came and what is added to their scores."""

DrawnRows: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.float64], list[NDArray[np.float64]], int]"
"""The same of several rows: settings (rows, 8), numbers (rows, count), the changes of each, and of how many
classes all choose."""


class StepSampler(Protocol):
    """Draws the steps of one sequence by their scores, as `loom.text.Sampler` does."""

    @property
    def vocabulary(self) -> int:
        """How many classes there are."""

    def draws(self, count: int) -> Drawn:
        """Returns what the next steps are drawn by.

        Args:
            count: The most steps.
        """

    def took(self, tokens: Sequence[int]) -> None:
        """Takes note of steps that were drawn so.

        Args:
            tokens: The steps, in their order.
        """


def drawn_by(samplers: Sequence[StepSampler], rows: int, count: int) -> DrawnRows:
    """Returns what draws the steps of each row, as the engine wants it.

    Args:
        samplers: One for each row.
        rows: How many rows there are.
        count: How many steps are drawn.

    Raises:
        ShapeError: There are not as many samplers as rows, or they are of several numbers of classes.
    """
    if len(samplers) != rows or len({sampler.vocabulary for sampler in samplers}) > 1:
        raise ShapeError(
            f"each of {rows} rows has a sampler, of as many classes as the network makes; got samplers of "
            f"{[sampler.vocabulary for sampler in samplers]}"
        )
    draws = [sampler.draws(count) for sampler in samplers]
    settings, numbers, changes = zip(*draws, strict=True)
    return np.stack(settings), np.stack(numbers), list(changes), samplers[0].vocabulary


def _as_kept(array: ArrayLike, precision: Precision, *, packed: bool) -> RealArray:
    """Returns what a session has kept, bytes as the numbers that they are taken for."""
    if not packed:
        return as_input(array, precision, indices=False)
    held, element = as_numpy(array, what="what a session has kept"), np.dtype(real_dtype(precision))
    if held.dtype != np.uint8 or not held.ndim or held.shape[-1] % element.itemsize:
        raise ShapeError(
            "this session keeps keys and values as bytes, such as `kept` gives of a session with the same "
            f"cache_dtype, got {held.dtype} {held.shape}"
        )
    found: RealArray = np.ascontiguousarray(held).view(element)
    return found


class Session:
    """Inference that goes on from where its last call ended.

    Attention keeps the keys and values it has seen, recurrent layers their state, so that each
    step costs the same however long the sequence has become. Calling the session brings the next
    steps, any number of them.

    Args:
        network: The network; its input has a time axis first, whose extent does not matter here. Of several
            named inputs each has one, and a call brings as many steps of all of them.
        capacity: The most steps there will be in all.
        rows: Sequences side by side.
        cache_dtype: What keys and values are kept as: "float16" takes half of the memory; "q8_0", blocks of
            32 numbers of a head as `Network.morph` packs weights, takes 27 % of it. They are rounded once, as
            they come, so that the outputs are the same bits however the steps come. None keeps them as the
            network computes. On processors.

    Raises:
        StateError: A layer or a link needs whole sequences; or `cache_dtype` is given on a GPU, or where no
            layer keeps keys and values.
        ShapeError: The network's input has no time axis.
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=(8, 2))
        >>> session = net.session(capacity=100)
        >>> session(np.ones((1, 5, 2))).shape
        (1, 5, 3)
        >>> session.position
        5
    """

    def __init__(
        self, network: HasEngine, capacity: int, rows: int = 1, *, cache_dtype: CacheTypeName | None = None
    ) -> None:
        self._engine = engine_of(network)
        self._capacity = whole("Session", "capacity", capacity, least=1)
        self._rows = whole("Session", "rows", rows, least=1)
        self._cache_dtype = cache_type("Session", cache_dtype)
        self._engine.build()
        self._native = _native.Session(self._engine.native, self._rows, self._capacity, self._cache_dtype)

    def __call__(self, x: ArrayLike | Mapping[str, ArrayLike], *, last: bool = False) -> RealArray:
        """Returns the output for the next steps.

        Args:
            x: (rows, steps, ...) the next steps of each sequence; of named inputs a dictionary of arrays.
            last: Whether the output for the last of these steps is all that is wanted, as of a prompt
                whose end is gone on from: layers that work on each step by itself then leave out the
                others.

        Returns:
            (rows, steps, ...), or (rows, 1, ...) with `last`; without the steps where the network makes
            one output a sequence. Of named outputs a dictionary of arrays.

        Raises:
            ShapeError: The steps do not fit the network, or there are other rows.
            DataError: A named input is missing, or brings other rows or steps than the first.
            StateError: There are more steps than the session has room for, or the network has
                changed since it began.
            DTypeError: The network reads whole numbers, and these are none.
            NonFiniteError: They hold NaN or infinity; or a key or a value is beyond what `cache_dtype` holds.
        """
        engine = self._engine
        steps = engine.as_steps(x)
        return engine.stepped(self._native, x, self._native.advance(steps, last), last=last)

    def follow(
        self,
        x: ArrayLike,
        count: int,
        *,
        stops: Iterable[int] = (),
        samplers: Sequence[StepSampler] | None = None,
    ) -> NDArray[np.int64]:
        """Brings steps and lets the sequences go on by themselves.

        The next step is the class whose score is the largest, the first of them where several are, which is
        greedy decoding; or one that is drawn. On a GPU many steps are one command frame, and what comes back
        is the classes alone.

        Args:
            x: (rows, steps) whole numbers, the next steps of each sequence.
            count: How many steps to make.
            stops: Classes after which no more are needed.
            samplers: What draws the steps of each row, such as a `loom.text.Sampler`, and takes note of them
                up to the row's first stop. A GPU draws in float32.

        Returns:
            (rows, count) classes, or fewer where every row has come to one of `stops`: then as many as
            the last of the rows has up to its first. The last one of each row is for you to bring with
            the next call.

        Raises:
            StateError: The network does not read whole numbers, one a step, or makes more classes than it
                reads, or has named outputs; or there is no room for so many steps; and as for a call.
            NonFiniteError: Scores hold NaN or infinity.
            ShapeError: There are not as many samplers as rows, or they are of another number of classes.

        Examples:
            >>> layers = [nn.Embedding(5, 8), nn.GRU(8, return_sequences=True), nn.Dense(5)]
            >>> net = loom.Sequential(layers, input_shape=(4,), seed=1)
            >>> session = net.session(capacity=10)
            >>> first = session.follow([[1, 2]], 3)
            >>> again = net.session(capacity=10)
            >>> scores = again([[1, 2, *first[0, :2]]])[0]
            >>> bool(np.all(scores[1:].argmax(axis=1) == first[0]))
            True
        """
        count = whole("Session.follow", "count", count, least=1)
        ends = [whole("Session.follow", "stops", stop, least=0) for stop in stops]
        steps = self._engine.as_steps(x)
        if samplers is None:
            return np.asarray(self._native.follow(steps, count, ends), dtype=np.int64)
        made = self._native.follow(steps, count, ends, drawn_by(samplers, self._rows, count))
        for sampler, row in zip(samplers, made, strict=True):
            stopped = (place + 1 for place, step in enumerate(row) if step in ends)
            sampler.took(row[: next(stopped, len(row))])
        return np.asarray(made, dtype=np.int64)

    def rewind(self, position: int) -> None:
        """Goes back to where only the first steps had been seen.

        Args:
            position: How many steps; at most those seen so far.

        Raises:
            InvalidValueError: It has not seen so many.
            StateError: A recurrent layer keeps the state of the newest step alone.

        Examples:
            >>> net = loom.Sequential([nn.MultiHeadAttention(1, causal=True)], input_shape=(8, 2))
            >>> session = net.session(capacity=8)
            >>> y = session(np.eye(4, 2)[None])
            >>> session.rewind(3)
            >>> bool(np.all(session(np.eye(4, 2)[None, 3:]) == y[:, 3:]))
            True
        """
        self._native.rewind(whole("Session", "position", position, least=0))

    def kept(self) -> list[RealArray]:
        """Returns what layers keep of the steps seen so far: the keys and values of attention.

        Returns:
            Arrays (rows, steps, ...), in the order of the layers; with a `cache_dtype` those of keys and
            values are of bytes, as they are kept.

        Raises:
            StateError: A recurrent layer keeps the state of the newest step alone.
        """
        kept = self._native.kept()
        packs = self._native.packs()
        return [array.view(np.uint8) if packed else array for array, packed in zip(kept, packs, strict=True)]

    def restore(self, kept: Iterable[ArrayLike]) -> None:
        """Puts back what `kept` has given, of the same network with the same weights.

        The session has then seen those steps, and no others; its capacity may be another one.

        Args:
            kept: The arrays.

        Raises:
            ShapeError: They are of another network, of other rows, or of more steps than there is room for.
            NonFiniteError: They hold NaN or infinity.
            StateError: A recurrent layer keeps the state of the newest step alone.

        Examples:
            >>> net = loom.Sequential([nn.MultiHeadAttention(1, causal=True)], input_shape=(8, 2))
            >>> session, other = net.session(capacity=8), net.session(capacity=20)
            >>> y = session(np.eye(4, 2)[None])
            >>> other.restore(session.kept())
            >>> bool(np.all(other(np.ones((1, 1, 2))) == session(np.ones((1, 1, 2)))))
            True
        """
        precision = self._engine.precision
        packs = self._native.packs()
        arrays = [
            _as_kept(array, precision, packed=number < len(packs) and packs[number])
            for number, array in enumerate(kept)
        ]
        self._native.restore(arrays)

    @property
    def position(self) -> int:
        """How many steps it has seen."""
        return self._native.position()

    @property
    def capacity(self) -> int:
        """The most steps there may be in all."""
        return self._capacity

    @property
    def rows(self) -> int:
        """Sequences side by side."""
        return self._rows

    @property
    def cache_dtype(self) -> CacheTypeName | None:
        """What keys and values are kept as; None where that is as the network computes."""
        return self._cache_dtype

    def reset(self) -> None:
        """Forgets everything seen, and takes up weights that have moved since.

        Raises:
            StateError: The network is on another device than when the session began.
        """
        self._native.reset()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session is not pickled: pickle the network, begin another session, and bring it the same steps"
        )

    def __repr__(self) -> str:
        return f"Session(position={self.position}, capacity={self._capacity}, rows={self._rows})"
