"""Graphs of values as rows of layers: what branches and joins again becomes Residual and Parallel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from loom.errors import ConfigError

__all__ = ["Branches", "Join", "Row"]

Row = list[dict[str, Any]]
"""Layers one behind the other, each with its parameters as arrays beside its settings."""
NodeT = TypeVar("NodeT", bound=Hashable)


class Join(NamedTuple):
    """How several values become one.

    Args:
        combine: What Parallel calls it.
        axis: For "concat", counted without the batch.
        ends: What each value goes through before, nothing where empty.
    """

    combine: str
    axis: int | None = None
    ends: Sequence[Row] = ()


class Branches(Generic[NodeT]):
    """Values that are computed from others, each from one through layers, or from several that are joined.

    Args:
        start: What comes in.
    """

    def __init__(self, start: NodeT) -> None:
        self._start = start
        self._inputs: dict[NodeT, list[NodeT]] = {}
        self._steps: dict[NodeT, Row | Join] = {}
        self._dominator: dict[NodeT, NodeT] = {start: start}
        self._depth: dict[NodeT, int] = {start: 0}

    def add(self, node: NodeT, inputs: Sequence[NodeT], step: Row | Join) -> None:
        """Adds a value, after those that it is computed from."""
        self._inputs[node] = list(inputs)
        self._steps[node] = step
        common = inputs[0]
        for other in inputs[1:]:
            common = self._common(common, other)
        self._dominator[node], self._depth[node] = common, self._depth[common] + 1

    def _common(self, one: NodeT, other: NodeT) -> NodeT:
        """The last value that both are computed from alone."""
        while one != other:
            if self._depth[one] < self._depth[other]:
                one, other = other, one
            one = self._dominator[one]
        return one

    def row(self, end: NodeT) -> Row:
        """Returns the layers that compute a value from what comes in.

        Raises:
            ConfigError: Branches are not nested in each other.
        """
        return self._chain(self._start, end, set())

    def _chain(self, start: NodeT, end: NodeT, taken: set[NodeT]) -> Row:
        pieces: list[Row] = []
        node = end
        while node != start:
            if node in taken:
                raise ConfigError(
                    f"the value {node} goes into branches that are not nested in each other, which Residual "
                    "and Parallel cannot say"
                )
            taken.add(node)
            step = self._steps[node]
            if isinstance(step, Join):
                common = self._dominator[node]
                ends = step.ends or [[] for _ in self._inputs[node]]
                branches = [
                    [*self._chain(common, value, taken), *after]
                    for value, after in zip(self._inputs[node], ends, strict=True)
                ]
                pieces.append([_joined(branches, step)])
                node = common
            else:
                pieces.append(step)
                (node,) = self._inputs[node]
        return [layer for piece in reversed(pieces) for layer in piece]


def _joined(branches: list[Row], step: Join) -> dict[str, Any]:
    if step.combine == "add" and len(branches) == 2:
        layers, skip = sorted(branches, key=len, reverse=True)
        if layers and not skip:
            return {"type": "residual", "layers": layers}
    settings = {} if step.axis is None else {"axis": step.axis}
    return {"type": "parallel", "branches": branches, "combine": step.combine, **settings}
