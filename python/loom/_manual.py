"""The manual loop: forward with history, backward, clip, apply."""

from __future__ import annotations

import json

from loom import optimizers
from loom._base import NetworkBase
from loom._checks import flag, real
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.optimizers import OptimizerLike
from loom.statistics import LayerGradient, layer_gradients

__all__ = ["ManualLoop"]


class ManualLoop(NetworkBase):
    """What a training loop written by hand calls."""

    _forward_seconds: float | None = None

    @property
    def last_forward_time(self) -> float | None:
        """The seconds that the newest `forward` took; None before any."""
        return self._forward_seconds

    def forward(self, x: ArrayLike, training: bool = True) -> RealArray:
        """Returns the output, and keeps what every layer has made: for `backward`, and to be looked at.

        In training, dropout and Gumbel noise are drawn anew in every pass, and running
        statistics move. The draws go by the seed, the committed step and the passes since it,
        so that a network which was saved with its optimizer's state goes on as it would have.
        Passes that `backward` follows, one after the other before `apply_gradients`, draw as
        the parts of one batch, as `loom.train` does with `accumulate`.

        With `training=False` the pass is that of `predict`: it draws nothing and moves nothing.
        `layer.activation` then shows what inference makes of these rows, and `backward` gives
        the gradients of what was computed: dropout off, running statistics fixed. All rows go
        through at once; for many rows whose layers nobody looks at, `predict` needs less memory.

        Args:
            x: (rows, *input_shape) the samples.
            training: Whether dropout is on and running statistics move.

        Returns:
            (rows, *output_shape) in the network's precision.

        Raises:
            ShapeError: The samples do not have the network's input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: The network is being trained: by `loom.train`, where `training` is on, or
                by another thread.

        Examples:
            >>> net = loom.Sequential([nn.Dense(4), nn.Dropout(0.5)], input_shape=3, seed=1)
            >>> samples = np.stack([net.forward(np.ones((1, 3))) for _ in range(200)])
            >>> bool(samples.std(axis=0).max() > 0)  # Monte Carlo dropout
            True
            >>> output = net.forward(np.ones((1, 3)), training=False)
            >>> bool((output == net[0, 0, 0, 1].activation).all())
            True
        """
        if flag("forward", "training", training):
            self._check_idle("forward with training on")
        array = self._as_input(x)
        observed = bool(self._observers)
        output, self._forward_seconds, figures = self._native.forward(array, training, observed)
        if figures is not None:
            self._tell_observers(figures)
        return output

    def backward(self, gradient: ArrayLike) -> RealArray:
        """Adds to all gradients, from the newest `forward` back, in training or not.

        Args:
            gradient: (rows, *output_shape) of the loss with respect to the output.

        Returns:
            (rows, *input_shape) that of the loss with respect to the input.

        Raises:
            StateError: There was no forward pass, or the weights, or the running statistics that it
                read, have moved since.
            ShapeError: The gradient does not have the output's shape.
            NonFiniteError: It holds NaN or infinity.
        """
        self._check_idle("backward")
        return self._native.backward(as_real_array(gradient, self._precision, what="gradient"))

    def clip_gradients(self, max_norm: float) -> float:
        """Scales all gradients together where their global L2 norm exceeds a limit.

        Args:
            max_norm: The limit; above zero.

        Returns:
            The norm before.

        Raises:
            StateError: There are no gradients.
            NonFiniteError: The norm is infinite or NaN; the gradients stay as they are.
        """
        self._check_idle("clip_gradients")
        return self._native.clip_gradients(real("clip_gradients", "max_norm", max_norm, above=0.0))

    def apply_gradients(self, learning_rate: float) -> None:
        """Moves every trainable parameter by its gradient, and clears the gradients.

        Args:
            learning_rate: The step size.

        Raises:
            StateError: There are no gradients.
        """
        self._check_idle("apply_gradients")
        rate = real("apply_gradients", "learning_rate", learning_rate, least=0.0)
        self._native.apply_gradients(rate)

    def zero_gradients(self) -> None:
        """Forgets all gradients."""
        self._check_idle("zero_gradients")
        self._native.zero_gradients()

    def set_optimizer(self, optimizer: OptimizerLike) -> None:
        """Chooses the rule that `apply_gradients` follows, with fresh moments; AdamW before.

        Args:
            optimizer: An optimizer, or the name of one.

        Raises:
            ConfigError: The name is unknown or a setting out of range.
        """
        self._check_idle("set_optimizer")
        self._native.set_optimizer(json.dumps(optimizers.resolve(optimizer).to_config()))
        self._revision += 1

    def gradient_stats(self) -> list[LayerGradient]:
        """Returns each trainable layer's gradient in figures, with flags for vanishing and exploding.

        Raises:
            StateError: There are no gradients.
        """
        return layer_gradients(self._native.gradient_statistics())
