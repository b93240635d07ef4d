"""Training as `Network.fit`: with a config as `loom.train` has it, or with samples, targets and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from loom._settings.calls import explained
from loom._settings.suggestions import shown, unknown
from loom.errors import ConfigError

if TYPE_CHECKING:
    # A network that only predicts loads nothing of training.
    from typing_extensions import TypedDict, Unpack

    from loom._typing import ArrayLike
    from loom.callbacks import Callback, EarlyStopping
    from loom.data import Data
    from loom.losses import ClassWeight, LossLike
    from loom.measuring import Observe
    from loom.metrics import MetricLike
    from loom.optimizers import OptimizerLike
    from loom.schedules import ScheduleLike
    from loom.training.config import TrainingConfig
    from loom.training.result import TrainingResult
    from loom.training.run_folder import RunFolder
    from loom.training.trainable import TrainableNetwork

    class Settings(TypedDict, total=False):
        """The settings of `loom.TrainingConfig`, by name."""

        epochs: int
        batch_size: int
        learning_rate: float | None
        optimizer: OptimizerLike
        schedule: ScheduleLike
        loss: LossLike | Literal["auto"] | Mapping[str, Any]
        loss_weights: Mapping[str, float] | None
        gradient_clip: float | None
        clip_value: float | None
        regularizers: Mapping[str, Mapping[str, float]] | None
        gradient_noise: float
        device: str
        seed: int
        shuffle: bool
        verbose: bool | Literal["auto", 0, 1, 2]
        track_perf: bool
        on_nonfinite: Literal["raise", "skip"]
        on_interrupt: Literal["stop", "raise"]
        validation_split: float
        validation_batch_size: int | None
        validation_frequency: int
        class_weight: (
            ClassWeight | Mapping[str, Mapping[int, float] | Mapping[str, float] | Sequence[float]] | None
        )
        label_smoothing: float
        metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]]
        saved_activations: Literal["float16", "bfloat16"] | None
        accumulate: int
        depth_scale: Literal["none", "geometric", "inv_sqrt"] | float
        early_stopping: EarlyStopping | Mapping[str, Any] | None
        ignore_findings: str | Sequence[str]
        shards: int | None
        split_moments: bool | Literal["always"]
        split_gradients: bool
        exchange: Literal["float32", "float16", "int8"]


__all__ = ["fit"]

_OWN = (
    "callbacks",
    "config",
    "data",
    "observe",
    "rate_scale",
    "receipt",
    "resume",
    "run",
    "sample_weight",
    "validation",
    "validation_data",
    "x",
    "y",
)
"""What `fit` takes beside settings of training."""


@overload
def fit(
    self: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    validation: Data | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    observe: bool | Observe = False,
    rate_scale: Mapping[str, float] | None = None,
    run: RunFolder | str | PathLike[str] | None = None,
    receipt: bool | str = False,
    *,
    validation_data: Data | None = None,
    **settings: Unpack[Settings],
) -> TrainingResult: ...
@overload
def fit(
    self: TrainableNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    y: ArrayLike | Mapping[str, ArrayLike],
    *,
    sample_weight: ArrayLike | Mapping[str, ArrayLike] | None = None,
    validation_data: Data | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    observe: bool | Observe = False,
    rate_scale: Mapping[str, float] | None = None,
    run: RunFolder | str | PathLike[str] | None = None,
    receipt: bool | str = False,
    **settings: Unpack[Settings],
) -> TrainingResult: ...
@explained(  # type: ignore[misc]
    config="net.fit((x, y), config) takes one, net.fit(x, y, epochs=3) its settings by name"
)
def fit(
    self: TrainableNetwork,
    data: Data | ArrayLike | None = None,
    config: TrainingConfig | ArrayLike | None = None,
    validation: Data | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    observe: bool | Observe = False,
    rate_scale: Mapping[str, float] | None = None,
    run: RunFolder | str | PathLike[str] | None = None,
    receipt: bool | str = False,
    *,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | Mapping[str, ArrayLike] | None = None,
    validation_data: Data | None = None,
    **settings: Any,
) -> TrainingResult:
    """Trains the network, as `loom.train` does.

    It is called with samples and targets, `fit(x, y, epochs=3, validation_split=0.1)`, or as `loom.train`
    is, `fit(data, config)`. Either way settings of `loom.TrainingConfig` may be given by name.

    Args:
        data: The samples x, with the targets after them; or data as in `loom.train`.
        config: The targets y; or how the training goes, the defaults where None.
        validation: Data that is measured but not learned from.
        callbacks: What else runs.
        resume: Goes on where the network's last training stopped.
        observe: True, or a `loom.Observe`, measures every layer at every step.
        rate_scale: What the learning rate is multiplied by in some layers.
        run: A folder, or a `loom.RunFolder`, that keeps the run.
        receipt: Whether the result is to have a receipt.
        x: The samples, by name.
        y: The targets, by name.
        sample_weight: (rows,) how much each sample counts, or (rows, ...) how much each step or pixel of its
            output does; of named outputs a dictionary, where it differs.
        validation_data: The same as `validation`.
        **settings: Settings of `loom.TrainingConfig`: epochs, batch_size, learning_rate, optimizer, loss,
            metrics, validation_split, ... Where a config is given, they stand instead of its own.

    Returns:
        The course of the run.

    Raises:
        ConfigError: A setting is unknown, out of range or given twice; and whatever `loom.train` raises.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=2)
        >>> x, y = np.eye(2).repeat(8, axis=0), np.repeat([0, 1], 8)
        >>> result = net.fit(x, y, epochs=3, batch_size=4, metrics=["accuracy"], verbose=False)
        >>> sorted(result.metrics)
        ['accuracy']
        >>> net.evaluate((x, y))["loss"] < 2.0
        True
    """
    from loom.training.backpropagation import train
    from loom.training.config import TrainingConfig, check_training

    if x is not None:
        if data is not None and y is None and config is None:
            raise ConfigError("fit: samples are given twice; write fit(x, y, ...)")
        data, config = x, config if y is None else y
    elif y is not None:
        if config is not None:
            raise ConfigError("fit: targets are given twice; write fit(x, y, ...)")
        config = y
    third: object = validation
    if isinstance(third, (int, float, TrainingConfig)):
        raise ConfigError(
            f"fit(x, y) takes settings by name, got {shown(validation)} after x and y: "
            "fit(x, y, epochs=3, batch_size=32), or fit((x, y), config)"
        )
    if data is None:
        raise ConfigError("fit needs samples and targets: fit(x, y, epochs=3)")
    if config is not None and not isinstance(config, TrainingConfig) and _is_array(config):
        data, config = (data, config, sample_weight), None
    elif sample_weight is not None:
        raise ConfigError("fit: sample_weight goes with fit(x, y, ...); otherwise data is (x, y, weight)")
    if validation_data is not None:
        if validation is not None:
            raise ConfigError("fit: validation and validation_data are the same; give one of them")
        validation = validation_data
    base = check_training(cast("TrainingConfig | None", config))
    known = {each.name for each in fields(TrainingConfig)}
    for name in settings:
        if name not in known:
            raise unknown("fit argument", name, known.union(_OWN))
    if settings:
        base = TrainingConfig.from_config({**vars(base), **settings})
    given = cast("Data", data)
    return train(self, given, base, validation, callbacks, resume, observe, rate_scale, run, receipt)


def _is_array(value: object) -> bool:
    """Whether something is an array, numbers in a list, or arrays by name."""
    if isinstance(value, Mapping):
        named = all(isinstance(name, str) for name in value)
    else:
        named = isinstance(value, (list, tuple, range))
    if named:
        return True
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return True
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return False
    raise ConfigError(f"fit(x, y): y must be an array of targets, got {shown(value)}")
