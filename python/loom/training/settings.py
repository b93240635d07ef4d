"""The settings of a training run as the engine takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from loom import losses, metrics
from loom._settings.encoding import encode
from loom._typing import JSON
from loom.errors import ConfigError
from loom.measuring import Observe
from loom.measuring.settings import watch_settings
from loom.training.config import TrainingConfig

__all__ = ["TargetRule", "base_rate", "engine_config", "refuse_of_steps", "with_own_losses"]

# What says how the steps of a training are put together of batches, or cut and exchanged.
_OF_STEPS = ("accumulate", "shards", "split_moments", "split_gradients", "exchange")


class TargetRule(Protocol):
    """What training asks of a way to learn by targets; a `loom.TweenConfig` is one."""

    @property
    def base_rate(self) -> float:
        """The learning rate, where `TrainingConfig` gives none."""
        ...

    def engine_settings(self) -> dict[str, JSON]:
        """Returns the settings as the engine takes them, the base rate aside."""
        ...


def engine_config(
    config: TrainingConfig,
    output_shape: tuple[int, ...],
    *,
    observe: Observe | None = None,
    tween: TargetRule | None = None,
) -> str:
    """Returns the settings that the engine follows, as JSON.

    Splitting, validating and stopping early are done here in Python, and so are
    metrics that the engine does not know. Without `tween` it learns by backpropagation.

    Raises:
        ConfigError: Layers are to be measured, or to learn by targets, and the loss knows none.
    """
    by_output = config.loss if isinstance(config.loss, Mapping) else None
    if by_output is not None:
        # Metrics by output are functions, which the engine does not know.
        loss_weights, smoothing = config.loss_weights or {}, config.label_smoothing
        of_classes = cast("Mapping[str, Any]", config.class_weight or {})
        config = replace(config, loss="mse", loss_weights=None, label_smoothing=0.0, class_weight=None)
    own = None
    if not isinstance(config.loss, Mapping):
        loss, own = _of_engine(config.loss)
        if own is not None and (tween is not None or observe is not None):
            raise _without_targets(losses.name_of(config.loss), tweens=tween is not None)
        config = replace(config, loss=loss)
    known = [
        metric for metric in cast("Sequence[metrics.MetricLike]", config.metrics) if metrics.in_engine(metric)
    ]
    encoded = replace(config, metrics=known, class_weight=None, early_stopping=None).to_config()
    elsewhere = {
        "device",
        "verbose",
        "early_stopping",
        "validation_frequency",
        "ignore_findings",
        "on_interrupt",
        "shards",
        "split_moments",
        "split_gradients",
        "exchange",
    }
    settings = {name: value for name, value in encoded.items() if name not in elsewhere}
    of_one = cast("losses.ClassWeight | None", config.class_weight)
    weights = losses.expand_class_weight(of_one, losses.class_count(output_shape))
    engine: dict[str, object] = {
        **settings,
        "learning_rate": base_rate(config, tween),
        "validation_split": 0.0,
        "class_weight": weights,
    }
    if config.regularizers is not None:
        engine["regularizers"] = [{"on": on, **penalty} for on, penalty in config.regularizers.items()]
    if by_output is not None:
        engine["outputs"] = [
            {
                "loss": encode(loss),
                **({} if mine is None else {"own_loss": mine}),
                "weight": loss_weights.get(name, 1.0),
                "class_weight": of_classes.get(name),
            }
            for name, (loss, mine) in ((name, _of_engine(given)) for name, given in by_output.items())
        ]
        engine["label_smoothing"] = smoothing
    if own is not None:
        engine["own_loss"] = own
    if observe is not None:
        engine["watch"] = watch_settings(observe)
    if tween is not None:
        engine["tween"] = tween.engine_settings()
    return json.dumps(engine)


def _without_targets(loss: str, *, tweens: bool) -> ConfigError:
    """Returns what is told where a loss does not say what each output should have been."""
    what, instead = (
        ("learning by targets", "learn by backpropagation, loom.train")
        if tweens
        else ("observe=", "train without it")
    )
    return ConfigError(
        f'{what} wants a loss that compares each output with a target of its own, such as "mse", "huber" or '
        f'"cross_entropy", and "{loss}" is not one of those: take one of them, or {instead}'
    )


def _of_engine(loss: Any) -> tuple[Any, dict[str, object] | None]:  # noqa: ANN401 - as a config has it
    """Returns the loss that says what targets are like, and what is minimised in its place."""
    own: dict[str, object]
    if isinstance(loss, losses.Cosine):
        own = {"called": [losses.name_of(loss), loss.expression]}
    elif isinstance(loss, losses.Expr):
        own = {"expression": loss.expression}
    elif isinstance(loss, losses.OwnLoss):
        own = {"labelled" if loss.labelled else "provided": loss.number}
    else:
        return loss, None
    if losses.is_classification(loss):
        return "nll", own
    # What metrics read outputs by, too: logits on both sides of zero.
    return "binary_cross_entropy" if losses.decides_at_zero(loss) else "mse", own


def base_rate(config: TrainingConfig, tween: TargetRule | None) -> float:
    """Returns the learning rate before the schedule; one that the config gives counts first."""
    return config.rate if tween is None or config.learning_rate is not None else tween.base_rate


def with_own_losses(config: TrainingConfig) -> TrainingConfig:
    """Returns the settings of one run, with losses of the user's own that no other run shares.

    Args:
        config: The settings, which several runs may have in common.
    """
    given: Any = config.loss

    def apart(loss: Any) -> Any:  # noqa: ANN401 - as a config has it
        return loss.apart() if isinstance(loss, losses.OwnLoss) else loss

    if isinstance(given, Mapping):
        return replace(config, loss={name: apart(loss) for name, loss in given.items()})
    return replace(config, loss=apart(given)) if isinstance(given, losses.OwnLoss) else config


def refuse_of_steps(where: str, config: TrainingConfig, why: str) -> None:
    """Refuses settings of how `loom.train` makes steps of batches, where these would go unheard.

    Args:
        where: Who refuses.
        config: The settings.
        why: What is told, and what is to be done.

    Raises:
        ConfigError: There are such settings.
    """
    plain = TrainingConfig()
    if refused := [name for name in _OF_STEPS if getattr(config, name) != getattr(plain, name)]:
        raise ConfigError(f"{where} does not take {' and '.join(refused)}: {why}")
