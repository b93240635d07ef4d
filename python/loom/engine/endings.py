"""What outputs come from last, and the losses that this is a part of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from loom import losses
from loom._typing import RealArray
from loom.engine.engine import Engine

__all__ = ["judging", "last_cell"]


def last_cell(engine: Engine, cell: Sequence[int] | None = None) -> tuple[int, int, int] | None:
    """Returns the cell whose last layer makes what a cell hands on; None where none does.

    Args:
        engine: The network's.
        cell: The cell, in whose place one without layers hands on what came before; the last one where None.
    """
    engine.build()
    until = None if cell is None else tuple(cell)
    places = [at for at, _ in engine.layer_places() if until is None or at <= until]
    if not places:
        return None
    last = places[-1]
    inputs = engine.ports.inputs if engine.ports is not None else ()
    behind = [
        *(tuple(link.target) for link in cast("Any", engine.config.links) if link.combine != "context"),
        *(tuple(entry.cell or (0, 0, 0)) for entry in inputs),
    ]
    if any(last < arrives and (until is None or arrives <= until) for arrives in behind):
        return None
    return last


def judging(engine: Engine, output: str = "") -> Callable[..., tuple[float, RealArray]]:
    """Returns what computes losses of an output as training does, like `losses.value_and_gradient`.

    A softmax that makes the output is a part of losses over classes there.

    Args:
        engine: The network's.
        output: The output's name, where it has one.
    """
    named = engine.ports.outputs if engine.ports is not None else ()
    cell = next((tuple(entry.cell) for entry in named if entry.name == output), None)
    last = last_cell(engine, cell)
    if last is not None:
        place = max(place for at, place in engine.layer_places() if at == last)
        if engine.layer_config(last, place).kind == "softmax":
            return losses.behind_softmax
    return losses.value_and_gradient
