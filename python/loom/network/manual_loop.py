"""The manual loop: forward with history, backward, clip, apply."""

from __future__ import annotations

import json

from loom import optimizers
from loom._settings.checks import flag, real
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.engine import Engine
from loom.engine.statistics import LayerGradient, layer_gradients
from loom.optimizers import OptimizerLike

__all__ = ["ManualLoop"]


class ManualLoop:
    """What a training loop written by hand calls; `loom.Network` says what each call promises.

    Args:
        engine: The network's engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.last_forward_time: float | None = None
        """The seconds that the newest `forward` took; None before any."""

    def forward(self, x: ArrayLike, training: bool) -> RealArray:
        """Returns the output, and keeps what every layer has made."""
        engine = self._engine
        if flag("forward", "training", training):
            engine.check_idle("forward with training on")
        array = engine.as_input(x)
        observed = engine.observation.active
        output, self.last_forward_time, figures = engine.native.forward(array, training, observed)
        if figures is not None:
            engine.observation.tell(figures)
        return output

    def backward(self, gradient: ArrayLike) -> RealArray:
        """Adds to all gradients, from the newest `forward` back."""
        engine = self._engine
        engine.check_idle("backward")
        return engine.native.backward(as_real_array(gradient, engine.precision, what="gradient"))

    def clip_gradients(self, max_norm: float) -> float:
        """Scales all gradients together where their norm exceeds a limit; returns the norm before."""
        self._engine.check_idle("clip_gradients")
        return self._engine.native.clip_gradients(real("clip_gradients", "max_norm", max_norm, above=0.0))

    def apply_gradients(self, learning_rate: float) -> None:
        """Moves every trainable parameter by its gradient, and clears the gradients."""
        self._engine.check_idle("apply_gradients")
        rate = real("apply_gradients", "learning_rate", learning_rate, least=0.0)
        self._engine.native.apply_gradients(rate)

    def zero_gradients(self) -> None:
        """Forgets all gradients."""
        self._engine.check_idle("zero_gradients")
        self._engine.native.zero_gradients()

    def set_optimizer(self, optimizer: OptimizerLike) -> None:
        """Chooses the rule that `apply_gradients` follows, with fresh moments."""
        self._engine.check_idle("set_optimizer")
        self._engine.set_optimizer(json.dumps(optimizers.resolve(optimizer).to_config()))

    def gradient_stats(self) -> list[LayerGradient]:
        """Returns each trainable layer's gradient in figures."""
        return layer_gradients(self._engine.native.gradient_statistics())
