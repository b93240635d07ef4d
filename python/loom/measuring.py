"""Measures of every layer at every step: how far it is from its target, and what it passes on.

Learning by targets takes them as it goes; in plain backpropagation they are switched on
with `observe=` in `loom.train` and `loom.Trainer`. The engine fills them within the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._checks import choice, flag, real, whole
from loom._config import Plain
from loom._typing import JSON
from loom.errors import ConfigError

if TYPE_CHECKING:
    from loom.network import Network

__all__ = ["BottleneckWarning", "MeasureHistory", "Measures", "Observe"]

BOTTLENECK = 0.5
"""A layer whose link budget is below this on average is a bottleneck."""


class BottleneckWarning(UserWarning):
    """Layers whose link budget stayed below 0.5 on average while a network learned."""


_GAP_METRICS = ("rms", "mse")
_LINK_BUDGETS = ("gain", "alignment")
_FIGURES = ("gaps", "alignments", "gains", "link_budgets", "cell_gaps")


@dataclass(frozen=True)
class Observe(Plain):
    """What is measured of a network that learns by backpropagation, and whether explosions are undone.

    A layer's target is its output less `gradient_scale` times the gradient of the batch's summed
    losses; the last layer's is the real one. Without `detect_explosions` the training is the same,
    bit for bit, as if nobody looked.

    Args:
        gradient_scale: How far targets are from outputs, in units of the gradient; above zero.
        gap_metric: How an output's distance from its target is put in one number: "rms", the
            root of the mean square, or "mse", that square.
        link_budget: What a layer's budget is: "gain", the norm of its output over that of its
            input, or "alignment", (1 + cosine of output and target) / 2.
        link_budget_scale: Multiplies budgets; above zero.
        detect_explosions: Whether a step after which the mean gap has jumped, or anything is not
            finite, is taken back.
        gap_threshold: Growth of the mean gap is looked at only where the gap is above this.
        explosion_limit: The most the mean gap may grow from one calm step to the next; above 1.
        recovery_rate: What the learning rate is multiplied by after an explosion; above zero, at
            most 1. Each calm step brings it back by a factor of 1.05.
        history: Every how many steps the figures of all layers are kept; None keeps only the newest.
        history_limit: The most steps kept; past that every second one is dropped, and half as
            many are kept from then on. At least 2.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> net = loom.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(2)], input_shape=3)
        >>> data = np.eye(3), np.zeros((3, 2))
        >>> observe = loom.Observe(history=1, link_budget="alignment")
        >>> _ = loom.train(net, data, loom.TrainingConfig(epochs=5, verbose=False), observe=observe)
        >>> net.measures.history.gaps.shape
        (5, 2)
    """

    gradient_scale: float = 0.1
    gap_metric: str = "rms"
    link_budget: str = "gain"
    link_budget_scale: float = 1.0
    detect_explosions: bool = False
    gap_threshold: float = 0.1
    explosion_limit: float = 10.0
    recovery_rate: float = 0.5
    history: int | None = None
    history_limit: int = 10_000

    def __post_init__(self) -> None:
        for name, value in check_measuring("Observe", self).items():
            object.__setattr__(self, name, value)


def check_measuring(where: str, config: object) -> dict[str, object]:
    """Checks the settings that `Observe` has, wherever they stand.

    Args:
        where: Whose settings they are, for messages.
        config: What has them.

    Returns:
        Each setting, as it is to be kept.

    Raises:
        ConfigError: One is out of range, or a name unknown.
    """
    given = {field.name: getattr(config, field.name) for field in fields(Observe)}

    def above(name: str, bound: float, most: float | None = None) -> float:
        return real(where, name, given[name], above=bound, most=most)

    history = given["history"]
    return {
        "gradient_scale": above("gradient_scale", 0.0),
        "gap_metric": choice(where, "gap_metric", given["gap_metric"], _GAP_METRICS),
        "link_budget": choice(where, "link_budget", given["link_budget"], _LINK_BUDGETS),
        "link_budget_scale": above("link_budget_scale", 0.0),
        "detect_explosions": flag(where, "detect_explosions", given["detect_explosions"]),
        "gap_threshold": real(where, "gap_threshold", given["gap_threshold"], least=0.0),
        "explosion_limit": above("explosion_limit", 1.0),
        "recovery_rate": above("recovery_rate", 0.0, most=1.0),
        "history": None if history is None else whole(where, "history", history, least=1),
        "history_limit": whole(where, "history_limit", given["history_limit"], least=2),
    }


def watch_settings(config: object) -> dict[str, JSON]:
    """Returns the settings that `Observe` has as the engine takes them.

    Args:
        config: What has them, checked.
    """
    settings = {field.name: getattr(config, field.name) for field in fields(Observe)}
    rule = {name: settings.pop(name) for name in ("gap_threshold", "explosion_limit", "recovery_rate")}
    detects = settings.pop("detect_explosions")
    return {**settings, "explosion": rule if detects else None}


def resolve_observe(value: object) -> Observe | None:
    """Returns what an `observe=` argument means.

    Args:
        value: True for the defaults, False or None for no measures, or an `Observe`.

    Raises:
        ConfigError: It is none of these.
    """
    if value is None or value is False:
        return None
    if value is True:
        return Observe()
    if isinstance(value, Observe):
        return value
    raise ConfigError(f"observe must be True, False or a loom.Observe, got {value!r}")


@dataclass(frozen=True, eq=False)
class MeasureHistory:
    """The figures of those steps that were kept, oldest first.

    Args:
        layers: The layers' paths, "z.y.x.l", in the order of the columns.
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
        """Returns how many steps were kept."""
        return len(self.steps)

    def __repr__(self) -> str:
        """Returns how much there is."""
        extents = f"{len(self)} steps of {len(self.layers)} layers"
        return f"MeasureHistory({extents}, {len(self.explosions)} explosions)"


class Measures:
    """What the newest watched step of a network has shown; arrays have one number a layer.

    It follows the network: each look gives what is there by then.

    Args:
        network: The network.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    def _newest(self) -> Mapping[str, Any]:
        return _native.measures(self._network._native)

    def _figures(self, name: str) -> NDArray[np.float64]:
        found = np.array(self._newest()[name], np.float64)
        return found if len(found) else np.full(len(self.layers), np.nan)

    @property
    def steps(self) -> int:
        """How many steps were measured since the training began."""
        return int(self._newest()["steps"])

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers' paths, "z.y.x.l", in the order of all arrays."""
        return tuple(layer.path for layer in self._network.layers)

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
        newest = self._newest()
        return float(newest["avg_gap"]) if newest["steps"] else float("nan")

    @property
    def prev_avg_gap(self) -> float:
        """The mean gap of the last calm step; 0 before any."""
        return float(self._newest()["prev_avg_gap"])

    @property
    def gap_growth_rate(self) -> float:
        """The mean gap over that of the last calm step before; 1 where there was none."""
        newest = self._newest()
        return float(newest["growth"]) if newest["steps"] else 1.0

    @property
    def explosion_count(self) -> int:
        """How many steps have exploded."""
        return int(self._newest()["explosions"])

    @property
    def rate_factor(self) -> float:
        """What explosions have left of the learning rate: 1 or less."""
        newest = self._newest()
        return float(newest["rate_factor"]) if newest["steps"] else 1.0

    @property
    def loss_history(self) -> NDArray[np.float64]:
        """(steps,) the loss of each step that was measured."""
        return np.array(_native.measure_history(self._network._native)["losses"], np.float64)

    @property
    def history(self) -> MeasureHistory:
        """The figures of those steps that were kept; none without `history=`."""
        found = _native.measure_history(self._network._native)
        layers = self.layers

        def table(name: str) -> NDArray[np.float64]:
            return np.array(found[name], np.float64).reshape(len(found["steps"]), len(layers))

        return MeasureHistory(
            layers=layers,
            steps=np.array(found["steps"], np.int64),
            **{name: table(name) for name in _FIGURES},
            reconstruction_errors=table("reconstructions"),
            explosions=np.array(found["exploded"], np.int64),
        )

    def __repr__(self) -> str:
        """Returns how many steps were measured, and the mean gap."""
        return (
            f"{type(self).__name__}({self.steps} steps, mean gap {self.mean_gap:.4g}, "
            f"{self.explosion_count} explosions)"
        )
