"""Learning more slowly where a log no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from loom._settings.checks import choice, real, whole
from loom.callbacks._monitoring import checked, improves, monitored
from loom.callbacks.base import Callback, Logs

__all__ = ["ReduceLROnPlateau"]


@dataclass
class ReduceLROnPlateau(Callback):
    """Reduces the learning rate when a log has not improved for some epochs.

    Every layer's `rate_factor` is multiplied, so the rate of any schedule is reduced; what others change it
    by meanwhile, another such callback among them, stays. When training ends the layers get their own
    factors back; a run that is resumed goes on with reduced rates. Files that are saved while it trains hold
    the reduced factors.

    Args:
        monitor: The log that is watched.
        factor: What a reduction multiplies the rate by; above zero and below 1.
        patience: After how many epochs without improvement it is reduced; epochs without
            validation do not count.
        min_delta: A smaller change than this is no improvement.
        mode: "min", "max", or "auto": max for accuracies, r2 and
            scikit-learn's scores, otherwise min.
        cooldown: How many epochs after a reduction are not counted as without improvement.
        min_scale: The least that all reductions together multiply the rate by.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> plateau = loom.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e6)
        >>> config = loom.TrainingConfig(epochs=4, verbose=False)
        >>> _ = net.fit((np.eye(3), np.zeros((3, 2))), config, callbacks=[plateau])
        >>> plateau.scale, net[0, 0, 0, 0].rate_factor
        (0.125, 1.0)
    """

    monitor: str = "val_loss"
    _: KW_ONLY
    factor: float = 0.1
    patience: int = 10
    min_delta: float = 1e-4
    mode: Literal["auto", "min", "max"] = "auto"
    cooldown: int = 0
    min_scale: float = 0.0

    def __post_init__(self) -> None:
        where = "ReduceLROnPlateau"
        self.monitor = checked("ReduceLROnPlateau", self.monitor)
        self.factor = real(where, "factor", self.factor, above=0.0, below=1.0)
        self.patience = whole(where, "patience", self.patience, least=0)
        self.min_delta = real(where, "min_delta", self.min_delta, least=0.0)
        self.mode = choice(where, "mode", self.mode, ("auto", "min", "max"))
        self.cooldown = whole(where, "cooldown", self.cooldown, least=0)
        self.min_scale = real(where, "min_scale", self.min_scale, least=0.0, most=1.0)
        self._forget()

    def _forget(self) -> None:
        self.scale = 1.0
        """What the learning rate is multiplied by now."""
        self.best = math.nan
        self._waited = self._cooling = 0
        # The layers' own factors by path, from the first reduction on, and what they were last multiplied by.
        self._usual: dict[str, float] = {}
        self._multiplied = 1.0

    @property
    def state_key(self) -> str:
        """Its name, with what it watches."""
        return f"ReduceLROnPlateau({self.monitor}, {self.mode})"

    def state_dict(self) -> dict[str, Any]:
        """Returns the best so far, how long it has waited since, and by how much rates are reduced."""
        return {
            "best": self.best,
            "scale": self.scale,
            "waited": self._waited,
            "cooling": self._cooling,
            "usual": self._usual,
            "multiplied": self._multiplied,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self.best, self.scale = float(state["best"]), float(state["scale"])
        self._waited, self._cooling = int(state["waited"]), int(state["cooling"])
        self._usual, self._multiplied = dict(state["usual"]), float(state["multiplied"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, or reduces the rates as the run did that this one goes on from."""
        if not self._resumed:
            self._forget()
        self._multiply(self.scale)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the watched log with the best so far."""
        value = monitored("ReduceLROnPlateau", self.monitor, logs)
        if math.isnan(value):
            return
        counts = self._cooling == 0
        self._cooling = max(self._cooling - 1, 0)
        if improves(value, self.best, self.monitor, self.mode, self.min_delta):
            self.best = value
            self._waited = 0
        elif counts:
            self._waited += 1
            if self._waited >= self.patience:
                self._reduce()

    def _reduce(self) -> None:
        self._waited, self._cooling = 0, self.cooldown
        scale = max(self.scale * self.factor, self.min_scale)
        if scale < self.scale:
            self._usual = self._own_factors()
            self.scale = scale
            self._multiply(scale)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Gives the layers their own factors back."""
        self._multiply(1.0)

    def _with_factors(self) -> list[Any]:
        """Returns the layers with factors of their own: of shared parameters the owner's holds."""
        return [layer for layer in self.network.layers if getattr(layer.config, "tied_to", None) is None]

    def _own_factors(self) -> dict[str, float]:
        """Returns what the layers' factors would be without this callback."""
        own = {}
        for layer in self._with_factors():
            now, usual = layer.rate_factor, self._usual.get(layer.path)
            if usual is None:
                own[layer.path] = now
            else:
                # Where it is another than this callback has set, somebody else has changed it since.
                changed = now != usual * self._multiplied
                own[layer.path] = now / self._multiplied if changed else usual
        return own

    def _multiply(self, scale: float) -> None:
        if self._usual:
            self._usual, self._multiplied = self._own_factors(), scale
            for layer in self._with_factors():
                layer.rate_factor = self._usual[layer.path] * scale
