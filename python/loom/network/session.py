"""Sessions: inference over sequences that arrive piece by piece."""

from __future__ import annotations

from loom import _native
from loom._settings.checks import whole
from loom._typing import ArrayLike, RealArray
from loom.convert import as_input
from loom.engine import HasEngine, engine_of

__all__ = ["Session"]


class Session:
    """Inference that goes on from where its last call ended.

    Attention keeps the keys and values it has seen, recurrent layers their state, so that each
    step costs the same however long the sequence has become. Calling the session brings the next
    steps, any number of them.

    Args:
        network: The network; its input has a time axis first, whose extent does not matter here.
        capacity: The most steps there will be in all.
        rows: Sequences side by side.

    Raises:
        StateError: A layer or a link needs whole sequences.
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

    def __init__(self, network: HasEngine, capacity: int, rows: int = 1) -> None:
        self._engine = engine_of(network)
        self._capacity = whole("Session", "capacity", capacity, least=1)
        self._rows = whole("Session", "rows", rows, least=1)
        self._engine.build()
        self._native = _native.Session(self._engine.native, self._rows, self._capacity)

    def __call__(self, x: ArrayLike) -> RealArray:
        """Returns the output for the next steps.

        Args:
            x: (rows, steps, ...) the next steps of each sequence.

        Returns:
            (rows, steps, ...); without the steps where the network makes one output a sequence.

        Raises:
            ShapeError: The steps do not fit the network, or there are other rows.
            StateError: There are more steps than the session has room for, or the network has
                changed since it began.
            DTypeError: The network reads whole numbers, and these are none.
            NonFiniteError: They hold NaN or infinity.
        """
        engine = self._engine
        if engine.sizing is not None:
            # Steps are told by the array.
            return self._native.advance(as_input(x, engine.precision, indices=engine.reads_indices))
        return self._native.advance(engine.as_input(x))

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

    def reset(self) -> None:
        """Forgets everything seen, and takes up weights that have moved since.

        Raises:
            StateError: The network is on another device than when the session began.
        """
        self._native.reset()

    def __repr__(self) -> str:
        return f"Session(position={self.position}, capacity={self._capacity}, rows={self._rows})"
