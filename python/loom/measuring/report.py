"""What was found about each layer, as a table; which of them are bottlenecks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom.engine import Engine, HasEngine, engine_of
from loom.measuring.measures import Measures

__all__ = ["BottleneckWarning", "LayerReport", "TweenReport", "bottleneck_message", "mean_budgets", "report"]

BOTTLENECK = 0.5
"""A layer whose link budget is below this on average is a bottleneck."""

_COLUMNS = ("gap", "alignment", "gain", "link_budget", "mean_budget", "cell_gap", "reconstruction_error")


class BottleneckWarning(UserWarning):
    """Layers whose link budget stayed below 0.5 on average while a network learned."""


@dataclass(frozen=True)
class LayerReport:
    """One layer in a `TweenReport`.

    Args:
        path: The layer's name in a state dict: "z.y.x.l".
        kind: Its type, such as "dense".
        targets: How a target of its output goes back to its input: "gradient", "rule" (one of its
            own), "feedback map" (which learns), "transpose" (of its own map), "unchanged" (it can
            only pass targets through), or "stopped" (the layer below keeps its output as target).
        gap: How far its output was from its target in the newest step.
        alignment: (1 + cosine of the two) / 2.
        gain: Its output's norm over its input's.
        link_budget: Gain or alignment, as chosen, scaled.
        mean_budget: The mean budget over the kept history; of the newest step where none is kept.
        cell_gap: The gap of its cell state; nan where it has none.
        reconstruction_error: How far its feedback map was from what it is to give; nan where it
            has none.
    """

    path: str
    kind: str
    targets: str
    gap: float
    alignment: float
    gain: float
    link_budget: float
    mean_budget: float
    cell_gap: float
    reconstruction_error: float

    @property
    def bottleneck(self) -> bool:
        """Whether the mean budget is below 0.5."""
        return self.mean_budget < BOTTLENECK


class TweenReport(Sequence[LayerReport]):
    """Every layer's `LayerReport`, in order; as text a table.

    Args:
        layers: The layers.
    """

    def __init__(self, layers: Sequence[LayerReport]) -> None:
        self.layers = tuple(layers)

    @property
    def bottlenecks(self) -> list[LayerReport]:
        """The layers whose mean budget is below 0.5."""
        return [layer for layer in self.layers if layer.bottleneck]

    @overload
    def __getitem__(self, index: int) -> LayerReport: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerReport, ...]: ...
    def __getitem__(self, index: int | slice) -> LayerReport | tuple[LayerReport, ...]:
        return self.layers[index]

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __str__(self) -> str:
        shown = [name for name in _COLUMNS if any(not math.isnan(getattr(layer, name)) for layer in self)]
        titles = ["layer", "kind", "targets", *(name.replace("_", " ") for name in shown)]
        rows = [
            [layer.path, layer.kind, layer.targets, *(_figure(getattr(layer, name)) for name in shown)]
            for layer in self
        ]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if place < 3 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (titles, *rows)
        ]
        return "\n".join([*lines, *(f"bottleneck: {_bottleneck(layer)}" for layer in self.bottlenecks)])

    __repr__ = __str__


def mean_budgets(measures: Measures) -> NDArray[np.float64]:
    """Returns each layer's mean budget over the kept history, or the newest where none is kept.

    Args:
        measures: What was measured.

    Returns:
        (layers,) the means.
    """
    kept = measures.history.link_budgets
    return np.asarray(kept.mean(axis=0)) if len(kept) else measures.link_budgets


def bottleneck_message(layers: Sequence[LayerReport]) -> str:
    """Names layers that hold too much back.

    Args:
        layers: The layers.
    """
    named = ", ".join(_bottleneck(layer) for layer in layers)
    return f"little gets through on average: {named}; a mean link budget below {BOTTLENECK} is a bottleneck"


def report(network: HasEngine, settings: str, budgets: NDArray[Any] | None = None) -> TweenReport:
    """Returns what was measured of every layer.

    `settings` are as the engine takes them; `budgets`, (layers,), are the mean budgets, where they are
    known better than by the kept history.
    """
    engine = engine_of(network)
    measures = Measures(network)
    passages = _native.target_passages(engine.native, settings)
    columns = (
        measures.gaps,
        measures.alignments,
        measures.gains,
        measures.link_budgets,
        mean_budgets(measures) if budgets is None else budgets,
        measures.cell_gaps,
        measures.reconstruction_errors,
    )
    return TweenReport(
        [
            LayerReport(path, kind, passage, *map(float, figures))
            for (path, kind, passage), *figures in zip(
                _named(engine, measures.layers, passages), *columns, strict=True
            )
        ]
    )


def _named(engine: Engine, paths: Sequence[str], passages: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yields path, kind and way back of targets of layers, those inside others as well."""
    outer = dict(zip(engine.layer_paths(), zip(engine.layer_kinds(), passages, strict=True), strict=True))
    for path in paths:
        if path in outer:
            yield (path, *outer[path])
            continue
        z, y, x, place, inside = path.split(".", 4)
        inner = engine.inner_layers((int(z), int(y), int(x), int(place)))[inside]
        # Inside a layer it is the gradient that goes back, whatever does so between layers.
        yield path, inner.config.kind, "gradient"


def _bottleneck(layer: LayerReport) -> str:
    return f"layer {layer.path} ({layer.kind}) with a mean link budget of {layer.mean_budget:.3g}"


def _figure(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
