"""How a network learns by targets."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from loom import optimizers
from loom._settings.checks import choice, choice_or_real, real, whole
from loom._settings.encoding import Plain, encode
from loom._settings.suggestions import shown
from loom._typing import JSON
from loom.errors import ConfigError
from loom.measuring.settings import check_measuring, watch_settings
from loom.optimizers import SGD, OptimizerLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TweenConfig", "check_tween"]

_MOST_STEPS = 4096
"""The most steps within one batch, as in the engine: each is a part of the program."""
_MODES = ("chain_rule", "layerwise", "difference", "difference_reconstruction")
_DEPTH_SCALES = ("none", "geometric", "inv_sqrt")
_SCHEDULES = ("steps", "alternate")


@dataclass(frozen=True)
class TweenConfig(Plain):
    """The settings of `loom.TweenTrainer` and `loom.TweenState`.

    Every layer gets a target for its output, and learns toward it by itself; the last layer
    learns from the loss. With a_i the output of layer i and g_i the gradient of the loss with
    respect to it, targets come by `mode`:

    - "chain_rule": a_i less `gradient_scale` times g_i of the batch's summed losses. With one
      local step this is backpropagation with momentum, written another way.
    - "layerwise": means of the target above, weighted by the layer's weights; no derivatives.
      It does not scale with depth.
    - "difference": difference target propagation (Lee et al. 2015), with learned inverses.
    - "difference_reconstruction": the same with feedback maps that learn the transposed
      Jacobian (Ernoult et al. 2022).

    Args:
        mode: Where targets come from.
        local_steps: Steps that each layer takes toward its target for each batch (LocoProp,
            Amid et al. 2022).
        base_rate: The learning rate; one that `TrainingConfig` gives replaces it.
        momentum: How much of the velocity stays: v = momentum v - rate delta; w += v. From 0
            to below 1. An `optimizer` replaces it.
        gradient_scale: See `Observe`.
        gap_metric: See `Observe`.
        link_budget: "gain" or "alignment", see `Observe`. Budgets by alignment gate updates: a
            layer below 0.2 is not updated, and above it the rate is multiplied by
            0.5 + 0.5 budget.
        link_budget_scale: See `Observe`.
        depth_scale: How the rate changes with depth, layer i of N: "inv_sqrt" (1 / sqrt(N - i)),
            "geometric" (1.1 ** i), a number f above zero (f ** i), or "none".
        activation_clamp: Layerwise targets stay within plus or minus this, where no activation
            bounds them; above zero.
        detect_explosions: See `Observe`.
        gap_threshold: See `Observe`.
        explosion_limit: See `Observe`.
        recovery_rate: See `Observe`.
        optimizer: An optimizer, or its name, for each layer's local gradient, instead of momentum.
        target_rate: How far the target below the last layer is from its output, in units of the
            loss's gradient, in the difference modes; above zero.
        feedback_optimizer: What moves feedback maps.
        feedback_rate: Their learning rate.
        feedback_noise: The standard deviation of the noise that they learn from.
        feedback_steps: Their steps for each batch.
        feedback_schedule: "steps" teaches feedback maps with every batch; "alternate" teaches them
            alone in even epochs (0, 2, ...), and the layers alone in odd ones.
        history: See `Observe`.
        history_limit: See `Observe`.
        depth: See `Observe`.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> config = loom.TweenConfig.tween(local_steps=4, base_rate=0.05)
        >>> loom.TweenConfig.from_config(config.to_config()) == config
        True
        >>> loom.TweenConfig.target_prop().link_budget
        'alignment'
    """

    mode: Literal["chain_rule", "layerwise", "difference", "difference_reconstruction"] = "chain_rule"
    _: KW_ONLY
    local_steps: int = 1
    base_rate: float = 0.01
    momentum: float = 0.9
    gradient_scale: float = 0.1
    gap_metric: Literal["rms", "mse"] = "rms"
    link_budget: Literal["gain", "alignment"] = "gain"
    link_budget_scale: float = 1.0
    depth_scale: Literal["none", "geometric", "inv_sqrt"] | float = "inv_sqrt"
    activation_clamp: float = 10.0
    detect_explosions: bool = True
    gap_threshold: float = 0.1
    explosion_limit: float = 10.0
    recovery_rate: float = 0.5
    optimizer: OptimizerLike | None = None
    target_rate: float = 0.3
    feedback_optimizer: OptimizerLike = field(default_factory=SGD)
    feedback_rate: float = 0.01
    feedback_noise: float = 0.1
    feedback_steps: int = 1
    feedback_schedule: Literal["steps", "alternate"] = "steps"
    history: int | None = None
    history_limit: int = 10_000
    depth: int = 1

    def __post_init__(self) -> None:
        where = "TweenConfig"
        settings: dict[str, object] = {
            **check_measuring(where, self),
            "mode": choice(where, "mode", self.mode, _MODES),
            "local_steps": whole(where, "local_steps", self.local_steps, least=1, most=_MOST_STEPS),
            "base_rate": real(where, "base_rate", self.base_rate, least=0.0),
            "momentum": real(where, "momentum", self.momentum, least=0.0, below=1.0),
            "depth_scale": choice_or_real(where, "depth_scale", self.depth_scale, _DEPTH_SCALES, above=0.0),
            "activation_clamp": real(where, "activation_clamp", self.activation_clamp, above=0.0),
            "optimizer": None if self.optimizer is None else optimizers.resolve(self.optimizer),
            "target_rate": real(where, "target_rate", self.target_rate, above=0.0),
            "feedback_optimizer": optimizers.resolve(self.feedback_optimizer),
            "feedback_rate": real(where, "feedback_rate", self.feedback_rate, least=0.0),
            "feedback_noise": real(where, "feedback_noise", self.feedback_noise, least=0.0),
            "feedback_steps": whole(where, "feedback_steps", self.feedback_steps, least=1, most=_MOST_STEPS),
            "feedback_schedule": choice(where, "feedback_schedule", self.feedback_schedule, _SCHEDULES),
        }
        if settings["mode"] == "difference_reconstruction" and settings["feedback_noise"] == 0.0:
            raise ConfigError(
                f"{where}: feedback_noise must be above 0 in difference_reconstruction, "
                "whose feedback maps learn from nothing else"
            )
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    @classmethod
    def tween(cls, **overrides: Any) -> Self:  # noqa: ANN401 - the settings' own types
        """Returns the settings of neural tweening: budgets by gain, rates by 1 / sqrt(N - i).

        Args:
            **overrides: Settings that are to be others.

        Raises:
            ConfigError: A setting is out of range or a name unknown.
        """
        return cls.from_config(overrides)

    @classmethod
    def target_prop(cls, **overrides: Any) -> Self:  # noqa: ANN401 - the settings' own types
        """Returns the settings of target propagation: budgets by alignment, rates by 1.1 ** i.

        Args:
            **overrides: Settings that are to be others.

        Raises:
            ConfigError: A setting is out of range or a name unknown.
        """
        return cls.from_config({"link_budget": "alignment", "depth_scale": "geometric", **overrides})

    def engine_settings(self) -> dict[str, JSON]:
        """Returns the settings as the engine takes them, the base rate aside."""
        own = "mode local_steps momentum optimizer depth_scale target_rate activation_clamp"
        return {
            **{name: encode(getattr(self, name)) for name in own.split()},
            "feedback": {
                "optimizer": encode(self.feedback_optimizer),
                "rate": self.feedback_rate,
                "noise": self.feedback_noise,
                "steps": self.feedback_steps,
                "alternate": self.feedback_schedule == "alternate",
            },
            "watch": watch_settings(self),
        }


def check_tween(config: TweenConfig | None) -> TweenConfig:
    """Returns how a network learns by targets, the defaults where None; a ConfigError for anything else."""
    if config is None:
        return TweenConfig()
    if not isinstance(config, TweenConfig):
        raise ConfigError(f"config must be a loom.TweenConfig, got {shown(config)}")
    return config
