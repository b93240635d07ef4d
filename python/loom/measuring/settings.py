"""What is measured of a network's layers, and what is done about explosions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from loom._settings.checks import choice, flag, real, whole
from loom._settings.encoding import Plain
from loom._settings.suggestions import shown
from loom._typing import JSON
from loom.errors import ConfigError

__all__ = ["Observe", "check_measuring", "resolve_observe", "watch_settings"]

_GAP_METRICS = ("rms", "mse")
_LINK_BUDGETS = ("gain", "alignment")


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
        depth: How deep it is measured: 1 for the layers of cells, 2 for those inside them as well, and
            so on. A layer inside another has the gradient that the layer around it learns from, of the
            loss or of that layer's own target, so its target is its output less that gradient, times
            `gradient_scale` where it is the loss's. Steps are judged by the layers of cells alone.

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
    gap_metric: Literal["rms", "mse"] = "rms"
    link_budget: Literal["gain", "alignment"] = "gain"
    link_budget_scale: float = 1.0
    detect_explosions: bool = False
    gap_threshold: float = 0.1
    explosion_limit: float = 10.0
    recovery_rate: float = 0.5
    history: int | None = None
    history_limit: int = 10_000
    depth: int = 1

    def __post_init__(self) -> None:
        for name, value in check_measuring("Observe", self).items():
            object.__setattr__(self, name, value)


def check_measuring(where: str, config: object) -> dict[str, object]:
    """Returns the settings that `Observe` has, checked, wherever they stand; `where` is for messages."""
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
        "depth": whole(where, "depth", given["depth"], least=1),
    }


def watch_settings(config: object) -> dict[str, JSON]:
    """Returns the settings that `Observe` has as the engine takes them."""
    settings = {field.name: getattr(config, field.name) for field in fields(Observe)}
    rule = {name: settings.pop(name) for name in ("gap_threshold", "explosion_limit", "recovery_rate")}
    detects = settings.pop("detect_explosions")
    return {**settings, "explosion": rule if detects else None}


def resolve_observe(value: object) -> Observe | None:
    """Returns what an `observe=` argument means: True stands for the defaults, False for no measures."""
    if value is None or value is False:
        return None
    if value is True:
        return Observe()
    if isinstance(value, Observe):
        return value
    raise ConfigError(f"observe must be True, False or a loom.Observe, got {shown(value)}")
