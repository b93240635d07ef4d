"""What was measured of every layer: the newest step, and the steps that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom.engine import HasEngine, engine_of

__all__ = ["MeasureHistory", "Measures"]

_FIGURES = ("gaps", "alignments", "gains", "link_budgets", "cell_gaps")


@dataclass(frozen=True, eq=False)
class MeasureHistory:
    """The figures of those steps that were kept, oldest first.

    Args:
        layers: The layers' paths, "z.y.x.l", in the order of the columns; those inside others, where they
            are measured, behind the one around them, such as "z.y.x.l.layers.0".
        steps: (records,) the steps' numbers, from 0 at the start of the training.
        gaps: (records, layers) how far outputs were from their targets.
        alignments: (records, layers) (1 + cosine of output and target) / 2.
        gains: (records, layers) the outputs' norms over the inputs'.
        link_budgets: (records, layers) gain or alignment, scaled.
        cell_gaps: (records, layers) the gaps of recurrent layers' cell states; nan elsewhere.
        reconstruction_errors: (records, layers) how far feedback maps were from what they are to
            give; nan where a layer has none.
        explosions: (explosions,) the numbers of all steps that exploded, kept or not.
    """

    layers: tuple[str, ...]
    steps: NDArray[np.int64]
    gaps: NDArray[np.float64]
    alignments: NDArray[np.float64]
    gains: NDArray[np.float64]
    link_budgets: NDArray[np.float64]
    cell_gaps: NDArray[np.float64]
    reconstruction_errors: NDArray[np.float64]
    explosions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        extents = f"{len(self)} steps of {len(self.layers)} layers"
        return f"MeasureHistory({extents}, {len(self.explosions)} explosions)"


class Measures:
    """What the newest watched step of a network has shown; arrays have one number a layer.

    It follows the network: each look gives what is there by then.

    Args:
        network: The network.
    """

    def __init__(self, network: HasEngine) -> None:
        self._network = network

    def _newest(self) -> Mapping[str, Any]:
        return _native.measures(engine_of(self._network).native)

    def _figures(self, name: str) -> NDArray[np.float64]:
        newest = self._newest()
        found = np.array(newest[name], np.float64)
        layers, order = _rows(self._network, newest["inner"])
        return found[order] if len(found) else np.full(len(layers), np.nan)

    def _number(self, name: str, before: float) -> float:
        """Returns a figure of the newest step; what it is before any."""
        newest = self._newest()
        return float(newest[name]) if newest["steps"] else before

    @property
    def steps(self) -> int:
        """How many steps were measured since the training began."""
        return int(self._newest()["steps"])

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers' paths, "z.y.x.l", in the order of all arrays.

        Layers inside others, where the newest training measured them, come behind the one around them:
        "z.y.x.l.layers.0".
        """
        return _rows(self._network, self._newest()["inner"])[0]

    @property
    def gaps(self) -> NDArray[np.float64]:
        """(layers,) how far each output was from its target; nan before any step."""
        return self._figures("gaps")

    @property
    def alignments(self) -> NDArray[np.float64]:
        """(layers,) (1 + cosine of output and target) / 2, 0.5 where one of them is zero."""
        return self._figures("alignments")

    @property
    def gains(self) -> NDArray[np.float64]:
        """(layers,) each output's norm over the input's."""
        return self._figures("gains")

    @property
    def link_budgets(self) -> NDArray[np.float64]:
        """(layers,) gain or alignment, as chosen, scaled."""
        return self._figures("link_budgets")

    @property
    def cell_gaps(self) -> NDArray[np.float64]:
        """(layers,) the gap of a recurrent layer's cell state; nan elsewhere."""
        return self._figures("cell_gaps")

    @property
    def reconstruction_errors(self) -> NDArray[np.float64]:
        """(layers,) how far each feedback map was from what it is to give; nan where there is none."""
        return self._figures("reconstructions")

    @property
    def mean_gap(self) -> float:
        """The mean gap over all layers; nan before any step."""
        return self._number("avg_gap", float("nan"))

    @property
    def prev_avg_gap(self) -> float:
        """The mean gap of the last calm step; 0 before any."""
        return float(self._newest()["prev_avg_gap"])

    @property
    def gap_growth_rate(self) -> float:
        """The mean gap over that of the last calm step before; 1 where there was none."""
        return self._number("growth", 1.0)

    @property
    def explosion_count(self) -> int:
        """How many steps have exploded."""
        return int(self._newest()["explosions"])

    @property
    def rate_factor(self) -> float:
        """What explosions have left of the learning rate: 1 or less."""
        return self._number("rate_factor", 1.0)

    @property
    def loss_history(self) -> NDArray[np.float64]:
        """(steps,) the loss of each step that was measured."""
        return np.array(_native.measure_history(engine_of(self._network).native)["losses"], np.float64)

    @property
    def history(self) -> MeasureHistory:
        """The figures of those steps that were kept; none without `history=`."""
        found = _native.measure_history(engine_of(self._network).native)
        layers, order = _rows(self._network, found["inner"])

        def table(name: str) -> NDArray[np.float64]:
            return np.array(found[name], np.float64).reshape(len(found["steps"]), len(layers))[:, order]

        return MeasureHistory(
            layers=layers,
            steps=np.array(found["steps"], np.int64),
            **{name: table(name) for name in _FIGURES},
            reconstruction_errors=table("reconstructions"),
            explosions=np.array(found["exploded"], np.int64),
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.steps} steps, mean gap {self.mean_gap:.4g}, "
            f"{self.explosion_count} explosions)"
        )


def _rows(network: HasEngine, inner: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Returns the paths of all layers with figures, and which of the engine's rows each has.

    The engine has those of the layers of cells first, then those inside them.
    """
    outer = engine_of(network).layer_paths()
    paths, order = [], []
    for number, path in enumerate(outer):
        inside = [place for place, name in enumerate(inner) if name.startswith(f"{path}.")]
        paths += [path, *(inner[place] for place in inside)]
        order += [number, *(len(outer) + place for place in inside)]
    return tuple(paths), order
